// SPDX-License-Identifier: Apache-2.0
// What the declared arithmetic allows for one element: about the exact value, and about what an ideal kernel
// writes. One index serves all: slot (row and head) times head_dim_v plus dimension.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "harness/check/aggregates/common_errors.hpp"
#include "harness/check/aggregates/grid_place.hpp"
#include "harness/check/verdict.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

// o_sigma takes the mean over mantissas of the squared rounding error of P, 0.54 of the largest
// (reference/bounds/BOUNDS.md); a row with few keys may have the largest.
inline constexpr double kWorstMantissa = 1 / 0.54;

inline double bias_of(const std::vector<double>& bias, double bound_p, double sigma, size_t i) {
  return bias.empty() ? std::max(0.0, bound_p - kLambda * sigma) : bias[i];
}

// About the exact value.
struct ExactError {
  double variance = 0, noise = 0, bias = 0;
};
// About the replayed one where that is known. `w`: weight of the error in a slope; `square`: mean square of
// it at most.
struct ExpectedError {
  GridPlace place;
  double centre, o, sigma, bias, square, spacing2, n2, w;
};

class ExpectedErrors {
 public:
  // `examined`: of a reference that followed the matrix units.
  ExpectedErrors(const BoundedAttention& b, int32_t format, const CommonErrors& common, bool examined)
      : b_(b), format_(format), common_(common), examined_(examined) {}
  const BoundedAttention& bounds() const { return b_; }
  int32_t format() const { return format_; }
  const CommonErrors& common() const { return common_; }
  bool examined() const { return examined_; }

  ExactError exact(size_t i) const {
    const double o = b_.value.o[i], sigma = b_.o_sigma[i];
    const double half = half_ulp(format_, std::max(std::fabs(o), sigma));
    ExactError e{};
    e.noise = half * half / 3;
    e.bias = bias_of(b_.o_bias, b_.o_bound_p[i], sigma, i) + common_.relative * std::fabs(o);
    e.variance = sigma * sigma + e.noise + e.bias * e.bias;
    return e;
  }

  ExpectedError about_ideal(size_t i, bool replayed) const {
    // What an ideal kernel writes is known, its rounding to the output included; what is left of the error
    // is independent of the places of other elements on the grid.
    const double centre = replayed ? b_.o_replayed[i] : b_.value.o[i], o = b_.value.o[i];
    double sigma = b_.o_sigma[i] * std::sqrt(kWorstMantissa);
    double bias = bias_of(b_.o_bias, b_.o_bound_p[i], b_.o_sigma[i], i) + common_.relative * std::fabs(o);
    if (replayed) sigma = std::min(sigma, b_.o_bound_r[i]), bias = std::min(bias, b_.o_bound_r[i]);
    ExpectedError e{GridPlace(format_, centre), centre, o, sigma, bias, 0, 0, 0, 0};
    if (std::isinf(e.place.rounded)) return e;
    const double own = sigma * sigma + bias * bias;
    e.spacing2 = e.place.spacing * e.place.spacing;
    e.n2 = e.spacing2 + own;
    e.square = e.place.mean_square(sigma, bias);
    // Near-ideal results err by a step of the grid or not at all, so as often as steps are short.
    const double e2 = (e.spacing2 > 0 ? e.place.spacing : 0.0) * (sigma + bias) + own;
    e.w = o / (examined_ && e2 > 0 ? e2 : e.n2);
    return e;
  }

 private:
  const BoundedAttention& b_;
  const int32_t format_;
  const CommonErrors common_;
  const bool examined_;
};

}  // namespace assay
