// SPDX-License-Identifier: Apache-2.0
// Where an ideal result lies on the grid of the output format, and what an error before the rounding can do
// to it. Rounding to the output is known but for results near a place where it changes, so it is no random
// error.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "harness/check/verdict.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

inline double upper_tail(double x) { return 0.5 * std::erfc(x * M_SQRT1_2); }

// Normal standard deviations by which a sum of squares exceeds what its mean and variance allow (the cube
// root of a chi-squared variable is nearly normal: Wilson and Hilferty 1931).
inline double square_sum_sd(double sum, double mean, double variance) {
  const double ninth = variance / (mean * mean) / 9;  // 2 / (9 degrees of freedom)
  return std::max(0.0, (std::cbrt(sum / mean) - (1 - ninth)) / std::sqrt(ninth));
}

// Two steps of the output as one, with edges off the numbers half way between two, which many results are.
inline int64_t coarse_place(int32_t format, double x) {
  return std::llround(std::floor(x / (4 * half_ulp(format, x)) + 0.37)) * 4096 + (x != 0 ? std::ilogb(x) : 0);
}

// Where an ideal result lies on the grid of the output: its code, and how far it is to where rounding
// changes, away from zero and toward it.
struct GridPlace {
  double rounded = 0, outward = 0, inward = 0, spacing = 0;
  GridPlace(int32_t format, double centre) {
    rounded = round_to(format, centre);
    const double size = std::fabs(rounded), half = half_ulp(format, size);
    // Towards zero the grid is finer below a power of two.
    const double finer = half_ulp(format, next_below(size));
    const double off = (centre - rounded) * (rounded < 0 ? -1 : 1);
    spacing = 2 * half;
    outward = std::max(0.0, half - off), inward = std::max(0.0, finer + off);
  }
  // Mean square at most of rnd(centre + x) - rnd(centre), for x of a standard deviation up to sigma and
  // |mean|
  // <= bias: what the mean alone brings about, less spread makes certain.
  double mean_square(double sigma, double bias) const {
    const double spread = sigma + bias;
    if (spread > 4 * spacing) return sigma * sigma + bias * bias + spacing * spacing;
    if (!(sigma > 0)) return std::min(outward, inward) < bias ? spacing * spacing : 0.0;
    double sum = 0;
    for (int k = 0; k < 40; ++k) {
      const double up = (outward + k * spacing - bias) / sigma, down = (inward + k * spacing - bias) / sigma;
      if (std::min(up, down) > 7) break;
      sum += (2 * k + 1) * ((up < 0 ? 1 : upper_tail(up)) + (down < 0 ? 1 : upper_tail(down)));
    }
    return sum * spacing * spacing;
  }
  // Its square at most, for one x of no more than `size`.
  double square_of(double size) const {
    const double nearest = std::min(outward, inward);
    if (!(spacing > 0) || size < nearest) return spacing > 0 ? 0.0 : size * size;
    const double steps = std::floor((size - nearest) / spacing) + 1;
    return steps * steps * spacing * spacing;
  }
  // Its mean at most, that a mean of x up to `bias` brings about.
  double mean(double sigma, double bias) const {
    const double nearest = std::min(outward, inward);
    if (bias > spacing) return bias + spacing;
    if (nearest < bias) return spacing;
    if (!(sigma > 0) || bias == 0) return 0;
    // The spread that the mean moves most over the edge.
    const double left = nearest - bias;
    const double worst = std::sqrt(bias * (nearest + left) / (2 * std::log(nearest / left)));
    const double spread = left > 0 ? std::min(sigma, worst) : sigma;
    return spacing * (upper_tail(left / spread) - upper_tail(nearest / spread));
  }
  // Share of elements that may differ from `rounded`, when what is left is spread evenly over centre - width
  // .. centre + width, but for an error up to `common` that all elements may have alike.
  // `stored`: by way of a format that has the numbers half way between two of these. All that is within reach
  // of one may be taken to it, and from there to the even side, whichever side it was on.
  double mismatch_chance(double width, double common, bool stored = false) const {
    if (std::isinf(rounded) || std::min(outward, inward) < common) return 1;
    if (width <= std::min(outward, inward)) return 0;  // the usual case
    return std::clamp(1 - (std::min(outward, width) + std::min(inward, width)) / (2 * width),
                      stored ? 0.5 : 0.0, 1.0);
  }
};

}  // namespace assay
