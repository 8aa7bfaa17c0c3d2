// SPDX-License-Identifier: Apache-2.0
// A wrong verdict may follow from what a kernel declares and not from what it does: a flag that is not true,
// a rounding that nobody mentioned. After a failure what was written is held against the bounds of other
// declarations, one field changed at a time, and those that it keeps within are named: where there are
// several, the size of the error tells less of what it comes from. Nothing is run again for it. A field that
// kernels get wrong: a line in redeclarations().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/check/expectations/expectation.hpp"

namespace assay {

// What a kernel might have declared in place of what it did.
struct Redeclaration {
  std::string field;  // of assay_arithmetic, or the preset
  std::string words;  // "dense_new_keys were 0 (declared: 6)"
  assay_arithmetic arithmetic{};
  uint32_t contracts = 0;
  bool wide = false;  // fits errors of many causes: not named beside one that fits fewer
};

// Of the fields that have a say in this problem, one change each, those that leave narrow bounds first: what
// is in the way of a sharper statement (an order that nobody knows) is a way out of many faults, too. Some
// cannot be beside what else is declared (Expectation::impossible).
std::vector<Redeclaration> redeclarations(const Problem&, const assay_arithmetic&, uint32_t contracts);

// What was judged, and found wrong in values or marks.
struct JudgedWrong {
  Inputs& inputs;  // as they were; their contracts change meanwhile
  Expectation& expected;
  const Snapshot& left;  // of the run that was judged
  assay_arithmetic arithmetic{};
  double row_key_budget = 0;
};

// "; within its bounds if A, or if B: ...": declarations under which nothing is wrong with what was written,
// of each field the first, of all of them kJudgedWhole at most (three). "" when there is none, or where the
// failure does not show in the rows that are looked at for each (a fixed number of products; what keeps
// within its bounds there is then judged in all rows that were). `expected` is prepared as it was on return.
std::string otherwise_declared(const JudgedWrong&);

}  // namespace assay
