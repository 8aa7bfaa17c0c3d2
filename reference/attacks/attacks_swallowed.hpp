// SPDX-License-Identifier: Apache-2.0
// Attacks on what tier P takes from sums that no longer see most weights (BOUNDS.md, L20): long peaked rows
// in one chain of fp32 additions, whose last bit is above most weights, in any place of the grid; a row whose
// sum is a sink's from the start; an order that is not declared and begins with the heaviest keys.
#pragma once

#include "reference/attacks/attacks_found.hpp"

namespace assay::attacks {

// Scores of this standard deviation.
inline std::function<DenseCase(uint64_t)> peaked(int32_t m, double deviation) {
  return [=](uint64_t seed) {
    return by_hand(
        m, 8, [=](int64_t j) { return deviation * normal(seed, 1, j); },
        [=](int64_t j, int32_t t) { return 1 + 0.1 * t + 0.5 * normal(seed, 2, 8 * j + t); });
  };
}

inline std::vector<Attack> of_swallowed_weights() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  const char* aim = "P: what a row sum swallows is counted once";
  const auto one_chain = [](A a) {
    a.order_declared = 1, a.row_sum_chain = 0;
    return a;
  };
  Habits chain, base2;
  chain.row_sum_lanes = base2.row_sum_lanes = 1, base2.base2 = true;
  const A bf16 = one_chain(tensor_core(ASSAY_BF16, 64, 16, 25, 23));
  for (const double deviation : {2.0, 3.0, 4.0, 6.0, 12.0})
    for (const bool base : {false, true})
      all.push_back({base ? "the same in base 2" : "peaked rows, one chain", aim, peaked(16384, deviation),
                     bf16, bf16, base ? base2 : chain, 2});
  const A fp32_p = one_chain(fp32(1, 64));
  for (const double deviation : {2.5, 5.0})
    all.push_back({"peaked rows, fp32 P", aim, peaked(16384, deviation), fp32_p, fp32_p, chain, 2});

  // A sink that comes first, above all keys.
  const auto under_a_sink = [](double below) {
    return [=](uint64_t seed) {
      DenseCase c = by_hand(
          16384, 8, [=](int64_t j) { return 0.5 * normal(seed, 1, j) + 0.01 * uniform(seed, 3, j); },
          [=](int64_t j, int32_t t) { return 1 + 0.1 * t + 0.5 * normal(seed, 2, 8 * j + t); });
      c.problem.sinks = true, c.sinks = {static_cast<float>(below), static_cast<float>(below) + 0.4f};
      c.store();
      return c;
    };
  };
  Habits sink_first = chain;
  sink_first.sink_weighs_first = true;
  for (const double below : {14.0, 16.0, 17.5, 19.0}) {
    const A first = with(bf16, [](A& a) { a.sink_first = 1; });
    all.push_back({"below a sink that comes first", aim, under_a_sink(below), first, first, sink_first, 2});
    const A wide = with(fp32_p, [](A& a) { a.sink_first = 1; });
    all.push_back({"the same, fp32 P", aim, under_a_sink(below), wide, wide, sink_first, 2});
  }
  // Heaviest first, which the natural order has last.
  const auto rising = [](double deviation) {
    return [=](uint64_t seed) {
      std::vector<double> x(16384);
      for (size_t j = 0; j < x.size(); ++j) x[j] = deviation * normal(seed, 1, static_cast<int64_t>(j));
      std::sort(x.begin(), x.end());
      return by_hand(
          static_cast<int32_t>(x.size()), 8, [&](int64_t j) { return x[static_cast<size_t>(j)]; },
          [=](int64_t j, int32_t t) { return 1 + 0.1 * t + 0.5 * normal(seed, 2, 8 * j + t); });
    };
  };
  for (const double deviation : {2.5, 4.0, 6.0}) {
    const A reversed = with(bf16, [](A& a) { a.tile_reverse = 1; });
    const A undeclared = with(reversed, [](A& a) { a.order_declared = 0; });
    all.push_back({"the heaviest first, declared", aim, rising(deviation), reversed, reversed, chain, 2});
    all.push_back({"the heaviest first, undeclared", aim, rising(deviation), reversed, undeclared, chain, 2});
    const A wide = with(fp32_p, [](A& a) { a.tile_reverse = 1; });
    const A unknown = with(wide, [](A& a) { a.order_declared = 0; });
    all.push_back({"the same, fp32 P, declared", aim, rising(deviation), wide, wide, chain, 2});
    all.push_back({"the same, fp32 P, undeclared", aim, rising(deviation), wide, unknown, chain, 2});
  }
  return all;
}

}  // namespace assay::attacks
