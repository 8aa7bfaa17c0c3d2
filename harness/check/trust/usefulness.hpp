// SPDX-License-Identifier: Apache-2.0
// Two figures beside the verdict that never change it. Whether a correct result is worth having: how far from
// the exact value an accepted one may be, over the size of the output (a two-level fp8 kernel passes, a
// one-level one at long contexts is correct and useless). And what quantising the cache cost before any
// kernel ran, which no bound contains, because bounds are about the stored values.
#pragma once

#include <limits>

#include "reference/bounds/bounds.hpp"

namespace assay {

inline constexpr double kUseful16 = 0.1, kUseful8 = 0.3;  // P in 16 bits or more; in 8 bits

struct ClassGate {
  // The furthest from the exact value that all tiers together accept, over the rms of its row and head: where
  // the rounding of P can be repeated, what it is counts and not what it might be. NaN where neither P nor R,
  // whose growth with length is realistic, applies to a row, and for inputs that cancel by design.
  double ratio = std::numeric_limits<double>::quiet_NaN();
  bool useless = false;  // ratio above kUseful16 or kUseful8
};
ClassGate class_gate(const BoundedAttention&, const Problem&, const assay_arithmetic&);

// |o(stored K, V) - o(K, V before quantisation)| over the rms of o, for some of the selected rows: as many as
// the budget of values allows, at least one request and KV head. NaN for caches that are not quantised.
struct QuantizationError {
  double rms = std::numeric_limits<double>::quiet_NaN();
  double max = std::numeric_limits<double>::quiet_NaN();
};
QuantizationError quantization_error(const Problem&, const HostOperands&, const BoundedAttention&);

}  // namespace assay
