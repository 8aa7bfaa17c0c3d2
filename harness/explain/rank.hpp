// SPDX-License-Identifier: Apache-2.0
// Testing of hypotheses: each predicts a bounded sample of wrong and right cells and is scored by how much of
// the error remains. Hypotheses that fail on a few cells are not computed on the rest.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/explain/hypothesis.hpp"
#include "harness/explain/samples.hpp"

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
  // It predicts what the first cause predicts, in every cell looked at: here the two are one answer.
  bool same_as_first = false;
  bool in_wrong_cells = false;  // it fits in the wrong cells only, by no rule which these are
  bool in_part = false;         // ... or in a part of the case
  bool in_some_keys = false;    // ... and in some keys of it
  bool narrowed = false;        // its form had to be searched for on two lines
  // It explains as much as the first one here, and less on the second line.
  bool told_apart = false;
  double price = 0;  // of the cost, that of holding in a part of the case, or of a pair that of being one
  std::vector<PartName> parts = {};  // that this part may be, its own first; empty: it has no name
  // Causes whose sentences say the same of it (other_names.hpp).
  std::vector<std::string_view> names = {};
  bool by_values = false;      // where it shows depends on how large scores and weights are
  bool against_order = false;  // it is one of parts, and the kernel takes its keys in one go
  bool by_cell = false;        // chosen for every wrong cell: no rule
};

// From here on the first cause is called the cause; below it, none of the known ones. A cause that explains
// less than kNearlyAll must also leave no more than legal rounding does: one unit in O and one in the LSE.
inline constexpr double kSure = 0.8, kNearlyAll = 0.9;
// ... and of a second line, of what assumes much.
inline constexpr double kSureThere = 0.88;
inline constexpr double kLegalMisfit = 1.4;  // 2 ln(1 + 1)
// Causes whose misfits differ by less, in units of legal rounding, are not told apart by a case.
inline constexpr double kSameMisfit = 0.02;

struct Ranking {
  std::vector<Ranked> list;  // best first, at most one per cause
  double nothing = 0;        // misfit of "nothing is wrong"
  int64_t tested = 0;
  int64_t bad_cells = 0;  // wrong cells of the case, not of the sample
  double finite = 1;      // share of the wrong samples that hold numbers: NaN fits whatever predicts it
  std::vector<Sample> samples;
  std::vector<PartName>
      around;  // parts of the case that hold all wrong cells, of another line than the first
  // Cause and words of hypotheses that explain as much as the best.
  std::set<std::pair<std::string_view, std::string>> alike;
  // What is said is said of another line too (second_line.hpp); empty: none was looked at, or it shows
  // nothing.
  std::string second;
  std::string unsaid;  // why nothing is said though the first cause explains the lines; empty: no reason
  double explained_there = 1;  // by the best of what explains most here
};

// Which hypotheses are tested.
struct Choice {
  std::vector<std::string> without;  // none of these causes, whatever else a sentence of theirs is called
  std::vector<std::string> refuted;  // nor what goes by these names
  std::set<std::string_view> only;   // if any: of these causes alone
  // If any: of a cause that has these or the like with other numbers, only these (keep_asked).
  std::set<std::pair<std::string_view, std::string>> words;
  // Numbers that the other line gives, and what they are on this one: they may differ by that.
  std::set<std::pair<std::string, std::string>> given = {};
  bool narrow = false;  // other forms are tried although a hypothesis explains the case
  // If any: only what holds in one of these parts of the case, all wrong cells among them.
  std::vector<PartName> parts = {};
  std::vector<Family> further = {};  // tried where nothing of the others explains the case
  std::vector<Family> upon = {};     // ... and on top of what explains a part of it
  std::vector<Family> cut = {};      // ... and in unusual ways in parts and tiles
  bool excludes(const Hypothesis& h) const {
    return h.among(without) || std::find(refuted.begin(), refuted.end(), h.cause) != refuted.end();
  }
};

// Predictors for the operands under NaN poison and low poison.
Ranking rank(const Clues&, Predictor& low, const std::vector<Family>&, const Choice& = {});

// Whether the first cause is called the cause: it explains enough, here and on the second line, and has fewer
// fitted numbers than there are wrong cells.
bool sure(const Ranking&);
// A part of the case, fitted numbers, two causes, or a mechanism that is far from plain.
bool assumes_much(const Ranked&);
// By so much an alternative may be dearer than a plain cause.
inline constexpr double kFarFetched = 0.25;
// Sure, and of all but legal rounding.
bool clearly(const Ranking&);
// What the case cannot tell from the best, that first.
std::vector<Ranked> equally_good(const Ranking&);

bool better(const Ranked&, const Ranked&);
// Of words for the same on the case the plainest ones first.
void plainest_first(Ranking&);

}  // namespace assay
