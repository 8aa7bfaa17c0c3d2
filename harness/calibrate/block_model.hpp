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

struct BlockModel {
  int32_t format = ASSAY_BF16;  // of a and b: subnormals count with the smallest normal exponent
  // Positions that are added together, in the order in which groups are added. A group takes the running
  // value (c at first) among its terms; with `parallel`, groups know nothing of c and their sums and c are
  // added at the end.
  std::vector<std::vector<int32_t>> groups;
  bool parallel = false;
  int32_t fraction_bits = 25;                    // F, kept at alignment
  Rounding alignment = Rounding::kTowardZero;    // of the terms
  int32_t mantissa_bits = 23;                    // m, of every sum
  Rounding accumulator = Rounding::kTowardZero;  // of the sums
};

// Exact in double as long as F <= 40 and the exponents of the terms are within double's range.
float run_model(const BlockModel&, const Dot&);

}  // namespace assay
