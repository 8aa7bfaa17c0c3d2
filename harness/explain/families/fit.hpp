// SPDX-License-Identifier: Apache-2.0
// Numbers that no list holds: a threshold, a coefficient, a count is found on a few wrong cells. The grid
// need only come near; what is found is proposed once, at a price, and is tested on all samples as any other.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "harness/explain/hypothesis.hpp"
#include "harness/explain/misfit.hpp"

namespace assay {

// Of one prediction, in keys times dimensions. Larger ones than kLargeCell get less of what follows; beyond
// kLargest nothing is solved for.
double work_of_a_cell(const Problem&);
inline constexpr double kLargeCell = 80e3, kLargestCell = 200e3;
// Beyond `most`, and not asked for by name: what was found on one line is looked for on another, whatever its
// size, since what is not tried there would count as refuted.
bool too_large(const Clues&, double most);
inline constexpr double kSolvedCost = 0.6;  // of a number that was found

class Fit {
 public:
  explicit Fit(const Clues&);
  using Set = std::function<void(Rules&, double)>;
  using SetWhole = std::function<void(Rules&, int32_t)>;

  // Where the misfit is least along an ascending grid, refined between its neighbours. `steps`: the misfit is
  // constant between jumps (thresholds); then the middle of the best stretch. Nothing where no point of the
  // grid helps.
  std::optional<double> along(const std::vector<double>& grid, bool steps, const Set&) const;
  // The whole number of [low, high] that fits best; nothing where none helps.
  std::optional<int32_t> whole(int32_t low, int32_t high, const SetWhole&) const;
  // Several numbers at once by damped Gauss-Newton steps on O and the LSE, from `start`; nothing where it
  // ends no better than it began or than nothing. `step`: for the derivatives.
  using SetMany = std::function<void(Rules&, const std::vector<double>&)>;
  std::optional<std::vector<double>> many(std::vector<double> start, double step, const SetMany&) const;

 private:
  Prediction predict(const Rules&, const Sample&) const;
  double misfit(const Rules&, size_t cells, double stop) const;
  const Clues& clues_;
  mutable double budget_;        // work that is left
  std::vector<Sample> cells_;    // wrong ones of several kinds
  std::vector<Target> targets_;  // what stands there
  std::vector<double> nothing_;  // misfits under the right rules
};

// `count` points from `from` to `to`, evenly in their logarithms.
std::vector<double> grid_of_logs(double from, double to, int count);
std::vector<double> grid_of(double from, double to, int count);

}  // namespace assay
