// SPDX-License-Identifier: Apache-2.0
// The figures of a building block's outputs as a verdict, and the threads they are counted on. In order:
// finite, values, marks, bytes nobody may touch.
#include <exception>
#include <memory>

#include "harness/check/block_checks.hpp"
#include "harness/check/reasons.hpp"

namespace assay {
namespace {

std::string wrong_elements(const char* what, const ErrorStats& s) {
  return fmt::format(
      "{} wrong in {} of {} elements, worst {}: got {:.9g} expected {:.9g}, accepted {:.9g} .. "
      "{:.9g} (ratio {:.3g})",
      what, s.bad, s.checked, place_of(s), s.got, s.expected, s.low, s.high, s.max_ratio);
}

}  // namespace

void in_slices(BlockOutputs& out, int64_t count, const std::function<void(BlockOutputs&, int64_t)>& check) {
  std::vector<std::unique_ptr<BlockOutputs>> slices(count);
  std::exception_ptr thrown;
#pragma omp parallel for schedule(dynamic)
  for (int64_t n = 0; n < count; ++n) {
    try {
      slices[n] = std::make_unique<BlockOutputs>(out, BlockOutputs::Slice{});
      check(*slices[n], n);
    } catch (...) {  // may not leave the parallel region
#pragma omp critical(assay_block_slices)
      thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
  for (const auto& slice : slices) out.add(*slice);
}

BlockFinding finding_of(const BlockOutputs& out, int32_t op) {
  BlockFinding found;
  const auto settle = [&](std::string check, std::string reason) {
    found.check = std::move(check);
    found.reason = std::move(reason);
    return found;
  };
  const char* mark = mark_name(op);
  const ErrorStats& worse = out.values.bad > 0 ? out.values : out.marks;
  const char* what = out.values.bad > 0 ? "value" : mark;
  // A wrong byte equals what was there before once in 256 times; more is no accident.
  const auto held = [&](int64_t count, const ErrorStats& stats, const char* of) {
    if (count == 0 || count * 16 < stats.bad || !found.held.empty()) return;
    found.held = fmt::format("{} of {} {}s still hold what was there before every run; {}", count,
                             stats.checked, of, wrong_elements(of, stats));
  };
  held(out.unwritten_marks, out.marks, mark);
  held(out.unwritten_values, out.values, "value");
  if (out.not_finite > 0)
    return settle("finite", fmt::format("{} elements are NaN or infinite; {}", out.not_finite,
                                        wrong_elements(what, worse)));
  // A scale first: it explains wrong codes.
  const bool explains = op != ASSAY_OP_MERGE_STATES && op != ASSAY_OP_DECODE_SPLITKV;
  if (out.marks.bad > 0 && explains) return settle("scale", wrong_elements(mark, out.marks));
  if (out.values.bad + out.marks.bad > 0)
    return settle(deciding_check(out.values, out.marks), wrong_elements(what, worse));
  if (std::string touched = out.touched(); !touched.empty()) return settle("untouched", std::move(touched));
  return found;
}

}  // namespace assay
