// SPDX-License-Identifier: Apache-2.0
// Kernels on 8-bit matrix units as they are built, for tests of how far their bounds lie above their errors;
// and other kernels that make the same declaration. What a declaration does not say may be otherwise in each
// of these: the order in which a unit takes products, bits that it keeps beyond those declared, errors of the
// exponential, and, where that is not declared, which keys make a part and in which order they are taken.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_emulator.hpp"

namespace assay::testing {

struct EightBits {
  std::string name;
  assay_arithmetic arithmetic;
  int32_t operands = ASSAY_FP8_E4M3;
};

inline std::vector<EightBits> eight_bit_kernels() {
  assay_arithmetic fp8 = tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13);
  std::vector<EightBits> all;
  const auto add = [&](const char* name, assay_arithmetic a, auto change, int32_t operands = ASSAY_FP8_E4M3) {
    change(a);
    all.push_back({name, a, operands});
  };
  using A = assay_arithmetic;
  add("FA3 fp8, tiles of 128 reversed", fp8,
      [](A& a) { a.tile_keys = 128, a.tile_reverse = a.order_declared = 1, a.p_offset_log2 = 8; });
  add("FA3 fp8, each tile promoted", fp8, [](A& a) {
    a.tile_keys = 128, a.tile_reverse = a.order_declared = a.promote_pv = 1, a.p_offset_log2 = 8;
  });
  add("XQA fp8, bf16 Q to e4m3, 16 parts by turns", fp8, [](A& a) {
    a.q_replayed_format = ASSAY_FP8_E4M3, a.q_replayed_factor = 1;
    a.splits = 16, a.split_interleaved = a.order_declared = 1;
    a.partial_format = ASSAY_BF16, a.p_offset_log2 = 8.807354922;
  });
  add("XQA fp8, order undeclared", fp8, [](A& a) {
    a.q_replayed_format = ASSAY_FP8_E4M3, a.q_replayed_factor = 1;
    a.splits = 16, a.partial_format = ASSAY_BF16, a.p_offset_log2 = 8.807354922, a.tile_keys = 64;
  });
  add("e4m3 cache, fp16 products, parts", tensor_core(ASSAY_FP16, 16, 16, 25, 23),
      [](A& a) { a.splits = 32, a.row_sum_chain = 300; });
  const auto integers = [](A& a) { a.qk = a.pv = {ASSAY_ACC_INT32, 32, 0, 0}, a.order_declared = 1; };
  add("int8, P by 127", arithmetic(ASSAY_INT8, 1, 64), integers, ASSAY_INT8);
  add(
      "int8, P by tile maximum", arithmetic(ASSAY_INT8, 1, 64),
      [&](A& a) { integers(a), a.p_int8_tile_max = 1; }, ASSAY_INT8);
  return all;
}

// One row of two heads.
inline DenseCase eight_bit_case(const EightBits& kernel, Family family, int32_t keys, uint64_t seed) {
  DenseCase c = make_case(family, 1, keys, 128, seed);
  Problem& p = c.problem;
  const bool integer = kernel.operands == ASSAY_INT8;
  const bool same =
      kernel.arithmetic.q_replayed_format == ASSAY_FORMAT_NONE && kernel.arithmetic.qk.fraction_bits < 25;
  p.k_format = p.v_format = kernel.operands;
  if (integer) p.q_scale = p.k_scale = p.v_scale = ASSAY_SCALE_TENSOR;
  if (same) p.q_format = kernel.operands;  // the emulator has no codes beside scaled values
  return c.rebuilt(127);
}

// The result of kernel number `draw` of this declaration; 0: as declared.
inline Emulation legal_kernel(const DenseCase& c, assay_arithmetic a, uint64_t draw) {
  if (draw == 0) return Emulator(c, a).run();
  std::mt19937_64 random(draw);
  DenseCase s = c;
  const auto d = static_cast<size_t>(c.problem.head_dim_qk), dv = static_cast<size_t>(c.problem.head_dim_v);
  std::vector<size_t> products(d), keys(static_cast<size_t>(c.m()));
  std::iota(products.begin(), products.end(), size_t{0});
  std::iota(keys.begin(), keys.end(), size_t{0});
  std::shuffle(products.begin(), products.end(), random);
  if (a.order_declared == 0) {
    const uint64_t how = random() % 4;
    if (how == 1) std::shuffle(keys.begin(), keys.end(), random);
    if (how > 1) {  // by the score of one head
      const double* q = &c.q[random() % 2 * d];
      std::vector<double> x(keys.size());
      for (size_t j = 0; j < x.size(); ++j) x[j] = std::inner_product(q, q + d, &c.k[j * d], 0.0);
      std::stable_sort(keys.begin(), keys.end(),
                       [&](size_t j, size_t k) { return how == 2 ? x[j] < x[k] : x[j] > x[k]; });
    }
    a.splits = static_cast<int32_t>(1 + random() % static_cast<uint64_t>(a.splits));
    a.split_interleaved = static_cast<int32_t>(random() % 2);
  }
  for (size_t i = 0; i < c.q.size(); ++i) s.q[i] = c.q[i / d * d + products[i % d]];
  for (size_t j = 0; j < keys.size(); ++j) {
    for (size_t t = 0; t < d; ++t) s.k[j * d + t] = c.k[keys[j] * d + products[t]];
    std::copy_n(&c.v[keys[j] * dv], dv, &s.v[j * dv]);
  }
  s.store();
  if (a.qk.fraction_bits == 13 && random() % 4 == 0)
    a.qk.fraction_bits = a.qk.mantissa_bits = 13 + static_cast<int32_t>(random() % 4);
  const uint64_t how = random() % 3;
  const double most = a.exp_relative_error - 0x1p-24;
  Habits habits;
  if (how > 0) habits.exp_error = [=](float x) { return x == 0 ? 0 : how == 1 ? most : -most; };
  return Emulator(s, a, Mutant::kNone, draw, habits).run();
}

}  // namespace assay::testing
