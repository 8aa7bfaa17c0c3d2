// SPDX-License-Identifier: Apache-2.0
// What is known of a case's cells before any hypothesis: which are wrong and by how much, which parts of the
// case hold them all, and which of them are worth computing.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "harness/explain/hypothesis.hpp"

namespace assay {

struct Judged {
  Cell cell;
  bool bad = false;
  double severity = 0;  // root mean square error in units of legal noise
};
// Whether a cell changes with what unused memory holds.
bool depends_on_memory(const Evidence&, const Cell&);

std::vector<Judged> judge_cells(const Evidence&, Call);

// A part of a case by its name, which means as much on another line. Where it is all that lies on one side of
// a number: of which, and between which limits the number may lie.
struct PartName {
  std::string words;
  const char* side = nullptr;
  int32_t least = 0, most = 0;
  // Whether both may be one part of two lines.
  bool may_be(const PartName& other) const {
    if (side == nullptr) return other.side == nullptr && words == other.words;
    return side == other.side && std::max(least, other.least) <= std::min(most, other.most);
  }
};

// Parts of a case that one mistake may be confined to. Those count that hold every wrong cell and not every
// right one.
struct Scope {
  PartName name;
  std::function<bool(const Problem&, const Cell&)> holds;
  double cost = 0;                  // more than what any part of the case costs
  std::vector<PartName> same = {};  // others that single out the same cells of this case
};
std::vector<Scope> scopes_of(const Problem&, const std::vector<Judged>&);
// Names of all that hold every wrong cell, whatever else they hold.
std::vector<PartName> parts_around(const Problem&, const std::vector<Judged>&);
// Of these those that may be one of the names.
std::vector<Scope> scopes_named(const Problem&, const std::vector<Judged>&, const std::vector<PartName>&);
// Every part of a case that has a name, whatever is wrong in it.
std::vector<Scope> all_scopes();

// Dimensions of O that are right in every cell, where others are wrong; empty: none, or hardly any.
std::vector<char> right_dims(const Evidence&, Call, const std::vector<Judged>&);

// Cells worth looking at: the wrong ones (worst, first, last, spread) and right ones near them.
void choose_samples(const Evidence&, Call main, Clues&);

}  // namespace assay
