// SPDX-License-Identifier: Apache-2.0
// Keys that have most of the weight of a row, where there are few of them: their errors are taken one by one.
// And how many keys are above one another, which is how often a maximum may rise after a key was added.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace assay {

// A key is heavy within this distance of the row's largest score (a 32nd of its weight), in rows with no more
// than so many.
inline constexpr double kHeavyDistance = 3.4657;
inline constexpr size_t kMostHeavy = 16;

// Places of the heavy keys among scores x (invisible ones far below), in order; empty where there are too
// many.
inline std::vector<int64_t> heavy_keys(const double* x, int64_t count, double largest) {
  const double from = largest - kHeavyDistance;
  std::vector<int64_t> heavy;
  constexpr int64_t kRun = 64;
  for (int64_t at = 0; at < count; at += kRun) {
    const int64_t to = std::min(count, at + kRun);
    int64_t many = 0;
#pragma omp simd reduction(+ : many)
    for (int64_t j = at; j < to; ++j) many += x[j] >= from ? 1 : 0;
    if (many == 0) continue;
    if (heavy.size() + static_cast<size_t>(many) > kMostHeavy) return {};
    for (int64_t j = at; j < to; ++j)
      if (x[j] >= from) heavy.push_back(j);
  }
  return heavy;
}

// Upper bounds of sums over the keys of a row: of p N and p N^2, N = min(most, how many scores are above that
// of the key or less than `slack` below it), p relative to exp(largest), and of the largest p N^2. Half of
// the weight, or as near as a sixteenth comes, is on scores above `middle`.
struct RankSums {
  double first = 0, second = 0, largest = 0, middle = 0;
};
inline constexpr double kFewUpdates = 8;  // so many may be anybody's
RankSums rank_sums(const double* x, int64_t count, double largest, double slack, double most);

}  // namespace assay
