// SPDX-License-Identifier: Apache-2.0
// What the hypotheses about splits share: how the keys are cut, declared or assumed, and the steps of a merge
// they change. Splits of a fixed number of keys are assumed beside the declared ones.
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
  // `splits` of equal length, or as many as there are runs of `keys`: the other one is 0.
  Merges(const Clues& clues, Hypotheses& out, int32_t splits, int32_t keys)
      : clues_(clues), out_(out), keys_(keys) {
    const assay_arithmetic& declared = clues.predictor.declared();
    if (declared.splits <= 1 && declared.split_keys == 0) assumed_ = splits;
  }
  Hypothesis start(std::string_view cause, std::string text, double cost) const {
    const bool other = assumed_ > 0 || keys_ > 0;
    if (keys_ > 0)
      text += fmt::format(", were it cut into splits of {} keys", keys_);
    else if (assumed_ > 0)
      text += fmt::format(", were it cut into {} splits (it declares none)", assumed_);
    Hypothesis h = propose(clues_, cause, std::move(text), cost + (other ? 0.3 : 0));
    assay_arithmetic& a = h.rules.arithmetic;
    if (keys_ > 0) {
      a.split_keys = keys_;
      a.splits = (clues_.problem().max_kv_len() + keys_ - 1) / keys_;
      // Tiles must not cross the splits; where none are declared the weights are exact and one tile does.
      if (a.tile_keys == 0 || keys_ % a.tile_keys != 0) a.tile_keys = keys_;
    } else if (assumed_ > 0) {
      a.splits = assumed_;
      if (a.tile_keys == 0) a.tile_keys = 1;
    }
    return h;
  }
  void parts(std::string_view cause, std::string text, double cost,
             std::function<void(const Scene&, std::vector<SplitPart>&)> edit) {
    Hypothesis h = start(cause, std::move(text), cost);
    h.rules.edit_parts = std::move(edit);
    out_.push_back(std::move(h));
  }
  void lse(std::string_view cause, std::string text, double cost,
           std::function<double(const Scene&, const std::vector<SplitPart>&, double)> rule) {
    Hypothesis h = start(cause, std::move(text), cost);
    h.rules.merge_lse = std::move(rule);
    out_.push_back(std::move(h));
  }
  void push(Hypothesis h) { out_.push_back(std::move(h)); }

 private:
  const Clues& clues_;
  Hypotheses& out_;
  int32_t assumed_ = 0, keys_ = 0;
};

inline int32_t count(const std::vector<SplitPart>& parts) { return static_cast<int32_t>(parts.size()); }

// Indexes of parts that hold keys.
inline std::vector<int32_t> filled(const std::vector<SplitPart>& parts) {
  std::vector<int32_t> list;
  for (int32_t s = 0; s < count(parts); ++s)
    if (parts[s].lse != -std::numeric_limits<double>::infinity()) list.push_back(s);
  return list;
}

// O and LSE of different splits, of another base, or of another head's workspace.
void exchanged_parts(const Clues&, Merges&);
// Partial results and row sums kept more coarsely than declared.
void coarse_parts(const Clues&, Merges&);

}  // namespace assay
