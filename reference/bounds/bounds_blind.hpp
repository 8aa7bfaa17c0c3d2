// SPDX-License-Identifier: Apache-2.0
// Orders that are not declared, and in which V's values have no say (BOUNDS.md, L14): what such a kernel
// makes of sums of p (v - o) is no more than random signs make of them, but for what V has in common with
// positions and scores. That is looked at: sums over stretches of the natural order, and over the keys of
// large scores.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace assay {

inline constexpr int64_t kStretch = 256;  // keys of the smallest stretch

// Keys of a window: two for each part of a kernel that makes no more than so many, whole stretches.
inline int64_t window_keys(int64_t kv_len, int64_t parts) {
  const int64_t most = 2 * std::max<int64_t>(1, parts), each = (kv_len + most - 1) / most;
  return std::max(kStretch, (each + kStretch - 1) / kStretch * kStretch);
}

// How many windows the keys first .. last are in.
inline double windows_of(int64_t first, int64_t last, int64_t keys) {
  return last < first ? 0 : static_cast<double>(last / keys - first / keys + 1);
}

// Squares of sums of p (v - o) over consecutive stretches, of one row and all channels, where o is not known
// before the end.
class StretchSquares {
 public:
  // `weight`: of what is there before the first key.
  void start(int64_t channels, double weight) {
    before_.assign(static_cast<size_t>(channels), 0.0);
    squares_ = products_ = before_;
    weight_before_ = weight;
  }
  // A stretch ends: sum p v and sum p of all keys so far.
  void end(const double* sum, double weight) {
    const double here = weight - weight_before_;
    const auto channels = static_cast<int64_t>(before_.size());
    double *before = before_.data(), *squares = squares_.data(), *products = products_.data();
#pragma omp simd
    for (int64_t d = 0; d < channels; ++d) {
      const double added = sum[d] - before[d];
      squares[d] += added * added, products[d] += added * here;
      before[d] = sum[d];
    }
    weights_ += here * here;
    weight_before_ = weight;
  }
  // Of channel d about o, in the weights of end().
  double of(int64_t d, double o) const {
    const auto at = static_cast<size_t>(d);
    return std::max(0.0, squares_[at] - o * (2 * products_[at] - o * weights_));
  }

 private:
  std::vector<double> before_, squares_, products_;
  double weight_before_ = 0, weights_ = 0;
};

// Signs of V, whatever it weighs, summed over windows of keys in their order: how far a unit that cuts
// towards zero may lean by the products that it cuts.
class SignWindows {
 public:
  SignWindows(int64_t channels, int64_t keys)
      : keys_(keys),
        sums_(static_cast<size_t>(channels), 0.0f),
        squares_(static_cast<size_t>(channels), 0.0) {}
  void add(int64_t key, const double* v) {
    if (key / keys_ != window_) end();
    window_ = key / keys_;
    const auto channels = static_cast<int64_t>(sums_.size());
    float* sums = sums_.data();
#pragma omp simd
    for (int64_t d = 0; d < channels; ++d) sums[d] += v[d] > 0 ? 1.0f : v[d] < 0 ? -1.0f : 0.0f;
  }
  void end() {
    for (size_t d = 0; d < sums_.size(); ++d) {
      squares_[d] += static_cast<double>(sums_[d]) * static_cast<double>(sums_[d]);
      sums_[d] = 0;
    }
  }
  // At least the sum over windows of |sum of signs| of channel d; after end().
  double most(int64_t d, double windows) const {
    return std::sqrt(windows * squares_[static_cast<size_t>(d)]);
  }

 private:
  int64_t keys_, window_ = -1;
  std::vector<float> sums_;
  std::vector<double> squares_;
};

}  // namespace assay
