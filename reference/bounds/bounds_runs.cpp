// SPDX-License-Identifier: Apache-2.0
// See bounds_runs.hpp. Largest and smallest scores of runs are merged two by two, so that all lengths
// together cost one look at each key; weights that are rounded once are rounded only in runs that are flat.
#include "reference/bounds/bounds_runs.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "reference/attention/vector_math.hpp"
#include "reference/bounds/bounds_infinity.hpp"

namespace assay {
namespace {

// Runs further below the row's largest score have no weight.
constexpr double kFarBelow = 700;
// Fewer keys than this lie within a few steps of a grid by chance, each few in a place of their own.
constexpr int64_t kManyKeys = 16;

// Keys that a position bias sets about a step of the grid apart meet the grid at like places for dozens of
// steps, so runs of so many (and of so much) are rounded, too.
constexpr double kLongSteps = 64, kLongRun = 0.5;
// What such runs err by is known: 0.75 of five standard deviations at random, where errors of runs that stand
// for others may come to half of them.
constexpr double kKnownRuns = 2.0 / 3;

struct Run {
  double low = kInf, high = -kInf;
};

// Scores in runs of a tile or two keys, and in runs twice as long.
class Runs {
 public:
  Runs(std::span<const double> x, int64_t first, int64_t length)
      : first_(first),
        count_(static_cast<int64_t>(x.size())),
        length_(length),
        all_((first + count_ - 1) / length - first / length + 1) {
    for (size_t n = 0; n < all_.size(); ++n) {
      const auto [from, to] = keys(n);
      const double* scores = x.data();
      double low = kInf, high = -kInf;
      int64_t seen = 0;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : seen)
      for (int64_t j = from; j < to; ++j) {
        const bool sees = !(scores[j] <= ErrorModel::kInvisible);
        const double below = sees ? scores[j] : kInf, above = sees ? scores[j] : -kInf;
        low = below < low ? below : low;
        high = high < above ? above : high;
        seen += sees ? 1 : 0;
      }
      all_[n] = {low, high}, visible_ += seen, top_ = std::max(top_, high);
    }
  }

  size_t size() const { return all_.size(); }
  const Run& operator[](size_t n) const { return all_[n]; }
  std::pair<int64_t, int64_t> keys(size_t n) const {
    const int64_t begin = (first_ / length_ + static_cast<int64_t>(n)) * length_ - first_;
    return {std::max<int64_t>(0, begin), std::min(count_, begin + length_)};
  }
  bool whole() const { return length_ >= count_; }
  int64_t length() const { return length_; }
  double visible() const { return static_cast<double>(visible_); }
  double top() const { return top_; }

  void merge() {
    const size_t odd = static_cast<size_t>(first_ / length_ % 2), merged = (all_.size() + odd + 1) / 2;
    std::vector<Run> longer(merged);
    for (size_t n = 0; n < all_.size(); ++n) {
      Run& to = longer[(n + odd) / 2];
      to = {std::min(to.low, all_[n].low), std::max(to.high, all_[n].high)};
    }
    all_ = std::move(longer), length_ *= 2;
  }

 private:
  int64_t first_, count_, length_, visible_ = 0;
  double top_ = -kInf;
  std::vector<Run> all_;
};

std::vector<double> weights_of(std::span<const double> x, double m) {
  std::vector<double> weights(x.size());
  for (size_t j = 0; j < x.size(); ++j)
    weights[j] = x[j] > ErrorModel::kInvisible ? vector_math::exp(std::max(x[j] - m, -kFarBelow)) : 0.0;
  return weights;
}

// A run over n steps of the grid leans by at most an eighth of a step / n, which for n above sqrt(keys) / 6
// is less than half of five standard deviations of random errors; and room for short rows. Scores that fall
// by 16 steps in a run have little weight behind a few runs.
double few_steps(const Runs& runs) { return std::min(16.0, 4 + std::sqrt(runs.visible()) / 6); }

// Another maximum has its own largest P.
PRounding without_largest(const PRounding& rounding) {
  PRounding unlimited = rounding;
  if (!rounding.integer) unlimited.largest = 1e300;
  return unlimited;
}

// Rounded once, in an order that is not declared, against the largest key of each run.
double drift_of_one(const ErrorModel& model, Runs runs, std::span<const double> x, double m, double start) {
  const PRounding& rounding = model.p_rounding();
  const PRounding unlimited = without_largest(rounding);
  const double flat = 2 * rounding.share() * few_steps(runs);
  const double far = std::max(flat, std::min(kLongRun, 2 * rounding.share() * kLongSteps));
  const double to_p = std::exp2(model.arithmetic().p_offset_log2), largest = rounding.tile_max ? to_p : 1.0;
  std::vector<double> weights;
  double worst = 0;
  for (; !runs.whole(); runs.merge()) {  // the row's largest key is looked at elsewhere
    double of_flat = 0, of_all = 0;
    for (size_t n = 0; n < runs.size(); ++n) {
      const Run& run = runs[n];
      const double span = run.high - run.low;
      if (!(span > 0) || span > far || m - run.high > kFarBelow) continue;
      if (weights.empty()) weights = weights_of(x, m);
      const double scale = std::exp(m - std::max(run.high, start)) * to_p;
      const auto [from, to] = runs.keys(n);
      double errors = 0;
      for (int64_t j = from; j < to; ++j) {
        const double p = weights[j] * scale;
        errors += rounding::round_p(unlimited, p, largest).value - p;
      }
      if (span <= flat) of_flat += errors / scale;
      of_all += errors / scale;
    }
    worst = std::max({worst, std::fabs(of_flat), kKnownRuns * std::fabs(of_all)});
  }
  return worst;
}

// Steps of a grid, each of two half steps: `share` of a weight, or `floor` where that is more (below the
// normal range, and everywhere on a grid of integers).
struct Steps {
  double share, floor;
  double half(double p) const { return std::max(share * p, floor); }
  double normal() const { return share > 0 ? floor / share : kInf; }
  // Between nothing and p = exp(x); logarithmic in the normal range.
  double below(double p, double x) const {
    const double least = normal();
    return p <= least ? p / (2 * floor) : (1 + x - std::log(least)) / (2 * share);
  }
};

// How many steps of a grid weights lie in: all that they span where they lie evenly, and fewer where a few
// steps have most of the weight, down to a quarter.
class OccupiedSteps {
 public:
  // Scores x, visible above ErrorModel::kInvisible; P = exp(x + shift).
  double count(const Steps& steps, std::span<const double> x, double shift) {
    double fewest = kInf;
    for (const double offset : {0.0, 0.5}) {
      double all = 0, squares = 0;
      for (const double score : x) {
        if (score <= ErrorModel::kInvisible) continue;
        const double p = vector_math::exp(std::max(score + shift, -kFarBelow));
        const auto cell = static_cast<size_t>(kCells * steps.below(p, score + shift) + offset);
        if (cell >= held_.size()) held_.resize(2 * cell + 1);
        if (held_[cell] == 0) touched_.push_back(cell);
        held_[cell] += p, all += p;
      }
      for (const size_t cell : touched_) squares += held_[cell] * held_[cell], held_[cell] = 0;
      touched_.clear();
      if (all > 0) fewest = std::min(fewest, all * all / squares / kCells);
    }
    return fewest;
  }

 private:
  static constexpr double kCells = 4;
  std::vector<double> held_;  // by cell of a quarter of a step, empty between calls
  std::vector<size_t> touched_;
};

// What P of a first rounding may be larger by than P of the last: places in an octave, and thirds of a step
// of the grid beyond each.
std::vector<double> places(const PRounding& rounding) {
  std::vector<double> all;
  for (int octave = 0; octave < 4; ++octave)
    for (int third = 0; third < 3; ++third)
      all.push_back(std::exp2(0.25 * octave) * (1 + 2.0 / 3 * third * rounding.share()));
  return all;
}

// Rounded more than once, or anywhere on its grid.
double drift_of_several(const ErrorModel& model, Runs runs, std::span<const double> x, double m,
                        double reference, double start) {
  const PRounding& rounding = model.p_rounding();
  const PRounding unlimited = without_largest(rounding);
  const double to_p = std::exp2(model.arithmetic().p_offset_log2), largest = rounding.tile_max ? to_p : 1.0;
  const std::vector<double> before = places(rounding), weights = weights_of(x, m);
  // PRounding is of all roundings together.
  const int32_t roundings = std::max(1, model.arithmetic().p_roundings);
  const Steps all =
      rounding.integer ? Steps{0, rounding.eta * largest} : Steps{rounding.relative, rounding.eta};
  const Steps once = {std::pow(1 + all.share, 1.0 / roundings) - 1,
                      all.floor / (roundings * (1 + all.share))};
  const double few = few_steps(runs) * all.half(1) / once.half(1);
  // What P may be smallest against; exactly that where it is the row's LSE.
  const bool of_row = model.weights_of_lse() && model.arithmetic().splits <= 1;
  const double lowest = model.weights_of_lse() ? reference : std::max(runs.top(), start);
  OccupiedSteps occupied;
  double worst = 0;
  for (bool whole = false, tiles = true; !whole; runs.merge(), tiles = false) {
    whole = runs.whole();
    const bool many = whole || runs.length() >= kManyKeys;
    std::vector<double> sums(2 * before.size(), 0.0);
    double leans = 0;
    for (size_t n = 0; n < runs.size(); ++n) {
      const Run& run = runs[n];
      if (!(run.high >= run.low) || m - run.high > kFarBelow) continue;
      const auto [from, to] = runs.keys(n);
      const double against[] = {of_row ? lowest : std::max(run.high, start), lowest};
      double most = 0;
      for (size_t place = 0; place < (rounding.tile_max ? 1 : 2); ++place) {
        const double scale = std::exp(m - against[place]) * to_p, shift = std::log(to_p) - against[place];
        const double low = std::exp(run.low + shift);
        // In the normal range the grid repeats itself from octave to octave.
        if (place > 0 && (against[1] == against[0] || low >= all.normal())) continue;
        double steps =
            once.below(std::exp(run.high + shift), run.high + shift) - once.below(low, run.low + shift);
        if (steps <= few) {
          const auto round = [&](double p) { return rounding::round_p(unlimited, p, largest).value; };
          for (size_t c = 0; c < before.size(); ++c) {
            double errors = 0;
            for (int64_t j = from; j < to; ++j) {
              const double p = weights[j] * scale;
              errors += round(round(p * before[c]) / before[c]) - p;
            }
            sums[place * before.size() + c] += errors / scale;
          }
        }
        if (!many) continue;
        if (whole || tiles) steps = std::min(steps, occupied.count(once, x.subspan(from, to - from), shift));
        // A rounding that finds weights on a grid of its own, a little beside it, takes most of them to one
        // side however many steps they span; the first one does where they span less than one.
        const double of_first = std::min(1.0, 0.25 / steps);
        double lean = 0;
        for (int64_t j = from; j < to; ++j) {
          const double p = weights[j] * scale, h = once.half(p);
          lean += std::min(of_first * h + std::max(0.0, all.half(p) - h), rounding.most * p);
        }
        most = std::max(most, lean / scale);
      }
      leans += most;
    }
    worst = std::max(worst, leans);
    for (const double sum : sums) worst = std::max(worst, std::fabs(sum));
  }
  return worst;
}

}  // namespace

double drift_of_runs(const ErrorModel& model, bool declared, int64_t first, std::span<const double> x,
                     double m, double reference, double sink) {
  const bool again = !model.rounds_p_once();
  const auto count = static_cast<int64_t>(x.size());
  const int64_t length = std::max<int64_t>(2, model.arithmetic().tile_keys);
  if (!model.p_rounding().narrow || (model.weights_of_lse() && !again) || count < 2 ||
      (!again && (declared || count <= length)))
    return 0;
  // A sink that comes first is the maximum of all runs below it: their weights stand on the grid against it.
  const double start = model.arithmetic().sink_first ? sink : -kInf;
  const Runs runs(x, first, length);
  return again ? drift_of_several(model, runs, x, m, reference, start)
               : drift_of_one(model, runs, x, m, start);
}

}  // namespace assay
