// SPDX-License-Identifier: Apache-2.0
// An attack on the bounds: a legal kernel in slow motion (reference/bounds/bounds_emulator.hpp), the data on
// which its errors are as large or as much alike as they can be, and what it declares. Whatever it does is
// inside its declaration, so every tier must hold or decline; run() says how near each came.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_emulator.hpp"
#include "reference/bounds/bounds_ratios.hpp"

namespace assay::attacks {

using testkit::arithmetic;
using testkit::DenseCase;
using testkit::Family;
using testkit::Habits;
using testkit::make_case;
using testkit::tensor_core;
using testkit::tier_ratios;
using testkit::TierRatios;

struct Attack {
  const char* name;
  const char* aim;  // the assumption that it denies
  std::function<DenseCase(uint64_t seed)> data;
  assay_arithmetic kernel;    // what happens
  assay_arithmetic declared;  // what is said about it
  Habits habits = {};
  int seeds = 3;
  std::function<DenseCase(const DenseCase&)> taken = {};  // keys as the kernel takes them; null: as they are
};

struct Outcome {
  TierRatios matrix, elementwise;
  double largest() const { return std::max(matrix.largest(), elementwise.largest()); }
};

inline Outcome run(const Attack& a) {
  Outcome out;
  for (int seed = 0; seed < a.seeds; ++seed) {
    const DenseCase c = a.data(static_cast<uint64_t>(seed));
    const DenseCase kernels = a.taken ? a.taken(c) : c;
    const testkit::Emulation e =
        testkit::Emulator(kernels, a.kernel, testkit::Mutant::kNone, static_cast<uint64_t>(seed), a.habits)
            .run();
    out.matrix.add(tier_ratios(bounded_attention(c.problem, c.host(), c.rows(), a.declared), e));
    out.elementwise.add(
        tier_ratios(bounded_attention_elementwise(c.problem, c.host(), c.rows(), a.declared), e));
  }
  return out;
}

// ---- what the attacks are made of.

// One query row (two heads), m keys of dimension d whose score is `score(j)` and whose V is `value(j, t)`.
// Q is all ones and K's first element is the score, so dot products are nearly exact.
inline DenseCase by_hand(int32_t m, int32_t d, const std::function<double(int64_t)>& score,
                         const std::function<double(int64_t, int32_t)>& value, int32_t format = ASSAY_FP32) {
  DenseCase c = make_case(Family::kNormal, 1, 1, d, 1);
  c.problem.requests = {{1, m}};
  c.problem.softmax_scale = 1;
  c.problem.q_format = c.problem.k_format = c.problem.v_format = format;
  std::fill(c.q.begin(), c.q.end(), 1.0);
  c.k.assign(static_cast<size_t>(m) * d, 0.0);
  c.v.assign(static_cast<size_t>(m) * d, 0.0);
  for (int64_t j = 0; j < m; ++j) {
    c.k[j * d] = score(j);
    for (int32_t t = 0; t < d; ++t) c.v[j * d + t] = value(j, t);
  }
  c.store();
  return c;
}

inline double uniform(uint64_t seed, uint64_t stream, int64_t j) {
  return CounterRng(seed, stream).uniform(static_cast<uint64_t>(j));
}
inline double normal(uint64_t seed, uint64_t stream, int64_t j) {
  return CounterRng(seed, stream).normal(static_cast<uint64_t>(j));
}

inline assay_arithmetic with(assay_arithmetic a, const std::function<void(assay_arithmetic&)>& change) {
  change(a);
  return a;
}

// Relative error of an exponential by a cubic for the fraction of the power of two: it equioscillates.
inline double cubic_error(float x, double largest) {
  const double t = static_cast<double>(x) * M_LOG2E, f = t - std::floor(t);
  return x == 0 ? 0 : largest * std::cos(4 * std::acos(std::clamp(2 * f - 1, -1.0, 1.0)));
}

}  // namespace assay::attacks
