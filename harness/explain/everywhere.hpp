// SPDX-License-Identifier: Apache-2.0
// What is to be said of a part of the case must hold in all its cells, as far as these are not too many:
// where a few rows are wrong among many right ones, the cells that hypotheses were tried on may be those that
// do not tell. Forms of hypotheses that need such a look stand here; which exist is up to rank.cpp.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "harness/explain/rank.hpp"
#include "harness/explain/samples.hpp"

namespace assay {

// A hypothesis in the cells `in` (null: all), in all dimensions of O or in the wrong ones.
struct Form {
  double misfit = 0, price = 0;
  int free = 0;
  const std::vector<char>* in = nullptr;
  bool dims = false;
  int scope = -1;  // of scopes_of
};

// A form that may be said of its cause, and its hypothesis.
struct Offered {
  Ranked ranked;
  size_t index = 0;
  Form form{};
};

// The case that the forms are about.
struct Everywhere {
  const Clues& clues;
  Predictor& low;
  const Hypotheses& all;
  const std::vector<Judged>& judged;
  const std::vector<Scope>& scopes;
  const std::vector<char>& in_bad;  // the wrong ones of the samples, as forms point to them
};

// Of the causes that explain as much as the first and hold in a part of the case, each gets the form that
// holds everywhere (`forms_of`, and noted in `best`), or loses what it does not explain there; then sorts.
void look_everywhere(const Everywhere&, std::map<std::string_view, Offered>& best,
                     std::map<std::string_view, std::vector<Offered>>& forms_of, Ranking&);

}  // namespace assay
