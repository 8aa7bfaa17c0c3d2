// SPDX-License-Identifier: Apache-2.0
// See merge_bounds.hpp. The value is that of merge.hpp (a test compares them); the bound follows BOUNDS.md.
#include "reference/bounds/merge_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/base/error.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kU = 0x1p-24;                // unit roundoff of fp32
constexpr double kSmallestNormal = 0x1p-126;  // weights below may be flushed to zero
constexpr double kLogError = 0x1p-21;         // of the logarithm of the sum, as for attention

}  // namespace

void merge_row(std::span<const double* const> o, std::span<const double> lse, int64_t dim, double sink,
               double exp_relative_error, MergedRow& out) {
  ASSAY_CHECK(sink < kInf, "a sink of {} cannot be merged", sink);
  double top = sink;
  int64_t counted = sink > -kInf ? 1 : 0;
  for (const double x : lse) {
    ASSAY_CHECK(x < kInf, "LSE {} cannot be merged, accepted are finite values and -inf", x);
    top = std::max(top, x);
    counted += x > -kInf ? 1 : 0;
  }
  out.o.assign(dim, 0.0);
  out.o_bound.assign(dim, 0.0);
  out.lse = -kInf;
  out.lse_bound = out.gate = 0;
  if (counted == 0) return;

  const double n = static_cast<double>(counted);
  double sum = sink > -kInf ? std::exp(sink - top) : 0;
  for (const double x : lse)
    if (x > -kInf) sum += std::exp(x - top);
  // Relative error of a weight: up to n exponentials and products on its way, arguments rounded three times.
  const auto weight_error = [&](double x) {
    return n * (exp_relative_error + kU) + 3 * kU * (std::fabs(x) + std::fabs(top));
  };
  double worst = sink > -kInf ? weight_error(sink) : 0,
         sum_error = sink > -kInf ? std::exp(sink - top) / sum * worst : 0;
  std::vector<double> magnitude(dim, 0.0), spread(dim, 0.0), largest(dim, 0.0);
  for (size_t s = 0; s < lse.size(); ++s) {
    if (lse[s] == -kInf) continue;
    const double share = std::exp(lse[s] - top) / sum, error = weight_error(lse[s]);
    worst = std::max(worst, error);
    sum_error += share * error;
    for (int64_t d = 0; d < dim; ++d) {
      ASSAY_CHECK(std::isfinite(o[s][d]), "O of state {} is {} although its LSE is {}", s, o[s][d], lse[s]);
      out.o[d] += share * o[s][d];
      magnitude[d] += share * std::fabs(o[s][d]);
      largest[d] = std::max(largest[d], std::fabs(o[s][d]));
    }
  }
  for (size_t s = 0; s < lse.size(); ++s) {
    if (lse[s] == -kInf) continue;
    const double part = std::exp(lse[s] - top) / sum * weight_error(lse[s]);
    for (int64_t d = 0; d < dim; ++d) spread[d] += part * std::fabs(o[s][d] - out.o[d]);
  }
  if (sink > -kInf)
    for (int64_t d = 0; d < dim; ++d)
      spread[d] += std::exp(sink - top) / sum * weight_error(sink) * std::fabs(out.o[d]);

  const double room = std::max(1 - worst, 1e-3);  // 1e-3: errors near 1 promise nothing anyway
  const double steps = (3 * n + 3) * kU / (1 - (3 * n + 3) * kU);
  double squares = 0, widest = 0;
  for (int64_t d = 0; d < dim; ++d) {
    // A row of nothing but the sink, or of zeros, is 0 whatever the weights are.
    if (largest[d] == 0) continue;
    const double relative = spread[d] / room + steps * (magnitude[d] + std::fabs(out.o[d])) / room;
    out.o_bound[d] = relative + n * kSmallestNormal * largest[d];
    squares += out.o[d] * out.o[d];
    widest = std::max(widest, relative);
  }
  out.lse = top + std::log(sum);
  out.lse_bound =
      (sum_error + 2 * n * kU) / room + kLogError + 4 * kU * (std::fabs(out.lse) + std::fabs(top));
  if (squares > 0) out.gate = widest / std::sqrt(squares / static_cast<double>(dim));
}

}  // namespace assay
