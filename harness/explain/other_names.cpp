// SPDX-License-Identifier: Apache-2.0
// See other_names.hpp. A sentence is taken only where it holds in every wrong cell that the hypothesis
// changes, and where nothing else that the hypothesis does is left unsaid by it.
#include "harness/explain/other_names.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "harness/explain/keys_taken.hpp"
#include "harness/explain/layouts.hpp"
#include "harness/explain/same_number.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr size_t kCellsNamed = 24;                                     // wrong ones that are looked at
constexpr int32_t kRowsNamed = 16;                                     // of a request, about
constexpr int32_t kLeastRun = 8, kLeastTile = 16, kLargestTile = 128;  // keys, of what loops take at once
constexpr size_t kCellsToName = 3;                                     // that say whose results they have
constexpr size_t kMostPredicted = 12;                                  // results of others, of a cell
constexpr double kNearlyLse = 0.02;    // of the reference, in which roundings of P are not
constexpr double kEquallyNear = 1e-9;  // relative, of predictions in double precision

bool as_near(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return same_number(a, b);
  return std::fabs(a - b) <= kEquallyNear * std::max({1.0, std::fabs(a), std::fabs(b)});
}
bool as_near(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) { return as_near(x, y); });
}
bool as_near(const Prediction& a, const Prediction& b) { return as_near(a.lse, b.lse) && as_near(a.o, b.o); }

// One sentence, of which every cell is asked.
struct OtherSentence {
  std::string_view cause;
  bool (*holds)(const Problem&, const Cell&, int32_t position, const KeysTaken&);
};

bool lacks_alone(const KeysTaken& k) { return !k.missing.empty() && k.added.empty() && k.behind.empty(); }
// ... of one run of them.
bool lacks_run(const KeysTaken& k) {
  return lacks_alone(k) && std::none_of(k.kept.begin(), k.kept.end(), [&](int32_t j) {
           return j > k.missing.front() && j < k.missing.back();
         });
}
bool adds_alone(const KeysTaken& k) { return k.missing.empty() && !k.added.empty() && k.behind.empty(); }

constexpr OtherSentence kSentencesOfKeys[] = {
    {"mask.causal_short",
     [](const Problem&, const Cell&, int32_t, const KeysTaken& k) {
       return lacks_alone(k) && (k.kept.empty() || k.missing.front() > k.kept.back());
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
    {"keys.tail_dropped",
     [](const Problem& p, const Cell&, int32_t, const KeysTaken& k) {
       return lacks_run(k) && (k.kept.empty() || k.missing.front() > k.kept.back()) &&
              k.missing.front() % kLeastRun == 0 &&
              k.kv_len - k.missing.front() <= std::max(kLargestTile, p.page_size);
     }},
    {"keys.tile_dropped",
     [](const Problem&, const Cell&, int32_t, const KeysTaken& k) {
       if (!lacks_run(k)) return false;
       const int32_t from = k.missing.front(), to = k.missing.back() + 1;
       const bool last = k.kept.empty() || k.kept.back() < from;
       return from % kLeastTile == 0 && (to % kLeastTile == 0 || last) && to - from <= kLargestTile;
     }},
    {"page.skipped",
     [](const Problem& p, const Cell&, int32_t, const KeysTaken& k) {
       if (!op_of(p).has_cache || p.page_size < 2 || !lacks_alone(k)) return false;
       return std::none_of(k.missing.begin(), k.missing.end(), [&](int32_t gone) {
         return std::any_of(k.kept.begin(), k.kept.end(),
                            [&](int32_t j) { return j / p.page_size == gone / p.page_size; });
       });
     }},
    {"keys.one_dropped", [](const Problem&, const Cell&, int32_t,
                            const KeysTaken& k) { return lacks_alone(k) && k.missing.size() == 1; }},
    {"mask.causal_long",
     [](const Problem& p, const Cell&, int32_t position, const KeysTaken& k) {
       return p.mask == ASSAY_MASK_CAUSAL && adds_alone(k) && k.added.front() > position;
     }},
    {"mask.window_long",
     [](const Problem& p, const Cell&, int32_t position, const KeysTaken& k) {
       return p.window_left >= 0 && adds_alone(k) && k.newest_added < position - p.window_left;
     }},
    {"mask.window_coarse",
     [](const Problem& p, const Cell&, int32_t, const KeysTaken& k) {
       if (p.window_left < 0 || k.kept.empty()) return false;
       if (lacks_run(k) && k.missing.back() < k.kept.front()) return k.kept.front() % kLeastRun == 0;
       return adds_alone(k) && k.added.back() < k.kept.front() && k.added.front() % kLeastRun == 0;
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

// Whether cells lack keys at one end of theirs, or have more there, and not as many of them each.
bool edge_wanders(const std::vector<KeysTaken>& cells, bool newest) {
  std::set<ptrdiff_t> off;
  for (const KeysTaken& k : cells) {
    if (k.kept.empty() || !k.behind.empty() || k.missing.empty() == k.added.empty()) return false;
    const std::vector<int32_t>& keys = k.missing.empty() ? k.added : k.missing;
    if (newest ? keys.front() < k.kept.back() : keys.back() > k.kept.front()) return false;
    const auto count = static_cast<ptrdiff_t>(keys.size());
    off.insert(k.missing.empty() ? count : -count);
  }
  return off.size() > 1;
}

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

// The right results that cells have under a hypothesis, of other heads or rows: of the LSE alone where O
// stays.
struct Whose {
  bool head = false, row = false, same_keys = true;
};
std::optional<Whose> of_other_cells(const Clues& clues, const std::vector<Cell>& changed,
                                    const std::vector<Prediction>& got) {
  if (changed.size() < kCellsToName) return std::nullopt;
  const Problem& p = clues.problem();
  const Evidence& e = clues.evidence;
  const Rules right = clues.predictor.right();
  Whose whose;
  for (size_t i = 0; i < changed.size(); ++i) {
    const Prediction own = clues.predictor.predict(right, changed[i]);
    const bool lse_stays = as_near(own.lse, got[i].lse), o_stays = as_near(own.o, got[i].o);
    bool found = false;
    size_t looked_at = 0;
    for (size_t n = 0; n < e.bounded.value.rows.size() && !found; ++n)
      for (int32_t head = 0; head < p.heads_q && !found; ++head) {
        const Cell cell{e.bounded.value.rows[n].request, e.bounded.value.rows[n].row, head};
        // Nearly so by the reference: then it is worth a prediction.
        const size_t slot = n * p.heads_q + head;
        if (cell == changed[i]) continue;
        if (!lse_stays && !(std::fabs(e.bounded.value.lse[slot] - got[i].lse) < kNearlyLse)) continue;
        if (lse_stays && !(std::fabs(e.bounded.value.o[slot * p.head_dim_v] - got[i].o[0]) < kNearlyLse))
          continue;
        if (++looked_at > kMostPredicted) return std::nullopt;
        const Prediction there = clues.predictor.predict(right, cell);
        found = (lse_stays || as_near(there.lse, got[i].lse)) && (o_stays || as_near(there.o, got[i].o));
        if (!found) continue;
        const bool other_row = cell.request != changed[i].request || cell.row != changed[i].row;
        whose.row = whose.row || other_row, whose.head = whose.head || cell.head != changed[i].head;
        whose.same_keys =
            whose.same_keys && !other_row && cell.head / p.group() == changed[i].head / p.group();
      }
    if (!found) return std::nullopt;
  }
  whose.same_keys = whose.same_keys && !p.sinks && p.alibi == ASSAY_ALIBI_NONE;
  return whose;
}

// Keys that hold what another slot of their kind holds in another page of the request. Empty: none does, or
// some hold something else.
std::string_view name_of_place(const Clues& clues, const Rules& rules, const std::vector<Cell>& changed) {
  const Problem& p = clues.problem();
  if (!op_of(p).has_cache || p.page_size < 2) return {};
  bool keys_too = false, values_alone = true;
  for (const Cell& cell : changed) {
    const std::optional<KeysRead> read = keys_read(clues, rules, cell);
    if (!read || read->at.empty()) return {};
    for (size_t i = 0; i < read->at.size(); ++i) {
      const int32_t slot = read->at[i] % p.page_size;
      const bool k_moves = read->k_from[i] != read->at[i];
      const bool v_moves = read->v_from[i] != read->at[i];
      if (read->k_from[i] % p.page_size != slot || read->v_from[i] % p.page_size != slot) return {};
      if (k_moves && v_moves && read->k_from[i] != read->v_from[i]) return {};
      keys_too = keys_too || k_moves, values_alone = values_alone && !k_moves;
    }
  }
  return keys_too == values_alone ? std::string_view{} : keys_too ? "page.wrong" : "page.v_only";
}

// What the line has and a kernel may leave out, or adds unasked: whatever a hypothesis says, if the numbers
// are these that is what was done.
struct LeftOut {
  std::string_view cause;
  enum Of {
    kBoth,
    kLse,
    kSinkOfLse
  } of;  // an LSE without numbers says nothing of its terms, but of its sink
  Rules rules;
};
std::vector<LeftOut> left_out(const Clues& clues) {
  const Problem& p = clues.problem();
  std::vector<LeftOut> list;
  const auto add = [&](std::string_view cause, LeftOut::Of of, const auto& set) {
    list.push_back({cause, of, clues.predictor.right()});
    set(list.back().rules);
  };
  const auto scores = [&](std::string_view cause, void (*without)(ScoreParts&)) {
    add(cause, LeftOut::kBoth, [without](Rules& r) {
      r.score = [without](const Scene&, const Term&, const ScoreParts& parts) {
        ScoreParts bare = parts;
        without(bare);
        return standard_score(bare);
      };
    });
  };
  const auto lse = [&](std::string_view cause, LeftOut::Of whose, double (*of)(const LseParts&)) {
    add(cause, whose, [of](Rules& r) { r.lse = [of](const Scene&, const LseParts& l) { return of(l); }; });
  };
  if (p.softcap > 0) scores("softcap.ignored", [](ScoreParts& s) { s.softcap = 0; });
  if (p.alibi != ASSAY_ALIBI_NONE) scores("alibi.ignored", [](ScoreParts& s) { s.alibi = ASSAY_ALIBI_NONE; });
  if (p.sinks) {
    add("sinks.ignored", LeftOut::kBoth, [](Rules& r) {
      r.sink = [](const Scene&, double) { return -std::numeric_limits<double>::infinity(); };
    });
    lse("lse.ignores_sink", LeftOut::kSinkOfLse, [](const LseParts& l) { return l.without_sink; });
  }
  if (!p.sinks)
    add("sinks.invented", LeftOut::kBoth,
        [](Rules& r) { r.sink = [](const Scene&, double) { return 0.0; }; });
  lse("lse.ignores_max", LeftOut::kLse, [](const LseParts& l) { return std::log(l.sum); });
  lse("lse.ignores_sum", LeftOut::kLse, [](const LseParts& l) { return l.maximum; });
  return list;
}

}  // namespace

std::vector<std::string_view> other_names(const Clues& clues, const Hypothesis& h) {
  std::vector<std::string_view> names = h.also_called;
  const auto name = [&](std::string_view cause) {
    if (!h.called(cause) && std::find(names.begin(), names.end(), cause) == names.end())
      names.push_back(cause);
  };
  if (h.by_cell || h.rules.weight_noise > 0) return names;
  Predictor& predictor = clues.predictor;
  const Problem& p = clues.problem();
  const Rules right = predictor.right();
  std::vector<Cell> changed;
  std::vector<Prediction> got;
  bool o_stays = true, of_nothing = true;
  for (const Sample& s : clues.bad) {
    if (s.call == Call::kLow || changed.size() == kCellsNamed) continue;
    Prediction here = predictor.predict(h.rules, s.cell);
    const Prediction there = predictor.predict(right, s.cell);
    if (as_near(here, there)) continue;
    o_stays = o_stays && as_near(here.o, there.o);
    of_nothing = of_nothing && std::isinf(there.lse) && std::isfinite(here.lse);
    changed.push_back(s.cell);
    got.push_back(std::move(here));
  }
  if (changed.empty()) return names;
  const auto like_all = [&](const Rules& rules) {
    for (size_t i = 0; i < changed.size(); ++i)
      if (!as_near(predictor.predict(rules, changed[i]), got[i])) return false;
    return true;
  };
  if (h.cause == "page.swapped" || h.cause == "page.of_other_request") name("page.wrong");
  if (o_stays && works_in_parts(clues.evidence)) name("merge.lse_wrong");
  if (o_stays && (h.cause.starts_with("merge.") || h.cause.starts_with("softmax."))) name("lse.other_value");
  if (of_nothing) name("lse.empty_row");
  // Whatever leaves nothing of all that is wrong says no more than that.
  if (std::all_of(got.begin(), got.end(), [](const Prediction& g) {
        return std::all_of(g.o.begin(), g.o.end(), [](double x) { return x == 0; });
      }))
    name("output.zeros");
  const bool numbers =
      std::any_of(got.begin(), got.end(), [](const Prediction& g) { return std::isfinite(g.lse); });
  for (const LeftOut& plain : left_out(clues)) {
    if (h.called(plain.cause) || (plain.of == LeftOut::kLse && !(o_stays && numbers))) continue;
    if ((plain.of != LeftOut::kSinkOfLse || o_stays) && like_all(plain.rules)) name(plain.cause);
  }
  if (const std::optional<Whose> whose = of_other_cells(clues, changed, got); whose) {
    if (o_stays && whose->head) name("lse.other_head");
    if (o_stays && whose->row) name("lse.other_row");
    if (!o_stays && whose->head && !whose->row) {
      name("output.other_head");
      if (whose->same_keys) name("heads.q_swapped");
    }
    if (!o_stays && whose->row && !whose->head) name("rows.written_to_other_row");
  }
  if (h.rules.passes != Passes::kBoth) return names;
  Rules alone = right;
  const std::optional<Rules> fewer = keys_without_parts(clues, h.rules, changed);
  if (h.rules.sees || h.rules.edit_terms || fewer) {
    alone.sees = h.rules.sees, alone.edit_terms = h.rules.edit_terms;
    if (fewer) alone = *fewer;
    if (!like_all(alone)) return names;
    if (const std::string_view place = name_of_place(clues, alone, changed); !place.empty()) name(place);
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
    if (!h.rules.sees) return names;  // of a mask
    if (p.mask == ASSAY_MASK_CAUSAL && edge_wanders(of, true)) name("mask.causal_anchor");
    if (p.window_left >= 0 && edge_wanders(of, false)) name("mask.window_anchor");
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
