// SPDX-License-Identifier: Apache-2.0
// How wide bounds must be where no order is declared: kernels that reach their order of size by a choice of
// parts or of the order of keys that nothing they declare forbids. Narrower bounds would call them wrong.
#pragma once

#include "reference/attacks/attack.hpp"

namespace assay::attacks {

inline std::vector<Attack> of_undeclared_orders() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  // XQA's fp8: Q to e4m3, 13 bits, parts stored in bf16. Which keys make a part is not said, so they may be
  // those of one sign of V, and a part's result as large as V where the sum is nearly nothing.
  const auto xqa = [](int32_t parts) {
    return with(tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13), [=](A& a) {
      a.q_replayed_format = ASSAY_FP8_E4M3, a.q_replayed_factor = 1;
      a.splits = parts, a.partial_format = ASSAY_BF16, a.p_offset_log2 = 8.807354922;
    });
  };
  const auto by_sign = [](uint64_t seed, int32_t keys) {
    constexpr int32_t kDims = 64;
    DenseCase c = make_case(Family::kNormal, 1, keys, kDims, seed);
    c.problem.k_format = c.problem.v_format = ASSAY_FP8_E4M3;
    for (int64_t j = 0; j < keys; ++j)
      for (int32_t t = 0; t < kDims; ++t) {
        double& v = c.v[j * kDims + t];
        v = (j < keys / 2 ? 1 : -1) * (1 + std::fabs(v));
      }
    c.store();
    return c;
  };
  constexpr int32_t kKeys = 1024;
  const auto data = [=](uint64_t seed) { return by_sign(seed, kKeys); };
  const char* aim = "P: a tighter term for partial results of unknown parts";
  const A varied = with(xqa(16), [](A& a) { a.splits_vary = 1; });
  all.push_back({"XQA fp8, 2 of 16 parts, each of one sign of V", aim, data, xqa(2), varied, {}, 8});
  all.push_back({"XQA fp8, 16 parts, each of one sign of V", aim, data, xqa(16), xqa(16), {}, 8});

  // Keys one by one in the order of their scores: as many updates of the maximum as keys, each with the
  // exponential's error, on what came before it.
  const A one_by_one =
      with(tensor_core(ASSAY_FP16, 1, 16, 25, 23), [](A& a) { a.exp_relative_error = 0x1p-18; });
  const A unsaid = with(one_by_one, [](A& a) { a.tile_keys = 0; });
  Habits high;
  high.exp_error = [](float x) { return x == 0 ? 0.0 : 0x1.fp-19; };
  for (const int32_t keys : {500, 4000})
    all.push_back({"fp16 P, keys by rising score, V of two halves",
                   "P: fewer updates of the running maximum than keys",
                   [=](uint64_t) {
                     return by_hand(
                         keys, 8, [=](int64_t j) { return 0.25 * static_cast<double>(j) / keys; },
                         [=](int64_t j, int32_t t) { return (j < keys / 2) == (t % 2 == 0) ? 1.0 : -1.25; });
                   },
                   one_by_one, unsaid, high, 1});
  return all;
}

}  // namespace assay::attacks
