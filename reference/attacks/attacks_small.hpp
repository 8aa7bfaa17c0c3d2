// SPDX-License-Identifier: Apache-2.0
// Weights of near-equal keys that lie together far below another one, or against an LSE: in a few steps of
// P's grid whatever the row spans, so that they all round one way. Below the smallest normal number of the
// format a step is no share of a weight, and half of one moves them by a third of themselves.
#pragma once

#include "reference/attacks/attack.hpp"

namespace assay::attacks {

inline std::vector<Attack> of_small_weights() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  // Near-equal keys that lie `spread` wide, `below` the first one.
  const auto flat = [](int32_t keys, double below, double spread, double mean, double sd) {
    return [=](uint64_t seed) {
      return by_hand(
          keys, 8, [=](int64_t j) { return j == 0 ? 0.0 : -below - spread * uniform(seed, 1, j); },
          [=](int64_t j, int32_t t) { return mean + sd * normal(seed, 2, j * 8 + t); });
    };
  };
  const auto add = [&](const char* name, const A& kernel, const A& declared, auto data) {
    all.push_back(
        {name, "P: steps are shares of weights, runs lie side by side", data, kernel, declared, {}, 2});
  };
  const auto against_lse = [](int32_t format, int32_t roundings, int32_t parts) {
    return with(tensor_core(format, 16, 16, 25, 23), [=](A& a) {
      a.weights_lse_format = ASSAY_FP32, a.p_roundings = roundings, a.splits = parts;
      if (parts > 1) a.split_keys = 64;
    });
  };
  const auto below_first = [](int32_t format, int32_t tile, int32_t roundings) {
    return with(tensor_core(format, tile, 16, 25, 23),
                [=](A& a) { a.p_roundings = roundings, a.order_declared = 1; });
  };
  const auto small = [&](const char* name, const A& kernel, int32_t keys, double below) {
    add(name, kernel, kernel, flat(keys, below, 0.2, 0.15, 0.2));
  };
  for (const int32_t keys : {80, 120, 149, 180, 240}) {
    small("e4m3 P against the row's LSE, rounded twice", against_lse(ASSAY_FP8_E4M3, 2, 1), keys, 0);
    small("... three times", against_lse(ASSAY_FP8_E4M3, 3, 1), keys, 0);
    small("... against the LSE of parts of 64 keys", against_lse(ASSAY_FP8_E4M3, 1, 4), keys, 0);
    small("e4m3 P, subnormal below the first key, twice", below_first(ASSAY_FP8_E4M3, 16, 2), keys,
          std::log(keys) - 0.1);
  }
  for (const int32_t keys : {3000, 5000}) {
    small("e5m2 P against the row's LSE, rounded twice", against_lse(ASSAY_FP8_E5M2, 2, 1), keys, 0);
    small("e5m2 P, subnormal below the first key, thrice", below_first(ASSAY_FP8_E5M2, 16, 3), keys,
          std::log(keys) - 0.1);
  }
  // In one tile with the first key, weights just above the middle between two places as they are rounded
  // first: 17/16 of 2^-k over 1.4.
  for (const int32_t keys : {40, 200})
    for (const int32_t octaves : {0, 2, 3}) {
      const double below = octaves * M_LN2 - std::log(17 / 16.0 / 1.4) - 0.01;
      const A e4m3 = below_first(ASSAY_FP8_E4M3, 256, 2), bf16 = below_first(ASSAY_BF16, 256, 2);
      add("e4m3 P, together below the first key, twice", e4m3, e4m3, flat(keys, below, 0.008, 1, 0.1));
      add("... order undeclared", e4m3, with(e4m3, [](A& a) { a.order_declared = 0; }),
          flat(keys, below, 0.008, 1, 0.1));
      const double of_bf16 = octaves * M_LN2 - std::log(257 / 256.0 / 1.4) - 0.0006;
      add("bf16 P, together below the first key, twice", bf16, bf16, flat(keys, of_bf16, 0.0005, 1, 0.1));
      // Rounded once: just above the middle.
      const A one = below_first(ASSAY_FP8_E4M3, 256, 1);
      add("e4m3 P, once, order undeclared", one, with(one, [](A& a) { a.order_declared = 0; }),
          flat(keys, octaves * M_LN2 - std::log(17 / 16.0) + 0.69, 0.008, 1, 0.1));
    }
  // Weights of any row, spread over dozens of steps: the numbers of the first grid lie beside those of the
  // last by a share of a step that grows within an octave from a quarter to a half.
  const auto spread = [](int32_t keys) {
    return [=](uint64_t seed) {
      return by_hand(
          keys, 8, [=](int64_t j) { return normal(seed, 1, j); },
          [=](int64_t j, int32_t t) { return 1 + 0.1 * normal(seed, 2, j * 8 + t); });
    };
  };
  for (const int32_t keys : {400, 4000}) {
    Habits beside;
    beside.first_above = 1.9361f;
    const A e4m3 = with(below_first(ASSAY_FP8_E4M3, 64, 2), [](A& a) { a.order_declared = 0; });
    add("e4m3 P over many steps, rounded twice", e4m3, e4m3, spread(keys));
    all.back().habits = beside;
    beside.first_above = 1.9919f;
    add("... bf16, order declared", below_first(ASSAY_BF16, 64, 2), below_first(ASSAY_BF16, 64, 2),
        spread(keys));
    all.back().habits = beside;
  }
  return all;
}

}  // namespace assay::attacks
