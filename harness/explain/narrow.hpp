// SPDX-License-Identifier: Apache-2.0
// A mistake that one piece of code makes, with the keys that this piece works on: a hypothesis kept to some
// keys of a request.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/explain/hypothesis.hpp"

namespace assay {

struct SomeKeys {
  std::string words;  // "in the new tokens"
  std::function<bool(const Scene&, int32_t position)> holds;
  double cost = 0;
  // In place of `holds`: keys of these scores, for hypotheses of what becomes of one.
  std::function<bool(const ScoreParts&)> of_score = {};
  const Layout* layout = nullptr;  // the way in parts that says which they are, if one does
};

// Keys that another piece of code may handle: those of a page, a tile or a part, new tokens, distant keys,
// scores of one sign.
std::vector<SomeKeys> some_keys(const Clues&);

// The hypothesis in these keys alone. False: it does not change keys one by one.
bool narrowed(const Hypothesis&, const SomeKeys&, Hypothesis* to);
std::string_view name_in_some_keys(std::string_view cause);
// The hypothesis in one of two passes over the keys. False: it is none of what passes do.
bool in_one_pass(const Hypothesis&, bool of_output, Hypothesis* to);
// Whether one of a cause is called by an asked name where one pass has it.
bool becomes_in_one_pass(std::string_view cause, const std::set<std::string_view>& asked);

}  // namespace assay
