// SPDX-License-Identifier: Apache-2.0
// A hypothesis: a cause with its parameters, as rules that predict every cell of the output. Families propose
// them; rank.hpp tests them. To add one: a few lines in the family it belongs to. Nothing here may look at
// the name of the kernel.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/explain/evidence.hpp"
#include "harness/explain/layouts.hpp"
#include "harness/explain/predict.hpp"
#include "harness/explain/rules.hpp"

namespace assay {

struct Hypothesis {
  std::string_view cause;  // one of causes()
  std::string text;        // with its parameters: "window of 62 instead of 63 keys to the left"
  Rules rules;
  // Between hypotheses that explain equally much the cheaper one comes first: 0 a systematic rule without a
  // parameter, more for fitted numbers and single events.
  double cost = 0;
  int32_t free = 0;  // numbers that were fitted to the wrong cells
  // Other causes whose sentence this is, too, on every line: where one of them is not known, neither is this.
  std::vector<std::string_view> also_called = {};
  bool by_cell = false;       // chosen for every wrong cell that was looked at, and none for others
  bool in_some_keys = false;  // of another one, narrowed to the keys that one piece of code may handle

  bool called(std::string_view name) const {
    return cause == name || std::find(also_called.begin(), also_called.end(), name) != also_called.end();
  }
  // Whether any of these is its name.
  bool among(const std::vector<std::string>& names) const {
    return std::any_of(names.begin(), names.end(), [this](const std::string& n) { return called(n); });
  }
};

// A change of the terms of one cell, behind the mask.
using Edit = std::function<void(Scene&, std::vector<Term>&)>;

// A cell of the output in one call.
struct Sample {
  Cell cell;
  Call call = Call::kFirst;
};

// What families may look at when they choose parameters.
struct Clues {
  const Evidence& evidence;
  Predictor& predictor;             // operands with NaN poison
  std::vector<Sample> bad, good;    // worst first
  std::vector<int32_t> tile_sizes;  // that a tile may have: the declared one, else the usual ones
  std::vector<Layout> layouts;      // ways in parts, likeliest first
  std::vector<Layout> tilings;      // ways in tiles, in one part or in several
  bool one_layout = false;          // there is only one, and what has to be solved for is not
  Predictor* low = nullptr;         // operands with low poison, where there are calls with it
  // Causes that are asked for, where others need not be solved for; null: all.
  const std::set<std::string_view>* only = nullptr;
  bool wants(std::string_view cause) const {
    return only == nullptr || only->empty() || only->contains(cause);
  }
  const Problem& problem() const { return evidence.problem; }
};

using Hypotheses = std::vector<Hypothesis>;
using Family = void (*)(const Clues&, Hypotheses&);
void mask_family(const Clues&, Hypotheses&);
void key_family(const Clues&, Hypotheses&);
void page_family(const Clues&, Hypotheses&);
void mapping_family(const Clues&, Hypotheses&);  // heads, rows, dims
void scale_family(const Clues&, Hypotheses&);
void factor_family(const Clues&, Hypotheses&);
void score_family(const Clues&, Hypotheses&);  // softcap, ALiBi, sinks
void softmax_family(const Clues&, Hypotheses&);
void rescale_family(const Clues&, Hypotheses&);  // what happens where the running maximum rises
void part_family(const Clues&, Hypotheses&);     // tiles at the ends of parts
void lse_family(const Clues&, Hypotheses&);
void merge_family(const Clues&, Hypotheses&);
void precision_family(const Clues&, Hypotheses&);
void output_family(const Clues&, Hypotheses&);
void stride_family(const Clues&, Hypotheses&);
void lane_family(const Clues&, Hypotheses&);    // some keys of every tile, on either side
void length_family(const Clues&, Hypotheses&);  // whole numbers found from the wrong cells: windows, lengths
void decode_family(const Clues&, Hypotheses&);  // what the codes of an operand are taken for
// Numbers that no list holds (families/fit.hpp), and mechanisms too rare or too many to try where another
// explains the case already.
void solved_weight_family(const Clues&, Hypotheses&);
void solved_score_family(const Clues&, Hypotheses&);
void solved_key_family(const Clues&, Hypotheses&);
void solved_dim_family(const Clues&, Hypotheses&);
void solved_page_family(const Clues&, Hypotheses&);
void solved_merge_family(const Clues&, Hypotheses&);
void solved_sum_family(const Clues&, Hypotheses&);
void other_code_family(const Clues&, Hypotheses&);
void scored_key_family(const Clues&, Hypotheses&);  // keys by their scores among all of a row
// Which keys or parts are hit, times what becomes of them; sums that the LSE itself tells.
void composed_key_family(const Clues&, Hypotheses&);
void composed_part_family(const Clues&, Hypotheses&);
void composed_sum_family(const Clues&, Hypotheses&);

// One of several things in a row of n: what planted and real bugs single out.
struct Pick {
  std::string_view name;  // "first"
  int32_t (*of)(int32_t n);
};
std::span<const Pick> picks();

// Misfit of one cell under rules, for families that search a parameter.
double misfit_at(const Clues&, const Sample&, const Rules&);

// A change that differs from cell to cell: for every wrong cell the candidate that fits best, nothing in
// right cells. Given up, without a hypothesis, when no candidate explains the first cells.
struct Candidate {
  std::string text;
  Edit edit;
};
void propose_per_cell(const Clues&, std::string_view cause, std::string_view what, double cost,
                      const std::function<std::vector<Candidate>(const Cell&)>& candidates, Hypotheses&);

// A hypothesis with the right rules, to set hooks on.
Hypothesis propose(const Clues&, std::string_view cause, std::string text, double cost = 0);

// Puts down a hypothesis with the right rules but for one edit.
void propose_edit(const Clues&, Hypotheses&, std::string_view cause, std::string text, double cost, Edit);

// The row of the store at a position of the request itself; behind the last key: whatever the slot holds.
int32_t own_row(Scene&, int32_t position);

}  // namespace assay
