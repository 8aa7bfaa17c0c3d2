// SPDX-License-Identifier: Apache-2.0
// See certain_elements.hpp.
#include "harness/check/aggregates/certain_elements.hpp"

#include <algorithm>
#include <cmath>

#include "harness/base/error.hpp"
#include "reference/formats/formats.hpp"
#include "reference/formats/round_inside.hpp"

namespace assay {
namespace {

// upper_tail() of more standard deviations is 0: beyond 28 std::erfc() is, and 40 / sqrt(2) are more.
constexpr double kNoTail = 40;
// The squares of smaller weights are finite.
constexpr double kMostWeight = 1e150;

bool is_output_format(int32_t format) {
  return format == ASSAY_FP32 || format == ASSAY_BF16 || format == ASSAY_FP16;
}

}  // namespace

void CertainElements::look(const ExpectedErrors& expected, size_t first, int32_t count, bool replayed) {
  ASSAY_CHECK(count > 0 && count <= kMost, "{} elements at once", count);
  if (!is_output_format(expected.format())) return static_cast<void>(std::fill_n(certain, count, 0));
  replayed ? look_at<true>(expected, first, count) : look_at<false>(expected, first, count);
}

template <bool kReplayed>
void CertainElements::look_at(const ExpectedErrors& expected, size_t first, int32_t count) {
  const BoundedAttention& b = expected.bounds();
  const FormatInfo info = format_info(expected.format());
  const double most = info.max_finite, grows = std::sqrt(kWorstMantissa);
  const bool step = expected.common().step;
  // A factor: selects between what is there already leave the loop without branches.
  const double relative = expected.common().relative, examined = expected.examined() ? 1 : 0;
  const double* centres = &(kReplayed ? b.o_replayed : b.value.o)[first];
  const double *values = &b.value.o[first], *sigmas = &b.o_sigma[first];
  const double* widths = kReplayed ? &b.o_bound_r[first] : values;  // without a replay, none
  double biases[kMost], alikes[kMost];
  for (int32_t i = 0; i < count; ++i) {
    const size_t at = first + static_cast<size_t>(i);
    biases[i] = bias_of(b.o_bias, b.o_bound_p[at], b.o_sigma[at], at);
    alikes[i] = step ? widths[i] : relative * std::fabs(values[i]);
  }
#pragma omp simd
  for (int32_t i = 0; i < count; ++i) {
    const double centre = centres[i], o = values[i], width = widths[i], alike = alikes[i];
    double sigma = sigmas[i] * grows, bias = biases[i] + relative * std::fabs(o);
    if (kReplayed) sigma = width < sigma ? width : sigma, bias = width < bias ? width : bias;
    const double rounded = rounded_inside(info, centre), away = std::fabs(rounded);
    const double half = half_spacing(info, away), finer = half_spacing(info, next_below(away));
    const double off = (centre - rounded) * (rounded < 0 ? -1.0 : 1.0), spacing = 2 * half;
    const double out = half - off, in = finer + off;
    const double outward = 0 < out ? out : 0.0, inward = 0 < in ? in : 0.0;
    const double nearest = inward < outward ? inward : outward;
    const double own = sigma * sigma + bias * bias, n2 = spacing * spacing + own;
    const double e2 = spacing * (sigma + bias) + own, by = e2 * examined > 0 ? e2 : n2;
    const double weight = o / by, size = std::fabs(weight), e = result[i] - rounded;
    const bool sure = (std::fabs(centre) <= most) & (away <= most) & (sigma > 0) &
                      (sigma + bias <= 4 * spacing) & (bias <= spacing) & (nearest - bias > kNoTail * sigma) &
                      (size < kMostWeight) &
                      (kReplayed ? (nearest >= alike) & (width <= nearest) : size < kMostWeight);
    certain[i] = sure ? 1 : 0;
    error[i] = e, w[i] = weight;
    lean_[i] = weight * e, before_[i] = weight * weight * sigma * sigma;
    seen_[i] = weight * weight * e * e, anywhere_[i] = size * bias, size_[i] = o * weight;
    one_[i] = size * spacing, z_[i] = e * e / n2;
  }
}

}  // namespace assay
