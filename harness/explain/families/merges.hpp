// SPDX-License-Identifier: Apache-2.0
// What the hypotheses about splits share: how the keys are cut, declared or assumed, and the steps of a merge
// they change.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "harness/explain/hypothesis.hpp"

namespace assay {

class Merges {
 public:
  Merges(const Clues& clues, Hypotheses& out, const Layout& layout)
      : clues_(clues), out_(out), layout_(layout) {}
  Hypothesis start(std::string_view cause, std::string text, double cost) const {
    Hypothesis h = propose(clues_, cause, std::move(text) + layout_.words, cost + layout_.cost);
    layout_.apply(h.rules);
    return h;
  }
  void parts(std::string_view cause, std::string text, double cost,
             std::function<void(const Scene&, std::vector<SplitPart>&)> edit) {
    Hypothesis h = start(cause, std::move(text), cost);
    // Nobody merges one part.
    h.rules.edit_parts = [edit = std::move(edit)](const Scene& s, std::vector<SplitPart>& list) {
      if (list.size() > 1) edit(s, list);
    };
    out_.push_back(std::move(h));
  }
  void lse(std::string_view cause, std::string text, double cost,
           std::function<double(const Scene&, const std::vector<SplitPart>&, double)> rule) {
    Hypothesis h = start(cause, std::move(text), cost);
    h.rules.merge_lse = std::move(rule);
    out_.push_back(std::move(h));
  }
  // Of what was proposed last: what else it is called.
  void also_called(std::string_view cause) { out_.back().also_called.push_back(cause); }
  const std::string& words() const { return layout_.words; }
  void push(Hypothesis h) { out_.push_back(std::move(h)); }

 private:
  const Clues& clues_;
  Hypotheses& out_;
  const Layout& layout_;
};

inline int32_t count(const std::vector<SplitPart>& parts) { return static_cast<int32_t>(parts.size()); }

// Indexes of parts that hold keys.
inline std::vector<int32_t> filled(const std::vector<SplitPart>& parts) {
  std::vector<int32_t> list;
  for (int32_t s = 0; s < count(parts); ++s)
    if (parts[s].lse != -std::numeric_limits<double>::infinity()) list.push_back(s);
  return list;
}

// The parts of a cell under these rules, before anything is changed in them.
inline std::vector<SplitPart> parts_of(Predictor& predictor, Rules rules, const Cell& cell) {
  std::vector<SplitPart> parts;
  rules.edit_parts = [&parts](const Scene&, std::vector<SplitPart>& seen) { parts = seen; };
  predictor.predict(rules, cell);
  return parts;
}

// O and LSE of different splits, of another base, or of another head's workspace.
void exchanged_parts(const Clues&, Merges&);
// Slots that another request has overwritten.
void shared_slots(const Clues&, Merges&);
// Slots of splits that another one has overwritten.
void overwritten_parts(Merges&);
// Outputs nobody divides, and LSEs that are a maximum alone.
void undivided_parts(Merges&);
// Partial results kept more coarsely than declared.
void coarse_parts(const Clues&, Merges&);

}  // namespace assay
