// SPDX-License-Identifier: Apache-2.0
// Kernels that multiply Q by the scales of its and K's channels and round it again, which the reference
// repeats (assay_arithmetic::q_replayed_scales): what a rounding of Q by 2^-8 does to scores with outlying
// channels is a thousand times what is left, so whatever is repeated otherwise than a kernel does it shows.
#pragma once

#include "reference/attacks/attack.hpp"

namespace assay::attacks {

// K in int8 with a scale per channel; outlying channels as large as `outlier` of the others.
inline DenseCase channels_case(uint64_t seed, int32_t keys, double outlier, int32_t format = ASSAY_BF16) {
  DenseCase c = make_case(Family::kNormal, 2, keys, 64, seed, format);
  Problem& p = c.problem;
  for (size_t i = 0; i < c.k.size(); ++i)
    if (i % 64 % 21 == 1) c.k[i] = outlier * (1 + 0.3 * c.k[i]);
  p.k_format = p.v_format = ASSAY_INT8;
  p.k_scale = p.v_scale = ASSAY_SCALE_CHANNEL;
  return c.rebuilt(127);
}

inline std::vector<Attack> of_folded_channels() {
  using A = assay_arithmetic;
  const auto folds = [](A a, int32_t format = ASSAY_BF16, double factor = 1) {
    a.q_replayed_format = format, a.q_replayed_factor = factor, a.q_replayed_scales = 1;
    return a;
  };
  const auto ordered = [](A a) { return with(a, [](A& x) { x.order_declared = 1; }); };
  const A hopper = ordered(tensor_core(ASSAY_BF16, 64, 16, 25, 23)),
          ampere = tensor_core(ASSAY_FP16, 64, 8, 24, 23);
  std::vector<Attack> all;
  const auto same = [&](const char* name, const char* aim, auto data, const A& a, Habits habits = {},
                        int seeds = 3) {
    all.push_back({name, aim, data, a, a, std::move(habits), seeds});
  };
  same(
      "outlying channels in Q", "R: Q as it is multiplied is known",
      [](uint64_t seed) { return channels_case(seed, 300, 12); }, folds(hopper), {}, 6);
  same(
      "the same, order undeclared, fp16", "P: the same",
      [](uint64_t seed) { return channels_case(seed, 700, 30, ASSAY_FP16); }, folds(ampere, ASSAY_FP16));
  same(
      "the same in fp32 lanes", "P: products by lane have no scale to round",
      [](uint64_t seed) { return channels_case(seed, 300, 12); }, folds(arithmetic(ASSAY_FP32, 16, 64)));
  same(
      "the same, a unit of 13 bits", "P, R: the unit runs on Q as folded and on codes",
      [](uint64_t seed) { return channels_case(seed, 300, 4); },
      folds(ordered(tensor_core(ASSAY_BF16, 64, 16, 13, 13))));
  same(
      "a factor in Q, too", "R: two roundings to fp32 before the one to bf16",
      [](uint64_t seed) { return channels_case(seed, 300, 12); },
      folds(hopper, ASSAY_BF16, static_cast<double>(static_cast<float>(0.125 * M_LOG2E))));
  same(
      "Q of one mantissa at ties of its grid", "R: which way a tie of Q is rounded",
      [](uint64_t seed) {
        DenseCase c = channels_case(seed, 300, 12);
        // Scales that are powers of two leave Q at the middle between two numbers of bf16, times K by sign.
        c.problem.q_format = ASSAY_FP32;
        for (size_t i = 0; i < c.q.size(); ++i)
          c.q[i] = std::copysign(1 + 0x1p-8 + (i % 2 ? 0x1p-7 : 0), c.q[i]);
        for (float& s : c.k_scale) s = std::exp2(std::round(std::log2(s)));
        c.store();
        return c;
      },
      folds(hopper));
  same(
      "just beside ties of Q's grid", "R: Q times the scales is rounded to fp32 first",
      [](uint64_t seed) {
        DenseCase c = channels_case(seed, 300, 12);
        c.problem.q_format = ASSAY_FP32;
        for (size_t i = 0; i < c.q.size(); ++i) {
          const double s = c.k_scale[i % 64], tie = (1 + 0x1p-8) * std::exp2(std::floor(std::log2(s)));
          c.q[i] = std::copysign(
              static_cast<float>(tie / s * (1 + (static_cast<double>(i % 5) - 2) * 0x1p-24)), c.q[i]);
        }
        c.store();
        return c;
      },
      folds(hopper), {}, 6);
  same(
      "subnormal in fp16 after the scales", "D: subnormals of Q in units of what was stored",
      [](uint64_t seed) {
        DenseCase c = channels_case(seed, 60, 12, ASSAY_FP16);
        for (double& q : c.q) q *= 2e-3;
        c.problem.softmax_scale = 60;
        c.store();
        return c;
      },
      folds(ampere, ASSAY_FP16), {}, 6);
  same(
      "8-bit Q by head, K by channel", "a scale of Q that is none of a channel stays outside",
      [](uint64_t seed) {
        DenseCase c = channels_case(seed, 200, 6);
        c.problem.q_format = ASSAY_FP8_E4M3, c.problem.q_scale = ASSAY_SCALE_HEAD;
        DenseCase::quantise(c.q, c.q_scale, c.problem.q_scale, 2, 2, 64, 448);
        c.store();
        return c;
      },
      folds(hopper), {}, 6);
  same(
      "8-bit Q and K by channel", "both scales are in Q",
      [](uint64_t seed) {
        DenseCase c = channels_case(seed, 200, 6);
        c.problem.q_format = ASSAY_INT8, c.problem.q_scale = ASSAY_SCALE_CHANNEL;
        DenseCase::quantise(c.q, c.q_scale, c.problem.q_scale, 2, 2, 64, 127);
        c.store();
        return c;
      },
      folds(hopper), {}, 6);
  same(
      "a channel of zeros and one of scale 0", "what a scale of 0 divides",
      [](uint64_t seed) {
        DenseCase c = channels_case(seed, 100, 12);
        for (size_t i = 5; i < c.k.size(); i += 64) c.k[i] = 0;
        for (size_t i = 7; i < c.q.size(); i += 64) c.q[i] = 0;
        c.k_scale[5] = 0;
        c.store();
        return c;
      },
      folds(hopper));
  return all;
}

// Errors so large that a row sum may vanish: what is left is that the LSE moves no further than its scores.
inline std::vector<Attack> of_large_errors() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  const A quarter = with(arithmetic(ASSAY_FP32, 16, 64), [](A& a) { a.exp_relative_error = 0.25; });
  const auto flat = [](uint64_t seed) {
    return by_hand(
        200, 8, [=](int64_t j) { return 0.1 * normal(seed, 1, j); },
        [=](int64_t j, int32_t t) { return normal(seed, 2, 8 * j + t); });
  };
  // A factor of 3/4 is more than exp(-1/4) away from 1.
  all.push_back({"every exponential a quarter too small",
                 "L16: relative errors as logarithms",
                 flat,
                 quarter,
                 quarter,
                 {[](float) { return -0.25 + 0x1p-23; }},
                 2});
  const A few = with(tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13), [](A& a) { a.order_declared = 1; });
  all.push_back({"scores of hundreds on a unit of 13 bits",
                 "L16: the LSE where nothing bounds the row sum",
                 [](uint64_t seed) {
                   DenseCase c = make_case(Family::kOneHot, 2, 200, 64, seed);
                   Problem& p = c.problem;
                   p.q_format = p.k_format = p.v_format = ASSAY_FP8_E4M3;
                   p.q_scale = p.k_scale = p.v_scale = ASSAY_SCALE_TENSOR;
                   for (double& q : c.q) q *= 4;
                   return c.rebuilt(448);
                 },
                 few,
                 few,
                 {},
                 4});
  return all;
}

}  // namespace assay::attacks
