// SPDX-License-Identifier: Apache-2.0
// What a score may lose below the normal range of fp32. A kernel multiplies the factors of a score (scales of
// Q and K, softmax scale, 1 / cap) in an order of its own, often with each other before the dot product meets
// them. A product of factors below 2^-126 has few bits left, or is flushed to zero, although the score itself
// is an ordinary number. Where no product of factors gets that small nothing is lost there (BOUNDS.md,
// section 3, E^f).
#pragma once

#include <algorithm>
#include <cmath>

#include "harness/problem/problem.hpp"

namespace assay {

// Size of a scale of Q or K as a factor; operands that are all zero may have one of zero.
inline double scale_factor(double size) { return size > 0 ? size : 1; }

// What a score may lose of sum |q k| to products of its factors, as a share: 0 where the smallest of them is
// normal, even with its own roundings. Four roundings to subnormals are off by half of one each, and make at
// most twice of what they round; flushed, all is lost.
inline double lost_of_factors(const Problem& p, double q_scale, double k_scale) {
  const auto below = [](double factor) { return std::min(1.0, factor); };
  double least = below(std::fabs(p.softmax_scale)) * below(q_scale) * below(k_scale);
  if (p.softcap > 0) least *= below(1 / static_cast<double>(p.softcap));
  if (!(least < 0x1p-125)) return 0;
  return std::max(1.0, std::min(4 * 0x1p-150 / least, 15.0));
}

// What scales may make of an absolute error made before them.
inline double gain_of_scales(double q_scale, double k_scale) {
  return std::max(1.0, q_scale) * std::max(1.0, k_scale);
}

}  // namespace assay
