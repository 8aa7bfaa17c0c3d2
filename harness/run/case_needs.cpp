// SPDX-License-Identifier: Apache-2.0
// See case_needs.hpp.
#include "harness/run/case_needs.hpp"

#include <algorithm>

#include "harness/base/error.hpp"
#include "harness/input/poison.hpp"
#include "harness/scenario/extent.hpp"

namespace assay {

double check_allowance_s(const Work& w, const Problem& p, double rows_budget) {
  const double products = std::min(rows_budget, static_cast<double>(w.visible_pairs) * p.heads_q);
  // What a scalar CPU kernel, three poisoned runs and a repetition of it, and the reference may need: 0.5
  // GFLOP/s and 1 GB/s are below any machine this runs on. Whatever is laid out is poisoned, copied and
  // compared some twenty times, used by the kernel or not.
  return 5 * (w.flops / 0.5e9 + w.total_bytes / 1e9) + products / 1e6 + 20 * laid_out_bytes(p) / 1e9;
}

std::string too_large(const Problem& p, bool device_is_host, int64_t available_bytes) {
  const double needed = (device_is_host ? 2 : 1) * laid_out_bytes(p);
  if (available_bytes <= 0 || needed <= static_cast<double>(available_bytes)) return {};
  constexpr double kGiB = 1 << 30;
  return fmt::format(
      "a check of this case takes {:.1f} GiB of the host's memory at least and {:.1f} are available: "
      "nothing was built and no kernel called; make the line smaller",
      needed / kGiB, static_cast<double>(available_bytes) / kGiB);
}

bool wants_to_be_alone(const Scenario& s, double rows_budget, int32_t at_once, int64_t memory_bytes) {
  // Bounds, values and ratios of an element of O, of the two declarations that most cases meet; a case has
  // its operands twice. Half of the memory is for what workers keep of the cases before.
  constexpr double kElementBytes = 2 * 100, kShare = 0.5;
  // Half a minute of a processor for each kernel.
  constexpr double kLongFlops = 2e11;
  const Extent e = extent_of(s.batch);
  const double keys = std::max(1.0, e.total_kv / std::max(1.0, e.requests));
  const double judged = std::min(e.total_q * s.heads_q, rows_budget / keys);
  const double bytes = 2 * case_bytes(s, e) + kElementBytes * judged * s.head_dim_v;
  const double flops = 2 * e.total_q * e.max_kv * s.heads_q * (double{1} * s.head_dim_qk + s.head_dim_v);
  return bytes > kShare * static_cast<double>(memory_bytes) / at_once || flops > kLongFlops;
}

}  // namespace assay
