// SPDX-License-Identifier: Apache-2.0
// See bounds_runs.hpp. Largest and smallest scores of runs are merged two by two, so that all lengths
// together cost one look at each key; weights are rounded only in runs that are flat.
#include "reference/bounds/bounds_runs.hpp"

#include <algorithm>
#include <cmath>
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

// What P of a first rounding may be larger by than P of the last: places in an octave, and thirds of a step
// of the grid beyond each.
std::vector<double> places(const PRounding& rounding) {
  std::vector<double> all;
  for (int octave = 0; octave < 4; ++octave)
    for (int third = 0; third < 3; ++third)
      all.push_back(std::exp2(0.25 * octave) * (1 + 2.0 / 3 * third * rounding.share()));
  return all;
}

}  // namespace

double drift_of_runs(const ErrorModel& model, bool declared, int64_t first, std::span<const double> x,
                     double m, double sink) {
  const PRounding& rounding = model.p_rounding();
  const bool again = !model.rounds_p_once();
  const auto count = static_cast<int64_t>(x.size());
  int64_t length = std::max<int64_t>(2, model.arithmetic().tile_keys), visible = 0;
  if (!rounding.narrow || (model.weights_of_lse() && !again) || count < 2 ||
      (!again && (declared || count <= length)))
    return 0;
  std::vector<Run> runs((first + count - 1) / length - first / length + 1);
  for (size_t n = 0; n < runs.size(); ++n) {
    const int64_t begin = (first / length + static_cast<int64_t>(n)) * length - first;
    const int64_t from = std::max<int64_t>(0, begin), to = std::min(count, begin + length);
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
    runs[n] = {low, high}, visible += seen;
  }
  // A run over n steps of the grid leans by at most an eighth of a step / n, which for n above sqrt(keys) / 6
  // is less than half of five standard deviations of random errors; and room for short rows. Scores that
  // fall by 16 steps in a run have little weight behind a few runs.
  const double flat = 2 * rounding.share() * std::min(16.0, 4 + std::sqrt(static_cast<double>(visible)) / 6);
  const double far = std::max(flat, std::min(kLongRun, 2 * rounding.share() * kLongSteps));
  PRounding unlimited = rounding;  // another maximum has its own largest P
  if (!rounding.integer) unlimited.largest = 1e300;
  const double to_p = std::exp2(model.arithmetic().p_offset_log2), largest = rounding.tile_max ? to_p : 1.0;
  const std::vector<double> before = again ? places(rounding) : std::vector<double>{1.0};
  // A sink that comes first is the maximum of all runs below it: their weights stand on the grid against it.
  const double start = model.arithmetic().sink_first ? sink : -kInf;
  // share() is that of all roundings together.
  const int32_t roundings = std::max(1, model.arithmetic().p_roundings);
  const double once =
                   rounding.integer ? rounding.share() : std::pow(1 + rounding.share(), 1.0 / roundings) - 1,
               further = std::pow(1 + once, roundings - 1) - 1;
  std::vector<double> weights;
  double worst = 0;
  for (bool whole = false; !whole; length *= 2) {
    whole = length >= count;
    if (whole && !again) break;  // the row's largest key is looked at elsewhere
    std::vector<double> sums(before.size(), 0.0);
    double few_steps = 0, of_all = 0;
    for (size_t n = 0; n < runs.size(); ++n) {
      const Run& run = runs[n];
      const double span = run.high - run.low;
      if (!(span > 0) || span > (again ? flat : far) || m - run.high > kFarBelow) continue;
      if (weights.empty()) {
        weights.resize(count);
        for (int64_t j = 0; j < count; ++j)
          weights[j] = x[j] > ErrorModel::kInvisible ? vector_math::exp(std::max(x[j] - m, -kFarBelow)) : 0.0;
      }
      const double scale = std::exp(m - std::max(run.high, start)) * to_p;
      const int64_t begin = (first / length + static_cast<int64_t>(n)) * length - first;
      const int64_t from = std::max<int64_t>(0, begin), to = std::min(count, begin + length);
      const auto round = [&](double p) { return rounding::round_p(unlimited, p, largest).value; };
      for (size_t c = 0; c < before.size(); ++c) {
        double errors = 0;
        for (int64_t j = from; j < to; ++j) {
          const double p = weights[j] * scale;
          errors += round(again ? round(p * before[c]) / before[c] : p) - p;
        }
        if (span <= flat) sums[c] += errors / scale;
        of_all += errors / scale;
      }
      if (!again || (!whole && length < kManyKeys)) continue;
      // A rounding that finds weights on a grid of its own, a little beside it, may take all to one side
      // however many steps they span; the first one does where they span less than one.
      const double steps = (run.high - run.low) / (2 * once);
      const double lean = once * std::min(1.0, 0.25 / steps) + further;
      for (int64_t j = from; j < to; ++j) few_steps += weights[j] * lean;
    }
    worst = std::max({worst, few_steps, again ? 0 : kKnownRuns * std::fabs(of_all)});
    for (double sum : sums) worst = std::max(worst, std::fabs(sum));
    const size_t odd = static_cast<size_t>(first / length % 2), merged = (runs.size() + odd + 1) / 2;
    std::vector<Run> longer(merged);
    for (size_t n = 0; n < runs.size(); ++n) {
      Run& to = longer[(n + odd) / 2];
      to = {std::min(to.low, runs[n].low), std::max(to.high, runs[n].high)};
    }
    runs = std::move(longer);
  }
  return worst;
}

}  // namespace assay
