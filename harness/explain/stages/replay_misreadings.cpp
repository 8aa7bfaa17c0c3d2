// SPDX-License-Identifier: Apache-2.0
// See replay_misreadings() in step_causes.hpp. Nothing is said of a stage's kind: every operand that a replay
// changed may have been kept.
#include <fmt/format.h>

#include <algorithm>

#include "harness/explain/stages/step_causes.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr const char* kValues = "captured_values";

}  // namespace

const char* kept_cause(Operand o) {
  switch (o) {
    case Operand::kKvLen:
    case Operand::kContextLen:
    case Operand::kEncoderLen:
    case Operand::kLastPageLen:
      return "captured_lengths";
    case Operand::kCuQ:
    case Operand::kCuKv:
    case Operand::kIndptr:
    case Operand::kSeqStarts:
    case Operand::kFirstKey:
    case Operand::kPositions:
      return "captured_starts";
    case Operand::kBlockTable:
    case Operand::kIndices:
    case Operand::kSlotMap:
      return "captured_table";
    case Operand::kSlotMapping:
      return "captured_slots";
    case Operand::kTreeMask:
    case Operand::kTreeIndptr:
      return "captured_tree";
    default:
      return kValues;
  }
}

namespace {

bool is_read(const StageRun& run, int operand) {
  const OperandUse* use = find_operand(op_of(run.kernel->op), static_cast<Operand>(operand));
  return use != nullptr && use->role == Role::kIn && !run.before[operand].copy.empty();
}

bool differs(const Bytes& then, const Bytes& now) {
  return then.copy.size() == now.copy.size() && then.copy != now.copy;
}

}  // namespace

std::vector<Misreading> replay_misreadings(const StageCase& c) {
  std::vector<Misreading> list;
  const StageRun& run = c.run();
  if (!run.replayed) return list;
  const auto kept = [&](const char* cause, const std::string& how, const Bytes(&of)[kOperandCount],
                        const std::vector<int>& operands) {
    if (operands.empty()) return;
    list.push_back({cause, how, [&of, operands](Reading& r) {
                      for (const int i : operands) r.put_bytes(static_cast<Operand>(i), of[i]);
                      return true;
                    }});
  };
  // Lists before values: what values hold beyond the batch is anything, and explains much.
  const auto all = [&](const Bytes(&then)[kOperandCount], const char* cause, const char* when, bool values) {
    std::vector<int> changed, lists;
    for (int i = 0; i < kOperandCount; ++i)
      if (is_read(run, i) && differs(then[i], run.before[i])) changed.push_back(i);
    for (const int i : changed)
      if (kept_cause(static_cast<Operand>(i)) != kValues) lists.push_back(i);
    const auto name = [&](int i) { return cause != nullptr ? cause : kept_cause(static_cast<Operand>(i)); };
    for (const int i : changed)
      if ((kept_cause(static_cast<Operand>(i)) == kValues) == values)
        kept(name(i), fmt::format("{} {}", operand_name(static_cast<Operand>(i)), when), then, {i});
    if (values) {
      if (changed.size() > lists.size() && changed.size() > 1)
        kept(cause != nullptr ? cause : kValues, fmt::format("everything {}", when), then, changed);
      return;
    }
    for (size_t a = 0; a < lists.size(); ++a)
      for (size_t b = a + 1; b < lists.size(); ++b)
        kept(name(lists[a]),
             fmt::format("{} and {} {}", operand_name(static_cast<Operand>(lists[a])),
                         operand_name(static_cast<Operand>(lists[b])), when),
             then, {lists[a], lists[b]});
    if (lists.size() > 2) kept(name(lists[0]), fmt::format("all lists {}", when), then, lists);
  };
  all(run.captured, nullptr, "of the capture", false);
  all(run.previous, kReplayBefore, "of the replay before", false);
  // What the host knew.
  const auto host = [&](Operand o, const char* cause, const char* how, auto value) {
    const assay_tensor& t = tensor_of(c.given().tensors, o);
    if (!is_read(run, static_cast<int>(o)) || t.rank != 1 || t.format != ASSAY_INT32) return;
    list.push_back({cause, how, [=](Reading& r) {
                      const std::vector<int32_t> old = r.ints(o);
                      std::vector<int32_t> now;
                      for (size_t i = 0; i < old.size(); ++i) now.push_back(value(old[i], i));
                      if (now == old) return false;
                      r.put(o, now);
                      return true;
                    }});
  };
  const auto sums = [](const std::vector<int32_t>& lengths) {
    std::vector<int32_t> starts = {0};
    for (const int32_t n : lengths) starts.push_back(starts.back() + n);
    return starts;
  };
  const auto at = [](const std::vector<int32_t>& known, size_t i) {
    return known.empty() ? 0 : known[std::min(i, known.size() - 1)];
  };
  const std::vector<int32_t> kv = run.kv_len, q = sums(run.q_len), starts = sums(run.kv_len);
  const int32_t most = run.problem.max_kv_len;
  host(Operand::kKvLen, "captured_lengths", "the host's lengths of the capture",
       [=](int32_t, size_t i) { return at(kv, i); });
  host(Operand::kCuQ, "captured_starts", "the host's rows of the capture",
       [=](int32_t, size_t i) { return at(q, i); });
  host(Operand::kCuKv, "captured_lengths", "the host's lengths of the capture",
       [=](int32_t, size_t i) { return at(starts, i); });
  host(Operand::kKvLen, "captured_extent", "no more keys of a request than the host had at capture",
       [=](int32_t n, size_t i) { return std::min(n, at(kv, i)); });
  host(Operand::kKvLen, "captured_extent", "no more keys than the longest had at capture",
       [=](int32_t n, size_t) { return std::min(n, most); });
  all(run.captured, nullptr, "of the capture", true);
  all(run.previous, kReplayBefore, "of the replay before", true);
  return list;
}

}  // namespace assay
