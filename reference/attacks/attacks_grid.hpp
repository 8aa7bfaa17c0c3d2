// SPDX-License-Identifier: Apache-2.0
// Attacks on what tier P takes P's grid for: errors of the exponential, of the largest key and of the data
// that know where P rounds, and rules (bias, window, sink, cap, parts) under which many tiles round alike.
#pragma once

#include "reference/attacks/attack.hpp"

namespace assay::attacks {

// How far the next place above p lies at which a rounding to `format` changes, relative to p.
inline double to_next_place(int32_t format, double p) {
  const double spacing = std::ldexp(1.0, std::ilogb(p) - format_info(format).mantissa_bits);
  const double steps = p / spacing + 0.5;
  return (std::ceil(steps) - steps) * spacing / p;
}
// And below.
inline double to_last_place(int32_t format, double p) {
  const double spacing = std::ldexp(1.0, std::ilogb(p) - format_info(format).mantissa_bits);
  const double steps = p / spacing + 0.5;
  return (steps - std::floor(steps)) * spacing / p;
}

// An exponential whose declared error takes P over the next place of the grid where it can, and makes the row
// sum smaller everywhere else.
inline Habits over_the_places(int32_t format, double most, double offset = 0) {
  Habits h;
  h.exp_error = [=](float x) {
    const double p = std::exp(static_cast<double>(x)), up = to_next_place(format, p);
    if (x == static_cast<float>(offset * M_LN2)) return 0.0;
    if (up <= most) return std::min(most, up + 0x1p-22);
    return to_last_place(format, p) <= most ? 0.0 : -most;
  };
  return h;
}

inline std::vector<Attack> of_grids() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  const auto ordered = [](int32_t format, int32_t tile, double eps, double offset = 0) {
    return with(arithmetic(format, 16, tile), [=](A& a) {
      a.order_declared = 1, a.exp_relative_error = eps, a.p_offset_log2 = static_cast<float>(offset);
    });
  };
  const auto spread_scores = [](int32_t keys, double width, std::function<double(int64_t, int32_t)> value) {
    return [=](uint64_t seed) {
      return by_hand(
          keys, 8, [=](int64_t j) { return j == 0 ? 0.0 : -width * uniform(seed, 1, j); }, value);
    };
  };
  const auto constant = [](int64_t, int32_t t) { return 1 + 0.1 * t; };

  const char* knows = "P: the exponential's error knows nothing of P's grid";
  for (const double eps : {0x1p-13, 0x1p-15}) {
    const A a = ordered(ASSAY_BF16, 64, eps);
    all.push_back({eps == 0x1p-13 ? "bf16 P, exponential 2^-13 up to the next place" : "the same, 2^-15",
                   knows, spread_scores(32768, 2, constant), a, a, over_the_places(ASSAY_BF16, eps - 0x1p-23),
                   2});
  }
  {
    const A a = ordered(ASSAY_FP8_E4M3, 64, 0x1p-10, 8);
    all.push_back({"e4m3 P, exponential 2^-10 up to the next place", knows, spread_scores(32768, 2, constant),
                   a, a, over_the_places(ASSAY_FP8_E4M3, 0x1p-10 - 0x1p-23, 8), 2});
    const A b = ordered(ASSAY_BF16, 1 << 20, 0x1p-13);
    all.push_back({"bf16 P, undeclared, exponential up", knows, spread_scores(32768, 2, constant), b,
                   with(b, [](A& x) { x.order_declared = 0; }),
                   over_the_places(ASSAY_BF16, 0x1p-13 - 0x1p-23), 2});
  }
  // A cluster of weights just below a place, whose rounding errors other weights make up for: what all
  // weights have in common (here the exponential's lean) takes it over.
  const auto cluster = [&](const char* name, double eps, double share, double within, double sign) {
    const A a = ordered(ASSAY_BF16, 64, eps);
    Habits h;
    h.exp_error = [=](float x) { return x == 0 ? 0.0 : 0.98 * eps; };
    all.push_back(
        {name, "P: weights beside a place are those of a generic grid",
         [=](uint64_t seed) {
           return by_hand(
               32768, 8,
               [=](int64_t j) {
                 if (j == 0) return 0.0;
                 const double which = uniform(seed, 2, j);
                 // Numbers of bf16 in (1/2, 1) are 1/256 apart.
                 const auto step = static_cast<double>(140 + static_cast<int64_t>(100 * uniform(seed, 3, j)));
                 double at;
                 if (which < share)
                   at = (step + 0.5) / 256 * (1 - within * uniform(seed, 4, j));
                 else if (which < 3 * share)
                   at = (step + 0.75 + 0.02 * normal(seed, 5, j)) / 256;
                 else
                   at = (step + (sign == 0 ? 0.4 * uniform(seed, 6, j) - 0.2 : uniform(seed, 6, j))) / 256;
                 return std::log(at);
               },
               constant);
         },
         a, a, h, 3});
  };
  cluster("bf16 P, a cluster below places, others between", 2.8e-5, 0.02, 0x1p-15, 0);
  cluster("the same, other weights anywhere", 2.8e-5, 0.02, 0x1p-15, 1);
  // Sums of products of one sign lean down on a matrix unit; the largest key's single product does not, so
  // all other weights are smaller by about as much, and those just above a place fall below it together.
  {
    constexpr int32_t kKeys = 32768;
    const A a = with(ordered(ASSAY_BF16, 64, 0x1p-22), [](A& x) {
      x.qk = {ASSAY_ACC_BLOCK, 16, 25, 23}, x.pv.block = 256;
      x.row_sum = {ASSAY_ACC_FMA, 256, 0, 23};
    });
    all.push_back({"bf16 P, scores lean, a cluster above places",
                   "P: weights beside a place are those of a generic grid",
                   [=](uint64_t seed) {
                     constexpr int32_t kDims = 32;
                     constexpr double kTop = 20;
                     DenseCase c = make_case(Family::kNormal, 1, 1, kDims, 1, ASSAY_FP32);
                     c.problem.requests = {{1, kKeys}};
                     c.problem.softmax_scale = 1, c.problem.head_dim_v = 8;
                     std::fill(c.q.begin(), c.q.end(), 1.0);
                     c.k.assign(static_cast<size_t>(kKeys) * kDims, 0.0);
                     c.v.assign(static_cast<size_t>(kKeys) * 8, 1.0);
                     c.k[0] = kTop;
                     for (int64_t j = 1; j < kKeys; ++j) {
                       const double which = uniform(seed, 2, j), share = 0.024;
                       const auto step =
                           static_cast<double>(140 + static_cast<int64_t>(100 * uniform(seed, 3, j)));
                       double at = step + 0.8 * uniform(seed, 6, j) - 0.4;
                       if (which < share)
                         at = (step + 0.5) * (1 + 0x1p-20 * uniform(seed, 4, j));
                       else if (which < 3 * share)
                         at = step + 0.15 + 0.2 * uniform(seed, 5, j);
                       double left = kTop + std::log(at / 256);
                       for (int32_t t = 0; t + 1 < kDims; ++t) {
                         const float k =
                             static_cast<float>(kTop / kDims * (0.8 + 0.4 * uniform(seed, 7, j * kDims + t)));
                         c.k[j * kDims + t] = k, left -= k;
                       }
                       c.k[j * kDims + kDims - 1] = left;
                     }
                     c.store();
                     return c;
                   },
                   a,
                   a,
                   {},
                   2});
  }
  return all;
}

// An exponential errs as a function of its argument that nobody declares: `teeth` changes of sign in an
// octave (a polynomial has a few, a table of 64 entries 64, an exponential in fp16 1,024), and V has its
// sign. Bounds of keys that share a bin of the argument would be narrower than this by what cancels inside a
// bin.
inline std::vector<Attack> of_coarse_exponentials() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  constexpr double kError = 0x1p-13;
  constexpr int32_t kKeys = 32768;
  const char* aim = "P: keys of one bin of the exponential's argument share its error";
  const A fp32 =
      with(arithmetic(ASSAY_FP32, 16, 64), [](A& a) { a.order_declared = 1, a.exp_relative_error = kError; });
  for (const int teeth : {1, 16, 64, 1024}) {
    const auto sign = [=](double x) {
      const double f = x * M_LOG2E * teeth;
      return f - std::floor(f) < 0.5 ? 1.0 : -1.0;
    };
    const Habits habits{[=](float x) { return x == 0 ? 0.0 : (kError - 0x1p-23) * sign(x); }, 0};
    const auto score = [](uint64_t seed, int64_t j) { return j == 0 ? 0.0 : -2 * uniform(seed, 1, j); };
    all.push_back({teeth == 1    ? "exponential 2^-13, V by its sign, 1 tooth"
                   : teeth == 16 ? "the same, 16 teeth in an octave"
                   : teeth == 64 ? "the same, 64"
                                 : "the same, 1,024",
                   aim,
                   [=](uint64_t seed) {
                     return by_hand(
                         kKeys, 8, [=](int64_t j) { return score(seed, j); },
                         [=](int64_t j, int32_t t) { return sign(score(seed, j)) * (1 + 0.1 * t); });
                   },
                   fp32, fp32, habits, 1});
  }
  return all;
}

// Rules under which tiles look alike, and V that knows what P rounds to.
inline std::vector<Attack> of_rules() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  const auto ordered = [](A a) {
    a.order_declared = 1;
    return a;
  };
  const A bf16 = ordered(tensor_core(ASSAY_BF16, 64, 16, 25, 23));
  const A e4m3 = ordered(tensor_core(ASSAY_FP8_E4M3, 64, 16, 25, 23));
  const auto unsaid = [](A a) {
    a.order_declared = 0;
    return a;
  };
  const auto add = [&](const char* name, const char* aim, auto data, const A& kernel, const A& declared,
                       Habits habits = {}, int seeds = 2) {
    all.push_back({name, aim, data, kernel, declared, habits, seeds});
  };

  // V has the sign of P's rounding error against the running maximum, which rises from tile to tile.
  const auto follows = [](int32_t format, int32_t keys, double rise) {
    return [=](uint64_t seed) {
      const auto score = [=](int64_t j) {
        return rise * static_cast<double>(j / 64) + (j % 64 == 0 ? 0.0 : -2 * uniform(seed, 1, j));
      };
      return by_hand(keys, 8, score, [=](int64_t j, int32_t t) {
        const double p = std::exp(score(j) - score(j / 64 * 64)), sign = round_to(format, p) > p ? 1 : -1;
        return sign * (1 + 0.1 * t);
      });
    };
  };
  const char* knows = "P: V knows nothing of P's rounding";
  add("bf16 P, V follows its rounding over tiles", knows, follows(ASSAY_BF16, 4096, 0.03), bf16, bf16);
  add("e4m3 P, V follows its rounding over tiles", knows, follows(ASSAY_FP8_E4M3, 4096, 0.03), e4m3, e4m3);
  add("e4m3 P, the same, row sum of it", knows, follows(ASSAY_FP8_E4M3, 4096, 0.03),
      with(e4m3, [](A& a) { a.row_sum_from_rounded_p = 1; }),
      with(e4m3, [](A& a) { a.row_sum_from_rounded_p = 1; }));

  // Scores on a ladder whose steps are a little more than an eighth of one of P's: many keys a step apart
  // round alike, none is repeated.
  const auto ladder = [](int32_t keys, double step) {
    return [=](uint64_t seed) {
      return by_hand(
          keys, 8,
          [=](int64_t j) {
            return -step * static_cast<double>(j % 97) - 1e-9 * static_cast<double>(j) - 1e-4 * double(seed);
          },
          [](int64_t j, int32_t t) { return 1 + 0.01 * static_cast<double>((j * 7 + t) % 13); });
    };
  };
  const char* spread = "P: scores anywhere round anywhere";
  add("bf16 P, a fine ladder", spread, ladder(8192, 0x1.08p-12), bf16, bf16);
  add("bf16 P, a fine ladder, order undeclared", spread, ladder(8192, 0x1.08p-12), bf16, unsaid(bf16));
  add("e4m3 P, a ladder, order undeclared", spread, ladder(8192, 0x1.08p-7), e4m3, unsaid(e4m3));
  add("e4m3 P, a ladder, tile unsaid, row sum of it", spread, ladder(8192, 0x1.08p-7),
      with(e4m3, [](A& a) { a.row_sum_from_rounded_p = 1; }),
      with(unsaid(e4m3), [](A& a) { a.row_sum_from_rounded_p = 1, a.tile_keys = 0; }));

  // A bias by which every tile has the same weights, a window that cuts tiles, a sink before or behind.
  const auto biased = [](int32_t keys, float slope, int32_t window, float sink, int32_t form) {
    return [=](uint64_t seed) {
      DenseCase c = make_case(Family::kFlat, 3, keys, 16, seed);
      Problem& p = c.problem;
      for (double& k : c.k) k *= 0x1p-10;
      for (double& v : c.v) v = 1 + 0.05 * v;
      p.alibi = form, c.slopes = {slope, slope / 4};
      if (window >= 0) p.window_left = window;
      p.sinks = true, c.sinks = {sink, sink - 1};
      c.store();
      return c;
    };
  };
  const char* rules = "P: tiles round each in their own way";
  const A late = bf16, early = with(bf16, [](A&a) { a.sink_first = 1; });
  add("ALiBi, window across tiles, sink behind", rules, biased(3000, 0x1p-9f, 1777, 0.3f, ASSAY_ALIBI_LINEAR),
      late, late);
  add("the same, sink before", rules, biased(3000, 0x1p-9f, 1777, 0.3f, ASSAY_ALIBI_LINEAR), early, early);
  add("the same, order undeclared", rules, biased(3000, 0x1p-9f, 1777, 0.3f, ASSAY_ALIBI_LINEAR), early,
      with(unsaid(early), [](A& a) { a.tile_keys = 0; }));
  add("ALiBi by root, e4m3 P, reversed", rules, biased(3000, 0x1p-6f, 900, 2.f, ASSAY_ALIBI_SQRT),
      with(e4m3, [](A& a) { a.tile_reverse = 1; }), with(e4m3, [](A& a) { a.tile_reverse = 1; }));
  add("ALiBi by root, e4m3 P, parts in turn, unsaid", rules,
      biased(3000, 0x1p-6f, 900, 2.f, ASSAY_ALIBI_SQRT),
      with(e4m3, [](A& a) { a.splits = 5, a.split_interleaved = 1; }),
      with(unsaid(e4m3), [](A& a) { a.splits = 5; }));

  // A cap far below the scores: all of them within its rounding, whose error is absolute.
  const auto capped = [](float cap, double size) {
    return [=](uint64_t seed) {
      DenseCase c = make_case(Family::kNormal, 2, 3000, 16, seed);
      c.problem.softcap = cap;
      for (double& q : c.q) q *= size;
      for (double& v : c.v) v = 1 + 0.05 * v;
      c.store();
      return c;
    };
  };
  const char* caps = "P: a cap's errors are as random as its scores";
  const auto coarse = [](A& a) { a.tanh_relative_error = 0x1p-11, a.exp_relative_error = 0x1p-15; };
  for (const float cap : {0.002f, 0.05f, 1.f})
    add(cap < 0.01f  ? "cap of 0.002, tanh 2^-11"
        : cap < 0.1f ? "cap of 0.05"
                     : "cap of 1",
        caps, capped(cap, 1), with(bf16, coarse), with(bf16, coarse));
  add("cap of 0.05, order undeclared", caps, capped(0.05f, 1), with(bf16, coarse),
      with(unsaid(bf16), coarse));

  // Results of parts in 16 bits, their number drawn for each request, V of one sign or by part.
  const auto parts = [](int64_t run) {
    return [=](uint64_t seed) {
      return by_hand(
          3000, 8, [=](int64_t j) { return 0.5 * normal(seed, 1, j) + 8 * (j / 500 == 2); },
          [=](int64_t j, int32_t t) { return (j / run % 2 == 0 ? 1 : -1.01) * (1 + 0.003 * double(t)); });
    };
  };
  const char* drawn = "P, R: parts are those of the longest request";
  for (const int32_t format : {ASSAY_BF16, ASSAY_FP16}) {
    const A a = with(tensor_core(format, 64, 16, 25, 23), [=](A& x) {
      x.splits = 12, x.splits_vary = 1, x.partial_format = format, x.partial_lse_format = format;
      x.partial_roundings = 3;
    });
    add(format == ASSAY_BF16 ? "bf16 parts and LSE, number drawn, 3 levels" : "the same in fp16", drawn,
        parts(250), a, a, {}, 6);
    add(format == ASSAY_BF16 ? "the same, V of one sign" : "the same in fp16, V of one sign", drawn,
        parts(100000), a, a, {}, 6);
  }
  // An exponential that is computed in fp16: rounded there, and then to P.
  Habits twice;
  twice.exp_error = [](float x) {
    const double p = std::exp(static_cast<double>(x));
    return p > 0x1p-14 ? round_to(ASSAY_FP16, p) / p - 1 : 0.0;
  };
  const auto half = [](A& a) { a.exp_relative_error = 0x1p-11 + 0x1p-23; };
  for (const A& a : {bf16, e4m3})
    for (const bool declared : {true, false})
      add(
          declared ? "an exponential in fp16, V > 0" : "the same, order undeclared",
          "P: the exponential's error is smooth",
          [](uint64_t seed) {
            return by_hand(
                8192, 8, [=](int64_t j) { return j == 0 ? 0.0 : -3 * uniform(seed, 1, j); },
                [](int64_t, int32_t t) { return 1 + 0.1 * t; });
          },
          with(a, half), with(declared ? a : unsaid(a), half), twice, 2);
  return all;
}

}  // namespace assay::attacks
