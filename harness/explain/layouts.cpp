// SPDX-License-Identifier: Apache-2.0
// See layouts.hpp.
#include "harness/explain/layouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/explain/cut.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/explain/order_calls.hpp"

namespace assay {
namespace {

constexpr double kAssumed = 0.3;       // price of an order that nobody declared
constexpr double kObserved = 0.02;     // ... and of one that calls showed
constexpr double kContradicted = 0.8;  // more for parts of a kernel that takes its keys in one go
constexpr size_t kLengths = 12;        // of requests by which two orders are told apart
constexpr int32_t kRows = 16;          // of a request, by which ways to cut what blocks of rows see are
constexpr size_t kMost = 20;           // orders of parts that are tried
constexpr size_t kMostFurther = 160;   // unusual ones
constexpr double kUnusual = 0.15;      // more that they cost
constexpr int32_t kMostParts = 8;      // of fewer parts than declared, each number is tried up to here

// Only orders that differ on some request of the case are kept.
class Different {
 public:
  explicit Different(const Problem& p) : problem_(p) {
    std::set<std::pair<int32_t, int32_t>> lengths;
    for (size_t r = 0; r < p.requests.size(); ++r) {
      const Request& of = p.requests[r];
      if (of.q_len == 0 || lengths.size() >= kLengths || !lengths.insert({of.q_len, of.kv_len}).second)
        continue;
      const int32_t step = std::max(1, of.q_len / kRows);
      for (int32_t row = 0; row < of.q_len; row += step) {
        cells_.push_back({static_cast<int32_t>(r), row, 0});
        if (p.group() > 1) cells_.push_back({static_cast<int32_t>(r), row, p.group() - 1});
      }
    }
  }
  bool add(std::vector<Layout>& list, Layout layout) {
    Rules rules;
    layout.apply(rules);
    std::vector<int32_t> key = {layout.tile_keys};
    for (const Cell& c : cells_) {
      const int32_t keys = problem_.requests[c.request].kv_len;
      const RowBlock block{std::max(1, layout.cut.block_rows), layout.cut.packed};
      const PartsOf parts(rules, layout.cut.block_rows > 0 ? block.keys(problem_, c) : KeyRange{0, keys});
      key.insert(key.end(), {parts.count(), parts.first_tile(), parts.end_tile()});
      const int32_t step = layout.split_keys > 0 ? layout.split_keys : std::max(1, layout.tile_keys);
      for (int32_t at = 0; at < keys; at += step) key.insert(key.end(), {parts.of(at), parts.state(at)});
    }
    if (!seen_.insert(std::move(key)).second) return false;
    list.push_back(std::move(layout));
    return true;
  }

 private:
  const Problem& problem_;
  std::vector<Cell> cells_;
  std::set<std::vector<int32_t>> seen_;
};

std::string words_of(const Layout& l, bool tile_assumed) {
  std::string text = fmt::format(", were it cut into {}{} splits", l.cut.least > 0 ? "up to " : "", l.splits);
  if (l.cut.interleaved) text += " in turn";
  if (l.cut.least > 1)
    text += fmt::format(" of {} {} {}", l.cut.least_met ? "no fewer than" : "at least", l.cut.least,
                        l.tile_keys == 1 ? "keys" : "tiles");
  if (l.cut.rest_first) text += ", the first ones longer";
  if (l.cut.all_or_one) text += " or not at all";
  if (l.cut.whole) text += ", the last ones shorter";
  if (tile_assumed && l.tile_keys > 1) text += fmt::format(", tiles of {} keys", l.tile_keys);
  if (l.cut.block_rows > 0) text += " of what " + RowBlock{l.cut.block_rows, l.cut.packed}.words() + " see";
  return text;
}

// Nothing where the order is declared or not known. The words hold no numbers: another line may be cut
// otherwise.
std::vector<Layout> observed_layouts(const Evidence& e) {
  const OrderSeen& o = order_of(e);
  if (!o.known || o.layout.tile_keys <= 1 || order_repeated(e.declared)) return {};
  Layout joined = o.layout;
  joined.words = ", in the order observed";
  joined.cost = kObserved;
  if (e.declares && e.declared.p_roundings <= 1)
    joined.weights = std::make_shared<const assay_arithmetic>(e.declared);
  std::vector<Layout> list = {joined};
  if (joined.cut.states > 1) {
    joined.cut.states_merge = true;
    joined.words = ", in the order observed, every running state a part";
    list.push_back(joined);
  }
  return list;
}

}  // namespace

bool order_repeated(const assay_arithmetic& a) {
  return a.order_declared && !a.split_interleaved && !a.splits_vary && a.item_rows == 0 && a.p_roundings <= 1;
}

std::optional<Layout> observed_layout_of(const Evidence& e) {
  const std::vector<Layout> list = observed_layouts(e);
  return list.empty() ? std::nullopt : std::optional(list.front());
}

bool works_in_parts(const Evidence& e) {
  if (e.declared.splits > 1 || e.declared.split_keys > 0) return true;
  const std::optional<Layout> order = observed_layout_of(e);
  return order && order->parts();
}

std::vector<int32_t> tile_sizes_of(const Evidence& e) {
  if (e.declared.tile_keys > 0) return {e.declared.tile_keys};
  std::vector<int32_t> sizes = {16, 32, 64, 128};
  if (const std::vector<Layout> observed = observed_layouts(e); !observed.empty()) {
    std::erase(sizes, observed[0].tile_keys);
    sizes.insert(sizes.begin(), observed[0].tile_keys);
  }
  return sizes;
}

void Layout::apply(Rules& rules) const {
  rules.arithmetic.tile_keys = tile_keys;
  rules.arithmetic.splits = splits;
  rules.arithmetic.split_keys = split_keys;
  rules.cut = cut;
  if (!weights) return;
  rules.arithmetic.p_format = weights->p_format;
  rules.arithmetic.p_truncated = weights->p_truncated;
  rules.arithmetic.p_offset_log2 = weights->p_offset_log2;
  rules.arithmetic.rescale_lag_log2 = weights->rescale_lag_log2;
  rules.arithmetic.row_sum_from_rounded_p = weights->row_sum_from_rounded_p;
}

bool works_in_one_go(const Evidence& e) {
  if (e.declared.splits > 1 || e.declared.split_keys > 0) return false;
  if (order_repeated(e.declared)) return true;
  const OrderSeen& o = order_of(e);
  return o.known && o.layout.tile_keys > 1 && !o.layout.parts() && o.layout.cut.states <= 1;
}

std::vector<Layout> layouts_of(const Evidence& e) {
  const assay_arithmetic& a = e.declared;
  const double assumed = kAssumed + (works_in_one_go(e) ? kContradicted : 0);
  const int32_t longest = e.problem.max_kv_len();
  std::vector<Layout> list;
  Different different(e.problem);
  const auto in_order = [&](int32_t tile, int32_t splits, Cut cut, std::string words, double cost) {
    different.add(list, {tile, splits, 0, cut, std::move(words), cost});
  };
  const bool repeated = order_repeated(a);
  // Keys that are left out look like a part of their own, so that parts without states are no news.
  for (Layout l : observed_layouts(e)) {
    l.cost = kAssumed;
    if (l.parts() && l.cut.states > 1) different.add(list, std::move(l));
  }
  if (repeated && a.split_keys > 0) {
    different.add(list, {a.tile_keys, a.splits, a.split_keys, {}, "", 0});
  } else if (repeated && a.splits > 1) {
    in_order(a.tile_keys, a.splits, {}, "", 0);
  } else if (a.splits > 1 || a.split_keys > 0) {
    // A number of parts that is promised without an order: most kernels deal the tiles out evenly.
    const auto tried = [&](int32_t tile, int32_t splits, Cut cut) {
      Layout l{tile, splits, 0, cut, "", kAssumed};
      l.words = words_of(l, a.tile_keys == 0);
      different.add(list, std::move(l));
    };
    std::vector<int32_t> tiles = {a.tile_keys};
    if (a.tile_keys == 0) tiles = {32, 64, 16, 1};
    if (a.tile_keys == 0 && std::find(tiles.begin(), tiles.end(), e.problem.page_size) == tiles.end())
      tiles.insert(tiles.begin() + 1, std::max(1, e.problem.page_size));
    const int32_t splits = std::max(2, a.splits);
    if (a.split_interleaved) tried(tiles[0], splits, {.interleaved = true});
    if (a.split_keys == 0) tried(tiles[0], splits, {.all_or_one = true});
    for (int32_t least : {0, 2, 1, 4})
      for (bool whole : {false, true})
        for (int32_t tile : tiles)
          if (a.split_keys == 0) tried(tile, splits, {.least = least, .whole = whole});
    // What is declared may count several running states of every part.
    for (int32_t fewer : {splits / 2, splits / 4})
      for (bool whole : {false, true})
        if (fewer > 1 && a.split_keys == 0) tried(tiles[0], fewer, {.least = 2, .whole = whole});
    for (int32_t fewer = std::min(splits - 1, kMostParts); fewer > 1 && a.split_keys == 0; --fewer)
      for (bool whole : {false, true}) tried(tiles[0], fewer, {.whole = whole});
    if (list.size() > kMost) list.resize(kMost);
  } else {
    for (int32_t splits : {2, 4, 8})
      in_order(a.tile_keys > 0 && repeated ? a.tile_keys : 1, splits, {},
               fmt::format(", were it cut into {} splits (it declares none)", splits), assumed);
  }
  if (repeated && a.split_keys > 0) return list;
  std::vector<int32_t> sizes = {64, 128, 256, 512, 1024};
  if (!repeated && a.split_keys > 0) sizes.insert(sizes.begin(), a.split_keys);
  for (int32_t keys : sizes) {
    if (keys >= longest && !list.empty()) continue;
    // Tiles must not cross the parts; where none are declared the weights are exact and one tile does.
    const int32_t tile = a.tile_keys > 0 && keys % a.tile_keys == 0 ? a.tile_keys : keys;
    different.add(list, {tile,
                         (longest + keys - 1) / keys,
                         keys,
                         {},
                         fmt::format(", were it cut into splits of {} keys", keys),
                         assumed});
  }
  return list;
}

std::vector<Layout> further_layouts_of(const Evidence& e) {
  const assay_arithmetic& a = e.declared;
  const Problem& p = e.problem;
  const double contradicted = works_in_one_go(e) ? kContradicted : 0;
  std::vector<Layout> list;
  if (order_repeated(a) || a.split_keys > 0) return list;
  Different different(p);
  std::vector<Layout> known = layouts_of(e), unused;
  for (const Layout& l : tilings_of(e, known)) known.push_back(l);
  for (const Layout& l : known) different.add(unused, l);
  std::vector<int32_t> tiles = tile_sizes_of(e);
  if (a.tile_keys == 0 && p.page_size > 1 &&
      std::find(tiles.begin(), tiles.end(), p.page_size) == tiles.end())
    tiles.push_back(p.page_size);
  std::vector<RowBlock> blocks = {{0, false}, {1, false}};
  for (const RowBlock& block : row_blocks(p))
    if (block.packed) blocks.push_back(block);
  for (const RowBlock& block : row_blocks(p))
    if (!block.packed) blocks.push_back(block);
  const auto tried = [&](int32_t tile, int32_t splits, const Cut& cut) {
    Layout l{tile, splits, 0, cut, "", kAssumed + kUnusual + (splits > 1 ? contradicted : 0)};
    l.words = splits > 1 ? words_of(l, a.tile_keys == 0)
                         : fmt::format(", tiles of {} keys of what {} see", tile,
                                       RowBlock{cut.block_rows, cut.packed}.words());
    if (list.size() < kMostFurther) different.add(list, std::move(l));
  };
  // Where nobody says so, parts of several tiles: of so many keys, or so many parts.
  for (int32_t tile : tiles) {
    if (a.splits > 1) break;
    for (int32_t of : {4, 2, 8, 3, 16})
      if (const int32_t keys = tile * of; keys < p.max_kv_len() && list.size() < kMostFurther)
        different.add(list,
                      {tile,
                       (p.max_kv_len() + keys - 1) / keys,
                       keys,
                       {},
                       fmt::format(", were it cut into splits of {} keys, tiles of {} keys", keys, tile),
                       kAssumed + kUnusual + contradicted});
    for (int32_t splits : {2, 4, 3, 8})
      for (bool whole : {false, true}) tried(tile, splits, {.whole = whole});
  }
  // Or keys dealt evenly to as many parts as the length asks for.
  for (int32_t splits : {4, 8})
    for (int32_t least : {64, 128, 96, 256})
      for (bool whole : {true, false})
        if (a.splits <= 1 && least < p.max_kv_len()) tried(1, splits, {.least = least, .whole = whole});
  for (const RowBlock& block : blocks)
    for (int32_t tile : tiles)
      if (block.size > 0) tried(tile, 1, {.block_rows = block.size, .packed = block.packed});
  if (a.splits <= 1) return list;
  struct Dealt {
    bool whole, rest_first, interleaved;
  };
  struct Least {
    int32_t tiles;
    bool met;
  };
  for (const Dealt dealt :
       {Dealt{false, false, false}, {true, false, false}, {false, true, false}, {false, false, true}})
    for (const Least least :
         {Least{0, false}, {2, true}, {1, false}, {2, false}, {4, true}, {3, true}, {4, false}, {3, false}})
      for (const RowBlock& block : blocks)
        for (int32_t tile : tiles)
          tried(tile, a.splits,
                {.least = least.tiles,
                 .least_met = least.met,
                 .whole = dealt.whole,
                 .rest_first = dealt.rest_first,
                 .interleaved = dealt.interleaved,
                 .block_rows = block.size,
                 .packed = block.packed});
  return list;
}

std::vector<Layout> tilings_of(const Evidence& e, const std::vector<Layout>& layouts) {
  std::vector<Layout> list;
  const assay_arithmetic& a = e.declared;
  if (order_repeated(a) && a.tile_keys > 0) return {{a.tile_keys, a.splits, a.split_keys, {}, "", 0}};
  const std::vector<Layout> observed = observed_layouts(e);
  if (!observed.empty()) list.push_back(observed[0]);
  for (int32_t tile : tile_sizes_of(e))
    list.push_back({tile, 1, 0, {}, fmt::format(", tiles of {} keys", tile), 0.1});
  if (a.splits <= 1 && a.split_keys == 0) return list;
  for (const Layout& l : layouts)
    if (l.tile_keys > 1 && !l.weights) list.push_back(l);
  return list;
}

}  // namespace assay
