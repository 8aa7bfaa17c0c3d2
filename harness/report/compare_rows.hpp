// SPDX-License-Identifier: Apache-2.0
// Two sets of rows side by side: which rows are about the same thing, how their times relate, what passes on
// one side only. Of old results, measured one after the other: what the machine did in between is part of
// every ratio, so this informs and is no test of significance.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/report/row.hpp"

namespace assay {

// One case timed on both sides. ratio = time / time of the baseline: below 1 is faster.
struct ComparedRow {
  const Row *base, *other;
  double ratio;      // of the medians
  double low, high;  // from the ends of both sides' intervals; NaN where a side has none
  double with_plan;  // ratio of total_us, which has plan and refresh in it; NaN where a side has none
  bool noisy;        // a side's outcome says that its time means little
  // The interval excludes 1: -1 faster, +1 slower; 0 includes it, or there is none, or a side is noisy.
  int verdict() const { return noisy ? 0 : high < 1 ? -1 : low > 1 ? 1 : 0; }
  bool plans() const;  // on a side there is more to a call than its time
};

struct ComparedGroup {
  std::string name;
  int64_t rows = 0, faster = 0, slower = 0, noisy = 0;
  double geomean = 0;
  double with_plan = 0;  // geometric mean of those ratios, of the times where a row has none
  const ComparedRow *best = nullptr, *worst = nullptr;  // smallest and largest ratio
};

struct OutcomeChange {
  const Row *base, *other;  // rows of one case, kernel and device
};

struct RowComparison {
  std::vector<ComparedRow> rows;  // in the order of the baseline
  std::vector<ComparedGroup> groups;
  std::vector<OutcomeChange> changes;
  std::vector<const Row*> only_base, only_other;  // a row per case, kernel and device
};

struct CompareOptions {
  bool across_kernels = false;  // a case is the same whatever kernel ran it
  // What a row is counted under; groups appear in the order of their first row. Never called for rows without
  // a time.
  std::function<std::string(const Row&)> group = [](const Row& row) { return row.op; };
};

// Times that cannot be (outcome implausible) are not compared. Rows are partners when scenario, kernel,
// backend, device and cache mode agree. Rows without such a partner are matched without the device, then
// without the backend too (another machine, another build of a library), where exactly one is left on each
// side. The pointers lead into `base` and `other`, which must outlive the result.
RowComparison compare_rows(std::span<const Row> base, std::span<const Row> other, const CompareOptions& = {});

// Rows in their order, or the largest ratio first.
nlohmann::json json_of(const RowComparison&, bool by_ratio = false);

}  // namespace assay
