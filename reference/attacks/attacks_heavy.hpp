// SPDX-License-Identifier: Apache-2.0
// Attacks on what tiers P and R take from values instead of worst cases (BOUNDS.md, L9 to L12): few keys with
// most of the weight, sums that others no longer change, maxima that rise as often as scores allow, a largest
// key whose P is known.
#pragma once

#include "reference/attacks/attack.hpp"

namespace assay::attacks {

inline std::vector<Attack> of_heavy_keys() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  constexpr int32_t kDims = 8;
  const auto undeclared = [](A a) {
    a.order_declared = 0;
    return a;
  };
  const A fp8 = with(tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13),
                     [](A& a) { a.order_declared = 1, a.p_offset_log2 = 8; });
  const A reversed = with(fp8, [](A& a) { a.tile_reverse = 1; });
  const A finer = with(fp8, [](A& a) { a.pv.fraction_bits = 15, a.pv.mantissa_bits = 14; });

  // One key, then thousands each of which is about the last bit that a sum of 13 bits keeps.
  const auto behind = [=](double score, double value) {
    return [=](uint64_t seed) {
      return by_hand(
          4000, kDims, [=](int64_t j) { return j == 0 ? 0 : score + 0.02 * normal(seed, 1, j); },
          [=](int64_t j, int32_t t) { return j == 0 ? 1.0 : value * (1 + 0.125 * t); });
    };
  };
  const auto coded = [](const auto& data) {
    return [=](uint64_t seed) {
      DenseCase c = data(seed);
      c.problem.v_format = ASSAY_FP8_E4M3;
      c.store();
      return c;
    };
  };
  const char* cuts = "P, R: what the cuts of a sum vary by, as they happen";
  for (const double score : {-8.3, -9.0, -9.7}) {
    const auto data = coded(behind(score, 1));
    all.push_back({"13 bits, one key before 4,000 near its last bit", cuts, data, fp8, fp8, {}, 1});
    all.push_back({"the same, 15 bits kept", cuts, data, finer, fp8, {}, 1});
    all.push_back({"the same, the key last, undeclared", cuts, data, reversed, undeclared(fp8), {}, 1});
  }

  // Roundings of a few keys' P, all as large as they can be and with the sign of V.
  const auto ties = [=](int32_t keys, double grid) {
    return [=](uint64_t seed) {
      return by_hand(
          keys, kDims,
          [=](int64_t j) {
            return j == 0 ? 0
                          : std::log((1 - grid * (static_cast<double>(j % 6) + 0.5)) *
                                     (1 - (j % 2 == 0 ? 1 : -1) * (1e-4 + 1e-5 * uniform(seed, 2, j))));
          },
          [=](int64_t j, int32_t t) { return (j % 2 == 0 ? 1 : -1) * (1 + 0.1 * t + 0.01 * (j % 5)); });
    };
  };
  const char* roundings = "P: roundings of few keys, each no more than half a step";
  for (const int32_t keys : {2, 3, 9, 16}) {
    const A bf16 = with(tensor_core(ASSAY_BF16, 64, 16, 25, 23), [](A& a) { a.order_declared = 1; });
    const A e4m3 = with(tensor_core(ASSAY_FP8_E4M3, 64, 32, 25, 23),
                        [](A& a) { a.order_declared = 1, a.p_offset_log2 = 8; });
    all.push_back({"bf16 P of few keys at ties, undeclared",
                   roundings,
                   ties(keys, 0x1p-8),
                   bf16,
                   undeclared(bf16),
                   {},
                   2});
    all.push_back({"e4m3 P of few keys at ties", roundings, ties(keys, 0x1p-4), e4m3, e4m3, {}, 2});
    all.push_back({"the same, undeclared", roundings, ties(keys, 0x1p-4), e4m3, undeclared(e4m3), {}, 2});
  }

  // int8 P of weights so near a tie that the rounding of their scores decides: what one of them turns over is
  // all that a bound of exact products is made of.
  const auto at_ties = [](uint64_t seed) {
    return by_hand(
        6, kDims,
        [=](int64_t j) {
          return j == 0 ? 2
                        : 2 + std::log((static_cast<double>(90 - 13 * j - static_cast<int64_t>(seed)) + 0.5) /
                                       127);
        },
        [](int64_t j, int32_t t) { return (j % 2 == 0 ? 1 : -1) * (1 + 0.1 * t); });
  };
  const A int8 = with(arithmetic(ASSAY_INT8, 1, 64), [](A& a) {
    a.qk = a.pv = {ASSAY_ACC_INT32, 32, 0, 0}, a.order_declared = 1;
  });
  const auto biased = [](double side) {
    Habits h;
    h.exp_error = [=](float x) { return x == 0 ? 0.0 : side * 0x1.7p-23; };
    return h;
  };
  const char* turned = "R: a weight that turns over moves O by a step";
  all.push_back({"int8 P at ties, scores rounded", turned, at_ties, int8, int8, {}, 10});
  all.push_back({"the same, a high exponential", turned, at_ties, int8, int8, biased(1), 10});
  all.push_back({"the same, a low one", turned, at_ties, int8, int8, biased(-1), 10});

  // Keys one by one as scores rise over several octaves: N updates of those below, each off by the
  // exponential.
  Habits high;
  high.exp_error = [](float x) { return x == 0 ? 0.0 : 0x1.fp-15; };
  const A one_by_one =
      with(tensor_core(ASSAY_FP16, 1, 16, 25, 23), [](A& a) { a.exp_relative_error = 0x1p-14; });
  const A unsaid = with(one_by_one, [](A& a) { a.tile_keys = 0; });
  for (const double rise : {1.0, 4.0, 12.0})
    all.push_back(
        {"keys by rising score, V of two halves", "P: updates by rank",
         [=](uint64_t) {
           return by_hand(
               600, kDims, [=](int64_t j) { return rise * static_cast<double>(j) / 600; },
               [=](int64_t j, int32_t t) { return (j < 600 - 300 / rise) == (t % 2 == 0) ? 1.0 : -1.25; });
         },
         one_by_one, unsaid, high, 1});

  // 16-bit products: of each block all but one are just below the last bit that is kept, so that all are
  // lost; of all keys alike (the LSE), or of all but the largest, whose P is 1.
  const auto lost = [=](bool beside) {
    return [=](uint64_t seed) {
      constexpr int32_t kProducts = 32, kKeys = 300;
      DenseCase c = by_hand(
          kKeys, kProducts, [](int64_t) { return 0.0; },
          [](int64_t j, int32_t t) { return (j == 0) == (t % 2 == 0) ? 1.0 : -1.0; });
      c.problem.q_format = c.problem.k_format = ASSAY_BF16;
      for (int64_t j = 0; j < kKeys; ++j) {
        double* k = &c.k[j * kProducts];
        if (j > 0 || !beside) {
          std::fill_n(k, kProducts, 0x1.fp-19);
          k[0] = 0x1p7, k[16] = -0x1p7;
        }
        k[31] = j == 0 ? 6 : normal(seed, 3, j);
        k[30] = 0x1p-9 * normal(seed, 4, j);  // no two scores alike
      }
      c.store();
      return c;
    };
  };
  const A bf16 = tensor_core(ASSAY_BF16, 64, 16, 25, 23);
  all.push_back({"16-bit products lost one way",
                 "LSE P: half of what a unit may cut off",
                 lost(false),
                 bf16,
                 bf16,
                 {},
                 2});
  all.push_back(
      {"the same, but for a largest key", "P: a known leader stands still", lost(true), bf16, bf16, {}, 2});
  return all;
}

}  // namespace assay::attacks
