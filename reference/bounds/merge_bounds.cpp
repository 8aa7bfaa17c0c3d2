// SPDX-License-Identifier: Apache-2.0
// See merge_bounds.hpp. The value is that of merge.hpp (a test compares them); the bound follows BOUNDS.md.
#include "reference/bounds/merge_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/base/error.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kU = 0x1p-24;                // unit roundoff of fp32
constexpr double kSmallestNormal = 0x1p-126;  // weights below may be flushed to zero
constexpr double kLogError = 0x1p-21;         // of the logarithm of the sum, as for attention
constexpr double kLeastRoom = 1e-3;           // errors near 1 promise nothing anyway

// What the LSE that weights are relative to may be off by, `made` as it was computed.
double stored_error(int32_t format, double lse, double made) {
  if (format == ASSAY_FP32) return made;
  const FormatInfo& f = format_info(format);
  return made + f.unit_roundoff * (std::fabs(lse) + made) + f.half_subnormal;
}

// Of weights exp(lse_s - LSE), each for itself: sum p |o| times what they err by, by dimension.
std::vector<double> by_magnitude(std::span<const double* const> o, std::span<const double> lse, double whole,
                                 double exp_error, int64_t dim) {
  std::vector<double> all(static_cast<size_t>(dim), 0.0);
  for (size_t s = 0; s < lse.size(); ++s) {
    if (lse[s] == -kInf) continue;
    const double error = exp_error + kU + 3 * kU * (std::fabs(lse[s]) + std::fabs(whole));
    const double part = std::exp(lse[s] - whole) * error / std::max(1 - error, kLeastRoom);
    for (int64_t d = 0; d < dim; ++d) all[static_cast<size_t>(d)] += part * std::fabs(o[s][d]);
  }
  return all;
}

}  // namespace

void merge_row(std::span<const double* const> o, std::span<const double> lse, int64_t dim, double sink,
               const assay_arithmetic& a, MergedRow& out) {
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
    return n * (a.exp_relative_error + kU) + 3 * kU * (std::fabs(x) + std::fabs(top));
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

  const double room = std::max(1 - worst, kLeastRoom);  // 1e-3: errors near 1 promise nothing anyway
  const double steps = (3 * n + 3) * kU / (1 - (3 * n + 3) * kU);
  out.lse = top + std::log(sum);
  out.lse_bound =
      (sum_error + 2 * n * kU) / room + kLogError + 4 * kU * (std::fabs(out.lse) + std::fabs(top));
  const bool by_lse = a.merge_lse_format != ASSAY_FORMAT_NONE;
  if (by_lse) spread = by_magnitude(o, lse, out.lse, a.exp_relative_error, dim);
  const double psi = by_lse ? std::expm1(stored_error(a.merge_lse_format, out.lse, out.lse_bound)) : 0;
  double squares = 0, widest = 0;
  for (int64_t d = 0; d < dim; ++d) {
    // A row of nothing but the sink, or of zeros, is 0 whatever the weights are.
    if (largest[d] == 0) continue;
    const double divided =
        spread[d] / (by_lse ? 1 : room) + steps * (magnitude[d] + std::fabs(out.o[d])) / room;
    const double relative = divided * (1 + psi) + psi * std::fabs(out.o[d]);
    out.o_bound[d] = relative + n * kSmallestNormal * largest[d];
    squares += out.o[d] * out.o[d];
    widest = std::max(widest, relative);
  }
  if (squares > 0) out.gate = widest / std::sqrt(squares / static_cast<double>(dim));
}

}  // namespace assay
