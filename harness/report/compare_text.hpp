// SPDX-License-Identifier: Apache-2.0
// Comparisons as text for a terminal: cases down, what is compared with the baseline across.
#pragma once

#include <span>
#include <string>

#include "harness/report/compare_rows.hpp"

namespace assay {

struct CompareColumn {
  std::string name;  // a folder, or a kernel
  const RowComparison* comparison;
};

struct CompareTextOptions {
  int width = 0;               // of the terminal; 0: as wide as needed
  int64_t limit = -1;          // most cases shown, the rest is counted; -1: all
  bool sort_by_ratio = false;  // the largest ratio of any column first, instead of the baseline's order
};

// Cases with the baseline's time and, per column, ratio and interval; "" when no column has any.
std::string compare_table(const std::string& baseline, std::span<const CompareColumn>,
                          const CompareTextOptions& = {});
// Per group: geometric mean, how many are clearly faster or slower, best and worst case.
std::string group_table(const RowComparison&, int width = 0);

// Cells aligned under their headings, text (the columns named in `left`, by index) to the left; the first
// column is shortened to fit `width` without making two texts look the same.
std::string aligned(std::span<const std::vector<std::string>> lines, std::span<const size_t> left, int width);

}  // namespace assay
