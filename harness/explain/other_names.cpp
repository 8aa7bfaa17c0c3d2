// SPDX-License-Identifier: Apache-2.0
// See other_names.hpp. A sentence is taken only where it holds in every wrong cell that the hypothesis
// changes, and where nothing else that the hypothesis does is left unsaid by it.
#include "harness/explain/other_names.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "harness/explain/layouts.hpp"

namespace assay {
namespace {

constexpr size_t kCellsNamed = 24;     // wrong ones that are looked at
constexpr int32_t kRowsNamed = 16;     // of a request, about
constexpr double kEquallyNear = 1e-9;  // relative, of predictions in double precision

bool as_near(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) ||
         std::fabs(a - b) <= kEquallyNear * std::max({1.0, std::fabs(a), std::fabs(b)});
}
bool as_near(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) { return as_near(x, y); });
}
bool as_near(const Prediction& a, const Prediction& b) { return as_near(a.lse, b.lse) && as_near(a.o, b.o); }

// The keys of a cell under a hypothesis, beside those that it should have.
struct KeysTaken {
  std::vector<int32_t> kept, missing, added, behind;  // positions; behind the request's last key
  int32_t newest_added = -1;                          // where the last of those stands
  bool unused = false;                                // some of these lie where no key does
};

// Empty where a key is anything but taken or not: counted otherwise, read elsewhere.
std::optional<KeysTaken> keys_taken(const Clues& clues, const Rules& rules, const Cell& cell) {
  const Problem& p = clues.problem();
  Predictor& predictor = clues.predictor;
  const int32_t kv_head = cell.head / p.group();
  KvStore& store = predictor.store(cell.request, kv_head);
  Scene scene{p, cell, store, store.keys(), place_of_row(p, cell), kv_head, &predictor};
  std::vector<Term> terms;
  for (int32_t j = 0; j < scene.kv_len; ++j)
    if (rules.sees ? rules.sees(scene, j) : visible(p, cell.request, cell.row, j)) terms.push_back({j, j, j});
  if (rules.edit_terms) rules.edit_terms(scene, terms);
  KeysTaken keys;
  std::vector<char> taken(scene.kv_len, 0);
  for (const Term& t : terms) {
    const bool plain = t.weight == 1 && t.in_sum == 1 && t.in_output == 1 && t.k_factor == 1 &&
                       t.v_factor == 1 && !t.k_for_v && !t.v_for_k && std::isnan(t.forced) && t.position >= 0;
    if (!plain || (!t.zero && (t.k_row != t.v_row || !store.has(t.k_row, t.v_row)))) return std::nullopt;
    if (t.position >= scene.kv_len) {
      if (t.k_row < scene.kv_len && !t.zero) return std::nullopt;
      keys.behind.push_back(t.position);
      keys.unused = keys.unused || (!t.zero && std::isnan(store.k(t.k_row)[0]));
      continue;
    }
    if (t.zero || t.k_row != t.position || taken[t.position] != 0) return std::nullopt;
    taken[t.position] = 1;
  }
  for (int32_t j = 0; j < scene.kv_len; ++j) {
    const bool right = visible(p, cell.request, cell.row, j);
    if (right && taken[j] != 0) keys.kept.push_back(j);
    if (right && taken[j] == 0) keys.missing.push_back(j);
    if (right || taken[j] == 0) continue;
    keys.added.push_back(j);
    keys.newest_added = std::max(keys.newest_added, place_of_key(scene, j));
  }
  return keys;
}

// One sentence, of which every cell is asked.
struct OtherSentence {
  std::string_view cause;
  bool (*holds)(const Problem&, const Cell&, int32_t position, const KeysTaken&);
};

bool lacks_alone(const KeysTaken& k) { return !k.missing.empty() && k.added.empty() && k.behind.empty(); }
bool adds_alone(const KeysTaken& k) { return k.missing.empty() && !k.added.empty() && k.behind.empty(); }

constexpr OtherSentence kSentencesOfKeys[] = {
    {"mask.causal_short",
     [](const Problem& p, const Cell&, int32_t, const KeysTaken& k) {
       return p.mask == ASSAY_MASK_CAUSAL && lacks_alone(k) &&
              (k.kept.empty() || k.missing.front() > k.kept.back());
     }},
    {"mask.window_short",
     [](const Problem& p, const Cell&, int32_t, const KeysTaken& k) {
       return p.window_left >= 0 && lacks_alone(k) && (k.kept.empty() || k.missing.back() < k.kept.front());
     }},
    {"keys.head_dropped",
     [](const Problem&, const Cell&, int32_t, const KeysTaken& k) {
       return lacks_alone(k) && k.missing.front() == 0 &&
              (k.kept.empty() || k.missing.back() < k.kept.front());
     }},
    {"mask.causal_long",
     [](const Problem& p, const Cell&, int32_t position, const KeysTaken& k) {
       return p.mask == ASSAY_MASK_CAUSAL && adds_alone(k) && k.added.front() > position;
     }},
    {"mask.window_long",
     [](const Problem& p, const Cell&, int32_t position, const KeysTaken& k) {
       return p.window_left >= 0 && adds_alone(k) && k.newest_added < position - p.window_left;
     }},
    {"mask.chunk_wide",
     [](const Problem& p, const Cell&, int32_t position, const KeysTaken& k) {
       return p.chunk > 0 && adds_alone(k) && k.newest_added < position / p.chunk * p.chunk;
     }},
    {"keys.tail_unmasked",
     [](const Problem&, const Cell&, int32_t, const KeysTaken& k) {
       return k.missing.empty() && k.added.empty() && !k.behind.empty();
     }},
    {"memory.unused_slot",
     [](const Problem&, const Cell&, int32_t, const KeysTaken& k) {
       return k.missing.empty() && k.added.empty() && k.unused;
     }},
};

// Whether the rows of a request take their keys as if it had fewer: no row any from one number on, or each
// stands so much earlier.
bool as_if_shorter(const Clues& clues, const Rules& rules, const std::vector<Cell>& changed) {
  const Problem& p = clues.problem();
  std::set<int32_t> looked_at;
  for (const Cell& of : changed) {
    if (!looked_at.insert(of.request).second) continue;
    const int32_t rows = p.requests[of.request].q_len, step = rows / kRowsNamed + 1;
    bool by_end = true, by_shift = p.window_left < 0 && p.chunk == 0 && p.alibi == ASSAY_ALIBI_NONE;
    int32_t end = -1, shift = -1, longest = 0;
    for (int32_t row = (rows - 1) % step; row < rows; row += step) {
      const std::optional<KeysTaken> k = keys_taken(clues, rules, {of.request, row, of.head});
      if (!k || !k->added.empty() || !k->behind.empty()) return false;
      const int32_t seen = k->kept.empty() ? 0 : k->kept.back() + 1;
      if (k->missing.empty()) {
        longest = std::max(longest, seen);
        by_shift = by_shift && seen == 0;
        continue;
      }
      if (k->missing.front() < seen) return false;
      const int32_t fewer = k->missing.back() + 1 - seen;
      by_end = by_end && (seen == 0 || end < 0 || end == seen);
      by_shift = by_shift && (seen == 0 || shift < 0 || shift == fewer);
      if (seen > 0) end = seen, shift = fewer;
    }
    by_end = by_end && longest <= end;
    if (!by_end && !by_shift) return false;
  }
  return !changed.empty();
}

// Whose vector or result a cell has, where it is another's.
template <class Of>
std::optional<bool> of_other_head(const std::vector<Cell>& changed, const Of& of) {
  std::optional<bool> head;
  for (const Cell& cell : changed) {
    const Cell from = of(cell);
    const bool other_row = from.request != cell.request || from.row != cell.row;
    if (other_row == (from.head != cell.head)) return std::nullopt;
    if (head && *head == other_row) return std::nullopt;
    head = !other_row;
  }
  return head;
}

}  // namespace

std::vector<std::string_view> other_names(const Clues& clues, const Hypothesis& h) {
  std::vector<std::string_view> names = h.also_called;
  const auto name = [&](std::string_view cause) {
    if (!h.called(cause) && std::find(names.begin(), names.end(), cause) == names.end())
      names.push_back(cause);
  };
  if (h.by_cell || h.rules.weight_noise > 0 || h.rules.passes != Passes::kBoth) return names;
  Predictor& predictor = clues.predictor;
  const Problem& p = clues.problem();
  const Rules right = predictor.right();
  std::vector<Cell> changed;
  std::vector<Prediction> got;
  bool o_stays = true;
  for (const Sample& s : clues.bad) {
    if (s.call == Call::kLow || changed.size() == kCellsNamed) continue;
    Prediction here = predictor.predict(h.rules, s.cell);
    const Prediction there = predictor.predict(right, s.cell);
    if (as_near(here, there)) continue;
    o_stays = o_stays && as_near(here.o, there.o);
    changed.push_back(s.cell);
    got.push_back(std::move(here));
  }
  if (changed.empty()) return names;
  const auto like_all = [&](const Rules& rules) {
    for (size_t i = 0; i < changed.size(); ++i)
      if (!as_near(predictor.predict(rules, changed[i]), got[i])) return false;
    return true;
  };
  if (o_stays && works_in_parts(clues.evidence)) name("merge.lse_wrong");
  Rules alone = right;
  if (h.rules.sees || h.rules.edit_terms) {
    alone.sees = h.rules.sees, alone.edit_terms = h.rules.edit_terms;
    if (!like_all(alone)) return names;
    std::vector<KeysTaken> of;
    for (const Cell& cell : changed)
      if (std::optional<KeysTaken> keys = keys_taken(clues, alone, cell)) of.push_back(std::move(*keys));
    if (of.size() < changed.size()) return names;
    for (const OtherSentence& sentence : kSentencesOfKeys) {
      bool holds = true;
      for (size_t i = 0; i < changed.size() && holds; ++i)
        holds = sentence.holds(p, changed[i], place_of_row(p, changed[i]), of[i]);
      if (holds) name(sentence.cause);
    }
    if (as_if_shorter(clues, alone, changed)) name("keys.kv_len_short");
    return names;
  }
  if (h.rules.query_of) {
    alone.query_of = h.rules.query_of;
    if (!like_all(alone)) return names;
    const auto query = [&](const Cell& cell) {
      const int32_t kv_head = cell.head / p.group();
      KvStore& store = predictor.store(cell.request, kv_head);
      return h.rules.query_of(
          Scene{p, cell, store, store.keys(), place_of_row(p, cell), kv_head, &predictor});
    };
    const auto head = of_other_head(changed, query);
    if (!head) return names;
    name(*head ? "heads.q_swapped" : "rows.query_of_other_row");
    // Heads of a group differ in nothing else, unless they have slopes or sinks.
    bool as_result = *head;
    for (size_t i = 0; i < changed.size() && as_result; ++i)
      as_result = as_near(predictor.predict(right, query(changed[i])), got[i]);
    if (as_result) name("output.other_head");
  } else if (h.rules.result_of) {
    alone.result_of = h.rules.result_of;
    if (!like_all(alone)) return names;
    if (const auto head = of_other_head(changed, h.rules.result_of))
      name(*head ? "output.other_head" : "rows.written_to_other_row");
  }
  return names;
}

}  // namespace assay
