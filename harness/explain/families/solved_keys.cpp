// SPDX-License-Identifier: Apache-2.0
// Whole numbers of keys and rows that no list holds: how many lanes of a tile, from which draft
// on, rounded down to how many. Each is the one that fits a few wrong cells best.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "harness/explain/cut.hpp"
#include "harness/explain/families/keys_solver.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/explain/families/term_mistakes.hpp"

namespace assay {
namespace {

constexpr size_t kTilings = 8;

bool as_given(const Scene& s, int32_t j) { return visible(s.problem, s.cell.request, s.cell.row, j); }

void lengths(KeysSolver& add) {
  const int32_t most = add.problem().max_kv_len();
  add.edit("keys.tail_dropped", "lengths rounded down to {}", "", 0.5, 2, most, [](int32_t n) -> Edit {
    return [n](Scene& s, std::vector<Term>& t) {
      std::erase_if(t, [&](const Term& term) { return term.position >= s.kv_len / n * n; });
    };
  });
  add.edit("keys.kv_len_short", "no key from {} on", "", 0.5, 1, most, [](int32_t n) -> Edit {
    return [n](Scene&, std::vector<Term>& t) {
      std::erase_if(t, [&](const Term& term) { return term.position >= n; });
    };
  });
  for (int32_t tile : {4, 8, 16, 32, 64, 128})
    add.edit("keys.tail_dropped", "a last run of fewer than {} keys left out",
             fmt::format(", runs of {}", tile), 0.55, 2, tile - 1, [tile](int32_t n) -> Edit {
               return [n, tile](Scene& s, std::vector<Term>& t) {
                 if (s.kv_len > tile && s.kv_len % tile < n)
                   std::erase_if(t,
                                 [&](const Term& term) { return term.position >= s.kv_len / tile * tile; });
               };
             });
  add.edit("keys.head_dropped", "the first {} keys left out", "", 0.5, 1, most, [](int32_t n) -> Edit {
    return [n](Scene&, std::vector<Term>& t) {
      std::erase_if(t, [&](const Term& term) { return term.position < n; });
    };
  });
}

void masks(KeysSolver& add) {
  const Problem& p = add.problem();
  const int32_t most = p.max_kv_len();
  if (p.window_left >= 0) {
    add.mask("mask.window_coarse", "left edge rounded down to {}", 0.5, 2, most,
             [](MaskRule& m, int32_t n) { m.left_grain = n; });
    add.mask("mask.window_coarse", "left edge rounded up to {}", 0.5, 2, most, [](MaskRule& m, int32_t n) {
      m.left_grain = n;
      m.left_up = true;
    });
  }
  const int32_t rows = p.max_q_len();
  for (bool of_rows : {true, false})
    for (bool last : {true, false}) {
      const auto at = [=](int32_t n) {
        return [=](const Scene& s) {
          const int32_t own = of_rows ? s.cell.row : s.position, to = own / n * n + (last ? n - 1 : 0);
          const int32_t length = s.problem.requests[s.cell.request].q_len;
          return s.position + (of_rows && last ? std::min(to, length - 1) : to) - own;
        };
      };
      const int32_t high = of_rows ? rows : 130;
      const char* causal = last ? "mask.causal_long" : "mask.causal_short";
      const std::string words =
          fmt::format(" {} for all of them", of_rows ? "rows of the request" : "positions");
      if (p.mask == ASSAY_MASK_CAUSAL) {
        const auto set = [&](Rules& r, int32_t n) {
          MaskRule m = given_mask(p);
          m.causal_at = at(n);
          r.sees = [m](const Scene& s, int32_t j) { return m.sees(s, j); };
        };
        const char* text = last ? "causal limit of the last of {}" : "causal limit of the first of {}";
        add.rule("mask.causal_anchor", text, words, 0.47, 2, high, set);
        add.rule(causal, text, words, 0.5, 2, high, set);
      }
      if (p.window_left < 0) continue;
      const auto window = [&](Rules& r, int32_t n) {
        MaskRule m = given_mask(p);
        m.window_at = at(n);
        r.sees = [m](const Scene& s, int32_t j) { return m.sees(s, j); };
      };
      if (last)
        add.rule("mask.window_anchor", "window of the last of {}", words, 0.5, 2, high, window);
      else
        add.rule("mask.window_anchor", "window of the first of {}", words, 0.5, 2, high, window);
    }
  // Blocks of rows counted with the heads of the group.
  if (const int32_t g = p.group(); g > 1)
    for (bool last : {true, false}) {
      const auto at = [=](int32_t n) {
        return [=](const Scene& s) {
          const auto [from, to] = RowBlock{n, true}.rows(s.problem, s.cell);
          return s.position + (last ? to : from) - s.cell.row;
        };
      };
      const int32_t high = std::min(rows * g, 130);
      const char* of[] = {"causal limit of the first of {}", "causal limit of the last of {}",
                          "window of the first of {}", "window of the last of {}"};
      const auto set = [&](bool window) {
        return [&, window](Rules& r, int32_t n) {
          MaskRule m = given_mask(p);
          (window ? m.window_at : m.causal_at) = at(n);
          r.sees = [m](const Scene& s, int32_t j) { return m.sees(s, j); };
        };
      };
      for (const char* cause : {"mask.causal_anchor", last ? "mask.causal_long" : "mask.causal_short"})
        if (p.mask == ASSAY_MASK_CAUSAL)
          add.rule(cause, of[last], " rows and heads for all of them", 0.5, 2, high, set(false));
      if (p.window_left >= 0)
        add.rule("mask.window_anchor", of[2 + last], " rows and heads for all of them", 0.5, 2, high,
                 set(true));
    }
  if (p.mask == ASSAY_MASK_CAUSAL)
    add.mask(
        "mask.causal_short", "tiles visited up to the first position of {}", 0.6, 2, 130,
        [](MaskRule& m, int32_t n) { m.causal_at = [n](const Scene& s) { return s.position / n * n - 1; }; });
  if (p.mask != ASSAY_MASK_TREE) return;
  const auto tree =
      [&](std::string_view cause, const char* text, double cost, bool by_row,
          const std::function<bool(const Scene&, int32_t row, int32_t column, bool given)>& of) {
        add.sees(cause, text, cost, 1, rows - 1, [=](const Scene& s, int32_t j, int32_t n) {
          const int32_t column = j - s.problem.requests[s.cell.request].context_len();
          const bool given = as_given(s, j);
          if (column < 0 || (by_row ? s.cell.row : column) < n) return given;
          return of(s, s.cell.row, column, given);
        });
      };
  for (bool by_row : {false, true}) {
    const char* cut = "mask.tree_cut";
    if (by_row) {
      tree(cut, "rows from draft {} on see no draft", 0.35, true,
           [](const Scene&, int32_t, int32_t, bool) { return false; });
      tree(cut, "rows from draft {} on see every draft", 0.35, true,
           [](const Scene&, int32_t, int32_t, bool) { return true; });
      tree(cut, "rows from draft {} on are causal", 0.35, true,
           [](const Scene&, int32_t row, int32_t column, bool) { return column <= row; });
    } else {
      tree(cut, "drafts from {} on are never seen", 0.35, false,
           [](const Scene&, int32_t, int32_t, bool) { return false; });
      tree(cut, "drafts from {} on are always seen", 0.35, false,
           [](const Scene&, int32_t, int32_t, bool) { return true; });
      tree(cut, "drafts from {} on are causal", 0.35, false,
           [](const Scene&, int32_t row, int32_t column, bool) { return column <= row; });
      tree(cut, "drafts from {} on are seen by themselves alone", 0.4, false,
           [](const Scene&, int32_t row, int32_t column, bool) { return column == row; });
    }
  }
  for (bool causal : {false, true})
    add.sees(
        "mask.tree_cut",
        causal ? "the first {} drafts are seen by all behind them" : "the first {} drafts are seen by all",
        0.35, 1, rows - 1, [causal](const Scene& s, int32_t j, int32_t n) {
          const int32_t column = j - s.problem.requests[s.cell.request].context_len();
          return column < 0 || column >= n || (causal && column > s.cell.row) ? as_given(s, j) : true;
        });
  add.sees("mask.tree_cut", "a draft does not see itself, nor the {} before it", 0.35, 0, rows - 1,
           [](const Scene& s, int32_t j, int32_t n) {
             const int32_t column = j - s.problem.requests[s.cell.request].context_len();
             return as_given(s, j) && !(column <= s.cell.row && column >= s.cell.row - n && column >= 0);
           });
  // Columns counted modulo the bits of a word.
  add.sees("mask.tree_shifted", "drafts counted modulo {}", 0.4, 1, rows - 1,
           [](const Scene& s, int32_t j, int32_t n) {
             const int32_t context = s.problem.requests[s.cell.request].context_len();
             return j < context ? as_given(s, j) : as_given(s, context + (j - context) % n);
           });
}

std::vector<int32_t> tile_lengths(const Clues& clues) {
  std::vector<int32_t> tiles = {8, 16, 32, 64, 128};
  for (int32_t t : clues.tile_sizes) tiles.push_back(t);
  std::sort(tiles.begin(), tiles.end());
  tiles.erase(std::unique(tiles.begin(), tiles.end()), tiles.end());
  return tiles;
}

// Lanes of a tile, of any number: left out of one sum, or never loaded again.
void lanes(KeysSolver& add) {
  for (int32_t tile : tile_lengths(add.clues())) {
    if (tile >= add.problem().max_kv_len()) break;
    for (const TermMistake& what : kTermMistakes)
      for (bool last : {false, true}) {
        const auto of = [=, field = what.field, value = what.value](int32_t n) -> Edit {
          return [=](Scene&, std::vector<Term>& terms) {
            for (Term& t : terms)
              if (last ? t.position % tile >= tile - n : t.position % tile < n) t.*field = value;
          };
        };
        const std::string behind = fmt::format(" of every {} keys {}", tile, what.words);
        if (last)
          add.edit(what.cause, "last {}", behind, 0.55, 1, tile - 1, of);
        else
          add.edit(what.cause, "first {}", behind, 0.55, 1, tile - 1, of);
      }
  }
  // Every n-th key.
  for (const TermMistake& what : kTermMistakes)
    for (bool last : {false, true}) {
      const auto of = [=, field = what.field, value = what.value](int32_t n) -> Edit {
        return [=](Scene&, std::vector<Term>& terms) {
          for (Term& t : terms)
            if (t.position % n == (last ? n - 1 : 0)) t.*field = value;
        };
      };
      if (last)
        add.edit(what.cause, "the last of every {}", fmt::format(" keys {}", what.words), 0.55, 2, kMostWhole,
                 of);
      else
        add.edit(what.cause, "the first of every {}", fmt::format(" keys {}", what.words), 0.55, 2,
                 kMostWhole, of);
    }
  const char* sides[] = {"K and V", "K", "V"};
  for (int side = 0; side < 3; ++side) {
    add.edit("keys.lanes_stale", "every key of number a multiple of {}",
             fmt::format(" reads {} of the one before", sides[side]), 0.6, 2, kMostWhole,
             [side](int32_t n) -> Edit {
               return [=](Scene&, std::vector<Term>& terms) {
                 for (Term& t : terms) {
                   if (t.position == 0 || t.position % n != 0) continue;
                   if (side != 2) t.k_row = t.position - 1;
                   if (side != 1) t.v_row = t.position - 1;
                 }
               };
             });
    for (int sign : {1, -1}) {
      const auto of = [=](int32_t n) -> Edit {
        return [=](Scene& s, std::vector<Term>& terms) {
          for (Term& t : terms) {
            const int32_t from = t.position + sign * n;
            if (from < 0 || from >= s.kv_len) continue;
            if (side != 2) t.k_row = from;
            if (side != 1) t.v_row = from;
          }
        };
      };
      if (sign > 0)
        add.edit("keys.shifted", "{} keys further on", fmt::format(", {}", sides[side]), 0.6, 1, 128, of);
      else
        add.edit("keys.shifted", "{} keys before", fmt::format(", {}", sides[side]), 0.6, 1, 128, of);
    }
  }
  // A lane that is filled once for a part, or in turn with a second buffer, and keeps what it has.
  size_t tried = 0;
  for (const Layout& layout : add.clues().tilings) {
    const int32_t tile = layout.tile_keys;
    if (tile <= 1 || ++tried > (add.clues().only ? 3 : 1) * kTilings) continue;
    Rules cut;
    layout.apply(cut);
    for (int back : {0, 1, 2})  // the first tile of the part; one or two tiles before
      for (int side = 0; side < 3; ++side)
        for (bool last : {false, true}) {
          const auto set = [=](Rules& r, int32_t n) {
            layout.apply(r);
            r.edit_terms = [=](Scene& s, std::vector<Term>& terms) {
              const PartsOf parts(cut, s);
              std::map<int32_t, int32_t> first;  // tile of a part
              for (int32_t j = parts.first_tile() * tile; j < s.kv_len; j += tile)
                first.try_emplace(parts.of(j), j);
              for (Term& t : terms) {
                if (t.position < 0 || t.position >= s.kv_len) continue;
                const int32_t lane = t.position % tile, start = t.position - lane;
                if (last ? lane < tile - n : lane >= n) continue;
                const int32_t begin = first[parts.of(t.position)];
                const int32_t from = (back == 0 ? begin : start - back * tile) + lane;
                if (start == begin || from < begin) continue;
                if (side != 2) t.k_row = from;
                if (side != 1) t.v_row = from;
              }
            };
          };
          const std::string behind = fmt::format(" keys of a tile keep {} of {}{}", sides[side],
                                                 back == 0   ? "the part's first tile"
                                                 : back == 1 ? "the tile before"
                                                             : "two tiles before",
                                                 layout.words);
          if (last)
            add.rule("keys.lanes_stale", "the last {}", behind, 0.6 + layout.cost, 1, tile, set);
          else
            add.rule("keys.lanes_stale", "the first {}", behind, 0.6 + layout.cost, 1, tile, set);
        }
  }
}

// Lanes behind the last key that hold the tile before.
void stale_lanes(KeysSolver& add) {
  for (int32_t tile : tile_lengths(add.clues()))
    for (bool causal : {false, true}) {
      const auto of = [=](int32_t n) -> Edit {
        return [=](Scene& s, std::vector<Term>& terms) {
          const int32_t start = s.kv_len / tile * tile;
          if (start < tile || s.kv_len % tile == 0) return;
          if (causal && s.position < s.kv_len - 1) return;
          for (int32_t j = s.kv_len; j < std::min(start + tile, s.kv_len + n); ++j)
            terms.push_back({j, j - tile, j - tile});
        };
      };
      if (causal)
        add.edit("keys.tail_unmasked", "{} lanes",
                 " of a last tile hold the tile before, in rows that see the last key", 0.3, tile, tile, of);
      else
        add.edit("keys.tail_unmasked", "{} lanes", " of a last tile hold the tile before", 0.25, tile, tile,
                 of);
      add.edit("keys.tail_unmasked", "up to {}",
               fmt::format(" lanes behind the last key hold the tile of {} before{}", tile,
                           causal ? ", in rows that see the last key" : ""),
               0.55, 1, tile, of);
    }
}

}  // namespace

void solved_key_family(const Clues& clues, Hypotheses& out) {
  if (too_large(clues, kLargestCell)) return;
  KeysSolver add(clues, out);
  stale_lanes(add);  // few: before numbers of many values have spent what may be
  lengths(add);
  masks(add);
  lanes(add);
}

}  // namespace assay
