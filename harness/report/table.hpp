// SPDX-License-Identifier: Apache-2.0
// The table people read: chosen columns, aligned, units under the names, one unit per column, rows of
// one scenario together with the scenario written once. Rows.csv keeps every digit; this does not.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/report/row.hpp"

namespace assay {

struct TableOptions {
  std::vector<std::string> columns;  // names from row_fields(); empty = default_columns(rows)
  // Columns of the terminal, 0 = as wide as needed. To fit, the scenario is shortened in its middle
  // (two scenarios never look the same afterwards), then columns but scenario, kernel and outcome are left
  // out from the right and named below the table.
  int width = 0;
  bool color = false;  // ANSI colours on outcomes
  // Column to sort by, worst first: largest numbers, but smallest where more is better (rates, % of the
  // limit); outcomes by severity, other texts by the alphabet. '-' in front turns it round. Rows without a
  // value come last. Empty: scenarios in the order of their first rows.
  std::string sort;
};

// Timing columns when any row was timed, error columns otherwise.
std::vector<std::string> default_columns(std::span<const Row>);

// Ends with a newline; "" for no rows. InputError for an unknown column, with the accepted ones.
std::string format_table(std::span<const Row>, const TableOptions& = {});

// Shortens every text to at most `width` (>= 16) by "..." in the middle. Distinct texts stay distinct:
// when no cut achieves that, texts get a number (#12) in front.
std::vector<std::string> shorten_distinct(std::span<const std::string>, int width);

}  // namespace assay
