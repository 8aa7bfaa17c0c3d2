// SPDX-License-Identifier: Apache-2.0
// Channels of a row, one by one (double) or eight at once: the formulas of bounds_finish.hpp are written
// once for both. What is done to eight is done to each of them, in the same order and to the last bit.
#pragma once

// GCC 12 takes the undefined operands of its own AVX-512 intrinsics for uninitialised memory (bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#  pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace assay {

using Eight = Eigen::Array<double, 8, 1>;

template <class T>
inline constexpr int32_t kLanes = std::is_same_v<T, Eight> ? 8 : 1;

// The same number for all of them.
template <class T>
T every(double x) {
  if constexpr (std::is_same_v<T, Eight>)
    return Eight::Constant(x);
  else
    return x;
}
// f(0), f(1) ... for one after the other.
template <class T, class F>
T each(F f) {
  T all = every<T>(0);
  if constexpr (std::is_same_v<T, Eight>)
    for (int32_t k = 0; k < 8; ++k) all[k] = f(k);
  else
    all = f(0);
  return all;
}
// From consecutive numbers in memory.
template <class T, class S>
T from_memory(const S* from) {
  if constexpr (std::is_same_v<T, Eight>)
    return Eigen::Map<const Eigen::Array<S, 8, 1>>(from).template cast<double>();
  else
    return static_cast<double>(*from);
}
inline double lane(double x, int32_t) { return x; }
inline double lane(const Eight& x, int32_t k) { return x[k]; }

inline double size_of(double x) { return std::fabs(x); }
inline Eight size_of(const Eight& x) { return x.abs(); }
inline double root(double x) { return std::sqrt(x); }
inline Eight root(const Eight& x) { return x.sqrt(); }
inline double square(double x) { return x * x; }
inline Eight square(const Eight& x) { return x * x; }
inline double larger(double a, double b) { return std::max(a, b); }
inline Eight larger(const Eight& a, const Eight& b) { return a.max(b); }
inline double smaller(double a, double b) { return std::min(a, b); }
inline Eight smaller(const Eight& a, const Eight& b) { return a.min(b); }
inline double sum_of(double x) { return x; }
inline double sum_of(const Eight& x) { return x.sum(); }
inline bool any_above(double a, double b) { return a > b; }
inline bool any_above(const Eight& a, const Eight& b) { return (a > b).any(); }

}  // namespace assay
