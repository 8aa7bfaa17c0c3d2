// SPDX-License-Identifier: Apache-2.0
// Attacks on what tiers P and R take from following a unit of few bits (reference/bounds/bounds_steps.hpp):
// data on which what is cut off has one sign or goes with V, kernels that keep more bits than they declare,
// add in another order, or cut the sum elsewhere.
#pragma once

#include "reference/attacks/attack.hpp"

namespace assay::attacks {

inline std::vector<Attack> of_units() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  const A fp8 = with(tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13),
                     [](A& a) { a.order_declared = 1, a.p_offset_log2 = 8; });
  const auto unordered = [](A a) {
    a.order_declared = 0;
    return a;
  };
  const auto more_bits = [](A a) {
    a.qk.fraction_bits = a.pv.fraction_bits = 15, a.qk.mantissa_bits = a.pv.mantissa_bits = 14;
    return a;
  };
  // Q and K of fp8 codes; K's keys of different sizes, V by `value` of the key's own products.
  const auto coded = [](uint64_t seed, int32_t m, bool positive, const auto& value) {
    constexpr int32_t kDims = 32;
    DenseCase c = make_case(Family::kNormal, 1, m, kDims, seed, ASSAY_FP8_E4M3);
    if (positive) {
      for (double& q : c.q) q = 0.3 + std::fabs(q);
      for (double& k : c.k) k = std::fabs(k);
    }
    for (int64_t j = 0; j < m; ++j) {
      const double size = std::exp2(2 * uniform(seed, 9, j) - 2);
      double sum = 0;
      for (int32_t t = 0; t < kDims; ++t) sum += std::fabs(c.k[j * kDims + t] *= size);
      for (int32_t t = 0; t < kDims; ++t) c.v[j * kDims + t] = value(j, t, sum / kDims);
    }
    c.store();
    return c;
  };
  const auto of_size = [](int64_t, int32_t t, double size) {
    return t % 2 ? 4 * size : 1 + 4 * (0.5 - size);
  };
  const auto ramp = [](int64_t j, int32_t t, double) {
    return (t % 2 ? 1.0 : -1.0) * (0.1 + static_cast<double>(j) / 1024);
  };
  const auto halves = [](int64_t j, int32_t t, double) { return (j < 1024) == (t % 2 == 0) ? 1.5 : -1.25; };
  const auto add = [&](const char* name, const char* aim, bool positive, int32_t m, const auto& value,
                       const A& kernel, const A& declared) {
    all.push_back({name,
                   aim,
                   [=](uint64_t seed) {
                     return coded(seed, m, positive,
                                  [=](int64_t j, int32_t t, double size) { return value(j, t, size); });
                   },
                   kernel,
                   declared,
                   {},
                   4});
  };
  const A reversed = with(fp8, [](A& a) { a.tile_reverse = 1; });
  const A promoted = with(fp8, [](A& a) { a.promote_pv = 1; });
  const A parts = with(fp8, [](A& a) { a.splits = 8, a.split_interleaved = 1; });
  add("13 bits, products of one sign, V by size", "P: score lean", true, 1500, of_size, fp8, fp8);
  add("the same, 15 bits done", "P: a smaller lean", true, 1500, of_size, more_bits(fp8), fp8);
  add("the same, order undeclared, reversed", "P: another order", true, 1500, of_size, reversed,
      unordered(fp8));
  add("13 bits, V by size, each tile promoted", "P: score lean", false, 1500, of_size, promoted, promoted);
  add("13 bits, ramp of V, undeclared, reversed", "P: sum lean", false, 2000, ramp, reversed, unordered(fp8));
  add("the same, 15 bits done", "P: a smaller lean", false, 2000, ramp, more_bits(reversed), unordered(fp8));
  add("13 bits, V of two halves, reversed", "P: sum lean", false, 2048, halves, reversed, unordered(fp8));
  add("13 bits, V of two halves, parts by turns", "P: sum lean", false, 2048, halves, parts,
      unordered(parts));
  add("13 bits, ramp of V, parts by turns", "P: sum lean", false, 2000, ramp, parts, parts);
  add("13 bits, ramp of V, one chain", "P: sum lean", true, 5000, ramp, fp8, fp8);
  return all;
}

}  // namespace assay::attacks
