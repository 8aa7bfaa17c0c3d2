// SPDX-License-Identifier: Apache-2.0
// See bounds_shared.hpp.
#include "reference/bounds/bounds_shared.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace assay {
namespace {

constexpr int64_t kHeavy = 32, kFewest = 8;  // that are looked at; of which there must be more to matter
constexpr double kNear = 3;                  // below the largest score: a twentieth of its weight

// What is no more than this adds nothing to a sum of products with the largest element of Q.
double no_difference(const double* q, int64_t dims) {
  double largest = 0;
  for (int64_t d = 0; d < dims; ++d) largest = std::max(largest, std::fabs(q[d]));
  return 0x1p-24 * largest;
}

}  // namespace

void SharedProducts::add(const double* k) {
  for (int64_t d = 0; d < dims_; ++d) {
    const auto x = static_cast<float>(k[d]);
    codes_.push_back(x == 0 ? 0 : static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
  }
}

// Share of the products that are in runs of equal ones, or of opposite ones, which round alike but for their
// sign. Single dimensions in which codes of few bits agree by chance begin no sum alike; three in a row
// hardly ever do.
double SharedProducts::share(size_t a, size_t b, const double* q, double least_q) const {
  constexpr uint16_t kSign = 0x8000;
  const int64_t least = dims_ >= 24 ? 3 : dims_ >= 12 ? 2 : 1;
  const uint16_t *of_a = &codes_[a * static_cast<size_t>(dims_)],
                 *of_b = &codes_[b * static_cast<size_t>(dims_)];
  uint16_t equal = 0;  // as wide as what is compared; a head has fewer dimensions than it holds
#pragma omp simd reduction(+ : equal)
  for (int64_t d = 0; d < dims_; ++d) equal += ((of_a[d] ^ of_b[d]) & 0x7fff) == 0 ? 1 : 0;
  if (equal < least) return 0;
  double most = 0;
  for (const uint16_t sign : {uint16_t{0}, kSign}) {
    int64_t run = 0, shared = 0, products = 0;
    for (int64_t d = 0; d < dims_; ++d) {
      if ((of_a[d] == 0 && of_b[d] == 0) || (q != nullptr && std::fabs(q[d]) <= least_q)) continue;
      ++products;
      run = of_a[d] == (of_b[d] ^ sign) ? run + 1 : 0;
      if (run >= least) shared += run == least ? least : 1;
    }
    if (products > 0) most = std::max(most, static_cast<double>(shared) / static_cast<double>(products));
  }
  return most;
}

double SharedProducts::common(const double* q) const {
  const size_t count = codes_.size() / static_cast<size_t>(std::max<int64_t>(1, dims_));
  if (count < 2) return 0;
  const double least = q == nullptr ? 0 : no_difference(q, dims_);
  double sum = 0;
  for (size_t a = 0; a < count; ++a)
    for (size_t b = 0; b < a; ++b) sum += share(a, b, q, least);
  return sum / (0.5 * static_cast<double>(count) * static_cast<double>(count - 1));
}

std::vector<int64_t> SharedProducts::spread(int64_t keys) {
  const double root = std::sqrt(static_cast<double>(std::max<int64_t>(0, keys)));
  const int64_t looked = std::min(keys, 24 + static_cast<int64_t>(root / 2));
  std::vector<int64_t> places;
  for (int64_t n = 0; n < looked; ++n) {
    const int64_t from = keys * n / looked, to = keys * (n + 1) / looked;
    const uint64_t mixed =
        (static_cast<uint64_t>(keys) * 1024 + static_cast<uint64_t>(n) + 1) * 0x9e3779b97f4a7c15u;
    places.push_back(from + static_cast<int64_t>((mixed >> 32) % static_cast<uint64_t>(to - from)));
  }
  return places;
}

bool leaves_out(const double* q, int64_t dims) {
  const double least = no_difference(q, dims);
  return std::any_of(q, q + dims, [&](double x) { return std::fabs(x) <= least; });
}

double heavy_keys_together(int64_t dims, const double* q, const double* x, int64_t count, double top,
                           const std::function<void(int64_t, double*)>& read) {
  const double limit = top - kNear;
  int64_t heavy = 0;
#pragma omp simd reduction(+ : heavy)
  for (int64_t j = 0; j < count; ++j) heavy += x[j] > limit ? 1 : 0;
  if (heavy < kFewest || heavy > count / 16) return 1;
  SharedProducts some(dims);
  std::vector<double> k(static_cast<size_t>(dims));
  const int64_t looked = std::min(kHeavy, heavy);
  for (int64_t j = 0, n = 0, taken = 0; j < count; ++j) {
    if (!(x[j] > limit)) continue;
    if (n++ * looked / heavy < taken) continue;
    read(j, k.data());
    some.add(k.data()), ++taken;
  }
  return 1 + static_cast<double>(heavy - 1) * some.common(q);
}

}  // namespace assay
