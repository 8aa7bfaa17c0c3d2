// SPDX-License-Identifier: Apache-2.0
// Kernels on 8-bit matrix units as they are built, for tests of how far their bounds lie above their errors.
#pragma once

#include <string>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"

namespace assay::testkit {

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

}  // namespace assay::testkit
