// SPDX-License-Identifier: Apache-2.0
// A sequence of random numbers for whoever draws many small things one after the other: the counter-based
// generator with the counter kept here, so that line i of a campaign is a function of (seed, i) alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "harness/base/random.hpp"

namespace assay::campaign {

class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : rng_(seed, stream) {}

  uint64_t bits() { return rng_.bits(next_++); }
  double uniform() { return rng_.uniform(next_++); }  // [0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  int64_t below(int64_t n) { return static_cast<int64_t>(rng_.below(next_++, static_cast<uint64_t>(n))); }
  bool chance(double probability) { return uniform() < probability; }
  // low .. high, 1 <= low, every factor of two as likely as the others.
  int64_t log_uniform(int64_t low, int64_t high) {
    const double x = std::exp(uniform(std::log(static_cast<double>(low)), std::log(high + 1.0)));
    return std::min(high, std::max(low, static_cast<int64_t>(x)));
  }
  template <class T>
  const T& one_of(std::span<const T> values) {
    return values[static_cast<size_t>(below(static_cast<int64_t>(values.size())))];
  }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int64_t>(values.size()))];
  }

 private:
  CounterRng rng_;
  uint64_t next_ = 0;
};

}  // namespace assay::campaign
