// SPDX-License-Identifier: Apache-2.0
// A matrix instruction in slow motion: d = c + sum of products, the way units with block accumulators do it
// (Fasi et al., PeerJ CS 330; Khattak and Mikaitis, doi 10.1145/3830409): the terms of a group are aligned to
// the largest exponent, cut to a number of fraction bits, added exactly, and the sum is cut to the bits of
// the accumulator. Deduction compares the device with it; tests plant parameters in it.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay {

// One dot product as assay_backend::run_products computes it: c + sum of a[j] * b[j].
struct Dot {
  std::vector<float> a, b;
  float c = 0;
};

enum class Rounding { kTowardZero, kNearest, kDown };
// How groups and c come together.
enum class Order {
  kWithC,     // every group takes the running value, c at first, among its terms
  kThenC,     // the same from zero on; c is added last
  kParallel,  // groups know nothing of each other; their sums and c are added last
};

struct BlockModel {
  int32_t format = ASSAY_BF16;  // of a and b: subnormals count with the smallest normal exponent
  // Positions that are added together, in the order in which groups are added.
  std::vector<std::vector<int32_t>> groups;
  Order order = Order::kWithC;
  int32_t fraction_bits = 25;                    // F, kept at alignment
  Rounding alignment = Rounding::kTowardZero;    // of the terms
  int32_t mantissa_bits = 23;                    // m, of every sum
  Rounding accumulator = Rounding::kTowardZero;  // of the sums
  Rounding last = Rounding::kNearest;  // of the sum with c where c comes last: exact, then to m bits
};

// Exact in double as long as F <= 40 and the exponents of the terms are within double's range.
float run_model(const BlockModel&, const Dot&);

}  // namespace assay
