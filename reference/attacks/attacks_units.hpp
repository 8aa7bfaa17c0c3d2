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

// Attacks on the count of keys that share a score (count_alike()): keys that come back, each time with the
// same V, so that what they share adds up in all channels; scores of few values with V by score.
inline std::vector<Attack> of_alike_keys() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  constexpr int32_t kDims = 32;
  // m keys, each of m / times; `apart`: copies follow at that distance. V of a key is the same each time.
  const auto copies = [](uint64_t seed, int32_t m, int32_t times, bool together, int32_t format,
                         double size) {
    DenseCase c = make_case(Family::kNormal, 1, m, kDims, seed, format);
    for (double& k : c.k) k *= size;
    for (int64_t j = 0; j < m; ++j) {
      const int64_t first = together ? j / times * times : j % (m / times);
      for (int32_t t = 0; t < kDims; ++t) {
        c.k[j * kDims + t] = c.k[first * kDims + t];
        c.v[j * kDims + t] = c.v[first * kDims + t];
      }
    }
    c.store();
    return c;
  };
  // Scores k / 8 of some `values`, and V with the sign of what rounding does to that weight in e4m3.
  const auto steps = [](uint64_t seed, int32_t m, int32_t values, int32_t format) {
    DenseCase c = make_case(Family::kNormal, 1, m, kDims, seed, format);
    c.problem.softmax_scale = 0.125f;
    std::fill(c.q.begin(), c.q.end(), 1.0);
    std::fill(c.k.begin(), c.k.end(), 0.0);
    for (int64_t j = 0; j < m; ++j) {
      const double place = std::floor(values * uniform(seed, 3, j));
      // Three numbers of few bits make up any of them.
      const double high = std::floor(place / 64), low = place - 64 * high;
      c.k[j * kDims] = high * 8, c.k[j * kDims + 1] = std::floor(low / 8),
              c.k[j * kDims + 2] = std::fmod(low, 8) / 8;
      const double p = std::exp((place / 8 - values / 8.0) * 0.125),
                   fraction = std::fmod(std::log2(p) + 64, 1.0);
      for (int32_t t = 0; t < kDims; ++t)
        c.v[j * kDims + t] = (fraction < 0.5 ? 1.0 : -1.0) * (1 + uniform(seed, 4, j * kDims + t));
    }
    c.store();
    return c;
  };
  const auto add = [&](const char* name, const char* aim, const std::function<DenseCase(uint64_t)>& data,
                       const A& kernel, const A& declared) {
    all.push_back({name, aim, data, kernel, declared, {}, 4});
  };
  const A fp8 = with(tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13),
                     [](A& a) { a.order_declared = 1, a.p_offset_log2 = 8; });
  const A integers = with(arithmetic(ASSAY_INT8, 1, 64), [](A& a) {
    a.qk = a.pv = {ASSAY_ACC_INT32, 32, 0, 0}, a.order_declared = 1;
  });
  const A bf16 = with(tensor_core(ASSAY_BF16, 64, 16, 25, 23), [](A& a) { a.order_declared = 1; });
  const A fp32 = with(arithmetic(ASSAY_FP32, 1, 64), [](A& a) { a.order_declared = 1; });
  const A joint = with(bf16, [](A& a) { a.row_sum_from_rounded_p = 1; });
  const auto unordered = [](A a) {
    a.order_declared = 0;
    return a;
  };
  const auto of = [&](int32_t m, int32_t times, bool together, int32_t format, double size) {
    return [=](uint64_t seed) { return copies(seed, m, times, together, format, size); };
  };
  const char* aim = "P: equal scores are one error";
  add("e4m3 P, each key 8 times", aim, of(2048, 8, false, ASSAY_FP8_E4M3, 1), fp8, fp8);
  add("the same, order undeclared", aim, of(2048, 8, false, ASSAY_FP8_E4M3, 1), fp8, unordered(fp8));
  add("the same, one after the other, flatter", aim, of(2048, 15, true, ASSAY_FP8_E4M3, 0.3), fp8,
      unordered(fp8));
  add("bf16 P, fp8 keys 15 times", aim, of(3000, 15, false, ASSAY_FP8_E4M3, 0.5), bf16, unordered(bf16));
  add("bf16 P, fp8 keys 15 times, declared", aim, of(3000, 15, false, ASSAY_FP8_E4M3, 0.5), bf16, bf16);
  add("row sum of rounded P, fp8 keys 15 times", aim, of(3000, 15, true, ASSAY_FP8_E4M3, 0.5), joint,
      unordered(joint));
  add("fp32 P, one lane, fp8 keys 12 times", aim, of(6000, 12, true, ASSAY_FP8_E4M3, 0.1), fp32, fp32);
  add("int8 P, keys 8 times", aim, of(2048, 8, false, ASSAY_FP8_E4M3, 1), integers, unordered(integers));
  const auto of_steps = [&](int32_t m, int32_t values) {
    return [=](uint64_t seed) { return steps(seed, m, values, ASSAY_FP8_E4M3); };
  };
  add("e4m3 P, 300 scores, V by rounding", aim, of_steps(2400, 300), fp8, unordered(fp8));
  add("bf16 P, 300 scores, V by rounding", aim, of_steps(2400, 300), bf16, unordered(bf16));
  return all;
}

// L17: of an 8-bit cache, one product a step that is not on the grid of sums of 23 bits, and all of it is
// lost each time; of the keys with V = 1, and none of those with V = -1 or of all.
inline std::vector<Attack> of_counted_cuts() {
  std::vector<Attack> all;
  for (const bool apart : {true, false}) {
    const auto data = [=](uint64_t seed) {
      DenseCase c = make_case(Family::kNormal, 1, 600, 64, seed, ASSAY_FP16);
      Problem& p = c.problem;
      p.k_format = ASSAY_FP8_E4M3, p.softmax_scale = 0x1p-5f;
      const double large[] = {256, 32, 37, 41}, small = 0x1p-10 * (2 - 0x1p-10);
      for (size_t i = 0; i < c.q.size(); ++i) {
        const size_t t = i % 64;
        c.q[i] = t < 4 ? large[t] : t % 4 == 0 ? small : 0;
      }
      for (size_t i = 0; i < c.k.size(); ++i) {
        const size_t t = i % 64, key = i / 64 / static_cast<size_t>(p.heads_kv);
        if (t == 0) c.k[i] = 1;
        if (t > 3) c.k[i] = t % 4 == 0 && (!apart || key % 2 == 1) ? 0x1p-6 : 0;
      }
      for (size_t i = 0; i < c.v.size(); ++i)
        c.v[i] = i / c.problem.head_dim_v / static_cast<size_t>(p.heads_kv) % 2 == 1 ? 1 : -1;
      c.store();
      return c;
    };
    const assay_arithmetic a = tensor_core(ASSAY_FP16, 64, 4, 25, 23);
    all.push_back({apart ? "an 8-bit cache, what is cut goes with V" : "an 8-bit cache, all scores are cut",
                   "P: products that are cut",
                   data,
                   a,
                   a,
                   {},
                   3});
  }
  return all;
}

}  // namespace assay::attacks
