// SPDX-License-Identifier: Apache-2.0
// See bounds_alike.hpp. The loops over keys are part of the matrix form's second pass, so they vectorise.
#include "reference/bounds/bounds_alike.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <utility>

#include "reference/attention/vector_math.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay {
namespace {

// 32 bits of the mantissa: the same numbers summed in another order are the same score.
uint64_t score_of(double x) { return (std::bit_cast<uint64_t>(x) + 0x80000) >> 20; }

constexpr uint64_t kHash = 0x9e3779b97f4a7c15u;
constexpr int64_t kMostBits = int64_t{1} << 30;  // hashes have 32
constexpr double kFarAway = 700;                 // below the largest score: no weight

// What sums of this size, in all of these lanes, take of a weight and may not show. Keys are dealt to lanes
// whatever their weight, so lanes hold like sums but where single weights are large; no weight is above 1,
// and a large one's lane meets one key of as many as there are lanes.
template <class T>
struct Swallowed {
  static constexpr double kHeavy = 2 * kUnit;
  T heavy, whole, part;  // all of what is below `whole`; of others below `heavy` no more than `part`
  Swallowed(double sum, double lanes)
      : heavy(above(kHeavy)),
        whole(above(kHeavy * std::min(sum, 2 * sum / lanes))),
        part(above(kHeavy * sum / lanes)) {}
  static T above(double limit) { return static_cast<T>(limit * (sizeof(T) < 8 ? 1 + 0x1p-22 : 1.0)); }
  T of(T w) const {
    const T some = w < part ? w : part, met = w < heavy ? some : T(0);
    return w < whole ? w : met;
  }
};

}  // namespace

void LaneSums::add(const float* weights, int64_t count, double sum) {
  sum += first;
  if (!(sum > 0)) return;
  const Swallowed<float> row_sums(sum, row_sum_lanes), pvs(sum, pv_lanes);
  if (in_order) {
    float lost = 0, lost_pv = 0;
#pragma omp simd reduction(+ : lost, lost_pv)
    for (int64_t j = 0; j < count; ++j) lost += row_sums.of(weights[j]), lost_pv += pvs.of(weights[j]);
    // Each weight was rounded once, and each addition rounds; of what is left out below the smallest number
    // of fp32 there is no more than that for each key.
    const double raised = 1 + static_cast<double>(count + 8) * 0x1p-24,
                 unseen = static_cast<double>(count) * 0x1p-149;
    absorbed += lost * raised + unseen, absorbed_pv += lost_pv * raised + unseen;
  }
  // Lanes that add weights and one lane that adds sums of several err alike where weights are near-equal; the
  // grid taken lies between theirs.
  const double lane = sum / std::sqrt(row_sum_lanes);
  if (pv_lanes == row_sum_lanes) {
    row_sum.add(weights, count, lane, row_sums.whole, &pv);
  } else {
    row_sum.add(weights, count, lane, row_sums.whole, nullptr);
    pv.add(weights, count, sum / std::sqrt(pv_lanes), 0, nullptr);
  }
}

void LaneSums::add_in_any_order(const double* x, int64_t count, double m, double sum) {
  if (in_order || !(sum > 0)) return;
  const Swallowed<double> row_sums(sum, row_sum_lanes), pvs(sum, pv_lanes);
  const double limit = m + std::log(std::max({row_sums.heavy, row_sums.whole, pvs.whole})) + 1e-9;
  for (int64_t from = 0; from < count; from += kMostKeys) {
    const int64_t to = std::min(count, from + kMostKeys);
    int64_t below = 0;
#pragma omp simd reduction(+ : below)
    for (int64_t j = from; j < to; ++j) below += x[j] < limit ? 1 : 0;
    if (below == 0) continue;
    double lost = 0, lost_pv = 0;
#pragma omp simd reduction(+ : lost, lost_pv)
    for (int64_t j = from; j < to; ++j) {
      const double away = m - x[j], visible = away < kFarAway ? 1.0 : 0.0;
      const double w = vector_math::exp(away < kFarAway ? -away : -kFarAway) * visible;
      lost += row_sums.of(w), lost_pv += pvs.of(w);
    }
    absorbed += lost, absorbed_pv += lost_pv;
  }
}

void OneWay::take(const float (&off)[kPlaces], float moved, float added, double spacing) {
  for (int g = 0; g < kPlaces; ++g) {
    total_[g] += off[g] * spacing;
    low_[g] = std::min(low_[g], total_[g]);
    high_[g] = std::max(high_[g], total_[g]);
  }
  hard_ += 0.5 * spacing * added;
  variance_ += spacing * spacing * moved / 12;
}

void OneWay::add(const float* weights, int64_t count, double sum, double counted, OneWay* all) {
  const int binade = std::ilogb(sum) - 23;
  const double spacing = std::ldexp(1.0, binade);
  const auto inverse = static_cast<float>(1 / spacing), least = static_cast<float>(counted / spacing);
  constexpr float kRounder = 0x1.8p+23f;
  float first = 0, second = 0, third = 0, added = 0, others_first = 0, others_second = 0, others_third = 0,
        others = 0;
#pragma omp simd reduction(+ : first, second, third, added, others_first, others_second, others_third, others)
  for (int64_t j = 0; j < count; ++j) {
    // Added to what lies on the grid a weight errs by no more than itself.
    const float t = weights[j] * inverse, b = t + 1.0f / 3, c = t + 2.0f / 3, seen = t > 0 ? 1.0f : 0.0f;
    const float off_a = ((t + kRounder) - kRounder) - t, off_b = ((b + kRounder) - kRounder) - b,
                off_c = ((c + kRounder) - kRounder) - c;
    const float least_b = off_b < -t ? -t : off_b, least_c = off_c < -t ? -t : off_c;
    const float most_b = least_b > t ? t : least_b, most_c = least_c > t ? t : least_c;
    const bool other = t >= least;
    first += off_a, second += most_b, third += most_c, added += seen;
    others_first += other ? off_a : 0.0f, others_second += other ? most_b : 0.0f;
    others_third += other ? most_c : 0.0f, others += other ? seen : 0.0f;
  }
  take({others_first, others_second, others_third}, others, added, spacing);
  if (all != nullptr) all->take({first, second, third}, added, added, spacing);
}

double OneWay::share() const {
  double range = 0;
  for (int g = 0; g < kPlaces; ++g) range = std::max(range, high_[g] - low_[g]);
  // A walk of n steps spans 1.6 standard deviations on average, and more than 4 once in ten thousand times.
  // A cluster is at least a sixth of a step from the nearest number of one of three grids and off a tie.
  return range > 4 * std::sqrt(variance_) ? std::min(1.0, 3 * range / hard_) : 0;
}

void RepeatedScores::look(const double* x, int64_t count, double invisible, Scratch& scratch) {
  // A bit for each hash, few in use: of keys that are alone half as many seem to be second ones, one in 64 or
  // fewer. Of a short row these few may weigh enough for a closer look, so it gets more bits.
  constexpr int64_t kShort = 4096;
  const int64_t bits_each = count <= kShort ? 64 : 32;
  const size_t size =
      std::bit_ceil(static_cast<size_t>(std::clamp<int64_t>(bits_each * count, 64, kMostBits)));
  const int shift = 32 - std::countr_zero(size);
  const auto nobody = static_cast<uint32_t>(size);
  scratch.bits.assign(size / 64 + 1, 0);
  scratch.hashes.resize(static_cast<size_t>(count));
  scratch.again.resize(static_cast<size_t>(count));
  uint32_t* hashes = scratch.hashes.data();
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) {
    const uint64_t score = score_of(x[j]);
    const uint32_t hash = static_cast<uint32_t>(score ^ score >> 32) * 2654435769u >> shift;
    hashes[j] = x[j] > invisible ? hash : nobody;
  }
  uint64_t* bits = scratch.bits.data();
  int32_t* again = scratch.again.data();
  size_t found = 0;
  for (int64_t j = 0; j < count; ++j) {
    uint64_t& word = bits[hashes[j] / 64];
    const uint32_t bit = hashes[j] % 64;
    again[found] = static_cast<int32_t>(j);
    found += (word >> bit) & 1;
    word |= uint64_t{1} << bit;
  }
  // Those that nobody sees have the last bit to themselves.
  again_.clear();
  for (size_t n = 0; n < found; ++n)
    if (hashes[again[n]] != nobody) again_.push_back(again[n]);
}

bool RepeatedScores::exceed(double share, const double* x, int64_t count, double m, double weight) const {
  // What is no first one weighs at least half of all that repeats, as equal scores weigh alike.
  double later = 0;
  const int32_t* again = again_.data();
#pragma omp simd reduction(+ : later)
  for (size_t n = 0; n < again_.size(); ++n) later += vector_math::exp(x[again[n]] - m);
  if (2 * later <= share * weight) return false;
  struct Slot {
    uint64_t score = 0, keys = 0;
    double x = -std::numeric_limits<double>::infinity();
  };
  std::vector<Slot> slots(std::bit_ceil(2 * again_.size()));
  const auto slot_of = [&](uint64_t score) -> Slot& {
    size_t at = score * kHash >> 20 & (slots.size() - 1);
    while (slots[at].score != 0 && slots[at].score != score) at = (at + 1) & (slots.size() - 1);
    return slots[at];
  };
  const auto known = [](double score) { return score_of(score) + 1; };  // 0: free
  for (const int32_t j : again_) {
    Slot& slot = slot_of(known(x[j]));
    slot.score = known(x[j]), slot.x = x[j];
  }
  for (int64_t j = 0; j < count; ++j)
    if (Slot& slot = slot_of(known(x[j])); slot.score != 0) ++slot.keys;
  double repeated = 0;
  for (const Slot& slot : slots)
    if (slot.keys > 1) repeated += static_cast<double>(slot.keys) * std::exp(slot.x - m);
  return repeated > share * weight;
}

bool count_alike(const double* x, int64_t count, double invisible, float* alike) {
  constexpr int64_t kShort = 1024;
  if (count > kShort) {
    // Keys of one hash, about half of kShort: equal ones are looked at together.
    constexpr uint32_t kFactor = 2654435769u;
    const auto kinds = static_cast<uint32_t>(std::min<int64_t>(2 * count / kShort, 1 << 24));
    const uint32_t below = ~uint32_t{0} / kinds;
    std::vector<uint64_t> some;
    some.reserve(kShort);
    for (int64_t j = 0; j < count; ++j)
      if (static_cast<uint32_t>(score_of(x[j])) * kFactor < below && x[j] > invisible)
        some.push_back(score_of(x[j]));
    std::sort(some.begin(), some.end());
    const auto looked = static_cast<int64_t>(some.size());
    const int64_t kinds_seen = std::unique(some.begin(), some.end()) - some.begin();
    if (looked - kinds_seen <= looked / 100) return false;
  }
  size_t size = 16;
  while (size < 2 * static_cast<size_t>(count)) size *= 2;
  struct Slot {
    uint64_t score = 0;
    uint32_t keys = 0;
  };
  std::vector<Slot> slots(size);
  const auto slot_of = [&](uint64_t score) -> Slot& {
    size_t at = score * 0x9e3779b97f4a7c15u >> 20 & (size - 1);
    while (slots[at].keys > 0 && slots[at].score != score) at = (at + 1) & (size - 1);
    return slots[at];
  };
  bool any = false;
  for (int64_t j = 0; j < count; ++j) {
    if (x[j] <= invisible) continue;
    const uint64_t score = score_of(x[j]);
    Slot& slot = slot_of(score);
    slot.score = score;
    any |= ++slot.keys > 1;
  }
  if (!any) return false;
  for (int64_t j = 0; j < count; ++j)
    alike[j] = x[j] <= invisible ? 1.0f : static_cast<float>(slot_of(score_of(x[j])).keys);
  return true;
}

double repeated_share(const std::vector<double>& scores, const std::vector<double>& weights) {
  std::map<uint64_t, std::pair<int, double>> groups;
  double sum = 0, repeated = 0;
  for (size_t j = 0; j < scores.size(); ++j) {
    auto& group = groups[score_of(scores[j])];
    ++group.first;
    group.second += weights[j];
    sum += weights[j];
  }
  for (const auto& [score, group] : groups)
    if (group.first > 1) repeated += group.second;
  return sum > 0 ? repeated / sum : 0;
}

template <int64_t kTogether>
void DealtSums::add_channels(int64_t key, int64_t count, const double* v, int64_t d) {
  double turn[kTogether] = {}, size[kTogether] = {};
  for (int64_t first = 0; first < std::min(kLanes, count); ++first) {
    double lane[kTogether] = {};
    for (int64_t j = first; j < count; j += kLanes)
      for (int64_t n = 0; n < kTogether; ++n) {
        const double x = v[j * channels_ + d + n];
        lane[n] += x, size[n] += std::fabs(x);
      }
    double* to = &sums_[(key + first) % kLanes * channels_ + d];
    for (int64_t n = 0; n < kTogether; ++n) to[n] += lane[n], turn[n] += lane[n];
  }
  double* to_turn = &sums_[(kLanes + key / kTile % 2) * channels_ + d];
  double* to_size = &sums_[kClasses * channels_ + d];
  for (int64_t n = 0; n < kTogether; ++n) to_turn[n] += turn[n], to_size[n] += size[n];
}

// Some channels at a time, whose sums stay in registers while the keys of a tile pass.
void DealtSums::add(int64_t key, int64_t count, const double* v) {
  constexpr int64_t kTogether = 16;
  for (int64_t from = 0, to; from < count; from = to) {
    to = std::min(count, from + kTile - (key + from) % kTile);
    const double* of_tile = v + from * channels_;
    int64_t d = 0;
    for (; d + kTogether <= channels_; d += kTogether)
      add_channels<kTogether>(key + from, to - from, of_tile, d);
    for (; d < channels_; ++d) add_channels<1>(key + from, to - from, of_tile, d);
  }
}

double DealtSums::lean(int64_t channel) const {
  double sum = 0;
  for (int64_t n = 0; n < kLanes; ++n) sum += sums_[n * channels_ + channel];
  const double size = sums_[kClasses * channels_ + channel];
  return size > 0 ? std::fabs(sum) / size : 0.0;
}

double DealtSums::share(int64_t channel) const {
  double lanes = 0, turns = 0;
  for (int64_t n = 0; n < kClasses; ++n)
    (n < kLanes ? lanes : turns) += std::fabs(sums_[n * channels_ + channel]);
  const double size = sums_[kClasses * channels_ + channel];
  return size > 0 ? std::max(lanes, turns) / size : 0.0;
}

}  // namespace assay
