// SPDX-License-Identifier: Apache-2.0
// Hypotheses about single keys, tiles of keys, the end of the keys and displaced keys.
#include <algorithm>

#include "harness/explain/families/head_maps.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr size_t kLookedAt = 6;  // wrong cells
constexpr double kFits = 0.7;    // misfit of a cell

// Whether the first key that each wrong cell sees is the one at the edge of its window.
bool all_at_the_edge(const Clues& clues) {
  const Problem& p = clues.problem();
  return p.window_left >= 0 && std::all_of(clues.bad.begin(), clues.bad.end(), [&](const Sample& s) {
           return visible_range(p, s.cell.request, s.cell.row).begin > 0;
         });
}

// ... and the last one that at its right edge.
bool all_at_the_right_edge(const Clues& clues) {
  const Problem& p = clues.problem();
  return p.window_right >= 0 && std::all_of(clues.bad.begin(), clues.bad.end(), [&](const Sample& s) {
           return visible_range(p, s.cell.request, s.cell.row).end < p.requests[s.cell.request].kv_len;
         });
}

// Whether rules fit the first wrong cells.
bool fit_wrong_cells(const Clues& clues, const Rules& rules) {
  const size_t count = std::min(kLookedAt, clues.bad.size());
  return std::all_of(clues.bad.begin(), clues.bad.begin() + static_cast<ptrdiff_t>(count),
                     [&](const Sample& s) { return misfit_at(clues, s, rules) < kFits; });
}

void single_keys(const Clues& clues, Hypotheses& out) {
  // The window's own edge is then what is wrong, and the mask's families say so.
  const bool edge = all_at_the_edge(clues), right_edge = all_at_the_right_edge(clues);
  for (const Pick& pick : picks()) {
    const auto of = pick.of;
    const std::string_view name = pick.name;
    const bool at_edge = (edge && name == "first") || (right_edge && name == "last");
    propose_edit(clues, out, at_edge ? "mask.window_short" : "keys.one_dropped",
                 fmt::format("{} visible key of every row", pick.name), 0.5,
                 [of](Scene&, std::vector<Term>& t) {
                   if (!t.empty()) t.erase(t.begin() + of(static_cast<int32_t>(t.size())));
                 });
    if (name == "last" && clues.problem().mask == ASSAY_MASK_CAUSAL)
      out.back().also_called = {"mask.causal_short"};
    propose_edit(clues, out, "keys.one_doubled", fmt::format("{} visible key of every row", pick.name), 0.5,
                 [of](Scene&, std::vector<Term>& t) {
                   if (!t.empty()) t[of(static_cast<int32_t>(t.size()))].weight = 2;
                 });
  }
  const auto each_key = [&](double weight) {
    return [&clues, weight](const Cell& cell) {
      std::vector<Candidate> list;
      for (int32_t position : clues.predictor.weights(cell).positions)
        list.push_back({fmt::format("key {}", position), [position, weight](Scene&, std::vector<Term>& t) {
                          for (Term& term : t)
                            if (term.position == position) term.weight = weight;
                        }});
      return list;
    };
  };
  // A key that is found for every cell by itself is no news where it is the window's edge in each.
  Rules shorter = clues.predictor.right();
  shorter.edit_terms = [](Scene&, std::vector<Term>& t) {
    if (!t.empty()) t.erase(t.begin());
  };
  if (!(edge && fit_wrong_cells(clues, shorter)))
    propose_per_cell(clues, "keys.one_dropped", "one key per row", 1.5, each_key(0), out);
  propose_per_cell(clues, "keys.one_doubled", "one key per row", 1.5, each_key(2), out);
}

// The same key of every tile or page: where loops begin and end.
void tile_edges(const Clues& clues, Hypotheses& out) {
  std::vector<int32_t> sizes = clues.tile_sizes;
  const Problem& p = clues.problem();
  if (op_of(p).has_cache && p.page_size > 1) sizes.push_back(p.page_size);
  for (int32_t size : sizes)
    for (bool first : {true, false})
      for (double weight : {0.0, 2.0})
        propose_edit(clues, out, weight == 0 ? "keys.one_dropped" : "keys.one_doubled",
                     fmt::format("{} key of every {} keys{}", first ? "first" : "last", size,
                                 first ? " but the first ones" : ""),
                     0.4, [size, first, weight](Scene& s, std::vector<Term>& t) {
                       for (Term& term : t) {
                         const bool edge =
                             first ? term.position >= size && term.position % size == 0
                                   : term.position % size == size - 1 && term.position + 1 < s.kv_len;
                         if (edge) term.weight = weight;
                       }
                     });
}

// A key that holds what another position holds: the relation is found on one cell, then tried everywhere.
void stale_tokens(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  const auto replaced = [](int32_t (*of)(int32_t), int32_t offset, bool absolute) {
    return [of, offset, absolute](Scene& s, std::vector<Term>& t) {
      if (t.empty() || s.kv_len == 0) return;
      Term& term = t[of(static_cast<int32_t>(t.size()))];
      const int32_t from = absolute ? offset : term.position + offset;
      if (from < 0 || from >= s.kv_len) return;
      term.k_row = term.v_row = from;
    };
  };
  std::vector<int32_t> offsets = {-1, 1, -2, 2, -16, 16, -64, 64};
  if (op_of(p).has_cache) {
    offsets.push_back(p.page_size);
    offsets.push_back(-p.page_size);
  }
  for (const Pick& pick : picks()) {
    for (int32_t offset : offsets)
      propose_edit(clues, out, "keys.stale_token",
                   fmt::format("{} visible key holds the token {:+}", pick.name, offset), 0.7,
                   replaced(pick.of, offset, false));
    propose_edit(clues, out, "keys.stale_token", fmt::format("{} visible key holds token 0", pick.name), 0.7,
                 replaced(pick.of, 0, true));
    propose_edit(clues, out, "keys.stale_token", fmt::format("{} visible key holds zeros", pick.name), 0.7,
                 [of = pick.of](Scene&, std::vector<Term>& t) {
                   if (!t.empty()) t[of(static_cast<int32_t>(t.size()))].zero = true;
                 });
  }
  // Any token in the place of a picked key, cell by cell.
  for (const Pick& pick : picks()) {
    propose_per_cell(
        clues, "keys.stale_token", fmt::format("the {} visible key holds another token", pick.name), 1.6,
        [&, of = pick.of](const Cell& cell) {
          std::vector<Candidate> list;
          const int32_t n = p.requests[cell.request].kv_len;
          for (int32_t from = 0; from < n && n <= 1024; ++from)
            list.push_back({fmt::format("token {}", from), replaced(of, from, true)});
          return list;
        },
        out);
  }
}

// A tile that is found for every cell by itself is no news where it is the one that holds the window's edge.
bool tile_at_the_edge(const Clues& clues, bool edge, int32_t size) {
  if (!edge) return false;
  Rules rules = clues.predictor.right();
  rules.edit_terms = [size](Scene&, std::vector<Term>& t) {
    if (t.empty()) return;
    const int32_t first = t.front().position / size;
    std::erase_if(t, [&](const Term& term) { return term.position / size == first; });
  };
  return fit_wrong_cells(clues, rules);
}

void tiles(const Clues& clues, Hypotheses& out) {
  std::vector<int32_t> sizes = clues.tile_sizes;
  const bool edge = all_at_the_edge(clues);
  for (int32_t size : sizes) {
    for (const Pick& pick : picks())
      for (bool seen_only : {true, false}) {
        const bool at_edge = edge && seen_only && std::string_view(pick.name) == "first";
        propose_edit(clues, out, at_edge ? "mask.window_coarse" : "keys.tile_dropped",
                     fmt::format("{} tile of {} keys {}", pick.name, size,
                                 seen_only ? "that the row sees" : "of the request"),
                     0.6, [of = pick.of, size, seen_only](Scene& s, std::vector<Term>& t) {
                       if (t.empty()) return;
                       const int32_t first = seen_only ? t.front().position / size : 0;
                       const int32_t last = seen_only ? t.back().position / size : (s.kv_len - 1) / size;
                       const int32_t tile = first + of(last - first + 1);
                       std::erase_if(t, [&](const Term& term) { return term.position / size == tile; });
                     });
        if (std::string_view(pick.name) != "last") continue;
        if (!seen_only)
          out.back().also_called = {"keys.tail_dropped"};
        else if (clues.problem().mask == ASSAY_MASK_CAUSAL)
          out.back().also_called = {"mask.causal_short"};
      }
    if (tile_at_the_edge(clues, edge, size)) continue;
    propose_per_cell(
        clues, "keys.tile_dropped", fmt::format("one tile of {} keys per row", size), 1.6,
        [&clues, size](const Cell& cell) {
          std::vector<Candidate> list;
          const int32_t n = clues.problem().requests[cell.request].kv_len;
          for (int32_t tile = 0; tile * size < n && tile < 256; ++tile)
            list.push_back({fmt::format("tile {}", tile), [tile, size](Scene&, std::vector<Term>& t) {
                              std::erase_if(t,
                                            [&](const Term& term) { return term.position / size == tile; });
                            }});
          return list;
        },
        out);
  }
}

// The kernel believes in another number of keys; with `follows` its rows stand at the end of those.
void add_length(const Clues& clues, Hypotheses& out, std::string_view cause, std::string text, double cost,
                bool follows, std::function<int32_t(const Request&)> length,
                std::function<int32_t(const Problem&, int32_t request)> by_number = {}) {
  Hypothesis h = propose(clues, cause, std::move(text), cost);
  const auto believed = [length, by_number](const Scene& s) {
    return by_number ? by_number(s.problem, s.cell.request) : length(s.problem.requests[s.cell.request]);
  };
  h.rules.edit_terms = [believed, follows](Scene& s, std::vector<Term>& terms) {
    const Problem& p = s.problem;
    const Request& r = p.requests[s.cell.request];
    const int32_t wrong = believed(s), shift = follows ? wrong - r.kv_len : 0;
    terms.clear();
    // Visibility of key j for a row displaced by `shift` is that of key j - shift for the right row; what
    // lies before the first key is seen like it.
    for (int32_t j = 0; j < wrong; ++j) {
      const int32_t as = j - shift;
      const bool draft_tree = p.mask == ASSAY_MASK_TREE;
      bool sees = as < r.kv_len && (as >= 0 ? visible(p, s.cell.request, s.cell.row, as)
                                            : (p.window_left < 0 || as >= s.position - p.window_left) &&
                                                  p.chunk == 0 && !(draft_tree && as >= r.context_len()));
      if (!follows && j >= r.kv_len) sees = p.mask != ASSAY_MASK_CAUSAL && p.chunk == 0 && p.window_right < 0;
      if (!sees) continue;
      int32_t row = j;
      if (j >= r.kv_len) {
        int64_t block = -1, slot = 0;
        if (!s.keys.place(s.cell.request, j, &block, &slot)) block = -1;
        row = s.keys.extra(block, slot);
      }
      terms.push_back({j, row, row});
    }
    s.position += shift;
  };
  out.push_back(std::move(h));
}

void lengths(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  std::vector<std::pair<int32_t, std::string>> grains;
  if (op_of(p).has_cache && p.page_size > 1) grains.push_back({p.page_size, "page"});
  for (int32_t tile : clues.tile_sizes) grains.push_back({tile, fmt::format("tile of {}", tile)});
  // Loops over a few keys at a time.
  for (int32_t run : {2, 4, 8})
    if (grains.empty() || grains[0].first != run) grains.push_back({run, fmt::format("run of {}", run)});
  for (const auto& [grain, name] : grains)
    for (bool follows : {false, true}) {
      const int32_t g = grain;
      const std::string how = follows ? ", rows stand at that end" : "";
      add_length(clues, out, "keys.tail_dropped", fmt::format("partly filled last {} left out{}", name, how),
                 follows ? 0.3 : 0.2, follows, [g](const Request& r) { return r.kv_len / g * g; });
      add_length(clues, out, "keys.tail_dropped",
                 fmt::format("partly filled last {} behind a full one left out{}", name, how),
                 follows ? 0.35 : 0.25, follows,
                 [g](const Request& r) { return r.kv_len < g ? r.kv_len : r.kv_len / g * g; });
      add_length(clues, out, "keys.tail_dropped", fmt::format("last {} left out{}", name, how), 0.4, follows,
                 [g](const Request& r) { return std::max(0, (r.kv_len - 1) / g * g); });
      add_length(clues, out, "keys.tail_dropped", fmt::format("a full last {} left out{}", name, how),
                 follows ? 0.3 : 0.2, follows,
                 [g](const Request& r) { return r.kv_len % g == 0 ? std::max(0, r.kv_len - g) : r.kv_len; });
      // Without a cache the next request's keys lie there.
      add_length(clues, out, op_of(p).has_cache ? "memory.unused_slot" : "keys.tail_unmasked",
                 fmt::format("last {} taken as full{}", name, how), follows ? 0.3 : 0.2, follows,
                 [g](const Request& r) { return (r.kv_len + g - 1) / g * g; });
    }
  // The length put together from whole pages and another request's last one.
  const int32_t requests = static_cast<int32_t>(p.requests.size());
  const std::pair<const char*, std::function<int32_t(int32_t)>> others[] = {
      {"next", [=](int32_t r) { return std::min(r + 1, requests - 1); }},
      {"previous", [](int32_t r) { return std::max(r - 1, 0); }},
      {"first", [](int32_t) { return 0; }},
      {"last", [=](int32_t) { return requests - 1; }},
  };
  for (const auto& [name, other] : others)
    for (bool least : {false, true})
      for (bool follows : {true, false}) {
        if (requests < 2 || !op_of(p).has_cache || p.page_size < 2) continue;
        add_length(clues, out, "keys.kv_len_short",
                   fmt::format("last page as full as the {} request's{}{}", name,
                               least ? ", no fuller than its own" : "", follows ? "" : ", rows stay"),
                   0.3, follows, {}, [other = other, least, g = p.page_size](const Problem& q, int32_t r) {
                     const auto filled = [g](int32_t n) { return n == 0 ? 0 : (n - 1) % g + 1; };
                     const int32_t own = q.requests[r].kv_len, mine = filled(own);
                     const int32_t theirs = filled(q.requests[other(r)].kv_len);
                     return own - mine + (least ? std::min(mine, theirs) : theirs);
                   });
      }
  for (int32_t delta : {1, 2, 4, 8, 16})
    for (bool follows : {true, false}) {
      const double cost = 0.3 + (delta > 1 ? 0.2 : 0) + (follows ? 0 : 0.1);
      add_length(clues, out, "keys.kv_len_short",
                 fmt::format("length taken {} too short{}", delta, follows ? "" : ", rows stay"), cost,
                 follows, [delta](const Request& r) { return std::max(0, r.kv_len - delta); });
      if (follows && p.mask == ASSAY_MASK_CAUSAL && p.window_left < 0 && p.chunk == 0)
        out.back().also_called = {"mask.causal_short"};
      add_length(clues, out, op_of(p).has_cache ? "memory.unused_slot" : "keys.tail_unmasked",
                 fmt::format("length taken {} too long{}", delta, follows ? "" : ", rows stay"), cost,
                 follows, [delta](const Request& r) { return r.kv_len + delta; });
    }
  for (bool follows : {true, false}) {
    // The commonest of lengths that are too short, so before causal limits that predict the same.
    add_length(clues, out, "keys.kv_len_short",
               fmt::format("new tokens but one not counted{}", follows ? "" : ", rows stay"), 0.05, follows,
               [](const Request& r) { return std::max(0, r.kv_len - std::max(0, r.q_len - 1)); });
    add_length(clues, out, "keys.kv_len_short",
               fmt::format("new tokens not counted{}", follows ? "" : ", rows stay"), 0.05, follows,
               [](const Request& r) { return std::max(0, r.kv_len - r.q_len); });
    out.back().also_called = {"lengths_without_new", "new_keys_missing"};  // of a step
    // Under a causal mask that is a row that stands at its own number, for the bias too.
    const bool top_left = follows && p.mask == ASSAY_MASK_CAUSAL;
    add_length(clues, out, top_left ? "mask.causal_top_left" : "keys.kv_len_short",
               fmt::format("as many keys as rows{}", follows ? "" : ", rows stay"), 0.2, follows,
               [](const Request& r) { return std::min(r.kv_len, r.q_len); });
    const int32_t first = p.requests.empty() ? 0 : p.requests[0].kv_len;
    add_length(clues, out, "keys.kv_len_short",
               fmt::format("length of request 0 for all{}", follows ? "" : ", rows stay"), 0.3, follows,
               [first](const Request& r) { return std::min(r.kv_len, first); });
    for (const IndexMap& map : request_maps(p))
      if (follows && map.name != "request 0")  // rows that stay: length_family
        add_length(clues, out, "keys.kv_len_short", "no more keys than " + map.name, 0.25 + map.cost, follows,
                   {}, [of = map.of](const Problem& q, int32_t r) {
                     return std::min(q.requests[r].kv_len, q.requests[of(r)].kv_len);
                   });
  }
  // A buffer that is too small, or a number that does not hold the length.
  for (int32_t bits = 4; bits <= 16; ++bits) {
    const int32_t limit = 1 << bits;
    if (limit >= p.max_kv_len()) break;
    for (bool follows : {false, true}) {
      const std::string how = follows ? "" : ", rows stay";
      add_length(clues, out, "keys.kv_len_short", fmt::format("no more than {} keys{}", limit, how), 0.4,
                 follows, [limit](const Request& r) { return std::min(r.kv_len, limit); });
      add_length(clues, out, "keys.kv_len_short", fmt::format("length cut to {} bits{}", bits, how), 0.5,
                 follows, [limit](const Request& r) { return r.kv_len % limit; });
    }
  }
  // Zero keys behind the end: what masked but counted lanes amount to.
  std::vector<int32_t> counts = {1, 2, 4, 8, 16, 32, 64};
  for (int32_t count : counts)
    for (bool causal : {false, true})
      propose_edit(clues, out, "keys.tail_unmasked",
                   fmt::format("{} zero keys behind the last{}", count, causal ? ", in the last row" : ""),
                   0.5, [count, causal](Scene& s, std::vector<Term>& t) {
                     if (causal && s.position != s.kv_len - 1) return;
                     for (int32_t i = 0; i < count; ++i)
                       t.push_back({s.kv_len + i, 0, 0, 1, 1, 1, 1, 1, true});
                   });
  for (const auto& [grain, name] : grains)
    for (int which = 0; which < 4; ++which)
      propose_edit(clues, out, "keys.tail_unmasked",
                   fmt::format("zero keys up to a whole {}{}", name,
                               which == 1   ? ", in the last row"
                               : which == 2 ? ", in requests with one row"
                               : which == 3 ? ", beyond the row's own position too"
                                            : ""),
                   0.4, [g = grain, which](Scene& s, std::vector<Term>& t) {
                     const Request& r = s.problem.requests[s.cell.request];
                     if (which == 1 && s.position != s.kv_len - 1) return;
                     if (which == 2 && r.q_len != 1) return;
                     const int32_t from = which == 3 && !t.empty() ? t.back().position + 1 : s.kv_len;
                     for (int32_t j = from; j % g != 0; ++j) t.push_back({j, 0, 0, 1, 1, 1, 1, 1, true});
                   });
}

void displaced(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  propose_edit(clues, out, "keys.shifted", "new tokens read from the start of the request", 0.2,
               [](Scene& s, std::vector<Term>& t) {
                 const int32_t context = s.problem.requests[s.cell.request].context_len();
                 for (Term& term : t)
                   if (context > 0 && term.position >= context)
                     term.k_row = term.v_row = term.position - context;
               });
  enum What { kBoth, kKeys, kValues };
  const char* names[] = {"keys and values", "keys", "values"};
  for (int32_t bit : {1, 2, 4, 8})
    for (What what : {kBoth, kKeys, kValues})
      propose_edit(clues, out, "keys.shifted",
                   fmt::format("{} exchanged {} by {}", names[what], bit > 1 ? "in blocks," : "one", bit),
                   0.4, [bit, what](Scene& s, std::vector<Term>& t) {
                     for (Term& term : t) {
                       const int32_t from = term.position ^ bit;
                       if (from >= s.kv_len) continue;
                       if (what != kValues) term.k_row = from;
                       if (what != kKeys) term.v_row = from;
                     }
                   });
  std::vector<int32_t> shifts = {1, -1, 2, -2, 4, -4, 8, -8};
  for (int32_t tile : clues.tile_sizes) {
    shifts.push_back(tile);
    shifts.push_back(-tile);
  }
  for (int32_t shift : shifts)
    for (What what : {kBoth, kKeys, kValues})
      for (int mode = 0; mode < 3; ++mode) {  // clamped, wrapped in the request, wrapped in the page
        if (mode == 2 && (!op_of(p).has_cache || p.page_size < 2)) continue;
        const char* modes[] = {"", ", round the request", ", round the page"};
        propose_edit(clues, out, "keys.shifted",
                     fmt::format("{} read {:+} further on{}", names[what], shift, modes[mode]),
                     (shift * shift == 1 ? 0.3 : 0.5) + 0.05 * mode,
                     [shift, what, mode, page = p.page_size](Scene& s, std::vector<Term>& t) {
                       const int32_t n = s.kv_len;
                       for (Term& term : t) {
                         int32_t from = term.position + shift;
                         if (mode == 0) from = std::clamp(from, 0, n - 1);
                         if (mode == 1) from = ((from % n) + n) % n;
                         if (mode == 2) {
                           const int32_t slot = ((term.position % page + shift) % page + page) % page;
                           from = term.position / page * page + slot;
                         }
                         int32_t row = from;
                         if (from >= n) {  // behind the last key of the page
                           int64_t block = -1, at = 0;
                           if (!s.keys.place(s.cell.request, from, &block, &at)) block = -1;
                           row = s.keys.extra(block, at);
                         }
                         if (what != kValues) term.k_row = row;
                         if (what != kKeys) term.v_row = row;
                       }
                     });
      }
}

}  // namespace

void key_family(const Clues& clues, Hypotheses& out) {
  single_keys(clues, out);
  tile_edges(clues, out);
  tiles(clues, out);
  lengths(clues, out);
  displaced(clues, out);
  stale_tokens(clues, out);
}

}  // namespace assay
