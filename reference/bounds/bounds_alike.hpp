// SPDX-License-Identifier: Apache-2.0
// What the random tiers take for granted and look at before they do: that weights are spread, that scores do
// not repeat, that values have no signs by lane. Equal numbers meet equal roundings, and their errors add up.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace assay {

// Of one call: a span of the second pass.
inline constexpr int64_t kMostKeys = 256;

// What a sum of near-equal weights errs by: additions of one number to sums of one binade all round the same
// way. Follows a running sum in the order of the keys and adds up, with their signs, the errors of rounding
// each weight to the last bit of the sum, for three places of the grid (what scales the weights is not known
// exactly). Weights that are spread over the grid leave a random walk; near-equal ones a straight line.
class OneWay {
 public:
  // The next `count` weights (at most kMostKeys), after which the lane's sum is `sum`. Those below `counted`,
  // all of whose weight is taken elsewhere (LaneSums::absorbed), err by nothing here (L20). `all`, where it
  // is not null: the same with nothing counted.
  void add(const float* weights, int64_t count, double sum, double counted, OneWay* all);
  // Share of the hard error of the sum: 0 where it looks like a walk.
  double share() const;

 private:
  static constexpr int kPlaces = 3;
  // Errors at these places, in last bits of the sum, of `moved` among `added` weights.
  void take(const float (&off)[kPlaces], float moved, float added, double spacing);
  double total_[kPlaces] = {}, low_[kPlaces] = {}, high_[kPlaces] = {};
  double hard_ = 0, variance_ = 0;
};

// The sums that weights go into: the row sum and P V, each by lane.
struct LaneSums {
  double row_sum_lanes = 1, pv_lanes = 1;
  bool in_order =
      false;         // of a declared order in tiles of no more than kMostKeys; else see add_in_any_order()
  double first = 0;  // what is in the sums before all keys: a sink that comes first
  OneWay row_sum, pv;
  double absorbed = 0, absorbed_pv = 0;  // what they swallow
  // The next `count` weights, against the row's maximum; `sum`: of all up to them.
  void add(const float* weights, int64_t count, double sum);
  // Of an order that is not declared: it may begin with the keys that have all of `sum`. The scores of all
  // keys (ErrorModel::kInvisible or less where invisible).
  void add_in_any_order(const double* x, int64_t count, double m, double sum);
};

// Scores of a row that occur more than once, whichever keys have them: all keys are looked at.
class RepeatedScores {
 public:
  // Memory that rows share.
  struct Scratch {
    std::vector<uint64_t> bits;
    std::vector<uint32_t> hashes;
    std::vector<int32_t> again;
  };
  // The scores of all keys; those of `invisible` or less are of nobody.
  void look(const double* x, int64_t count, double invisible, Scratch&);
  // Whether more than `share` of the row's `weight`, a sum of exp(x_j - m), is on scores that repeat. Takes
  // the same scores.
  bool exceed(double share, const double* x, int64_t count, double m, double weight) const;

 private:
  std::vector<int32_t> again_;  // keys that may not be the first of their score; all that are not
};

// Sums of products of few-bit codes lie on a coarse grid, so among some thousand keys scores are equal by
// chance, a few at a time: their errors are one error, and the variance of what they add up to is larger by
// at most their number. Writes for each key of a row how many keys have its score (1 below `invisible`);
// false: all are alone, or of a long row so nearly all that the others do not count, and nothing is written.
bool count_alike(const double* x, int64_t count, double invisible, float* alike);
// A row whose keys have on average, by weight, more of their kind than this has repeated keys, not chance.
inline constexpr double kMostAlike = 16;

// Share of the weight that is on scores seen more than once.
double repeated_share(const std::vector<double>& scores, const std::vector<double>& weights);

// An undeclared order may deal keys to lanes, or tiles to parts, so that each sums values of one sign that
// cancel in the natural order.
class DealtSums {
 public:
  explicit DealtSums(int64_t channels) : sums_((kClasses + 1) * channels, 0.0), channels_(channels) {}
  // V of the keys key .. key + count - 1, one after the other.
  void add(int64_t key, int64_t count, const double* v);
  // Of one channel: share of sum |v| that the sums by lane (of 16) or by turn (of tiles of 64 keys) hold.
  double share(int64_t channel) const;
  // |sum v| over sum |v|: how much values have one sign, whatever they weigh.
  double lean(int64_t channel) const;

 private:
  static constexpr int64_t kLanes = 16, kTile = 64, kClasses = kLanes + 2;
  // Of one tile, kTogether channels from d on or the one there.
  template <int64_t kTogether>
  void add_channels(int64_t key, int64_t count, const double* v, int64_t d);
  std::vector<double> sums_;  // [class, channel], then of |v|
  int64_t channels_;
};

}  // namespace assay
