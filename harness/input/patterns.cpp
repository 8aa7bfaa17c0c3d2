// SPDX-License-Identifier: Apache-2.0
// See patterns.hpp. All values fit the narrowest fp8 range (240) without a scale.
#include "harness/input/patterns.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace assay {
namespace {

constexpr uint64_t kFirstToken = 16;  // draws before it choose the patterns
constexpr int32_t kPeriods[] = {1, 2, 3, 7, 16, 61, 64, 500}, kTiles[] = {1, 2, 16, 32, 64, 128, 300};
enum QPattern { kEachQ, kEqualRows, kEqualHeadsToo, kSignsQ, kOneDim, kSomeNoQ, kSmallQ, kQPatterns };
enum KPattern { kEachK, kPeriodic, kFlat, kSignsK, kTailK, kClusters, kStairs, kNeedles, kKPatterns };
enum VPattern {
  kEachV,
  kConstant,
  kOneSign,
  kSignsByTile,
  kNearlyConstant,
  kSparse,
  kTailV,
  kPowersOfTwo,
  kNoV,
  kVPatterns
};

void each(int64_t dims, double* out, auto change) {
  for (int64_t d = 0; d < dims; ++d) out[d] = change(out[d]);
}

}  // namespace

Patterns::Patterns(uint64_t seed, double logit_size) : logit_size_(logit_size), rng_(seed, kStreamPatterns) {
  q_ = static_cast<int>(rng_.below(0, kQPatterns));
  k_ = static_cast<int>(rng_.below(1, kKPatterns));
  v_ = static_cast<int>(rng_.below(2, kVPatterns));
  period_ = kPeriods[rng_.below(3, std::size(kPeriods))];
  tile_ = kTiles[rng_.below(4, std::size(kTiles))];
  small_ = std::exp2(-12 * rng_.uniform(5));
}

int32_t Patterns::k_like(int32_t position) const { return k_ == kPeriodic ? position % period_ : position; }

void Patterns::q_like(int32_t& row, int32_t& head) const {
  if (q_ == kEqualRows || q_ == kEqualHeadsToo) row = 0;
  if (q_ == kEqualHeadsToo) head = 0;
}

void Patterns::q(int32_t row, int32_t head, int64_t dims, double* out) const {
  switch (q_) {
    case kSignsQ:
      return each(dims, out, [](double x) { return std::copysign(1.0, x); });
    case kOneDim:
      for (int64_t d = 0; d < dims; ++d)
        if (d != period_ % dims) out[d] = 0;
      return;
    case kSomeNoQ:
      return each(dims, out, [&](double x) { return (row + head) % 2 == 0 ? x : 0.0; });
    case kSmallQ:
      return each(dims, out, [&](double x) { return small_ * x; });
    default:
      return;
  }
}

void Patterns::k(int32_t position, int64_t dims, double* out) const {
  const double chance = rng_.uniform(kFirstToken + 2 * static_cast<uint64_t>(position));
  switch (k_) {
    case kFlat:
      return each(dims, out, [&](double x) { return small_ * x; });
    case kSignsK:
      return each(dims, out, [](double x) { return std::copysign(1.0, x); });
    case kTailK:
      return each(dims, out, [&](double x) { return x / (0.05 + chance); });
    case kClusters:  // three rows, and little about them
      return each(dims, out, [&](double x) { return 0.5 * std::floor(3 * chance) + 0.01 * small_ * x; });
    case kStairs:  // every tile somewhat above the one before
      return each(dims, out, [&](double x) {
        return std::clamp(small_ * position / tile_ / logit_size_, -100.0, 100.0) + 0.01 * x;
      });
    case kNeedles:  // the first key, too, or a short request has none
      return each(dims, out,
                  [&](double x) { return position == 0 || position % period_ == period_ / 2 ? x : 0.0; });
    default:
      return;
  }
}

void Patterns::v(int32_t position, int64_t dims, double* out) const {
  const double chance = rng_.uniform(kFirstToken + 2 * static_cast<uint64_t>(position) + 1);
  switch (v_) {
    case kConstant:
      return each(dims, out, [](double) { return 1.3; });
    case kOneSign:
      return each(dims, out, [](double x) { return 0.5 + std::fabs(x); });
    case kSignsByTile:
      return each(dims, out,
                  [&](double x) { return (position / tile_ % 2 ? -1 : 1) * (3 + small_ * std::fabs(x)); });
    case kNearlyConstant:
      return each(dims, out, [&](double x) { return 1.3 + small_ * x; });
    case kSparse:
      return each(dims, out, [&](double x) { return position % period_ == 0 ? x : 0.0; });
    case kTailV:
      return each(dims, out, [&](double x) { return x / (0.05 + chance); });
    case kPowersOfTwo:
      return each(dims, out, [](double x) {
        return std::copysign(std::exp2(std::clamp(std::nearbyint(2 * std::fabs(x) - 3), -6.0, 6.0)), x);
      });
    case kNoV:
      return each(dims, out, [](double) { return 0.0; });
    default:
      return;
  }
}

}  // namespace assay
