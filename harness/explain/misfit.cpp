// SPDX-License-Identifier: Apache-2.0
// See misfit.hpp. The logarithm keeps one absurd element from hiding that the rest is explained, and the cap
// makes NaN and infinity finite.
#include "harness/explain/misfit.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "harness/explain/same_number.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kLargest = 1e6;  // of an error in units

// Of a format, as far as units in the last place go.
struct Grid {
  int min_exponent, mantissa_bits;
  explicit Grid(int32_t format)
      : min_exponent(format_info(format).min_exponent), mantissa_bits(format_info(format).mantissa_bits) {}
  // This is the innermost loop of an explanation: exponents are read and written as bits. No format reaches
  // the subnormal numbers of a double.
  double unit(double x) const {
    if (!std::isfinite(x)) return 1;
    const int exponent = static_cast<int>(std::bit_cast<uint64_t>(x) >> 52 & 0x7ff) - 1023;
    const int last = std::max(exponent, min_exponent) - mantissa_bits;
    return std::bit_cast<double>(static_cast<uint64_t>(last + 1023) << 52);
  }
};

struct Deviation {
  double z = 0;        // error in units
  double widened = 0;  // logarithm of how much wider the hypothesis makes the unit: its price
};

// Both NaN or the same infinity: no error.
Deviation deviation(double got, double predicted, double noise, double extra, const Grid& grid) {
  if (same_number(got, predicted)) {
    if (extra == 0) return {};
  } else if (!std::isfinite(got) || !std::isfinite(predicted)) {
    return {kLargest, 0};
  }
  const double size = std::max(std::fabs(got), std::fabs(predicted));
  const double ulp = grid.unit(size);
  // Predictions far from the right answer carry the relative error of fp32 sums of their own size.
  const double unit = std::sqrt(noise * noise + ulp * ulp / 12 + 1e-12 * size * size);
  if (extra == 0 || !std::isfinite(unit)) return {std::min(kLargest, std::fabs(got - predicted) / unit), 0};
  const double wide = std::hypot(unit, extra);
  return {std::min(kLargest, std::fabs(got - predicted) / wide), std::log(wide / unit)};
}

}  // namespace

double legal_noise(const Evidence& e, const Cell& cell, int32_t dim) {
  const BoundedAttention& b = e.bounded;
  const int64_t n = e.row_of[e.packed_row(cell)];
  if (n < 0) return 0;
  const int64_t slot = n * e.problem.heads_q + cell.head;
  if (dim < 0) {
    const double bound = b.lse_bound.empty() ? 0 : b.lse_bound[slot];
    double noise = std::isfinite(bound) ? bound / 4 : 1e-5;
    if (!b.lse_sigma.empty() && b.lse_sigma[slot] > 0) noise = std::min(noise, b.lse_sigma[slot]);
    return noise;
  }
  const int64_t at = slot * e.problem.head_dim_v + dim;
  // A tier whose half-width may be anything tells less than the interval that another one makes narrow.
  const double half = (b.o_high[at] - b.o_low[at]) / 2;
  const double most = half > 0 && std::isfinite(half) ? half / 4 : std::numeric_limits<double>::infinity();
  if (!b.o_bound_r.empty() && std::isfinite(b.o_bound_r[at])) return std::min(most, b.o_bound_r[at] / 4);
  if (!b.o_sigma.empty() && b.o_sigma[at] > 0 && std::isfinite(b.o_sigma[at]))
    return std::min(most, b.o_sigma[at]);
  const double bound = b.o_bound[at];
  return std::isfinite(bound) ? bound / 6 : 0;
}

Target target_of(const Evidence& e, const Sample& sample) {
  Target t{{}, {}, e.got(sample.call, sample.cell, -1), legal_noise(e, sample.cell, -1), e.problem.o_format};
  for (int32_t d = 0; d < e.problem.head_dim_v; ++d) {
    t.o.push_back(e.got(sample.call, sample.cell, d));
    t.o_noise.push_back(legal_noise(e, sample.cell, d));
  }
  return t;
}

Misfit misfit_of(const Target& target, const Prediction& predicted) {
  double sum = 0, price = 0;
  const Grid grid(target.o_format);
  const size_t dims = target.o.size();
  for (size_t d = 0; d < dims; ++d) {
    const double extra = predicted.o_noise.empty() ? 0 : predicted.o_noise[d];
    const Deviation at = deviation(target.o[d], predicted.o[d], target.o_noise[d], extra, grid);
    sum += at.z * at.z;
    price += at.widened;
  }
  const Deviation lse =
      deviation(target.lse, predicted.lse, target.lse_noise, predicted.lse_noise, Grid(ASSAY_FP32));
  const auto n = static_cast<double>(dims);
  return {std::log1p(sum / n) + price / n, std::log1p(lse.z * lse.z) + lse.widened};
}

Misfit misfit_of(const Evidence& e, const Sample& sample, const Prediction& predicted) {
  return misfit_of(target_of(e, sample), predicted);
}

bool accepted(const Evidence& e, Call call, const Cell& cell, int32_t dim) {
  const int64_t n = e.row_of[e.packed_row(cell)];
  if (n < 0) return true;
  const BoundedAttention& b = e.bounded;
  const int64_t slot = n * e.problem.heads_q + cell.head;
  const int64_t at = dim < 0 ? slot : slot * e.problem.head_dim_v + dim;
  const double expected = dim < 0 ? b.value.lse[at] : b.value.o[at];
  const double low = dim < 0 ? b.lse_low[at] : b.o_low[at], high = dim < 0 ? b.lse_high[at] : b.o_high[at];
  const double got = e.got(call, cell, dim);
  if (std::isinf(expected)) return got == expected;
  if (!std::isfinite(got)) return false;
  if (low <= got && got <= high) return true;
  const int32_t format = dim < 0 ? static_cast<int32_t>(ASSAY_FP32) : e.problem.o_format;
  return round_to(format, low) <= got && got <= round_to(format, high);
}

}  // namespace assay
