// SPDX-License-Identifier: Apache-2.0
// Further attacks: what else a tier might take for independent, generic or small, denied one at a time.
#pragma once

#include "reference/attacks/attacks_found.hpp"

namespace assay::attacks {

// All scores within `spread` of 0 but the first key's, which is `above`.
inline std::function<DenseCase(uint64_t)> flat(int32_t m, double above, double spread,
                                               std::function<double(int64_t, int32_t)> value) {
  return [=](uint64_t seed) {
    return by_hand(
        m, 8, [=](int64_t j) { return j == 0 ? above + 0.03 * double(seed) : spread * normal(seed, 1, j); },
        value);
  };
}

inline std::vector<Attack> more() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  const auto same = [&](const char* name, const char* aim, auto data, const A& a, Habits habits = {},
                        int seeds = 3) {
    all.push_back({name, aim, data, a, a, habits, seeds});
  };
  const auto constant = [](int64_t, int32_t t) { return 1 + 0.1 * t; };
  const A ordered_bf16 = with(tensor_core(ASSAY_BF16, 64, 16, 25, 23), [](A& a) { a.order_declared = 1; });

  // ---- the row sum
  same("row sum in runs of 64 weights", "P: increments of a row sum are weights",
       flat(16384, 0.4, 1e-4, constant),
       with(fp32(1, 64), [](A& a) { a.row_sum_chain = 64 + 16384 / 64 + 8; }), Habits{nullptr, 64});
  same(
      "two weights in turn", "P: row sums round at random",
      [=](uint64_t seed) {
        return by_hand(
            8192, 8,
            [=](int64_t j) {
              return j == 0 ? 0.31 + 0.01 * double(seed)
                            : (j % 2 ? 0.0 : -0x1p-12) + 3e-6 * normal(seed, 1, j);
            },
            constant);
      },
      fp32(1, 64));
  same(
      "one weight, then another", "P: row sums round at random",
      [=](uint64_t seed) {
        return by_hand(
            8192, 8,
            [=](int64_t j) {
              return j == 0 ? 0.31 + 0.01 * double(seed)
                            : (j < 3000 ? 0.0 : -0x1p-12) + 3e-6 * normal(seed, 1, j);
            },
            constant);
      },
      fp32(1, 64));
  same(
      "sixteen weights, each near-equal", "P: row sums round at random",
      [=](uint64_t seed) {
        return by_hand(
            16384, 8,
            [=](int64_t j) {
              return j == 0 ? 0.2 + 0.003 * double(seed)
                            : -0.005 * double(j % 16) + 1e-6 * normal(seed, 1, j);
            },
            constant);
      },
      fp32(1, 64));
  all.push_back({"near-equal weights, nothing declared",
                 "P: row sums round at random",
                 flat(8192, 0.4, 1e-6, constant),
                 with(fp32(1, 256), [](A& a) { a.row_sum_chain = 0; }),
                 default_arithmetic(),
                 {},
                 4});
  all.back().declared.exp_relative_error = 0x1p-22;
  same("many small weights after a large one", "P: swallowed weights", flat(16384, 16.9, 1e-3, constant),
       fp32(1, 64));
  same("small weights whose V opposes the large one's", "P: swallowed weights",
       flat(16384, 16.9, 1e-3, [](int64_t j, int32_t t) { return j == 0 ? -0.9 : 1 + 0.1 * t; }),
       fp32(1, 64));
  same("many small weights in 8 lanes", "P: swallowed weights by lane", flat(16384, 14.9, 1e-3, constant),
       with(fp32(8, 64), [](A& a) {
         a.row_sum = {ASSAY_ACC_FMA, 8, 0, 23};
       }));
  same("many small weights on a tensor core", "P: swallowed weights", flat(16384, 16.9, 1e-3, constant),
       ordered_bf16);
  same("row sum by a tensor core, near-equal", "P: truncation of a row sum", flat(8192, 0.4, 1e-5, constant),
       with(ordered_bf16, [](A& a) {
         a.row_sum = {ASSAY_ACC_BLOCK, 16, 25, 23}, a.row_sum_from_rounded_p = 1;
       }));

  // ---- the exponential
  same(
      "V follows the exponential's error", "P: V knows nothing of the exponential",
      [](uint64_t seed) {
        return by_hand(
            8192, 8, [=](int64_t j) { return j == 0 ? 0.0 : -2 * uniform(seed, 1, j); },
            [=](int64_t j, int32_t) {
              return cubic_error(static_cast<float>(j == 0 ? 0.0 : -2 * uniform(seed, 1, j)), 1.0);
            });
      },
      with(fp32(1, 1 << 20), [](A& a) { a.exp_relative_error = 8.9e-5; }),
      Habits{[](float x) { return cubic_error(x, 8.8e-5); }, 0});
  same(
      "eight clusters, V by cluster", "P: exponentials err independently",
      [](uint64_t seed) {
        const auto cluster = [=](int64_t j) { return static_cast<int64_t>(8 * uniform(seed, 1, j)); };
        return by_hand(
            16384, 8,
            [=](int64_t j) {
              return j == 0 ? 0.0 : -M_LN2 * double(cluster(j)) / 8 - 0.04 + 0.002 * uniform(seed, 2, j);
            },
            [=](int64_t j, int32_t t) {
              return ((cluster(j) >> (t % 3)) % 2 ? 1 : -1) + 0.1 * uniform(seed, 3, j);
            });
      },
      with(ordered_bf16, [](A& a) { a.exp_relative_error = 8.9e-5; }),
      Habits{[](float x) { return cubic_error(x, 8.8e-5); }, 0}, 2);

  // ---- repeated scores
  same(
      "repeats but in every seventh key", "P: M samples every seventh key",
      [](uint64_t seed) {
        return by_hand(
            8192, 8, [=](int64_t j) { return j % 7 == 0 ? -uniform(seed, 1, j)
                                             : j % 2    ? -0.3466
                                                        : -0.5916; },
            [=](int64_t j, int32_t) { return j % 7 == 0 ? 0.0
                                             : j % 2    ? 1.0
                                                        : -1.0; });
      },
      with(ordered_bf16, [](A& a) { a.exp_relative_error = 8.9e-5; }),
      Habits{[](float x) { return cubic_error(x, 8.8e-5); }, 0}, 2);
  same(
      "five hundred scores, repeated", "P: M remembers 64 scores",
      [](uint64_t seed) {
        const auto which = [=](int64_t j) { return static_cast<int64_t>(500 * uniform(seed, 1, j)); };
        return by_hand(
            16384, 8, [=](int64_t j) { return -2 * uniform(seed, 2, which(j)); },
            [=](int64_t j, int32_t t) { return normal(seed, 3, which(j) * 8 + t); });
      },
      with(fp32(1, 1 << 20), [](A& a) { a.exp_relative_error = 0x1p-14; }), Habits{nullptr, 0}, 4);

  // ---- roundings of Q, K and V
  const auto int8_k = [](uint64_t seed) {
    DenseCase c = make_case(Family::kNormal, 1, 200, 64, seed, ASSAY_BF16);
    c.problem.k_format = ASSAY_INT8;
    c.problem.k_scale = ASSAY_SCALE_TENSOR;
    for (size_t i = 0; i < c.q.size(); ++i) c.q[i] = i % 2 ? 1.0 : -1.0;
    for (size_t i = 0; i < c.k.size(); ++i)
      c.k[i] = normal(seed, 5, int64_t(i / 64)) > 0 ? (i % 2 ? 100 : 99) : (i % 2 ? -100 : -99);
    c.k_scale = {0.0117f + 0.0009f * static_cast<float>(seed)};
    c.store();
    return c;
  };
  const A some = with(ordered_bf16, [](A& a) { a.dequant_format = ASSAY_BF16; });
  same("bimodal int8 K, some rounding", "P, R: K's roundings are independent", int8_k, some, {}, 8);
  same(
      "V of one fp8 code, some rounding", "P, R: V's roundings are independent",
      [](uint64_t seed) {
        DenseCase c = make_case(Family::kNormal, 1, 300, 8, seed, ASSAY_BF16);
        c.problem.v_format = ASSAY_FP8_E4M3;
        c.problem.v_scale = ASSAY_SCALE_TOKEN_HEAD;
        for (double& v : c.v) v = 1.75;
        c.v_scale.assign(300, 0.0107f + 0.001f * static_cast<float>(seed));
        c.store();
        return c;
      },
      some, {}, 8);
  same(
      "Q of one magnitude, K along it", "P, R: Q's roundings are independent",
      [](uint64_t seed) {
        DenseCase c = make_case(Family::kNormal, 1, 200, 64, seed, ASSAY_BF16);
        for (size_t i = 0; i < c.q.size(); ++i) c.q[i] = (i % 3 ? 1.1 : -1.1) * (1 + 0.06 * double(seed));
        for (size_t i = 0; i < c.k.size(); ++i)
          c.k[i] = (i % 64 % 3 ? 1 : -1) * normal(seed, 5, int64_t(i / 64));
        c.problem.softmax_scale = 0.1f + 0.0031f * static_cast<float>(seed);
        c.store();
        return c;
      },
      with(ordered_bf16, [](A& a) { a.q_rounding = 0x1p-8 + 0x1p-24; }), {}, 8);

  // ---- dot products
  same(
      "ordered cancellation on a tensor core", "P, R: products in generic order",
      [](uint64_t seed) {
        DenseCase c = make_case(Family::kNormal, 1, 24, 512, seed, ASSAY_BF16);
        for (double& q : c.q) q = 1.37 + 0.02 * double(seed);
        for (int64_t j = 0; j < 24; ++j)
          for (int32_t t = 0; t < 512; ++t) c.k[j * 512 + t] = (t < 256 ? 4 : -3.9) * (1 + 0.01 * double(j));
        c.problem.softmax_scale = 0.1f;
        c.store();
        return c;
      },
      ordered_bf16);
  same(
      "one large product, many small ones", "P, R: products in generic order",
      [](uint64_t seed) {
        DenseCase c = make_case(Family::kNormal, 1, 64, 256, seed, ASSAY_BF16);
        for (double& q : c.q) q = 249 / 128.;
        for (int64_t j = 0; j < 64; ++j)
          for (int32_t t = 0; t < 256; ++t)
            c.k[j * 256 + t] = t == 0 ? 4096 : t == 255 ? -4096 : (j % 3 ? 245 : 237) / 128.;
        c.problem.softmax_scale = 0.05f;
        c.store();
        return c;
      },
      fp32(1, 64));
  same(
      "cancellation in quarters", "P: products in generic order",
      [](uint64_t seed) {
        DenseCase c = make_case(Family::kNormal, 1, 64, 512, seed, ASSAY_FP32);
        for (double& q : c.q) q = 1.37 + 0.02 * double(seed);
        for (int64_t j = 0; j < 64; ++j)
          for (int32_t t = 0; t < 512; ++t)
            c.k[j * 512 + t] = (t / 128 % 2 ? -3.9 : 4) * (1 + 0.01 * double(j));
        c.problem.softmax_scale = 0.1f;
        c.store();
        return c;
      },
      fp32(1, 64));

  // ---- P V in an undeclared order, partial results
  const A four_lanes = arithmetic(ASSAY_FP32, 4, 1 << 20);
  all.push_back({"four lanes, V alternating by four",
                 "P: partial sums of the natural order",
                 [](uint64_t seed) {
                   return by_hand(
                       16000, 8, [=](int64_t j) { return -0.5 + 0.01 * normal(seed, 1, j); },
                       [](int64_t j, int32_t) {
                         return j % 4 == 0 ? 90. : j % 4 == 2 ? -90. : j % 4 == 1 ? 30. : -30.;
                       });
                 },
                 four_lanes,
                 unordered(four_lanes),
                 {},
                 3});
  const A turns = with(arithmetic(ASSAY_FP32, 1, 64), [](A& a) { a.splits = 2, a.split_interleaved = 1; });
  all.push_back({"V alternating by tile, parts in turn",
                 "P: partial sums of the natural order",
                 [](uint64_t seed) {
                   return by_hand(
                       16000, 8, [=](int64_t j) { return -0.5 + 0.01 * normal(seed, 1, j); },
                       [](int64_t j, int32_t) { return j / 64 % 2 ? 90. : -90.; });
                 },
                 with(turns, [](A& a) { a.order_declared = 1; }),
                 turns,
                 {},
                 3});
  same(
      "equal partial results in bf16", "P, R: partial results round at random",
      [](uint64_t seed) {
        return by_hand(
            512, 8, [=](int64_t j) { return 0.5 * uniform(seed, 1, j % 32); },
            [=](int64_t j, int32_t t) { return 1 + uniform(seed, 2, j % 32 * 8 + t); });
      },
      with(ordered_bf16,
           [](A& a) {
             a.tile_keys = 16, a.split_keys = 32, a.splits = 16;
             a.partial_format = ASSAY_BF16;
           }),
      {}, 6);
  same(
      "near-equal partial results in bf16", "P, R: partial results round at random",
      [](uint64_t seed) {
        return by_hand(
            512, 8, [=](int64_t j) { return 0.5 * uniform(seed, 1, j); },
            [=](int64_t j, int32_t t) {
              return 1.3 + 0.01 * t + 0.002 * double(seed) + 1e-4 * uniform(seed, 2, j);
            });
      },
      with(ordered_bf16,
           [](A& a) {
             a.tile_keys = 16, a.split_keys = 32, a.splits = 16;
             a.partial_format = ASSAY_BF16;
           }),
      {}, 6);

  // Weights in the middle of a cell of P's grid, so none rounds otherwise, whatever its score is off by.
  const auto opposed = [](uint64_t seed) {
    const double cap = 8, top = 3 + 0.07 * double(seed);
    DenseCase c = by_hand(
        128, 8,
        [=](int64_t j) {
          const double x = top - (j < 64 ? 0 : 0.11) + std::log(1 - double(j % 64) / 256);
          return cap * std::atanh(x / cap);
        },
        [](int64_t j, int32_t t) { return (j < 64 ? 1 : -1) * (1 + 0.1 * t); });
    c.problem.softcap = static_cast<float>(cap);
    return c;
  };
  const A capped_parts = with(ordered_bf16, [](A& a) {
    a.qk = {ASSAY_ACC_FMA, 1, 0, 23};
    a.tile_keys = 64, a.splits = 2;
    a.tanh_relative_error = 0x1p-15;
  });
  same("parts of opposite sign", "R: errors of scores act on O", opposed, capped_parts, {}, 8);
  same("the same, row sum of rounded P", "R: errors of scores act on O", opposed,
       with(capped_parts, [](A& a) { a.row_sum_from_rounded_p = 1; }), {}, 8);

  // ---- rounding of P
  const A e4m3 = with(tensor_core(ASSAY_FP8_E4M3, 64, 32, 25, 23), [](A& a) {
    a.qk = {ASSAY_ACC_FMA, 1, 0, 23};
  });
  all.push_back({"flat after rising maxima, e4m3, undeclared",
                 "P: rounded against the row's maximum",
                 [](uint64_t seed) {
                   return by_hand(
                       2000, 8,
                       [=](int64_t j) {
                         return j == 1999 ? -std::log(1 - 0x1p-4)
                                : j == 0  ? 0.02 + 0.003 * double(seed)
                                          : 1e-6 * normal(seed, 1, j);
                       },
                       [](int64_t, int32_t t) { return 1 + 0.1 * t; });
                 },
                 e4m3,
                 unordered(e4m3),
                 {},
                 6});
  all.push_back({"two clusters of weights, undeclared",
                 "P: rounded against the row's maximum",
                 [](uint64_t seed) {
                   return by_hand(
                       4000, 8,
                       [=](int64_t j) {
                         return j == 3999 ? 0.0
                                : j == 0  ? -0.002 - 0.0002 * double(seed)
                                         : std::log(1 - (j % 2 ? 1 : 2) * 0x1p-8) + 1e-7 * normal(seed, 1, j);
                       },
                       [](int64_t j, int32_t) { return j % 2 ? 1.0 : 1.5; });
                 },
                 ordered_bf16,
                 unordered(ordered_bf16),
                 {},
                 8});
  same("flat logits, truncated P, joint row sum", "LSE P: truncation", flat(2000, 0.003, 1e-5, constant),
       with(ordered_bf16, [](A& a) { a.p_truncated = a.row_sum_from_rounded_p = 1; }));
  same(
      "a sink above all keys", "P: sinks",
      [](uint64_t seed) {
        DenseCase c = make_case(Family::kUltraFlat, 1, 3000, 8, seed);
        c.problem.sinks = true;
        c.sinks = {6.0f, 9.0f};
        c.store();
        return c;
      },
      with(ordered_bf16, [](A& a) { a.sink_first = 1; }));
  const auto late_sink = [](uint64_t seed) {
    DenseCase c = by_hand(
        12, 8, [=](int64_t j) { return -uniform(seed, 1, j); },
        [=](int64_t j, int32_t t) { return 1 + 0.1 * t + 0.01 * uniform(seed, 2, j); });
    c.problem.sinks = true;
    c.sinks = {0.5f, 0.02f};
    c.store();
    return c;
  };
  const auto coarse = [](A& a) { a.exp_relative_error = 0x1p-12; };
  same("a sink that joins late, above all keys", "LSE P: keys are rescaled by keys", late_sink,
       with(fp32(1, 64), coarse), Habits{[](float x) { return x == 0 ? 0 : 0.97 * 0x1p-12; }, 0});
  same("the same, P in bf16", "R: keys are rescaled by keys", late_sink, with(ordered_bf16, coarse),
       Habits{[](float x) { return x == 0 ? 0 : 0.97 * 0x1p-12; }, 0}, 8);
  // Above a sink two keys rise, one by one: all that was there is rescaled, the sink's weight as well.
  const A each_key = with(fp32(1, 1), [](A& a) { a.exp_relative_error = 0x1p-12, a.sink_first = 1; });
  Habits too_large{[](float) { return 0.97 * 0x1p-12; }, 0};
  too_large.sink_weighs_first = true;
  same(
      "a sink that comes first, below two keys that rise", "LSE P: keys alone are rescaled",
      [](uint64_t seed) {
        DenseCase c = by_hand(
            2, 8, [](int64_t j) { return 0.01 * double(j + 1); },
            [=](int64_t j, int32_t t) { return 1 + 0.1 * t + 0.01 * uniform(seed, 2, j); });
        c.problem.sinks = true;
        c.sinks = {0.0f, 0.009f};
        c.store();
        return c;
      },
      each_key, too_large);
  same(
      "all scores at the cap", "P: scores repeat nearly",
      [](uint64_t seed) {
        DenseCase c = make_case(Family::kOneHot, 1, 2000, 8, seed);
        for (double& q : c.q) q = 40;
        for (double& k : c.k) k = 2 + std::fabs(k);
        c.problem.softcap = 5;
        c.store();
        return c;
      },
      with(fp32(1, 64), [](A& a) { a.tanh_relative_error = 0x1p-22; }));
  // Weights about a tie of bf16, which the tanh of the largest key moves together.
  const auto beside_a_tie = [](uint64_t seed) {
    DenseCase c = by_hand(
        300, 8, [=](int64_t j) { return j == 0 ? 0.0 : -0x1p-9 + 2e-5 * normal(seed, 1, j); },
        [](int64_t, int32_t t) { return 1 + 0.1 * t; });
    c.problem.softcap = 50;
    return c;
  };
  same("flat logits, tanh errs", "P: roundings follow no key", beside_a_tie,
       with(ordered_bf16, [](A& a) { a.tanh_absolute_error = 0x1p-16; }), {}, 12);
  same("flat logits, the exponential errs", "P: roundings follow no key", beside_a_tie,
       with(ordered_bf16, [](A& a) { a.exp_relative_error = 0x1p-13; }),
       Habits{[](float x) { return x == 0 ? 0 : 0.97 * 0x1p-13; }, 0}, 12);
  // Scores that are apart, and weights that are not once they are rounded.
  same("flat logits, one lane, P in bf16", "R: near-equal weights are seen before they are rounded",
       flat(4000, 0, 3e-4, [](int64_t, int32_t t) { return 1.25 + 0.03 * t; }),
       with(arithmetic(ASSAY_BF16, 1, 64), [](A& a) { a.order_declared = a.p_truncated = 1; }));
  return all;
}

}  // namespace assay::attacks
