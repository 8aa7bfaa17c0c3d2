// SPDX-License-Identifier: Apache-2.0
// Testing of hypotheses: each predicts a bounded sample of wrong and right cells and is scored by how much of
// the error remains. Hypotheses that fail on a few cells are not computed on the rest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/explain/hypothesis.hpp"

namespace assay {

struct Ranked {
  std::string_view cause;
  std::string text;
  double misfit = 0;     // mean over the sample; 0 explains everything
  double explained = 0;  // share of the misfit of "nothing is wrong" that is gone, at most 1
  double cost = 0;
  bool fact = false;           // observed in an experiment, not fitted
  int32_t free = 0;            // numbers fitted to the wrong cells
  std::string_view also = {};  // the second of two causes at once; empty: one explains it
};

// From here on the first cause is called the cause; below it, none of the known ones. A cause that explains
// less than kNearlyAll must also leave no more than legal rounding does: one unit in O and one in the LSE.
inline constexpr double kSure = 0.8, kNearlyAll = 0.9;
inline constexpr double kLegalMisfit = 1.4;  // 2 ln(1 + 1)
// Causes whose misfits differ by less, in units of legal rounding, are not told apart by a case.
inline constexpr double kSameMisfit = 0.02;

struct Ranking {
  std::vector<Ranked> list;  // best first, at most one per cause
  double nothing = 0;        // misfit of "nothing is wrong"
  int64_t tested = 0;
  int64_t bad_cells = 0;  // wrong cells of the case, not of the sample
  std::vector<Sample> samples;
};

// Predictors for the operands under NaN poison and low poison.
// Hypotheses of the causes `without` are left out.
Ranking rank(const Clues&, Predictor& low, const std::vector<Family>&,
             const std::vector<std::string>& without = {});

// Whether the first cause is called the cause: it explains enough, and has fewer fitted numbers than there
// are wrong cells.
bool sure(const Ranking&);
// Sure, and of all but legal rounding.
bool clearly(const Ranking&);
// What the case cannot tell from the best, that first.
std::vector<Ranked> equally_good(const Ranking&);

bool better(const Ranked&, const Ranked&);

}  // namespace assay
