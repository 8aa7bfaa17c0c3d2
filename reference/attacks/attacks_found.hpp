// SPDX-License-Identifier: Apache-2.0
// The attacks by which an outside examination left the tiers, rebuilt from their description, with sizes cut
// down where the effect allows.
#pragma once

#include "reference/attacks/attack.hpp"

namespace assay::attacks {

// Plain fp32 in one order; each attack changes what it needs.
inline assay_arithmetic fp32(int32_t lanes, int32_t tile) {
  assay_arithmetic a = arithmetic(ASSAY_FP32, lanes, tile);
  a.order_declared = tile > 0;
  return a;
}
inline assay_arithmetic unordered(assay_arithmetic a) {
  a.order_declared = 0;
  return a;
}

// Two clusters of scores (their exponentials err in opposite directions), V by cluster.
inline DenseCase two_clusters(uint64_t seed, int32_t m, double spread) {
  // Where the cubic's error is largest, and of which sign: fractions 0.5 (+) and 0.1465 (-).
  const double high = -0.5 * M_LN2, low = -0.8535 * M_LN2;
  return by_hand(
      m, 8,
      [=](int64_t j) {
        if (j == 0) return 0.0;
        return (uniform(seed, 1, j) < 0.5 ? high : low) + spread * (uniform(seed, 2, j) - 0.5);
      },
      [=](int64_t j, int32_t t) {
        const double sign = uniform(seed, 1, j) < 0.5 ? 1 : -1;
        return sign * (1 + 0.125 * uniform(seed, 3, j * 8 + t));
      });
}

inline std::vector<Attack> found() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  const auto same = [&](const char* name, const char* aim, auto data, const A& a, Habits habits = {},
                        int seeds = 3) {
    all.push_back({name, aim, data, a, a, habits, seeds});
  };

  for (const float scale : {1.0f, 64.0f})
    same(
        scale == 1 ? "subnormal Q on a tensor core" : "the same, scale 64", "D: alignment",
        [=](uint64_t) {
          DenseCase c = make_case(Family::kNormal, 1, 40, 16, 3, ASSAY_FP16);
          for (double& q : c.q) q = 0x1p-24;
          for (size_t i = 0; i < c.k.size(); ++i)
            c.k[i] = i % 16 == 0 ? 32768 : i / 16 % 2 ? 0.96875 : -0.96875;
          c.problem.softmax_scale = scale;
          c.store();
          return c;
        },
        tensor_core(ASSAY_FP16, 16, 16, 25, 23), {}, 1);

  // Scores next to zero, so that no two are equal as floats, under a first key that gives weights their
  // phase.
  const auto near_equal = [](int32_t m, double spread) {
    return [=](uint64_t seed) {
      return by_hand(
          m, 8, [=](int64_t j) { return j == 0 ? 0.37 + 0.05 * double(seed) : spread * normal(seed, 1, j); },
          [](int64_t, int32_t t) { return 1 + 0.1 * t; });
    };
  };
  const A chains = with(fp32(1, 64), [](A& a) { a.row_sum_chain = 4100; });
  same("near-equal logits, row sum in 4 chains", "P: row sums round at random", near_equal(16384, 1e-5),
       chains);
  same("ultra-flat logits, row sum in 4 chains", "P: row sums round at random", near_equal(16384, 1.5e-4),
       chains);
  same("near-equal logits, one lane of P V", "P: P V rounds at random", near_equal(8192, 1e-5), fp32(1, 64));

  const A poly = with(tensor_core(ASSAY_BF16, 64, 16, 25, 23), [](A& a) {
    a.exp_relative_error = 8.9e-5;
    a.order_declared = 1;
  });
  const Habits cubic{[](float x) { return cubic_error(x, 8.8e-5); }, 0};
  same(
      "two clusters, V by cluster, cubic", "P: exponentials err independently",
      [](uint64_t seed) { return two_clusters(seed, 32768, 0.02); }, poly, cubic, 2);
  same(
      "the same in fp32 P", "P: exponentials err independently",
      [](uint64_t seed) { return two_clusters(seed, 8192, 0.02); },
      with(fp32(1, 64), [](A& a) { a.exp_relative_error = 8.9e-5; }), cubic, 2);
  same(
      "the same, repeated scores", "P: M sees repeats",
      [](uint64_t seed) { return two_clusters(seed, 8192, 0); }, poly, cubic, 2);

  // Products that grow to the middle and cancel after it.
  const auto cancelling = [](int32_t m, int32_t d) {
    return [=](uint64_t seed) {
      DenseCase c = make_case(Family::kNormal, 1, m, d, seed, ASSAY_FP32);
      for (size_t i = 0; i < c.q.size(); ++i) c.q[i] = 1.37 + 0.02 * double(seed);
      for (int64_t j = 0; j < m; ++j)
        for (int32_t t = 0; t < d; ++t) c.k[j * d + t] = (t < d / 2 ? 4 : -3.9) * (1 + 0.01 * double(j));
      c.problem.softmax_scale = 0.1f;
      c.store();
      return c;
    };
  };
  same("ordered cancellation, d = 576, one lane", "P: products in generic order", cancelling(24, 576),
       fp32(1, 64));

  // Flat V > 0. The kernel's maximum is that of a first key, so P lies between two numbers and rounds one
  // way; against the maximum of the row, its last key, P would be a number itself.
  const auto last_larger = [](int32_t m, int64_t part) {
    return [=](uint64_t seed) {
      return by_hand(
          m, 8,
          [=](int64_t j) {
            return j + 1 == m      ? -std::log(1 - 0x1p-8)
                   : j % part == 0 ? 0.0013 + 0.0002 * double(seed)
                                   : 1e-6 * normal(seed, 1, j);
          },
          [](int64_t, int32_t t) { return 1 + 0.1 * t; });
    };
  };
  const A bf16 = with(arithmetic(ASSAY_BF16, 16, 64), [](A&) {});
  all.push_back({"larger last key, order undeclared",
                 "P: rounded against the row's maximum",
                 last_larger(4000, 4000),
                 bf16,
                 unordered(bf16),
                 {},
                 6});
  const A mma =
      with(tensor_core(ASSAY_BF16, 16, 16, 25, 23), [](A& a) { a.splits = 4, a.row_sum_chain = 2000; });
  all.push_back({"the same on matrix instructions",
                 "P: rounded against the row's maximum",
                 last_larger(4000, 1008),
                 mma,
                 unordered(mma),
                 {},
                 6});

  const auto two_magnitudes = [](uint64_t seed) {
    DenseCase c = make_case(Family::kNormal, 1, 100, 512, seed, ASSAY_BF16);
    for (size_t i = 0; i < c.q.size(); ++i) c.q[i] = i % 2 ? 1.1 : 1.3;
    for (size_t i = 0; i < c.k.size(); ++i)
      c.k[i] = (i % 2 ? -1.18 : 1) * (normal(seed, 5, int64_t(i / 512)) + 0.1 * normal(seed, 6, int64_t(i)));
    // A factor after which one of the two rounds up and the other down, as far as they can.
    double worst = 0;
    for (int n = 0; n < 2000; ++n) {
      const float scale = 0.08f + 1e-5f * static_cast<float>(n) + 0.0031f * static_cast<float>(seed);
      const auto off = [&](double q) {
        const double x = round_to(ASSAY_BF16, q) * scale;
        return round_to(ASSAY_BF16, static_cast<float>(x)) / x - 1;
      };
      if (off(1.1) - off(1.3) > worst) worst = off(1.1) - off(1.3), c.problem.softmax_scale = scale;
    }
    c.store();
    return c;
  };
  const A folded = with(tensor_core(ASSAY_BF16, 64, 16, 25, 23), [](A& a) {
    a.q_rounding = 0x1p-8 + 0x1p-24;
    a.order_declared = 1;
  });
  same("Q of two magnitudes, folded and rounded", "P, R: Q's roundings are independent", two_magnitudes,
       folded, {}, 6);
  same("the same in fp32 P", "P: Q's roundings are independent", two_magnitudes,
       with(fp32(16, 64), [](A& a) { a.q_rounding = 0x1p-8 + 0x1p-24; }), {}, 6);

  const auto int8_v = [](int32_t channels) {
    return [=](uint64_t seed) {
      DenseCase c = make_case(Family::kNormal, 1, 600, 16, seed, ASSAY_BF16);
      Problem& p = c.problem;
      p.v_format = ASSAY_INT8;
      p.v_scale = ASSAY_SCALE_TENSOR;
      for (size_t i = 0; i < c.v.size(); ++i)
        c.v[i] = i % 16 < static_cast<size_t>(channels)
                     ? (normal(seed, 4, int64_t(i)) > 0 ? 100 : -99)
                     : std::clamp(30 * normal(seed, 4, int64_t(i)), -127., 127.);
      c.v_scale = {0.0123f + 0.0007f * static_cast<float>(seed)};
      c.store();
      return c;
    };
  };
  const A some = with(tensor_core(ASSAY_BF16, 64, 16, 25, 23), [](A& a) {
    a.dequant_format = ASSAY_BF16;
    a.order_declared = 1;
  });
  same("bimodal int8 V, some rounding", "P, R: V's roundings are independent", int8_v(16), some, {}, 6);
  same("one channel of 16 bimodal", "P, R: V's roundings are independent", int8_v(1), some, {}, 12);

  same(
      "ALiBi as slope x column", "D, P, R: bias of the distance's size",
      [](uint64_t seed) {
        DenseCase c = make_case(Family::kNormal, 1, 16000, 8, seed);
        c.problem.alibi = ASSAY_ALIBI_LINEAR;
        c.slopes = {0.7071f, 0.0313f};
        c.store();
        return c;
      },
      with(tensor_core(ASSAY_BF16, 64, 16, 25, 23),
           [](A& a) { a.bias_form = ASSAY_BIAS_COLUMN, a.order_declared = 1; }),
      {}, 2);
  same(
      "soft cap by a quotient of exponentials", "D: tanh errs relatively",
      [](uint64_t seed) {
        DenseCase c = make_case(Family::kFlat, 2, 60, 16, seed);
        c.problem.softcap = 50;
        c.store();
        return c;
      },
      with(fp32(16, 64), [](A& a) { a.tanh_relative_error = 0x1p-22, a.tanh_absolute_error = 0x1p-23; }));
  same(
      "fp16 Q of 1e-5, rounded again", "D: Q's rounding is relative",
      [](uint64_t seed) {
        DenseCase c = make_case(Family::kNormal, 2, 60, 32, seed, ASSAY_FP16);
        for (double& q : c.q) q *= 1e-5;
        c.problem.softmax_scale = 4000;
        c.store();
        return c;
      },
      with(fp32(16, 64), [](A& a) { a.q_rounding = 0x1p-11 + 0x1p-24, a.q_rounding_absolute = 3 * 0x1p-25; }),
      {}, 6);

  // Two lanes, V alternating: each lane's sum is as large as sum p|v|.
  const A two_pass = arithmetic(ASSAY_FP32, 2, 1 << 20);
  all.push_back({"two passes, two lanes, V = +-100",
                 "P: partial sums of the natural order",
                 [](uint64_t seed) {
                   return by_hand(
                       16000, 8, [=](int64_t j) { return -0.5 + 0.01 * normal(seed, 1, j); },
                       [](int64_t j, int32_t t) { return (j % 2 ? -100. : 100.) * (1 + 0.01 * t); });
                 },
                 two_pass,
                 unordered(two_pass),
                 {},
                 3});

  // Ampere's row sum of rounded P on flat logits: P rounds one way.
  same(
      "flat logits, row sum of rounded P", "LSE P: P rounds at random",
      [](uint64_t seed) {
        DenseCase c = make_case(Family::kNormal, 4, 130, 64, seed);
        for (double& q : c.q) q *= 0.05;
        c.problem.softmax_scale = 0.001f;
        c.store();
        return c;
      },
      with(tensor_core(ASSAY_BF16, 64, 8, 24, 23),
           [](A& a) { a.row_sum_from_rounded_p = 1, a.order_declared = 1; }),
      {}, 12);
  all.push_back({"the same, order undeclared",
                 "LSE P: P rounds at random",
                 all.back().data,
                 all.back().kernel,
                 unordered(all.back().kernel),
                 {},
                 12});

  // Violated nothing when they were found; they stay.
  same(
      "lag 8, cubic every 4th key", "P", [](uint64_t seed) { return two_clusters(seed, 4096, 0.5); },
      with(tensor_core(ASSAY_BF16, 64, 16, 25, 23),
           [](A& a) {
             a.rescale_lag_log2 = 8, a.order_declared = 1;
             a.exp_relative_error = 8.9e-5;
           }),
      cubic, 2);
  same("13-bit constant products", "P: truncation", near_equal(4000, 1e-6),
       with(tensor_core(ASSAY_FP8_E4M3, 64, 32, 13, 13), [](A& a) {
         a.qk = {ASSAY_ACC_FMA, 1, 0, 23};
         a.promote_pv = a.order_declared = 1;
         a.p_offset_log2 = 8;
       }));
  same(
      "the same, V in bf16", "P: truncation",
      [=](uint64_t seed) {
        DenseCase c = near_equal(4000, 1e-6)(seed);
        c.problem.v_format = ASSAY_BF16;
        c.store();
        return c;
      },
      all.back().kernel);
  same(
      "a maximum that rises in every tile", "P: updates",
      [](uint64_t seed) {
        return by_hand(
            4096, 8, [=](int64_t j) { return double(j / 64) * 0.7 + 0.1 * uniform(seed, 1, j); },
            [=](int64_t j, int32_t t) { return normal(seed, 2, j * 8 + t); });
      },
      poly, Habits{[](float) { return 8.8e-5; }, 0}, 2);
  return all;
}

}  // namespace assay::attacks
