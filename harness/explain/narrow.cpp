// SPDX-License-Identifier: Apache-2.0
// See narrow.hpp.
#include "harness/explain/narrow.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/explain/cut.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr size_t kLayouts = 8;     // ways in parts whose first and last part are tried
constexpr double kOnePass = 0.25;  // of a mistake that one of two passes has

// Runs of `size` keys, by the number of the run and how many there are.
struct Runs {
  const char* words;
  bool (*holds)(int32_t run, int32_t of);
  double cost;
};
constexpr Runs kRuns[] = {
    {"the first", [](int32_t run, int32_t) { return run == 0; }, 0.3},
    {"all but the first", [](int32_t run, int32_t) { return run > 0; }, 0.3},
    {"the last", [](int32_t run, int32_t of) { return run == of - 1; }, 0.3},
    {"all but the last", [](int32_t run, int32_t of) { return run < of - 1; }, 0.3},
    {"those of odd number", [](int32_t run, int32_t) { return run % 2 == 1; }, 0.35},
    {"those of even number", [](int32_t run, int32_t) { return run % 2 == 0; }, 0.35},
};

constexpr std::pair<int32_t, int32_t> kLanes[] = {{0, 2}, {1, 2}, {0, 4}, {1, 4}, {2, 4}, {3, 4}};

}  // namespace

std::vector<SomeKeys> some_keys(const Clues& clues) {
  const Problem& p = clues.problem();
  const auto own = [](const Scene& s, int32_t j) {
    return j >= s.problem.requests[s.cell.request].context_len();
  };
  std::vector<SomeKeys> list = {
      {"in the new tokens", own, 0.2},
      {"in all but the new tokens", [own](const Scene& s, int32_t j) { return !own(s, j); }, 0.2},
  };
  // Drafts stand at their depth in the tree, and their keys one behind the other.
  const auto of_row = [](const Scene& s) {
    const bool draft = s.problem.mask == ASSAY_MASK_TREE;
    return draft ? s.problem.requests[s.cell.request].context_len() + s.cell.row : s.position;
  };
  list.push_back(
      {"in the row's own key", [of_row](const Scene& s, int32_t j) { return j == of_row(s); }, 0.25});
  list.push_back(
      {"in all but the row's own key", [of_row](const Scene& s, int32_t j) { return j != of_row(s); }, 0.25});
  for (int32_t reach : {16, 32, 64, 128, 256})
    if (reach < p.max_kv_len())
      for (bool near : {true, false})
        list.push_back(
            {fmt::format("in keys {} than {} before the row", near ? "nearer" : "no nearer", reach),
             [=](const Scene& s, int32_t j) { return (s.position - j < reach) == near; }, 0.35});
  // A unit of its own for some of the lanes of a register.
  for (const auto& [lane, of] : kLanes)
    list.push_back({fmt::format("in key {} of every {}", lane, of),
                    [lane = lane, of = of](const Scene&, int32_t j) { return j % of == lane; }, 0.35});
  const auto score = [&](const char* words, double cost, bool (*of)(const ScoreParts&)) {
    list.push_back({words, nullptr, cost, of});
  };
  score("where the product is positive", 0.25, [](const ScoreParts& s) { return s.dot > 0; });
  score("where the product is negative", 0.25, [](const ScoreParts& s) { return s.dot < 0; });
  if (p.softcap > 0) {
    score("where the score is larger than the cap", 0.3,
          [](const ScoreParts& s) { return std::fabs(s.dot * s.scale) > s.softcap; });
    score("where the score is no larger than the cap", 0.3,
          [](const ScoreParts& s) { return std::fabs(s.dot * s.scale) <= s.softcap; });
  }
  std::vector<int32_t> sizes = {16, 32, 64, 128};
  if (op_of(p).has_cache && p.page_size > 1) sizes.push_back(p.page_size);
  sizes.insert(sizes.end(), clues.tile_sizes.begin(), clues.tile_sizes.end());
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::vector<RowBlock> blocks = {{1, false}};
  if (p.max_q_len() > 1)
    for (const RowBlock& block : row_blocks(p))
      if (block.size <= 64) blocks.push_back(block);
  for (int32_t size : sizes) {
    if (size >= p.max_kv_len()) continue;
    for (const Runs& runs : kRuns)
      list.push_back({fmt::format("in {} of the runs of {} keys", runs.words, size),
                      [size, holds = runs.holds](const Scene& s, int32_t j) {
                        return holds(j / size, (s.kv_len + size - 1) / size);
                      },
                      runs.cost});
    // The end of the loop over keys is that of the row, or of the rows that share it.
    for (const RowBlock& block : blocks)
      for (const bool last : {true, false}) {
        if (!last && p.window_left < 0 && p.chunk == 0) continue;  // that of the request
        list.push_back({fmt::format("in the {} of the runs of {} keys that {} see", last ? "last" : "first",
                                    size, block.words()),
                        [size, block, last](const Scene& s, int32_t j) {
                          const KeyRange range = block.keys(s.problem, s.cell);
                          return last ? (j / size + 1) * size >= range.end : j / size <= range.begin / size;
                        },
                        0.3 + 0.05 * (block.size > 1)});
      }
    for (bool first : {true, false})
      list.push_back({fmt::format("in the {} half of every run of {} keys", first ? "first" : "second", size),
                      [size, first](const Scene&, int32_t j) { return (j % size < size / 2) == first; },
                      0.35});
    for (bool whole : {true, false})
      list.push_back(
          {fmt::format("in {}whole run of {} keys", whole ? "every " : "the last, not ", size),
           [size, whole](const Scene& s, int32_t j) { return (j < s.kv_len / size * size) == whole; }, 0.3});
  }
  for (size_t i = 0; i < clues.layouts.size() && i < kLayouts; ++i) {
    Rules cut;
    clues.layouts[i].apply(cut);
    const std::string& words = clues.layouts[i].words;
    const auto part = [&](const char* name, double cost, auto holds) {
      list.push_back({name + words,
                      [cut, holds](const Scene& s, int32_t j) {
                        const PartsOf parts(cut, s);
                        return holds(parts.of(std::min(j, std::max(0, s.kv_len - 1))), parts.count());
                      },
                      cost + clues.layouts[i].cost});
    };
    part("in the first part", 0.2, [](int32_t at, int32_t) { return at == 0; });
    part("in all parts but the first", 0.2, [](int32_t at, int32_t) { return at > 0; });
    part("in the last part", 0.25, [](int32_t at, int32_t of) { return at == of - 1; });
    part("in parts of odd number", 0.3, [](int32_t at, int32_t) { return at % 2 == 1; });
    // A loop of which the first or the last turn stands by itself.
    const int32_t tile = clues.layouts[i].tile_keys;
    if (tile > 1 && tile < p.max_kv_len())
      for (const bool last : {true, false})
        list.push_back({fmt::format("in the {} tile of every part{}", last ? "last" : "first", words),
                        [cut, tile, last](const Scene& s, int32_t j) {
                          const PartsOf parts(cut, s);
                          const int32_t beside = last ? (j / tile + 1) * tile : j / tile * tile - 1;
                          if (beside < 0 || beside >= s.kv_len) return true;
                          return parts.of(beside) != parts.of(std::min(j, std::max(0, s.kv_len - 1)));
                        },
                        0.25 + clues.layouts[i].cost, nullptr, &clues.layouts[i]});
  }
  return list;
}

// A mask that is left out in some keys alone reaches too far.
std::string_view name_in_some_keys(std::string_view cause) {
  if (cause == "mask.causal_ignored") return "mask.causal_long";
  if (cause == "mask.window_ignored") return "mask.window_long";
  if (cause == "mask.chunk_ignored") return "mask.chunk_wide";
  return cause;
}

// One of two passes has it, and the other is right: keys that one of them lacks or has too many have a name.
static std::string_view name_in_one_pass(std::string_view cause, bool of_output) {
  const auto lacks = [&](std::string_view begin) { return cause.starts_with(begin); };
  const bool fewer = lacks("keys.one_dropped") || lacks("keys.tail_dropped") || lacks("keys.head_dropped") ||
                     lacks("keys.tile_dropped") || lacks("keys.kv_len_short") || lacks("mask.window_short") ||
                     lacks("mask.causal_short") || lacks("page.skipped") || lacks("softmax.small_dropped");
  const bool more = lacks("keys.one_doubled") || lacks("keys.tail_unmasked") || lacks("mask.window_long") ||
                    lacks("mask.causal_long") || lacks("mask.window_ignored") ||
                    lacks("mask.causal_ignored") || lacks("mask.chunk_wide") || lacks("mask.chunk_ignored");
  if (fewer) return of_output ? "keys.lanes_v_dropped" : "softmax.l_missing_key";
  if (more) return of_output ? "softmax.l_missing_key" : "softmax.l_extra_key";
  if (lacks("softmax.o_not_rescaled") || lacks("softmax.l_not_rescaled"))
    return of_output ? "softmax.o_not_rescaled" : "softmax.l_not_rescaled";
  return cause;
}

bool becomes_in_one_pass(std::string_view cause, const std::set<std::string_view>& asked) {
  return asked.contains(name_in_one_pass(cause, true)) || asked.contains(name_in_one_pass(cause, false));
}

bool in_one_pass(const Hypothesis& h, bool of_output, Hypothesis* to) {
  if (h.rules.passes != Passes::kBoth || plain_before_merge(h.rules) || h.rules.lse || h.rules.finish)
    return false;
  *to = h;
  to->cause = name_in_one_pass(h.cause, of_output);
  for (std::string_view& name : to->also_called) name = name_in_one_pass(name, of_output);
  to->text += of_output ? ", in the weights that meet V alone" : ", in the maximum and the row sum alone";
  to->cost += kOnePass;
  to->rules.passes = of_output ? Passes::kOutput : Passes::kSum;
  return true;
}

bool narrowed(const Hypothesis& h, const SomeKeys& keys, Hypothesis* to) {
  const bool exponent = h.rules.exponent_factor != 1 && !h.rules.lse;
  if (!h.rules.edit_terms && !h.rules.score && !h.rules.sees && !h.rules.edit_q && !h.rules.distance &&
      !exponent)
    return false;
  if (keys.of_score && (!h.rules.score || h.rules.edit_terms || h.rules.sees || exponent)) return false;
  *to = h;
  to->cause = name_in_some_keys(h.cause);
  to->text += ", " + keys.words;
  to->cost += keys.cost;
  to->in_some_keys = true;
  to->also_called.clear();
  if (h.rules.sees)
    to->rules.sees = [sees = h.rules.sees, holds = keys.holds](const Scene& s, int32_t j) {
      return holds(s, j) ? sees(s, j) : visible(s.problem, s.cell.request, s.cell.row, j);
    };
  if (exponent) {  // of a weight relative to the maximum so far, which is that of its part
    if (keys.layout != nullptr) keys.layout->apply(to->rules);
    to->rules.exponent_factor = 1;
    to->rules.exponent_of = [factor = h.rules.exponent_factor, holds = keys.holds](const Scene& s,
                                                                                   const Term& t) {
      return holds(s, t.position) ? factor : 1.0;
    };
  }
  if (h.rules.edit_q)
    to->rules.edit_q_for = [holds = keys.holds](const Scene& s, const Term& t) {
      return holds(s, t.position);
    };
  if (h.rules.distance)
    to->rules.distance = [of = h.rules.distance, holds = keys.holds](const Scene& s, const Term& t,
                                                                     double d) {
      return holds(s, t.position) ? of(s, t, d) : d;
    };
  if (keys.of_score) {
    to->rules.score = [score = h.rules.score, holds = keys.of_score](const Scene& s, const Term& t,
                                                                     const ScoreParts& parts) {
      return holds(parts) ? score(s, t, parts) : standard_score(parts);
    };
    return true;
  }
  if (h.rules.score)
    to->rules.score = [score = h.rules.score, holds = keys.holds](const Scene& s, const Term& t,
                                                                  const ScoreParts& parts) {
      return holds(s, t.position) ? score(s, t, parts) : standard_score(parts);
    };
  if (h.rules.edit_terms)
    to->rules.edit_terms = [edit = h.rules.edit_terms, holds = keys.holds](Scene& s,
                                                                           std::vector<Term>& terms) {
      std::vector<Term> changed = terms;
      edit(s, changed);
      std::erase_if(terms, [&](const Term& t) { return holds(s, t.position); });
      for (const Term& t : changed)
        if (holds(s, t.position)) terms.push_back(t);
      std::stable_sort(terms.begin(), terms.end(),
                       [](const Term& a, const Term& b) { return a.position < b.position; });
    };
  return true;
}

}  // namespace assay
