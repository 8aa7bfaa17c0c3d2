// SPDX-License-Identifier: Apache-2.0
// Products that a matrix unit cannot cut (BOUNDS.md, L17): codes of a few bits have products whose last bits
// lie on the grid that the unit keeps of the largest sum there may be. Tier P of scores counts the others.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay {

// One operand of a dot product as the unit has it: the exponents of its elements' last bits, relative to the
// exponent of its norm (kFits for 0), and that norm over its power of two.
struct LastBits {
  static constexpr int8_t kFits = 63, kLeast = -64;
  std::vector<int8_t> of;      // [vectors, elements]
  std::vector<int8_t> across;  // [elements, stride]: many vectors against one are counted side by side
  std::vector<float> norm;
  int64_t stride = 0;
  void resize(int64_t vectors, int64_t elements) {
    stride = (vectors + kTogether - 1) / kTogether * kTogether;
    of.resize(static_cast<size_t>(vectors * elements)), across.resize(static_cast<size_t>(stride * elements));
    norm.resize(static_cast<size_t>(vectors));
  }
  static constexpr int64_t kTogether = 64;
  // Vector `at`: value[t] * of_channel[t] / scale; of_channel may be null.
  void set(int64_t at, int64_t elements, const double* value, const double* of_channel, double scale);
};

// Bits that the unit keeps of every number it holds.
int32_t bits_of_all(const assay_accumulator& unit);
// What one product that may be cut costs, its own cut and the last bit of a sum, of the largest sum. (Twice
// that bit where sums change their sign and grow between two such products, which is more than cuts lose on
// average.)
double cost_of_a_cut(const assay_accumulator& unit);
// How many products of vector i of q and vector j of k may be cut where no sum is above `share` of the
// product of the norms.
int64_t cut_products(const assay_accumulator& unit, int64_t elements, const LastBits& q, int64_t i,
                     const LastBits& k, int64_t j, double share);
// The same for the first `count` vectors of k that are `wanted`, each with its share.
void cut_products(const assay_accumulator& unit, int64_t elements, const LastBits& q, int64_t i,
                  const LastBits& k, int64_t count, const double* shares, const uint8_t* wanted,
                  float* products);
// That share of a dot product in a generic order: twice C_j = sqrt(s^2 + 2 r^2), all of one scale.
inline double share_of_sums(double c2, double norms) {
  return norms > 0 ? std::min(1.0, 2 * std::sqrt(c2) / norms) : 1.0;
}

}  // namespace assay
