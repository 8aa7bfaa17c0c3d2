// SPDX-License-Identifier: Apache-2.0
// Whole numbers that nobody lists: the width of a window, the size of a chunk, where a mask's edge lies, how
// many keys are seen. Each is searched on a few wrong cells, and the best value is proposed; places to count
// from are enumerated.
#include <algorithm>

#include "harness/explain/families/mask_rule.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/explain/families/row_places.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr int kSearchCells = 4;
constexpr int32_t kWidest = 1024;  // largest number that is searched
constexpr double kSearched = 0.6;  // cost of a number that was searched

// The whole number in [low, high] under which the first wrong cells fit best; `low` - 1: none fits better
// than nothing.
int32_t search(const Clues& clues, int32_t low, int32_t high,
               const std::function<void(Rules&, int32_t)>& set) {
  std::vector<Sample> cells;
  for (size_t i = 0; i < clues.bad.size() && cells.size() < kSearchCells; ++i) {
    // The worst ones come first; one from the middle shows another request or row.
    const Sample& s = clues.bad[cells.size() < 2 ? i : std::min(clues.bad.size() - 1, i * 5)];
    if (s.call != Call::kLow) cells.push_back(s);
  }
  if (cells.empty()) return low - 1;
  const auto misfit = [&](const Rules& rules, double best) {
    double sum = 0;
    for (const Sample& s : cells) {
      sum += misfit_at(clues, s, rules);
      if (sum >= best) break;
    }
    return sum;
  };
  double best = misfit(clues.predictor.right(), std::numeric_limits<double>::infinity());
  int32_t found = low - 1;
  for (int32_t value = low; value <= high; ++value) {
    Rules rules = clues.predictor.right();
    set(rules, value);
    if (const double m = misfit(rules, best); m < best) best = m, found = value;
  }
  return found;
}

class Searcher {
 public:
  Searcher(const Clues& clues, Hypotheses& out) : clues_(clues), out_(out) {}
  const Clues& clues() const { return clues_; }
  void mask(std::string_view cause, std::string text, double cost, MaskRule rule) {
    Hypothesis h = propose(clues_, cause, std::move(text), cost);
    h.rules.sees = [rule](const Scene& s, int32_t j) { return rule.sees(s, j); };
    h.free = cost >= kSearched;
    out_.push_back(std::move(h));
  }
  void terms(std::string_view cause, std::string text, double cost,
             std::function<void(Scene&, std::vector<Term>&)> edit) {
    Hypothesis h = propose(clues_, cause, std::move(text), cost);
    h.rules.edit_terms = std::move(edit);
    h.free = cost >= kSearched;
    out_.push_back(std::move(h));
  }
  // The best value of a number of the mask, or low - 1.
  int32_t best_mask(int32_t low, int32_t high, const std::function<void(MaskRule&, int32_t)>& set) {
    const MaskRule given = given_mask(clues_.problem());
    return search(clues_, low, high, [&](Rules& rules, int32_t value) {
      MaskRule m = given;
      set(m, value);
      rules.sees = [m](const Scene& s, int32_t j) { return m.sees(s, j); };
    });
  }
  int32_t best_terms(int32_t low, int32_t high,
                     const std::function<void(Scene&, std::vector<Term>&, int32_t)>& edit) {
    return search(clues_, low, high, [&](Rules& rules, int32_t value) {
      rules.edit_terms = [&edit, value](Scene& s, std::vector<Term>& t) { edit(s, t, value); };
    });
  }

 private:
  const Clues& clues_;
  Hypotheses& out_;
};

void windows(Searcher& add) {
  const Problem& p = add.clues().problem();
  const MaskRule given = given_mask(p);
  const int32_t most = std::min(p.max_kv_len(), kWidest);
  MaskRule m = given;
  if (const int32_t left = add.best_mask(0, most, [](MaskRule& r, int32_t v) { r.left = v; }); left >= 0) {
    m.left = left;
    add.mask(p.window_left < 0      ? "mask.window_invented"
             : left < p.window_left ? "mask.window_short"
                                    : "mask.window_long",
             fmt::format("{} keys to the left instead of {}", left,
                         p.window_left < 0 ? "all" : fmt::format("{}", p.window_left)),
             kSearched, m);
  }
  m = given;
  if (p.window_right >= 0)
    if (const int32_t right = add.best_mask(0, most, [](MaskRule& r, int32_t v) { r.right = v; });
        right >= 0) {
      m.right = right;
      add.mask(right < p.window_right ? "mask.window_short" : "mask.window_long",
               fmt::format("{} keys to the right instead of {}", right, p.window_right), kSearched, m);
    }
  if (p.window_left >= 0 || p.chunk > 0) {
    m = given;
    for (int32_t keep = 1; keep <= 128 && keep < most; keep *= 2) {
      m.keep_first = keep;
      add.mask("mask.first_keys_kept", fmt::format("the first {} keys stay visible", keep), 0.4, m);
    }
    if (const int32_t keep =
            add.best_mask(1, std::min(most, 256), [](MaskRule& r, int32_t v) { r.keep_first = v; });
        keep >= 1) {
      m.keep_first = keep;
      add.mask("mask.first_keys_kept", fmt::format("the first {} keys stay visible", keep), kSearched, m);
    }
  }
  if (p.window_left >= 0)
    for (int32_t grain : {2, 4, 8, 16, 32, 64, 128, p.page_size}) {
      if (grain < 2) continue;
      m = given;
      m.left = (p.window_left + grain) / grain * grain - 1;
      if (m.left != p.window_left)
        add.mask("mask.window_coarse", fmt::format("window as wide as whole runs of {} keys", grain), 0.3, m);
      m.left = (p.window_left + 1) / grain * grain - 1;
      if (m.left >= 0 && m.left != p.window_left)
        add.mask("mask.window_coarse", fmt::format("window cut to whole runs of {} keys", grain), 0.3, m);
    }
}

// As many tiles as the window or chunk of a row, or of a block of rows, has, but from the request's first key
// on.
void tiles_from_the_front(Searcher& add) {
  const Problem& p = add.clues().problem();
  if (p.window_left < 0 && p.chunk == 0) return;
  std::vector<RowBlock> blocks = row_blocks(p);
  if (blocks.empty() || blocks.front().size > 1) blocks.insert(blocks.begin(), RowBlock{1, false});
  for (const RowBlock& block : blocks)
    for (const int32_t tile : add.clues().tile_sizes)
      add.terms("keys.kv_len_short",
                fmt::format("as many tiles of {} as {} see, counted from the request's first key", tile,
                            block.words()),
                0.35, [block, tile](Scene& s, std::vector<Term>& terms) {
                  const KeyRange range = block.keys(s.problem, s.cell);
                  const auto held = (range.end + tile - 1) / tile - range.begin / tile;
                  std::erase_if(terms, [&](const Term& t) { return t.position >= held * tile; });
                });
}

void chunks(Searcher& add) {
  const Problem& p = add.clues().problem();
  const MaskRule given = given_mask(p);
  if (p.chunk == 0) return;
  MaskRule m = given;
  for (int32_t back : {1, 2}) {
    m.chunk_back = back;
    add.mask("mask.chunk_wide", fmt::format("{} of the chunks before are seen too", back), 0.1 * back, m);
  }
  for (int32_t keys : {1, 2, 3, 4, 8}) {
    if (keys >= p.chunk) break;
    m = given;
    m.keys_back = keys;
    add.mask("mask.chunk_wide", fmt::format("the last {} keys before the chunk are seen too", keys),
             0.05 + 0.01 * keys, m);
  }
  for (int32_t keys : {p.chunk - 1, p.chunk}) {
    m = given;
    m.chunk = 0;
    m.left = keys;
    add.mask("mask.chunk_as_window", fmt::format("a window of {} keys to the left in place of chunks", keys),
             0.1, m);
  }
  const std::pair<const char*, std::function<int32_t(const Scene&)>> origins[] = {
      {"the first new token",
       [](const Scene& s) { return s.problem.requests[s.cell.request].context_len(); }},
      {"the end of the keys", [](const Scene& s) { return s.kv_len; }},
      {"the last key", [](const Scene& s) { return s.kv_len - 1; }},
  };
  for (const auto& [name, origin] : origins) {
    m = given;
    m.chunk_origin = origin;
    add.mask("mask.chunk_shifted", fmt::format("chunks counted from {}", name), 0.1, m);
  }
  const std::pair<const char*, std::function<int32_t(const Scene&)>> rows[] = {
      {"the row's number in the request", [](const Scene& s) { return s.cell.row; }},
      {"the last row", [](const Scene& s) { return s.kv_len - 1; }},
      {"the first row",
       [](const Scene& s) { return std::max(0, s.problem.requests[s.cell.request].context_len()); }},
  };
  // A chunk that begins earlier and ends at the row holds the row's own, and keys of those before it.
  const auto chunk_of = [&](const auto& name, const std::function<int32_t(const Scene&)>& at, bool before,
                            double cost) {
    for (bool open : {false, true}) {
      m = given;
      m.chunk_at = at;
      m.chunk_open = open;
      const std::string text =
          fmt::format("chunk of {}{}", name, open ? ", but up to the row's own position" : "");
      if (open && before) add.mask("mask.chunk_wide", text, cost, m);
      add.mask("mask.chunk_shifted", text, cost + 0.02 * (open && before), m);
    }
  };
  for (const auto& [name, at] : rows) chunk_of(name, at, std::string_view(name) == "the first row", 0.1);
  for (const RowPlace& place : row_places(p))
    chunk_of(place.name, place.at, place.cause == "mask.causal_short", 0.25);
  m = given;
  if (const int32_t size =
          add.best_mask(1, std::min(p.max_kv_len(), kWidest), [](MaskRule& r, int32_t v) { r.chunk = v; });
      size >= 1 && size != p.chunk) {
    m.chunk = size;
    add.mask("mask.chunk_size", fmt::format("chunks of {} keys instead of {}", size, p.chunk), kSearched, m);
  }
  if (const int32_t shift =
          add.best_mask(1, std::min(p.chunk - 1, kWidest), [](MaskRule& r, int32_t v) { r.chunk_shift = v; });
      shift >= 1) {
    m = given;
    m.chunk_shift = shift;
    add.mask("mask.chunk_shifted", fmt::format("chunks begin {} keys off", shift), kSearched, m);
  }
}

// Where rows are taken to stand, by causality, window or both.
void positions(Searcher& add) {
  const Problem& p = add.clues().problem();
  const MaskRule given = given_mask(p);
  for (const auto& [name, at, cause, plain] : row_places(p)) {
    MaskRule m = given;
    if (p.mask == ASSAY_MASK_CAUSAL) {
      m.causal_at = at;
      add.mask("mask.causal_anchor", "causal limit of " + name, 0.22, m);
      if (cause != "mask.causal_anchor") add.mask(cause, "causal limit of " + name, 0.25, m);
    }
    if (p.window_left < 0 && p.window_right < 0) continue;
    m.window_at = at;
    add.mask("mask.window_anchor", "causal limit and window of " + name, 0.3, m);
    m.causal_at = nullptr;
    add.mask("mask.window_anchor", "window of " + name, 0.25, m);
  }
  if (p.mask != ASSAY_MASK_CAUSAL) return;
  const int32_t reach = std::min(p.max_kv_len(), 128);
  if (const int32_t shift = add.best_mask(-reach, reach, [](MaskRule& r, int32_t v) { r.context_shift = v; });
      shift >= -reach && shift != 0) {
    MaskRule m = given;
    m.context_shift = shift;
    add.mask(shift < 0 ? "mask.causal_short" : "mask.causal_long",
             fmt::format("diagonal moved by {:+}", shift), kSearched, m);
  }
}

// A block of rows visits the tiles of one of its rows: of another row's keys those of other tiles are
// missing.
void tiles_of_another_row(Searcher& add) {
  const Problem& p = add.clues().problem();
  std::vector<int32_t> tiles = add.clues().tile_sizes;
  if (op_of(p).has_cache && p.page_size > 1) tiles.push_back(p.page_size);
  std::sort(tiles.begin(), tiles.end());
  tiles.erase(std::unique(tiles.begin(), tiles.end()), tiles.end());
  for (int32_t block : {2, 4, 8, 16, 32, 64, 128})
    for (int32_t tile : tiles) {
      if (p.window_left >= 0)
        add.terms(
            "mask.window_anchor",
            fmt::format("tiles of {} keys visited from the first one of the last of {} rows on", tile, block),
            0.35, [=](Scene& s, std::vector<Term>& terms) {
              const int32_t rows = s.problem.requests[s.cell.request].q_len;
              const int32_t last = std::min(s.cell.row / block * block + block, rows) - 1;
              const int32_t at = s.position + last - s.cell.row - s.problem.window_left;
              const int32_t first = std::max(0, at) / tile * tile;
              std::erase_if(terms, [&](const Term& t) { return t.position < first; });
            });
      if (p.mask == ASSAY_MASK_CAUSAL)
        add.terms(
            "mask.causal_short",
            fmt::format("tiles of {} keys visited up to the last one of the first of {} rows", tile, block),
            0.4, [=](Scene& s, std::vector<Term>& terms) {
              const int32_t at = s.position - s.cell.row % block;
              const int32_t end = (std::max(0, at) / tile + 1) * tile;
              std::erase_if(terms, [&](const Term& t) { return t.position >= end; });
            });
    }
}

// Other lengths than the request's own; with `follows` its rows stand at the end of those.
void lengths(Searcher& add) {
  const Problem& p = add.clues().problem();
  const auto requests = static_cast<int32_t>(p.requests.size());
  const auto shorter = [](std::function<int32_t(const Scene&)> length) {
    return [length = std::move(length)](Scene& s, std::vector<Term>& terms) {
      const int32_t most = length(s);
      std::erase_if(terms, [&](const Term& t) { return t.position >= most; });
    };
  };
  using Of = std::function<int32_t(const Scene&)>;
  const auto of_request = [&p](std::function<int32_t(int32_t)> which) {
    return [which, &p](const Scene& s) { return p.requests[which(s.cell.request)].kv_len; };
  };
  int32_t least = p.requests.empty() ? 0 : p.requests[0].kv_len;
  for (const Request& r : p.requests) least = std::min(least, r.kv_len);
  const std::vector<std::pair<std::string, Of>> others = {
      {"the next request's", of_request([=](int32_t r) { return std::min(r + 1, requests - 1); })},
      {"the previous request's", of_request([](int32_t r) { return std::max(r - 1, 0); })},
      {"the first request's", of_request([](int32_t) { return 0; })},
      {"the last request's", of_request([=](int32_t) { return requests - 1; })},
      {"that of the request as far from the end", of_request([=](int32_t r) { return requests - 1 - r; })},
      {"that of the neighbour, pairwise",
       of_request([=](int32_t r) { return std::min(r ^ 1, requests - 1); })},
      {"the shortest request's", [least](const Scene&) { return least; }},
  };
  if (requests > 1)
    for (const auto& [name, length] : others) {
      add.terms("keys.kv_len_short", "no more keys than " + name, 0.3, shorter(length));
      for (int32_t size : {16, 32, 64, 128, 256, 512, 1024})
        add.terms("keys.kv_len_short", fmt::format("no more keys than {}, in whole runs of {}", name, size),
                  0.4, shorter([length = length, size](const Scene& s) {
                    return std::max(1, (length(s) + size - 1) / size) * size;
                  }));
    }
  const int32_t most = std::min(p.max_kv_len(), kWidest);
  const auto first_keys = [](Scene&, std::vector<Term>& t, int32_t n) {
    std::erase_if(t, [n](const Term& term) { return term.position >= n; });
  };
  if (const int32_t n = add.best_terms(0, most - 1, first_keys); n >= 0)
    add.terms("keys.kv_len_short", fmt::format("no more than {} keys, rows stay", n), kSearched,
              [=](Scene& s, std::vector<Term>& t) { first_keys(s, t, n); });
  const auto without_first = [](Scene&, std::vector<Term>& t, int32_t n) {
    std::erase_if(t, [n](const Term& term) { return term.position < n; });
  };
  if (const int32_t n = add.best_terms(1, most - 1, without_first); n >= 1)
    add.terms("keys.head_dropped", fmt::format("the first {} keys of the request left out", n), kSearched,
              [=](Scene& s, std::vector<Term>& t) { without_first(s, t, n); });
  const auto without_last = [](Scene& s, std::vector<Term>& t, int32_t n) {
    std::erase_if(t, [&](const Term& term) { return term.position >= s.kv_len - n; });
  };
  if (const int32_t n = add.best_terms(1, std::min(most - 1, 300), without_last); n >= 1)
    add.terms("keys.kv_len_short", fmt::format("length taken {} too short, rows stay", n), kSearched,
              [=](Scene& s, std::vector<Term>& t) { without_last(s, t, n); });
}

}  // namespace

void length_family(const Clues& clues, Hypotheses& out) {
  Searcher add(clues, out);
  windows(add);
  tiles_from_the_front(add);
  chunks(add);
  positions(add);
  tiles_of_another_row(add);
  lengths(add);
}

}  // namespace assay
