// SPDX-License-Identifier: Apache-2.0
// See packed_rows.hpp. Everything is drawn by counter, so no function depends on which was called before.
#include "harness/ops/packed_rows.hpp"

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {

std::vector<PackedRow> packed_rows(const Problem& p) {
  const int64_t rows = p.rows();
  std::vector<PackedRow> list;
  list.reserve(rows);
  if (op_of(p).attends_rows) {
    for (int32_t r = 0; r < static_cast<int32_t>(p.requests.size()); ++r)
      for (int32_t i = 0; i < p.requests[r].q_len; ++i) list.push_back({r, i});
    list.resize(static_cast<size_t>(rows));
    return list;
  }
  // Selection sampling: each position before the last is padding with the share that is still to be placed.
  std::vector<uint8_t> padded(rows, 0);
  int64_t left = p.padded_rows;
  if (left > 0) padded[rows - 1] = 1, --left;
  const CounterRng rng(p.seed, kStreamPadding);
  for (int64_t at = 0; at + 1 < rows && left > 0; ++at)
    if (static_cast<int64_t>(rng.below(at, rows - 1 - at)) < left) padded[at] = 1, --left;

  const auto pad = [&] {
    while (static_cast<int64_t>(list.size()) < rows && padded[list.size()]) list.push_back({});
  };
  for (int32_t r = 0; r < static_cast<int32_t>(p.requests.size()); ++r)
    for (int32_t i = 0; i < p.requests[r].q_len; ++i) {
      pad();
      list.push_back({r, i});
    }
  pad();
  return list;
}

std::vector<PackedRow> new_key_rows(const Problem& p) {
  if (p.mask != ASSAY_MASK_CROSS) return packed_rows(p);
  std::vector<PackedRow> list;
  for (int32_t r = 0; r < static_cast<int32_t>(p.requests.size()); ++r)
    for (int32_t key = 0; key < p.requests[r].kv_len; ++key) list.push_back({r, key});
  list.resize(static_cast<size_t>(p.key_rows()));
  return list;
}

int32_t position_of(const std::vector<int32_t>& starts, PackedRow row) {
  return row.request < 0 ? -1 : starts[row.request] + row.row;
}

std::vector<int64_t> slot_mapping(const Problem& p) {
  const std::vector<int32_t> starts = first_positions(p);
  std::vector<int64_t> slots;
  for (const PackedRow& row : new_key_rows(p)) {
    if (row.request < 0) {
      slots.push_back(-1);
      continue;
    }
    const Slot at = locate(p, row.request, position_of(starts, row));
    slots.push_back(int64_t{at.block} * p.page_size + at.slot);
  }
  return slots;
}

std::vector<int32_t> first_positions(const Problem& p) {
  if (p.mask == ASSAY_MASK_CROSS) return std::vector<int32_t>(p.requests.size(), 0);
  const CounterRng rng(p.seed, kStreamStarts);
  const bool told = find_operand(op_of(p), Operand::kSeqStarts) != nullptr;
  std::vector<int32_t> starts;
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const int32_t most = p.requests[r].context_len();
    ASSAY_CHECK(most >= 0, "request {} has {} rows of {} cached tokens", r, p.requests[r].q_len,
                p.requests[r].kv_len);
    if (!told) {
      starts.push_back(most);
      continue;
    }
    const auto kind = rng.below(2 * r, 3);
    const auto drawn = static_cast<int32_t>(rng.below(2 * r + 1, uint64_t(most) + 1));
    starts.push_back(kind == 0 ? 0 : kind == 1 ? drawn / p.page_size * p.page_size : drawn);
  }
  return starts;
}

}  // namespace assay
