// SPDX-License-Identifier: Apache-2.0
// See case_needs.hpp.
#include "harness/run/case_needs.hpp"

#include <algorithm>

#include "harness/base/error.hpp"
#include "harness/input/poison.hpp"

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

}  // namespace assay
