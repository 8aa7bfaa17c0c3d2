// SPDX-License-Identifier: Apache-2.0
// Attacks on what tier P takes for granted of orders that are not declared (BOUNDS.md, L14): V that goes with
// positions or with scores, so that an order in which V has no say sums one side of it; products that a
// matrix unit cuts all one way. And on the worst case of a rescale (fused multiply-add, the old maximum not
// rounded).
#pragma once

#include <numeric>

#include "reference/attacks/attack.hpp"

namespace assay::attacks {

// The same row with its keys in this order of their scores, `score` of the key's number.
inline std::function<DenseCase(const DenseCase&)> sorted_by(const std::function<double(int64_t)>& score) {
  return [=](const DenseCase& c) {
    const size_t d = static_cast<size_t>(c.problem.head_dim_qk),
                 dv = static_cast<size_t>(c.problem.head_dim_v), m = c.k.size() / d;
    std::vector<size_t> order(m);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
      return score(static_cast<int64_t>(i)) < score(static_cast<int64_t>(j));
    });
    DenseCase s = c;
    for (size_t j = 0; j < m; ++j) {
      std::copy_n(&c.k[order[j] * d], d, &s.k[j * d]);
      std::copy_n(&c.v[order[j] * dv], dv, &s.v[j * dv]);
    }
    return s;
  };
}

inline std::vector<Attack> of_orders_without_v() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  constexpr int32_t kKeys = 6000, kDims = 8;
  // Weights of one size to a few parts in a hundred, no two alike; scores rise with `rise` over each of
  // `runs` stretches of the keys, V is `v` by the place within its stretch.
  const auto data = [=](int32_t runs, double rise, const auto& v) {
    return [=](uint64_t seed) {
      const int32_t each = kKeys / runs;
      return by_hand(
          kKeys, kDims,
          [=](int64_t j) { return rise * static_cast<double>(j % each) / each + 1e-4 * uniform(seed, 5, j); },
          [=](int64_t j, int32_t t) {
            return v(static_cast<double>(j % each) / each) * (1 + 0.1 * t) + 0.2 * normal(seed, 6, 8 * j + t);
          });
    };
  };
  const auto halves = [](double at) { return at < 0.5 ? 1.0 : -1.0; };
  const auto thirds = [](double at) { return at < 1.0 / 3 || at > 2.0 / 3 ? 0.7 : -1.4; };
  const auto waves = [](double at) { return std::sin(40 * at); };
  const auto parts = [](int32_t n) {
    return with(tensor_core(ASSAY_FP16, 4, 4, 25, 23),
                [=](A& a) { a.splits = n, a.exp_relative_error = 0x1p-14, a.partial_format = ASSAY_FP16; });
  };
  Habits high;
  high.exp_error = [](float x) { return x == 0 ? 0.0 : 0x1.fp-15; };
  high.fused = true;
  const auto add = [&](const char* name, const char* aim, const auto& made, const A& kernel, const A& said) {
    all.push_back({name, aim, made, kernel, said, high, 1});
  };
  const char* windows = "P: windows of the natural order";
  for (const int32_t n : {1, 4}) {
    const A undeclared = parts(n);
    add("V of two halves of each part", windows, data(n, 0.5, halves), undeclared, undeclared);
    add("V of thirds of each part", windows, data(n, 0.5, thirds), undeclared, undeclared);
    add("V in waves", windows, data(n, 0.5, waves), undeclared, undeclared);
    const A reversed = with(undeclared, [](A& a) { a.tile_reverse = 1; });
    add("V of two halves, falling, reversed", windows, data(n, -0.5, halves), reversed,
        n == 1 ? reversed : undeclared);
  }
  const A by_turns = with(parts(4), [](A& a) { a.split_interleaved = 1; });
  add("V of two halves, parts by turns", windows, data(1, 0.5, halves), by_turns, parts(4));
  add("V of thirds of 3 parts, 4 may be", windows, data(3, 0.5, thirds), parts(3),
      with(parts(4), [](A& a) { a.splits_vary = 1; }));

  // Keys anywhere, V by their score; the kernel takes them as scores rise.
  const auto place = [](int64_t j) { return uniform(11, 7, j); };
  const auto by_score = [=](const auto& v) {
    return [=](uint64_t seed) {
      return by_hand(
          kKeys, kDims, [=](int64_t j) { return 0.5 * place(j); },
          [=](int64_t j, int32_t t) {
            return v(place(j)) * (1 + 0.1 * t) + 0.2 * normal(seed, 6, 8 * j + t);
          });
    };
  };
  const char* scores = "P: V that goes with scores";
  for (const int32_t n : {1, 4}) {
    const A said = with(parts(n), [=](A& a) { a.tile_keys = n == 1 ? 0 : a.tile_keys; });
    const A sorted = with(parts(n), [=](A& a) { a.tile_keys = n == 1 ? 1 : 4, a.split_interleaved = n > 1; });
    all.push_back({"keys by rising score, V by its half", scores, by_score(halves), sorted, said, high, 1,
                   sorted_by(place)});
    all.push_back({"keys by rising score, V its size", scores, by_score([](double at) { return 2 * at - 1; }),
                   sorted, said, high, 1, sorted_by(place)});
  }

  // Products of one sign are cut and those of the other are not, or are cut to nothing.
  const auto cut = [=](double share, double small, double large) {
    return [=](uint64_t seed) {
      DenseCase c = by_hand(
          kKeys, kDims, [=](int64_t j) { return 0.3 * normal(seed, 8, j); },
          [=](int64_t j, int32_t t) {
            return uniform(seed, 9, j) < share ? small * (1 + 0.1 * t)
                                               : -large * (1 + 0.01 * normal(seed, 10, j));
          },
          ASSAY_BF16);
      return c;
    };
  };
  const A coarse = with(tensor_core(ASSAY_BF16, 64, 16, 18, 23), [](A& a) { a.splits = 4; });
  const char* signs = "P: products cut in both directions";
  all.push_back(
      {"half of V tiny, half large and negative", signs, cut(0.5, 0x1p-9, 1), coarse, coarse, {}, 1});
  all.push_back({"V large and rare, small and frequent", signs, cut(0.9, 0.11, 1), coarse, coarse, {}, 1});
  all.push_back({"V of both signs", signs, cut(0.5, 1, 1), coarse, coarse, {}, 1});

  // Large scores a little above one another, each rounded to one side as it is multiplied by log2(e).
  const A one_by_one = with(tensor_core(ASSAY_FP32, 1, 16, 25, 23), [](A& a) {
    a.qk = a.pv = {ASSAY_ACC_FMA, 1, 0, 23}, a.exp_relative_error = 0x1p-23;
  });
  Habits fused;
  fused.fused = true;
  const auto rising = [=](uint64_t) {
    double at = 900;
    std::vector<double> score;
    while (score.size() < 400) {
      at += 0x1p-12;
      const double exact = static_cast<double>(static_cast<float>(at)) * M_LOG2E,
                   off = exact - static_cast<double>(static_cast<float>(exact));
      if (off > 0x1p-15) score.push_back(static_cast<double>(static_cast<float>(at)));
    }
    return by_hand(
        400, kDims, [=](int64_t j) { return score[static_cast<size_t>(j)]; },
        [](int64_t j, int32_t t) { return (j < 200) == (t % 2 == 0) ? 1.0 : -1.25; });
  };
  const A unsaid = with(one_by_one, [](A& a) { a.tile_keys = 0; });
  all.push_back({"rescales of a fused argument", "D: n_u u top", rising, one_by_one, unsaid, fused, 1});
  all.push_back({"the same, order declared", "D: n_u u top", rising, one_by_one,
                 with(one_by_one, [](A& a) { a.order_declared = 1; }), fused, 1});
  return all;
}

}  // namespace assay::attacks
