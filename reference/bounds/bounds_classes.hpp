// SPDX-License-Identifier: Apache-2.0
// Arithmetics as real kernels have them, for the tests of the bounds: plain and vectorised fp32, tensor cores
// of several generations, coarse P, splits, lazy rescale. Each declares its order, so every tier applies.
#pragma once

#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "reference/bounds/bounds.hpp"

namespace assay::testkit {

inline assay_arithmetic arithmetic(int32_t p_format, int32_t lanes, int32_t tile) {
  assay_arithmetic a = default_arithmetic();
  a.qk.block = a.pv.block = lanes;
  a.tile_keys = tile;
  a.p_format = p_format;
  a.exp_relative_error = 0x1p-22;
  return a;
}

inline assay_arithmetic tensor_core(int32_t p_format, int32_t tile, int32_t k, int32_t f, int32_t m) {
  assay_arithmetic a = arithmetic(p_format, 1, tile);
  a.qk = a.pv = {ASSAY_ACC_BLOCK, k, f, m};
  return a;
}

struct Class {
  const char* name;
  assay_arithmetic arithmetic;
  int32_t operands = ASSAY_BF16;
  int32_t scale = ASSAY_SCALE_NONE;  // of K and V
};

// Kernels as they are built: plain fp32, SIMD, tensor cores, with splits, lazy rescale, coarse P.
inline std::vector<Class> classes() {
  std::vector<Class> all;
  const auto add = [&](const char* name, assay_arithmetic a, auto change, int32_t operands = ASSAY_BF16,
                       int32_t scale = ASSAY_SCALE_NONE) {
    a.order_declared = 1;
    change(a);
    all.push_back({name, a, operands, scale});
  };
  const auto as_is = [](assay_arithmetic&) {};
  using A = assay_arithmetic;
  add("fp32 sequential", arithmetic(ASSAY_FP32, 1, 64), as_is);
  add("fp32 16 lanes", arithmetic(ASSAY_FP32, 16, 32), as_is);
  add("fp32 one tile", arithmetic(ASSAY_FP32, 8, 1 << 20), as_is);
  add("fp32 undeclared order", arithmetic(ASSAY_FP32, 1, 0), [](A& a) { a.order_declared = 0; });
  add("fp32 reversed, 4 splits", arithmetic(ASSAY_FP32, 4, 16),
      [](A& a) { a.tile_reverse = 1, a.splits = 4; });
  add("bf16 P", arithmetic(ASSAY_BF16, 1, 64), as_is);
  add("bf16 P, undeclared order", arithmetic(ASSAY_BF16, 1, 64), [](A& a) { a.order_declared = 0; });
  add("bf16 P truncated, row sum of rounded P", arithmetic(ASSAY_BF16, 16, 128),
      [](A& a) { a.p_truncated = a.row_sum_from_rounded_p = 1; });
  add("bf16 P truncated", arithmetic(ASSAY_BF16, 1, 48), [](A& a) { a.p_truncated = 1; });
  add("bf16 tensor core 16/25/23", tensor_core(ASSAY_BF16, 128, 16, 25, 23),
      [](A& a) { a.tile_reverse = 1; });
  add("bf16 tensor core, lag 8, polynomial every 4th", tensor_core(ASSAY_BF16, 64, 16, 25, 23), [](A& a) {
    a.rescale_lag_log2 = 8;
    a.exp_poly_every = 4;
    a.exp_poly_relative_error = 8.9e-5;
  });
  add(
      "fp16 P tensor core 8/24/23, row sum of rounded P", tensor_core(ASSAY_FP16, 64, 8, 24, 23),
      [](A& a) { a.row_sum_from_rounded_p = 1; }, ASSAY_FP16);
  add(
      "e4m3 P with offset", tensor_core(ASSAY_FP8_E4M3, 64, 32, 25, 23), [](A& a) { a.p_offset_log2 = 8; },
      ASSAY_FP8_E4M3, ASSAY_SCALE_TENSOR);
  add("e4m3 P without offset", tensor_core(ASSAY_FP8_E4M3, 32, 32, 25, 23), as_is, ASSAY_FP8_E4M3,
      ASSAY_SCALE_HEAD);
  add(
      "e5m2 P with offset", tensor_core(ASSAY_FP8_E5M2, 64, 32, 25, 23), [](A& a) { a.p_offset_log2 = 8; },
      ASSAY_FP8_E5M2, ASSAY_SCALE_TOKEN_HEAD);
  add(
      "e4m3 P, 13-bit accumulator, promoted", tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13),
      [](A& a) { a.promote_pv = 1, a.p_offset_log2 = 8; }, ASSAY_FP8_E4M3, ASSAY_SCALE_TENSOR);
  add(
      "e4m3 P, 13-bit accumulator, one level", tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13),
      [](A& a) { a.p_offset_log2 = 8; }, ASSAY_FP8_E4M3, ASSAY_SCALE_TENSOR);
  const auto integers = [](A& a) { a.qk = a.pv = {ASSAY_ACC_INT32, 32, 0, 0}; };
  add("int8, P by 127", arithmetic(ASSAY_INT8, 1, 64), integers, ASSAY_INT8, ASSAY_SCALE_TOKEN_HEAD);
  add(
      "int8, P by tile maximum", arithmetic(ASSAY_INT8, 1, 64),
      [&](A& a) { integers(a), a.p_int8_tile_max = 1; }, ASSAY_INT8, ASSAY_SCALE_CHANNEL);
  add(
      "fp8 cache to bf16, one rounding", tensor_core(ASSAY_BF16, 64, 16, 25, 23),
      [](A& a) { a.dequant_format = ASSAY_BF16, a.dequant_replayed = 1; }, ASSAY_FP8_E4M3, ASSAY_SCALE_HEAD);
  add(
      "fp8 cache to bf16, some rounding", tensor_core(ASSAY_BF16, 64, 16, 25, 23),
      [](A& a) { a.dequant_format = ASSAY_BF16; }, ASSAY_FP8_E4M3, ASSAY_SCALE_TOKEN_HEAD);
  add("16 splits, fp32 partials", tensor_core(ASSAY_BF16, 16, 16, 25, 23), [](A& a) { a.splits = 16; });
  add("parts of 48 keys, bf16 partials", tensor_core(ASSAY_BF16, 16, 16, 25, 23),
      [](A& a) { a.split_keys = 48, a.splits = 2, a.partial_format = ASSAY_BF16; });
  add("bf16 partials, bf16 partial LSE", arithmetic(ASSAY_BF16, 4, 16), [](A& a) {
    a.splits = 8;
    a.partial_format = a.partial_lse_format = ASSAY_BF16;
  });
  return all;
}

}  // namespace assay::testkit
