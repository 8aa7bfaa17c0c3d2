// SPDX-License-Identifier: Apache-2.0
// The sums of the softmax, step by step: an exponential in another base where weights are made but not where
// sums are rescaled, row sums of a tile rounded by themselves, maxima that leave lanes out, constants that
// join the row sum, sinks in another base, and what one place of a part does with some lanes of its tiles.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>

#include "harness/explain/cut.hpp"
#include "harness/explain/families/fit.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/explain/families/term_mistakes.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

constexpr size_t kTilings = 14;
constexpr const char* kLoneToo = ", of a lone part too";

class Sums {
 public:
  Sums(const Clues& clues, Hypotheses& out) : clues_(clues), out_(out) {
    for (const Layout& l : clues.tilings)
      if (l.tile_keys > 1 && tilings_.size() < (clues.only ? 3 : 1) * kTilings) tilings_.push_back(l);
  }
  const Clues& clues() const { return clues_; }
  const std::vector<Layout>& tilings() const { return tilings_; }
  void put(std::string_view cause, std::string text, double cost, const std::function<void(Rules&)>& set,
           int32_t free = 0) {
    if (!clues_.wants(cause)) return;
    Hypothesis h = propose(clues_, cause, std::move(text), cost);
    set(h.rules);
    h.free = free;
    out_.push_back(std::move(h));
  }
  void in_tiles(std::string_view cause, const std::string& text, double cost,
                const std::function<void(Rules&)>& set) {
    for (const Layout& l : tilings_)
      put(cause, text + l.words, cost + l.cost, [&](Rules& r) {
        l.apply(r);
        set(r);
      });
  }

 private:
  const Clues& clues_;
  Hypotheses& out_;
  std::vector<Layout> tilings_;
};

void bases(Sums& add) {
  for (const auto& [factor, name] : {std::pair{std::numbers::ln2, "2^x in place of e^x"},
                                     {std::numbers::log2e, "e^(x log2(e))"},
                                     {std::numbers::ln10, "10^x"},
                                     {1.44 * std::numbers::ln2, "2^(1.44 x)"},
                                     {1.4375 * std::numbers::ln2, "2^(1.4375 x)"},
                                     {1.443 * std::numbers::ln2, "2^(1.443 x)"},
                                     {1.4 * std::numbers::ln2, "2^(1.4 x)"},
                                     {1.5 * std::numbers::ln2, "2^(1.5 x)"}}) {
    add.in_tiles("softmax.log2e", fmt::format("weights by {}, sums rescaled and joined rightly", name), 0.2,
                 [f = factor](Rules& r) { r.exp_of = [f](double x) { return std::exp(f * x); }; });
    add.in_tiles("softmax.log2e", fmt::format("weights by {}, and sums rescaled by it", name), 0.2,
                 [f = factor](Rules& r) { r.exponent_factor = f; });
    add.in_tiles("softmax.log2e", fmt::format("weights by {}, and sums rescaled and joined by it", name),
                 0.25, [f = factor](Rules& r) {
                   r.exp_of = [f](double x) { return std::exp(f * x); };
                   r.exp_everywhere = true;
                 });
  }
  // Growing instead of shrinking.
  for (bool both : {true, false})
    add.in_tiles(
        "softmax.o_not_rescaled",
        both ? "output and row sum rescaled by the inverse factor" : "rescaled by the factor's square root",
        0.25, [both](Rules& r) { r.rescale_exponent = both ? -1 : 0.5; });
}

void coarse_sums(Sums& add) {
  for (int32_t format : {ASSAY_BF16, ASSAY_FP16})
    for (bool per_key : {true, false})
      add.in_tiles("precision.row_sum",
                   fmt::format("row sum of a tile in {}{}", name_of(format_names(), format),
                               per_key ? " after every key" : ""),
                   0.25,
                   [=](Rules& r) { r.sum_format = format, r.sum_per_key = per_key, r.sum_of_tile = true; });
}

void maxima(Sums& add) {
  for (const Layout& l : add.tilings())
    for (int32_t of : {2, 4}) {
      const int32_t lanes = l.tile_keys / of;
      if (lanes < 1) continue;
      add.put("softmax.maximum_short",
              fmt::format("maximum of the first {} keys of a tile{}", lanes, l.words), 0.2 + l.cost,
              [&](Rules& r) {
                l.apply(r);
                r.maximum_lanes = lanes;
                r.exp_of = [](double x) { return std::exp(std::min(x, 0.0)); };
              });
    }
}

void constants(Sums& add, const Fit& fit) {
  const std::vector<double> grid = grid_of_logs(1e-6, 4, 45);
  const auto in_lse_alone = [](Rules& r, double x) {
    r.lse = [x](const Scene&, const LseParts& l) {
      return l.lse + std::log1p(x * std::exp(l.maximum - l.lse));
    };
  };
  if (const auto found = fit.along(grid, false, in_lse_alone))
    add.put(
        "lse.other_value", fmt::format("{:.3g} added to the row sum of the LSE alone", *found), 0.4,
        [&](Rules& r) { in_lse_alone(r, *found); }, 1);
  std::vector<Layout> layouts = {Layout{}};
  for (const Layout& l : add.clues().layouts)
    if (layouts.size() < 6) layouts.push_back(l);
  for (size_t i = 0; i < layouts.size(); ++i)
    for (bool of_parts : {false, true})
      for (bool in_lse : {false, true}) {
        if (of_parts && i == 0) continue;
        const auto set = [&](Rules& r, double x) {
          if (i > 0) layouts[i].apply(r);
          r.sum_offset = x, r.sum_offset_of_parts = of_parts, r.sum_offset_in_lse = in_lse;
        };
        const auto found = fit.along(grid, false, set);
        if (found)
          add.put(
              "softmax.row_sum_offset",
              fmt::format("{:.3g} added to the row sum{}{}{}", *found, of_parts ? " of every split" : "",
                          in_lse ? "" : ", not to that of the LSE", i > 0 ? layouts[i].words : ""),
              0.4 + 0.05 * of_parts + 0.05 * in_lse + 0.3 * layouts[i].cost,
              [&](Rules& r) { set(r, *found); }, 1);
      }
  // Where parts are merged the sum is relative to the largest of their LSEs; also of a lone one, or not.
  for (size_t i = 0; i < layouts.size(); ++i)
    for (const bool alone : {true, false})
      for (const bool of_o : {false, true}) {
        if (!alone && (i == 0 || of_o)) continue;
        const auto set = [&](Rules& r, double x) {
          if (i > 0) layouts[i].apply(r);
          r.one_part_too = alone;
          if (of_o)
            r.sum_offset = x, r.sum_offset_in_lse = true;
          else
            in_lse_alone(r, x);
        };
        const auto found = fit.along(grid, false, set);
        if (found)
          add.put(
              of_o ? "softmax.row_sum_offset" : "lse.other_value",
              fmt::format("{:.3g} added to the sum of the merge{}{}{}", *found,
                          of_o ? "" : " in the LSE alone", alone ? kLoneToo : "",
                          i > 0 ? layouts[i].words : ""),
              0.4 + 0.02 * alone + 0.3 * layouts[i].cost, [&](Rules& r) { set(r, *found); }, 1);
      }
}

// Its exponential, in a sum that is relative to the largest LSE of the parts, or of these and the sink. To
// the parts that is one more, of zeros.
void unshifted_sinks(Sums& add, const std::vector<Layout>& layouts) {
  const Predictor* predictor = &add.clues().predictor;
  for (size_t i = 0; i < layouts.size(); ++i)
    for (const bool alone : {true, false})
      for (const bool larger : {true, false}) {
        if (!alone && (i == 0 || !larger)) continue;
        add.put(
            "sinks.unshifted",
            fmt::format("its exponential joins a merge relative to the largest LSE{}{}{}",
                        larger ? " or the sink" : "", alone ? kLoneToo : "", i > 0 ? layouts[i].words : ""),
            0.15 + 0.02 * alone + 0.3 * layouts[i].cost, [&](Rules& r) {
              if (i > 0) layouts[i].apply(r);
              r.one_part_too = alone;
              r.sink_unshifted = larger;
              if (larger) return;
              r.sink = [](const Scene&, double) { return -std::numeric_limits<double>::infinity(); };
              r.edit_parts = [predictor](const Scene& s, std::vector<SplitPart>& parts) {
                SplitPart more{std::vector<double>(s.problem.head_dim_v, 0.0)};
                for (const SplitPart& part : parts) more.lse = std::max(more.lse, part.lse);
                more.lse += predictor->reader().sink(s.cell.head);
                parts.push_back(std::move(more));
              };
            });
      }
}

void sinks(Sums& add) {
  if (!add.clues().problem().sinks) return;
  std::vector<Layout> layouts = {Layout{}};
  for (const Layout& l : add.clues().layouts) layouts.push_back(l);
  unshifted_sinks(add, layouts);
  for (size_t i = 0; i < layouts.size(); ++i)
    for (bool alone : {false, true})  // a lone part is merged too, and its sink weighed against its LSE
      for (const auto& [factor, name] : {std::pair{std::numbers::ln2, "2^(sink - maximum)"},
                                         {std::numbers::log2e, "e^((sink - maximum) log2(e))"}}) {
        if (alone && i == 0) continue;
        add.put("sinks.unscaled",
                fmt::format("its weight is {}{}{}", name, i > 0 ? layouts[i].words : "",
                            alone ? ", where one split is all there is too" : ""),
                0.2 + 0.3 * layouts[i].cost, [&, f = factor](Rules& r) {
                  if (i > 0) layouts[i].apply(r);
                  r.sink_exponent = f;
                  r.one_part_too = alone;
                });
      }
}

std::vector<int32_t> usual_tiles(const Clues& clues) {
  std::vector<int32_t> tiles = {8, 16, 32, 64, 128};
  tiles.insert(tiles.end(), clues.tile_sizes.begin(), clues.tile_sizes.end());
  std::sort(tiles.begin(), tiles.end());
  tiles.erase(std::unique(tiles.begin(), tiles.end()), tiles.end());
  return tiles;
}

// A sink that joins the row sum with every tile that a row, or its block of rows, looks at.
void sinks_of_tiles(Sums& add) {
  const Problem& p = add.clues().problem();
  if (!p.sinks || !add.clues().wants("sinks.per_split")) return;
  std::vector<RowBlock> blocks = {{1, false}};
  if (p.max_q_len() > 1)
    for (const RowBlock& block : row_blocks(p)) blocks.push_back(block);
  for (const int32_t tile : usual_tiles(add.clues()))
    for (const RowBlock& block : blocks)
      for (int32_t more : {0, 1}) {
        if (tile >= p.max_kv_len()) continue;
        const auto times = [=](const Scene& s) {
          const KeyRange seen = block.keys(s.problem, s.cell);
          const int64_t end = std::min<int64_t>(seen.end, s.kv_len), first = seen.begin / tile;
          return static_cast<double>(std::max<int64_t>(0, (end + tile - 1) / tile - first) + more);
        };
        add.put("sinks.per_split",
                fmt::format("counted with every tile of {} keys that {} see{}", tile, block.words(),
                            more ? ", and once at the end" : ""),
                0.3 + 0.05 * (block.size > 1), [&](Rules& r) {
                  r.sink = [times](const Scene& s, double sink) { return sink + std::log(times(s)); };
                });
      }
}

// Loops over a tile that end, or begin, some lanes from where they should, the partly filled tile included:
// what they leave out of a sum, or of the buffers, which hold zeros there.
void short_loops(Sums& add) {
  struct What {
    std::string_view cause;
    const char* words;
    void (*change)(Term&);
  };
  const What whats[] = {
      {"keys.one_dropped", "left out", [](Term& t) { t.weight = 0; }},
      {"softmax.l_missing_key", "missing from the row sum", [](Term& t) { t.in_sum = 0; }},
      {"keys.lanes_v_dropped", "not in the output, though in the row sum", [](Term& t) { t.in_output = 0; }},
      {"keys.lanes_stale", "zeros in place of K", [](Term& t) { t.k_factor = 0; }},
      {"keys.lanes_stale", "zeros in place of K and V", [](Term& t) { t.zero = true; }}};
  for (int32_t tile : usual_tiles(add.clues()))
    for (int32_t count : {1, 2, 4, 8})
      for (bool last : {true, false})
        for (const What& what : whats) {
          if (count >= tile) continue;
          add.put(what.cause,
                  fmt::format("the {} {} of every run of {} keys, partly filled or not, {}",
                              last ? "last" : "first", count, tile, what.words),
                  0.4 + 0.05 * (count > 1), [=, change = what.change](Rules& r) {
                    r.edit_terms = [=](Scene& s, std::vector<Term>& terms) {
                      for (Term& t : terms) {
                        const int32_t lane = t.position % tile;
                        const int32_t held = std::min(tile, s.kv_len - (t.position - lane));
                        if (last ? lane >= held - count : lane < count) change(t);
                      }
                    };
                  });
        }
}

// Some lanes of the tiles at one place of their part.
void placed_lanes(Sums& add) {
  struct Lanes {
    const char* words;
    bool (*hold)(int32_t lane, int32_t tile);
  };
  const Lanes lanes[] = {{"first key", [](int32_t l, int32_t) { return l == 0; }},
                         {"last key", [](int32_t l, int32_t t) { return l == t - 1; }},
                         {"first half", [](int32_t l, int32_t t) { return l < t / 2; }},
                         {"second half", [](int32_t l, int32_t t) { return l >= t / 2; }},
                         {"odd keys", [](int32_t l, int32_t) { return l % 2 == 1; }},
                         {"keys", [](int32_t, int32_t) { return true; }}};
  struct Place {
    const char* words;
    bool (*hold)(int32_t at, int32_t of, int32_t part, int32_t parts);
  };
  const Place places[] = {
      {"every tile of a part but its first", [](int32_t at, int32_t, int32_t, int32_t) { return at > 0; }},
      {"every tile of a part but its last",
       [](int32_t at, int32_t of, int32_t, int32_t) { return at < of - 1; }},
      {"the first tile of a part", [](int32_t at, int32_t, int32_t, int32_t) { return at == 0; }},
      {"the last tile of a part", [](int32_t at, int32_t of, int32_t, int32_t) { return at == of - 1; }},
      {"the first tile of every part but the first",
       [](int32_t at, int32_t, int32_t part, int32_t) { return at == 0 && part > 0; }},
      {"the last tile of every part but the last",
       [](int32_t at, int32_t of, int32_t part, int32_t n) { return at == of - 1 && part < n - 1; }},
      {"the last tile",
       [](int32_t at, int32_t of, int32_t part, int32_t n) { return at == of - 1 && part == n - 1; }},
      {"the first tile", [](int32_t at, int32_t, int32_t part, int32_t) { return at == 0 && part == 0; }},
      {"all tiles but the first",
       [](int32_t at, int32_t, int32_t part, int32_t) { return at > 0 || part > 0; }},
      {"all tiles but the last",
       [](int32_t at, int32_t of, int32_t part, int32_t n) { return at < of - 1 || part < n - 1; }},
      {"odd tiles of a part", [](int32_t at, int32_t, int32_t, int32_t) { return at % 2 == 1; }},
  };
  for (const Layout& layout : add.tilings()) {
    Rules cut;
    layout.apply(cut);
    const int32_t tile = layout.tile_keys;
    for (const Place& place : places)
      for (const Lanes& some : lanes)
        for (const TermMistake& what : kTermMistakes) {
          if (!add.clues().wants(what.cause)) continue;
          add.put(what.cause, fmt::format("{} of {} {}{}", some.words, place.words, what.words, layout.words),
                  0.5 + layout.cost / 2, [&](Rules& r) {
                    layout.apply(r);
                    r.edit_terms = [=, in = some.hold, at = place.hold, field = what.field,
                                    value = what.value](Scene& s, std::vector<Term>& terms) {
                      const PartsOf parts(cut, s);
                      const int32_t last = std::min((s.kv_len - 1) / tile, parts.end_tile() - 1);
                      int32_t known = -1, first = 0, end = 0, part = 0;
                      for (Term& t : terms) {
                        if (t.position < 0 || t.position >= s.kv_len || !in(t.position % tile, tile))
                          continue;
                        if (const int32_t of = t.position / tile; of != known) {
                          known = of, part = parts.of(t.position);
                          for (first = of;
                               first > parts.first_tile() && parts.of((first - 1) * tile) == part;)
                            --first;
                          for (end = of; end < last && parts.of((end + 1) * tile) == part;) ++end;
                        }
                        if (at(known - first, end - first + 1, part, parts.of(last * tile) + 1))
                          t.*field = value;
                      }
                    };
                  });
        }
  }
}

}  // namespace

void solved_sum_family(const Clues& clues, Hypotheses& out) {
  if (too_large(clues, kLargestCell)) return;
  Sums add(clues, out);
  if (clues.one_layout) {
    bases(add);
    coarse_sums(add);
    maxima(add);
    return placed_lanes(add);
  }
  bases(add);
  coarse_sums(add);
  maxima(add);
  if (clues.wants("softmax.row_sum_offset") || clues.wants("lse.other_value")) constants(add, Fit(clues));
  sinks(add);
  sinks_of_tiles(add);
  short_loops(add);
  placed_lanes(add);
}

}  // namespace assay
