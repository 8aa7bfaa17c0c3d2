// SPDX-License-Identifier: Apache-2.0
// What may go wrong with the terms of some keys, whichever keys those are: families that look for the keys
// (by lane, by place of a tile) share the list. To add one: a row here, and its sentence in causes.cpp.
#pragma once

#include <string_view>

#include "harness/explain/rules.hpp"

namespace assay {

struct TermMistake {
  std::string_view cause;
  const char* words;
  double Term::*field;
  double value;
};

inline constexpr TermMistake kTermMistakes[] = {
    {"keys.one_dropped", "left out", &Term::weight, 0},
    {"keys.one_doubled", "counted twice", &Term::weight, 2},
    {"softmax.l_missing_key", "missing from the row sum", &Term::in_sum, 0},
    {"softmax.l_extra_key", "twice in the row sum", &Term::in_sum, 2},
    {"keys.lanes_v_dropped", "not in the output, though in the row sum", &Term::in_output, 0}};

}  // namespace assay
