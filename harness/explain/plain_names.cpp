// SPDX-License-Identifier: Apache-2.0
// See plain_names.hpp.
#include "harness/explain/plain_names.hpp"

#include <algorithm>
#include <cmath>

#include "harness/explain/families/mask_rule.hpp"
#include "harness/explain/same_number.hpp"

namespace assay {
namespace {

struct Plain {
  std::string_view cause;
  std::vector<std::string_view> forms;  // that may come to the same
  Rules rules;
};

bool equal(const Prediction& a, const Prediction& b) {
  return same_number(a.lse, b.lse) && std::equal(a.o.begin(), a.o.end(), b.o.begin(), b.o.end(), same_number);
}

std::vector<Plain> plain_rules(const Clues& clues) {
  const Problem& p = clues.problem();
  std::vector<Plain> list;
  const auto add = [&](std::string_view cause, std::vector<std::string_view> forms, const MaskRule& rule) {
    Plain plain{cause, std::move(forms), clues.predictor.right()};
    plain.rules.sees = [rule](const Scene& s, int32_t j) { return rule.sees(s, j); };
    list.push_back(std::move(plain));
  };
  MaskRule m = given_mask(p);
  m.left = -1;
  if (p.window_left >= 0)
    add("mask.window_ignored",
        {"mask.window_coarse", "mask.window_long", "mask.window_anchor", "mask.first_keys_kept"}, m);
  m = given_mask(p);
  m.right = -1;
  if (p.window_right >= 0)
    add("mask.window_right_ignored", {"mask.window_coarse", "mask.window_long", "mask.window_anchor"}, m);
  m = given_mask(p);
  m.chunk = 0;
  if (p.chunk > 0)
    add("mask.chunk_ignored",
        {"mask.chunk_wide", "mask.chunk_size", "mask.chunk_shifted", "mask.first_keys_kept"}, m);
  return list;
}

}  // namespace

void name_plainly(const Clues& clues, Hypotheses& all) {
  std::vector<Sample> cells, right_cells;
  for (const Sample& s : clues.bad)
    if (s.call != Call::kLow) cells.push_back(s);
  for (const Sample& s : clues.good)
    if (s.call != Call::kLow) right_cells.push_back(s);
  if (cells.empty()) return;
  Predictor& predictor = clues.predictor;
  for (const Plain& plain : plain_rules(clues)) {
    std::vector<Prediction> expected;  // as far as anybody got
    const auto as_plain = [&](const Hypothesis& h) {
      for (size_t i = 0; i < cells.size(); ++i) {
        if (i == expected.size()) expected.push_back(predictor.predict(plain.rules, cells[i].cell));
        if (!equal(predictor.predict(h.rules, cells[i].cell), expected[i])) return false;
      }
      bool other = false;  // the plain rule says something else of a right cell
      for (const Sample& s : right_cells) {
        const Prediction here = predictor.predict(h.rules, s.cell);
        if (!equal(here, predictor.predict(predictor.right(), s.cell))) return true;
        other = other || !equal(here, predictor.predict(plain.rules, s.cell));
      }
      return !other;
    };
    for (Hypothesis& h : all)
      if (h.rules.sees && std::find(plain.forms.begin(), plain.forms.end(), h.cause) != plain.forms.end() &&
          as_plain(h))
        h.cause = plain.cause;
  }
}

}  // namespace assay
