// SPDX-License-Identifier: Apache-2.0
// What no single element can show: errors that are each within bounds but lean one way, are all a little too
// large, or lie along one key. Six statistics over groups of rows (a request and head, a head over the
// batch, the whole case), with thresholds that follow from the declared arithmetic alone, no calibration.
// Rows are the independent unit, because rounding one weight moves all dimensions of its row at once.
// Derivation: README.md. To add a statistic: a value of Statistic, its sums in RowMoments, its test.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "harness/check/verdict.hpp"

namespace assay {

enum class Statistic {
  kSlope,       // the errors lean along o: a scale, truncation, a wrong row sum
  kRms,         // the errors are larger than declared: extra roundings
  kMismatch,    // more elements differ from the rounded replay than its remaining error can explain
  kMatchedKey,  // the errors lie along one key: dropped or counted twice
  kLseMean,     // the LSE leans one way
  kLseRms,      // the LSE errs more than declared
};
std::string_view statistic_name(
    Statistic);  // "slope", "rms", "mismatch", "matched key", "lse mean", "lse rms"

// A statistic with its place; request or head -1: over all of them.
struct Finding {
  Statistic statistic = Statistic::kSlope;
  int32_t request = -1, row = -1, head = -1, key = -1;
  double value = 0, threshold = 0;  // standard deviations beyond what is legal on average, at least 0
  // slope: relative error of o; rms: ratio to the declared one; mismatch: share of elements; matched key: its
  // amplitude; lse mean: declared standard deviations a row.
  double detail = 0;
  double ratio() const { return value / threshold; }
};
// "slope: errors lean along O by +0.41 %, 23.1 sd where 6 are allowed, head 3 over the batch"
std::string text_of(const Finding&);
// "head 3 over the batch", "request 2 head 3", "the whole case"
std::string place_of(const Finding&);

// What is wrong in a head or a request is wrong there with other values too; chance is elsewhere the next
// time. Which key weighs enough to be missed is a matter of the values.
bool same_place(const Finding&, const Finding&);

struct AggregateReport {
  std::vector<Finding> alarms;  // past their thresholds, worst first
  // The largest value over its threshold, NaN when nothing could be tested (no tier P, no replay).
  double worst_ratio = std::numeric_limits<double>::quiet_NaN();
  Finding worst;
};

inline constexpr double kAlarmSd = 6;     // slope, rms, mismatch
inline constexpr double kKeyAlarmSd = 7;  // the largest over all keys of a row
inline constexpr double kLseAlarmSd = 8;

// O and LSE on the host; null: nothing is asked about it.
struct OutputView {
  const assay_tensor* o = nullptr;
  const assay_tensor* lse = nullptr;
  double lse_unit = 1;  // one unit of the LSE as written, in natural units
};
// Rows where tier P declined are left out, and so is everything when it applies nowhere.
AggregateReport aggregates(const BoundedAttention&, const Problem&, const HostOperands&, const OutputView&,
                           const assay_arithmetic&);

}  // namespace assay
