// SPDX-License-Identifier: Apache-2.0
// Hypotheses about the tiles of a part: the first or last one left out or met twice, loops unrolled by two
// that forget the rest or repeat it, parts that overlap, tiles that begin with what the tile before left.
#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "harness/explain/cut.hpp"
#include "harness/explain/hypothesis.hpp"

namespace assay {
namespace {

// Tile `at` of `of` in part `part` of `parts`.
struct Place {
  int32_t at, of, part, parts;
  bool last() const { return at == of - 1; }
};
using Which = std::function<bool(const Place&)>;

// Places of the tiles of a request, by tile, of all lengths that were asked for. Tiles that no part holds
// have a place behind the last one.
class Places {
 public:
  explicit Places(const Layout& layout) { layout.apply(cut_); }
  const std::vector<Place>& of(const Scene& s) {
    const PartsOf cut(cut_, s);
    const bool by_keys = !cut.whole_tiles();
    const int32_t first = by_keys ? 0 : cut.first_tile();
    const int32_t end = by_keys ? (s.kv_len + tile() - 1) / tile() : cut.end_tile();
    const auto [at, fresh] = known_.try_emplace({first, end, s.kv_len});
    if (!fresh) return at->second;
    std::vector<Place>& list = at->second;
    std::vector<int32_t> held(cut.count(), 0);
    list.resize(first, Place{-1, 0, 0, cut.count()});
    for (int32_t n = first; n < end; ++n) {
      const int32_t part = std::min(cut.of(n * tile()), cut.count() - 1);
      list.push_back({held[part]++, 0, part, cut.count()});
    }
    for (Place& p : list) p.of = held[p.part];
    return list;
  }
  int32_t tile() const { return std::max(1, cut_.arithmetic.tile_keys); }

 private:
  Rules cut_;
  std::map<std::tuple<int32_t, int32_t, int32_t>, std::vector<Place>> known_;
};

// A way in tiles and parts, with the places it gives tiles: one for all hypotheses that work in it.
struct Cutting {
  const Layout& layout;
  std::shared_ptr<Places> places;
};

struct Tiles {
  std::string name;
  Which holds;
  double cost;
};

std::vector<Tiles> tiles_of_parts() {
  return {
      {"last tile of every part", [](const Place& p) { return p.last(); }, 0.3},
      {"first tile of every part", [](const Place& p) { return p.at == 0; }, 0.3},
      {"last tile of every part of several", [](const Place& p) { return p.last() && p.of > 1; }, 0.35},
      {"first tile of every part of several", [](const Place& p) { return p.at == 0 && p.of > 1; }, 0.35},
      {"second tile of every part", [](const Place& p) { return p.at == 1; }, 0.4},
      {"last tile of every part of an odd number of tiles",
       [](const Place& p) { return p.last() && p.of % 2 == 1; }, 0.3},
      {"last tile of every part of an odd number of tiles, three at least",
       [](const Place& p) { return p.last() && p.of % 2 == 1 && p.of > 1; }, 0.35},
      {"last tile of every part of an even number of tiles",
       [](const Place& p) { return p.last() && p.of % 2 == 0; }, 0.35},
      {"tiles of every part behind the last whole four", [](const Place& p) { return p.at >= p.of / 4 * 4; },
       0.4},
      {"last tile of every part but the last",
       [](const Place& p) { return p.last() && p.part + 1 < p.parts; }, 0.3},
      {"first tile of every part but the first", [](const Place& p) { return p.at == 0 && p.part > 0; }, 0.3},
      {"last tile of the last part", [](const Place& p) { return p.last() && p.part + 1 == p.parts; }, 0.4},
      {"first tile of the first part", [](const Place& p) { return p.at == 0 && p.part == 0; }, 0.4},
      {"every second tile of a part", [](const Place& p) { return p.at % 2 == 1; }, 0.4},
      {"every second tile of a part from the fourth on",
       [](const Place& p) { return p.at > 1 && p.at % 2 == 1; }, 0.45},
      {"every second tile of a part from the third on",
       [](const Place& p) { return p.at > 1 && p.at % 2 == 0; }, 0.45},
  };
}

using TileEdit = std::function<void(Term&, const Place&)>;

void add(const Clues& clues, Hypotheses& out, const Cutting& cutting, std::string_view cause,
         std::string text, double cost, const TileEdit& edit) {
  const Layout& layout = cutting.layout;
  Hypothesis h = propose(clues, cause, std::move(text) + layout.words, cost + layout.cost);
  layout.apply(h.rules);
  h.rules.edit_terms = [places = cutting.places, edit](Scene& s, std::vector<Term>& terms) {
    const std::vector<Place>& list = places->of(s);
    const int32_t tile = places->tile();
    for (Term& t : terms)
      if (const int32_t at = t.position / tile;
          t.position >= 0 && at < static_cast<int32_t>(list.size()) && list[at].at >= 0)
        edit(t, list[at]);
  };
  out.push_back(std::move(h));
}

// Behind a page read in place of another, which may predict the same.
constexpr double kStale = 0.55;

// A prologue that loads the first tiles of the request where a part begins.
void begun_at_the_front(const Clues& clues, Hypotheses& out, const Cutting& cutting) {
  const int32_t tile = cutting.layout.tile_keys;
  const char* sides[] = {"K and V", "K", "V"};
  if (!cutting.layout.parts()) return;
  for (int32_t held : {1, 2, 3, 4})
    for (int side = 0; side < 3; ++side)
      add(clues, out, cutting, "keys.lanes_stale",
          fmt::format("{} of the first {} of every part are those of the request's first", sides[side],
                      held > 1 ? fmt::format("{} tiles", held) : "tile"),
          0.4 + 0.02 * (held > 1), [tile, side, held](Term& t, const Place& p) {
            const int32_t from = p.at * tile + t.position % tile;
            if (p.part == 0 || p.at >= held) return;
            if (side != 2) t.k_row = from;
            if (side != 1) t.v_row = from;
          });
}

// What the buffer still holds of the tile before, in every tile of a part but the first.
void stale(const Clues& clues, Hypotheses& out, const Cutting& cutting) {
  const int32_t tile = cutting.layout.tile_keys;
  const char* sides[] = {"K and V", "K", "V"};
  std::vector<std::pair<std::string, std::function<bool(int32_t)>>> lanes = {
      {"", [](int32_t) { return true; }}};
  for (int32_t count : {1, 2, 4, 8, 16, 32}) {
    if (count >= tile) break;
    lanes.emplace_back(fmt::format(" of the last {} keys", count),
                       [=](int32_t lane) { return lane >= tile - count; });
    lanes.emplace_back(fmt::format(" of the first {} keys", count),
                       [=](int32_t lane) { return lane < count; });
  }
  for (int side = 0; side < 3; ++side)
    for (const auto& [keys, holds] : lanes)
      add(clues, out, cutting, "keys.lanes_stale",
          fmt::format("{}{} of the tile before, in every tile of a part but the first", sides[side], keys),
          kStale, [tile, side, holds = holds](Term& t, const Place& p) {
            if (p.at == 0 || t.position < tile || !holds(t.position % tile)) return;
            if (side != 2) t.k_row = t.position - tile;
            if (side != 1) t.v_row = t.position - tile;
          });
  // One tile of a part alone, from one or two tiles before it or from the one behind it.
  for (const Tiles& tiles : tiles_of_parts())
    for (int32_t step : {-1, -2, 1, 2})
      for (int side = 0; side < 3; ++side)
        add(clues, out, cutting, "keys.lanes_stale",
            fmt::format("{} of the {} read {:+} tiles on", sides[side], tiles.name, step),
            kStale + tiles.cost / 3, [tile, side, step, holds = tiles.holds](Term& t, const Place& p) {
              const int32_t from = t.position + step * tile;
              if (from < 0 || !holds(p) || p.at + step >= p.of) return;
              if (side != 2) t.k_row = from;
              if (side != 1) t.v_row = from;
            });
  // Half of the last tile was copied: the rest is what the stage held before, one tile ago or two.
  for (int32_t step : {-1, -2})
    for (bool second : {true, false})
      for (int side = 0; side < 3 && tile >= 4; ++side)
        add(clues, out, cutting, "keys.lanes_stale",
            fmt::format("{} of the {} half of the last tile of every part read {:+} tiles on", sides[side],
                        second ? "second" : "first", step),
            kStale + 0.1, [tile, side, step, second](Term& t, const Place& p) {
              const int32_t from = t.position + step * tile;
              if (from < 0 || !p.last() || (t.position % tile >= tile / 2) != second) return;
              if (side != 2) t.k_row = from;
              if (side != 1) t.v_row = from;
            });
}

}  // namespace

void part_family(const Clues& clues, Hypotheses& out) {
  for (const Layout& layout : clues.tilings) {
    if (layout.tile_keys <= 1) continue;
    const Cutting cutting{layout, std::make_shared<Places>(layout)};
    for (const Tiles& tiles : tiles_of_parts()) {
      const auto edit = [&](std::string_view cause, std::string how, double Term::*what, double value) {
        add(clues, out, cutting, cause, tiles.name + how, tiles.cost,
            [holds = tiles.holds, what, value](Term& t, const Place& p) {
              if (holds(p)) t.*what = value;
            });
      };
      // Of keys in one go the last tile is their tail.
      const bool tail = !layout.parts() && (tiles.name.starts_with("last tile of every part") ||
                                            tiles.name == "last tile of the last part");
      edit(tail ? "keys.tail_dropped" : "keys.tile_dropped", " left out", &Term::weight, 0);
      edit("keys.one_doubled", " counted twice", &Term::weight, 2);
      edit("softmax.l_missing_key", " missing from the row sum", &Term::in_sum, 0);
      edit("softmax.l_extra_key", " twice in the row sum", &Term::in_sum, 2);
      edit("keys.lanes_v_dropped", " not in the output, though in the row sum", &Term::in_output, 0);
      const Problem& p = clues.problem();
      if (p.head_dim_qk == p.head_dim_v)
        for (bool values : {true, false})
          add(clues, out, cutting, "keys.k_for_v",
              fmt::format("{} in {}", values ? "K in place of V" : "V in place of K", tiles.name),
              tiles.cost + 0.05 + 0.1 * !values, [holds = tiles.holds, values](Term& t, const Place& at) {
                if (holds(at)) (values ? t.k_for_v : t.v_for_k) = true;
              });
    }
    begun_at_the_front(clues, out, cutting);
    stale(clues, out, cutting);
  }
}

}  // namespace assay
