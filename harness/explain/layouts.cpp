// SPDX-License-Identifier: Apache-2.0
// See layouts.hpp.
#include "harness/explain/layouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/explain/cut.hpp"

namespace assay {
namespace {

constexpr double kAssumed = 0.3;   // price of an order that nobody declared
constexpr size_t kLengths = 12;    // of requests by which two orders are told apart
constexpr size_t kMost = 16;       // orders of parts that are tried
constexpr int32_t kMostParts = 8;  // of fewer parts than declared, each number is tried up to here

// Only orders that differ on some request of the case are kept.
class Different {
 public:
  explicit Different(const Problem& p) {
    std::set<int32_t> lengths;
    for (const Request& r : p.requests)
      if (lengths.size() < kLengths) lengths.insert(r.kv_len);
    lengths_.assign(lengths.begin(), lengths.end());
  }
  void add(std::vector<Layout>& list, Layout layout) {
    Rules rules;
    layout.apply(rules);
    std::vector<int32_t> key = {layout.tile_keys};
    for (int32_t keys : lengths_) {
      const PartsOf parts(rules, keys);
      key.push_back(parts.count());
      const int32_t step = layout.split_keys > 0 ? layout.split_keys : std::max(1, layout.tile_keys);
      for (int32_t at = 0; at < keys; at += step) key.push_back(parts.of(at));
    }
    if (seen_.insert(std::move(key)).second) list.push_back(std::move(layout));
  }

 private:
  std::vector<int32_t> lengths_;
  std::set<std::vector<int32_t>> seen_;
};

std::string words_of(const Layout& l, bool tile_assumed) {
  std::string text = fmt::format(", were it cut into {}{} splits", l.cut.least > 0 ? "up to " : "", l.splits);
  if (l.cut.interleaved) text += " in turn";
  if (l.cut.least > 1) text += fmt::format(" of at least {} tiles", l.cut.least);
  if (l.cut.all_or_one) text += " or not at all";
  if (l.cut.whole) text += ", the last ones shorter";
  if (tile_assumed && l.tile_keys > 1) text += fmt::format(", tiles of {} keys", l.tile_keys);
  return text;
}

}  // namespace

bool order_repeated(const assay_arithmetic& a) {
  return a.order_declared && !a.split_interleaved && !a.splits_vary && a.item_rows == 0 && a.p_roundings <= 1;
}

std::vector<int32_t> tile_sizes_of(const Evidence& e) {
  if (e.declared.tile_keys > 0) return {e.declared.tile_keys};
  return {16, 32, 64, 128};
}

void Layout::apply(Rules& rules) const {
  rules.arithmetic.tile_keys = tile_keys;
  rules.arithmetic.splits = splits;
  rules.arithmetic.split_keys = split_keys;
  rules.cut = cut;
}

std::vector<Layout> layouts_of(const Evidence& e) {
  const assay_arithmetic& a = e.declared;
  const int32_t longest = e.problem.max_kv_len();
  std::vector<Layout> list;
  Different different(e.problem);
  const auto in_order = [&](int32_t tile, int32_t splits, Cut cut, std::string words, double cost) {
    different.add(list, {tile, splits, 0, cut, std::move(words), cost});
  };
  const bool repeated = order_repeated(a);
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
    if (a.split_interleaved) tried(tiles[0], splits, {0, false, true});
    if (a.split_keys == 0) tried(tiles[0], splits, {0, false, false, true});
    for (int32_t least : {0, 2, 1, 4})
      for (bool whole : {false, true})
        for (int32_t tile : tiles)
          if (a.split_keys == 0) tried(tile, splits, {least, whole, false});
    for (int32_t fewer = std::min(splits - 1, kMostParts); fewer > 1 && a.split_keys == 0; --fewer)
      for (bool whole : {false, true}) tried(tiles[0], fewer, {0, whole, false});
    if (list.size() > kMost) list.resize(kMost);
  } else {
    for (int32_t splits : {2, 4, 8})
      in_order(a.tile_keys > 0 && repeated ? a.tile_keys : 1, splits, {},
               fmt::format(", were it cut into {} splits (it declares none)", splits), kAssumed);
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
                         kAssumed});
  }
  return list;
}

std::vector<Layout> tilings_of(const Evidence& e, const std::vector<Layout>& layouts) {
  std::vector<Layout> list;
  const assay_arithmetic& a = e.declared;
  if (order_repeated(a) && a.tile_keys > 0) return {{a.tile_keys, a.splits, a.split_keys, {}, "", 0}};
  std::vector<int32_t> tiles = tile_sizes_of(e);
  for (int32_t tile : tiles) list.push_back({tile, 1, 0, {}, fmt::format(", tiles of {} keys", tile), 0.1});
  if (a.splits <= 1 && a.split_keys == 0) return list;
  for (const Layout& l : layouts)
    if (l.tile_keys > 1) list.push_back(l);
  return list;
}

}  // namespace assay
