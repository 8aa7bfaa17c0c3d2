// SPDX-License-Identifier: Apache-2.0
// See bounds_heavy.hpp.
#include "reference/bounds/bounds_heavy.hpp"

namespace assay {

namespace {

constexpr int64_t kSteps = 16, kBins = 64 * kSteps;  // so many to a nat; beyond 64 no key has weight

// Weight at the upper end of each bin.
std::vector<double> weights_of_bins() {
  std::vector<double> weights;
  for (int64_t b = 0; b < kBins; ++b) weights.push_back(std::exp(-static_cast<double>(b) / kSteps));
  return weights;
}

}  // namespace

RankSums rank_sums(const double* x, int64_t count, double largest, double slack, double most) {
  static const std::vector<double> weights = weights_of_bins();
  // Two histograms: neighbours often fall into one bin.
  std::vector<int32_t> bins(2 * kBins, 0);
  constexpr int64_t kRun = 256;
  int32_t bin[kRun];
  for (int64_t from = 0; from < count; from += kRun) {
    const int64_t here = std::min(kRun, count - from);
    const double* scores = x + from;
#pragma omp simd
    for (int64_t j = 0; j < here; ++j) {
      const double far = (largest - scores[j]) * kSteps, most_far = static_cast<double>(kBins - 1);
      const double at = most_far < far ? most_far : far;
      // In this order a score that is no number falls into the first bin.
      bin[j] = static_cast<int32_t>(0.0 < at ? at : 0.0);
    }
    for (int64_t j = 0; j < here; ++j) ++bins[static_cast<size_t>(bin[j] + (j % 2 != 0 ? kBins : 0))];
  }
  RankSums sums;
  const auto further = static_cast<int64_t>(std::min(slack * kSteps, static_cast<double>(kBins))) + 1;
  int64_t above = 0, seen = 0;  // keys of the bins below `seen`
  double whole = 0, so_far = 0;
  for (int64_t b = 0; b < kBins; ++b) whole += (bins[b] + bins[kBins + b]) * weights[static_cast<size_t>(b)];
  sums.middle = largest;
  for (int64_t b = 0; b < kBins; ++b) {
    const int64_t here = bins[b] + bins[kBins + b];
    for (; seen < std::min(kBins, b + 1 + further); ++seen) above += bins[seen] + bins[kBins + seen];
    if (here == 0) continue;
    const double n = std::min(most, static_cast<double>(above - 1));
    const double weight = static_cast<double>(here) * weights[static_cast<size_t>(b)];
    sums.first += weight * n, sums.second += weight * n * n;
    sums.largest = std::max(sums.largest, weight / static_cast<double>(here) * n * n);
    if (2 * so_far < whole) sums.middle = largest - static_cast<double>(b + 1) / kSteps;
    so_far += weight;
  }
  return sums;
}

}  // namespace assay
