// SPDX-License-Identifier: Apache-2.0
// Proposes a hypothesis for the whole number that fits a few wrong cells best: what the families of solved
// keys, masks and dimensions share.
#pragma once

#include <algorithm>
#include <string>

#include "harness/explain/families/fit.hpp"
#include "harness/explain/families/mask_rule.hpp"

namespace assay {

inline constexpr int32_t kMostWhole = 512;

class KeysSolver {
 public:
  KeysSolver(const Clues& clues, Hypotheses& out) : clues_(clues), out_(out), fit_(clues) {}
  const Clues& clues() const { return clues_; }
  const Problem& problem() const { return clues_.problem(); }
  using EditOf = std::function<Edit(int32_t)>;
  using SetOf = std::function<void(Rules&, int32_t)>;
  using MaskOf = std::function<void(MaskRule&, int32_t)>;
  void rule(std::string_view cause, const char* text, const std::string& behind, double cost, int32_t low,
            int32_t high, const SetOf& set) {
    if (!clues_.wants(cause)) return;
    auto found = fit_.whole(low, std::min(high, low + kMostWhole), set);
    if (!found) return;
    Hypothesis h = propose(clues_, cause, fmt::format(fmt::runtime(text), *found) + behind, cost);
    set(h.rules, *found);
    h.free = 1;
    out_.push_back(std::move(h));
  }
  void edit(std::string_view cause, const char* text, const std::string& behind, double cost, int32_t low,
            int32_t high, const EditOf& of) {
    rule(cause, text, behind, cost, low, high, [&](Rules& r, int32_t n) { r.edit_terms = of(n); });
  }
  void mask(std::string_view cause, const char* text, double cost, int32_t low, int32_t high,
            const MaskOf& set) {
    const MaskRule given = given_mask(problem());
    rule(cause, text, "", cost, low, high, [&](Rules& r, int32_t n) {
      MaskRule m = given;
      set(m, n);
      r.sees = [m](const Scene& s, int32_t j) { return m.sees(s, j); };
    });
  }
  void sees(std::string_view cause, const char* text, double cost, int32_t low, int32_t high,
            const std::function<bool(const Scene&, int32_t key, int32_t n)>& of) {
    rule(cause, text, "", cost, low, high,
         [&](Rules& r, int32_t n) { r.sees = [of, n](const Scene& s, int32_t j) { return of(s, j, n); }; });
  }

 private:
  const Clues& clues_;
  Hypotheses& out_;
  Fit fit_;
};

}  // namespace assay
