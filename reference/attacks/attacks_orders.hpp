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

// Scores that rise with the key, as a position bias makes them: against its own maximum every tile has the
// same weights, which round alike, while against the row's they lie anywhere on the grid of P.
inline std::vector<Attack> of_rising_scores() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  const auto rising = [](int32_t keys, double slope) {
    return [=](uint64_t seed) {
      return by_hand(
          keys, 8,
          [=](int64_t j) { return slope * static_cast<double>(j - keys) + 1e-5 * normal(seed, 1, j); },
          [](int64_t, int32_t t) { return 1 + 0.1 * t; });
    };
  };
  const auto add = [&](const char* name, const A& kernel, int32_t keys, double slope, bool tile_known) {
    const A ordered = with(kernel, [](A& a) { a.order_declared = 1; });
    const A unsaid = with(kernel, [=](A& a) {
      a.order_declared = 0;
      if (!tile_known) a.tile_keys = a.split_keys = 0, a.splits = 1;
    });
    all.push_back({name,
                   "P: what P rounds to is random against any maximum",
                   rising(keys, slope),
                   ordered,
                   unsaid,
                   {},
                   2});
  };
  const auto joint = [](A& a) { a.row_sum_from_rounded_p = 1; };
  const auto parts = [](A& a) { a.split_keys = 16, a.splits = 2; };
  const A e5m2 = tensor_core(ASSAY_FP8_E5M2, 16, 16, 25, 23);
  add("e5m2 P, row sum of it, parts of a tile", with(with(e5m2, joint), parts), 262, 0x1p-8, true);
  add("e5m2 P, row sum of it, one part", with(e5m2, joint), 262, 0x1p-8, true);
  add("e5m2 P, row sum of it, tile unsaid", with(e5m2, joint), 262, 0x1p-8, false);
  // Evenly over one step a tile's weights round to both sides; rounded against another maximum before, to
  // one.
  add("e4m3 P, rounded twice, parts of a tile",
      with(with(tensor_core(ASSAY_FP8_E4M3, 16, 16, 25, 23), parts), [](A& a) { a.p_roundings = 2; }), 400,
      0x1p-8, true);
  add("e4m3 P, tiles of 64", tensor_core(ASSAY_FP8_E4M3, 64, 16, 25, 23), 4000, 0x1p-11, true);
  add("e4m3 P, tiles of 64, unsaid", tensor_core(ASSAY_FP8_E4M3, 64, 16, 25, 23), 4000, 0x1p-11, false);
  add("bf16 P, tiles of 64", tensor_core(ASSAY_BF16, 64, 16, 25, 23), 8000, 0x1p-15, true);
  return all;
}

}  // namespace assay::attacks
