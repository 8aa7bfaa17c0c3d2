// SPDX-License-Identifier: Apache-2.0
// Whose slots a cache write changed where no new row goes: keys of a context, which were in the cache before.
// Told by the page table, which a whole step has beside its write; without one nothing is said. See
// write_look.hpp.
#include <map>
#include <set>

#include "harness/explain/stages/write_look.hpp"

namespace assay {
namespace {

constexpr double kContextShare = 0.96;  // before "beside", which is as true

int32_t list_entry(const assay_tensor& t, int64_t i, int64_t j = 0) {
  return static_cast<const int32_t*>(t.data)[i * t.stride[0] + (t.rank > 1 ? j * t.stride[1] : 0)];
}

// The slots of every request's keys before its new rows: request and key.
std::map<int64_t, std::pair<int32_t, int32_t>> context_slots(const Reading& r) {
  std::map<int64_t, std::pair<int32_t, int32_t>> slots;
  const assay_tensors& t = r.tensors;
  const int32_t kind = r.problem.table;
  const bool csr = kind == ASSAY_TABLE_CSR, by_token = kind == ASSAY_TABLE_TOKEN;
  if (!r.has(Operand::kKvLen) ||
      (csr ? !r.has(Operand::kIndices) || !r.has(Operand::kIndptr) : !r.has(Operand::kBlockTable)))
    return slots;
  const int64_t page = by_token ? 1 : std::max(1, r.problem.page_size);
  for (int32_t q = 0; q < r.problem.requests; ++q) {
    const int64_t before = r.has(Operand::kEncoderLen) ? list_entry(t.encoder_len, q) : 0;
    const int64_t first = (before + page - 1) / page * page;
    for (int32_t key = 0; key < list_entry(t.kv_len, q) - r.rows_of(q); ++key) {
      const int64_t at = (first + key) / page;
      const int64_t entry =
          csr ? list_entry(t.indices, list_entry(t.indptr, q) + at) : list_entry(t.block_table, q, at);
      if (entry < 0) continue;
      int64_t slot = entry * page + (first + key) % page;
      if (r.has(Operand::kSlotMap)) slot = list_entry(t.slot_map, slot);
      slots[slot] = {q, key};
    }
  }
  return slots;
}

}  // namespace

ChangedBeside changed_beside(const WriteLook& w) {
  const std::map<int64_t, std::pair<int32_t, int32_t>> context = context_slots(w.reading());
  std::set<int64_t> due;
  for (int64_t n = 0; n < w.rows(); ++n) due.insert(w.slot(n));
  ChangedBeside changed;
  for (const bool v : w.sides())
    for (int64_t slot = 0; slot < w.slots(); ++slot) {
      if (due.contains(slot) || !w.changes(v, slot)) continue;
      changed.slots.insert(slot), changed.sides.insert(v);
      if (const auto key = context.find(slot); key != context.end()) changed.of_context.insert(*key);
    }
  return changed;
}

std::vector<StepRanked> write_beside(const WriteLook& w) {
  const ChangedBeside changed = changed_beside(w);
  if (changed.slots.empty() || changed.of_context.size() != changed.slots.size()) return {};
  const auto [request, key] = changed.of_context.begin()->second;
  std::string how =
      fmt::format("{}key {} of request {}", write_sides(changed.sides, w.sides().size() == 1), key, request);
  if (changed.slots.size() > 1) how += fmt::format(" and {} more", changed.slots.size() - 1);
  StepRanked r{"context_overwritten", how, kContextShare, 0, ""};
  r.whole = true;
  return {std::move(r)};
}

}  // namespace assay
