// SPDX-License-Identifier: Apache-2.0
// From keys that are weighed alike to a rule for every length (order_calls.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/explain/cut.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/explain/order_calls.hpp"

namespace assay {
namespace {

// Share of the edges that a size must give: a fault may hide some, or feign others within a tile.
constexpr double kMostEdges = 0.9, kLeastEdges = 0.4, kStep = 0.1;
constexpr double kAgree = 0.8;     // of the keys that a rule must give
constexpr double kTiles = 1.5;     // of the size that is found some row must see
constexpr double kAsGood = 0.001;  // rules that differ by less are equally good: the plainer one
constexpr int32_t kOrderStates = 8, kOrderParts = 8, kOrderTiles = 12;
constexpr int32_t kBesideEdge = 3;  // keys on either side that make an edge of a change

// Keys behind which the answer changes, apart from single keys that stand out and from those of which nobody
// asked.
std::set<int32_t> edges_of(const SpikeSeen& s) {
  std::set<int32_t> edges;
  const auto n = static_cast<int32_t>(s.alike.size());
  const auto all = [&](int32_t from, char what) {
    for (int32_t i = from; i < from + kBesideEdge; ++i)
      if (s.alike[i] != what || s.keys.begin + i == s.spike || s.keys.begin + i == s.beside) return false;
    return true;
  };
  for (int32_t i = kBesideEdge; i + kBesideEdge <= n; ++i)
    if ((all(i - kBesideEdge, 0) && all(i, 1)) || (all(i - kBesideEdge, 1) && all(i, 0)))
      edges.insert(s.keys.begin + i);
  return edges;
}

// Sizes that give the edges, from those that give nearly all of them to those that give half: a fault within
// tiles has edges of its own. Of each sort the largest; empty: there are no edges.
std::vector<int32_t> tile_sizes(const std::vector<SpikeSeen>& seen, int32_t longest) {
  std::map<int32_t, int32_t> edges;
  int32_t count = 0;
  for (const SpikeSeen& s : seen)
    for (const int32_t edge : edges_of(s)) ++edges[edge], ++count;
  std::vector<int32_t> sizes;
  double least = kMostEdges;
  for (int32_t size = longest; size >= 2 && least >= kLeastEdges && count > 0; --size) {
    int32_t given = 0;
    for (const auto& [edge, times] : edges)
      if (edge % size == 0) given += times;
    if (static_cast<double>(given) < least * count && size > 2) continue;
    if (given >= least * count) sizes.push_back(size);
    // The next sort: the largest that gives fewer of them.
    least -= kStep, size = longest + 1;
  }
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return sizes;
}

// Share of the keys that a layout gives as they were seen, tile by tile.
double agreement(const Problem& p, const std::vector<SpikeSeen>& seen, const Layout& layout) {
  Rules rules;
  layout.apply(rules);
  double sum = 0;
  int32_t count = 0;
  for (const SpikeSeen& s : seen) {
    const RowBlock block{std::max(1, layout.cut.block_rows), layout.cut.packed};
    const PartsOf parts(rules, layout.cut.block_rows > 0 ? block.keys(p, s.cell)
                                                         : KeyRange{0, p.requests[s.cell.request].kv_len});
    const int32_t tile = parts.tile(s.spike), part = parts.of(s.spike), state = parts.state(s.spike);
    const auto shares = [&](int32_t key) {
      return parts.tile(key) >= tile && parts.of(key) == part && parts.state(key) == state;
    };
    if (!shares(s.beside)) continue;
    int32_t both = 0, either = 0;
    int32_t of = -1;
    bool due = false;
    for (size_t i = 0; i < s.alike.size(); ++i) {
      const int32_t key = s.keys.begin + static_cast<int32_t>(i);
      if (parts.tile(key) != of) of = parts.tile(key), due = shares(key);
      if (key == s.spike || key == s.beside) continue;
      const bool is = s.alike[i] != 0;
      both += due && is, either += due || is;
    }
    sum += either == 0 ? 1.0 : static_cast<double>(both) / either;
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

std::string order_words(const Layout& l) {
  std::string text = fmt::format("tiles of {} keys", l.tile_keys);
  if (l.cut.states > 1) text += fmt::format(" dealt in turn to {} running states", l.cut.states);
  if (l.split_keys > 0) text += fmt::format(", parts of {} keys", l.split_keys);
  if (l.splits > 1 && l.split_keys == 0) {
    text += fmt::format(", up to {} parts", l.splits);
    if (l.cut.least > 1)
      text += fmt::format(" of {} {} tiles", l.cut.least_met ? "no fewer than" : "at least", l.cut.least);
  }
  if (l.cut.block_rows > 0) text += " of what " + RowBlock{l.cut.block_rows, l.cut.packed}.words() + " see";
  return text;
}

}  // namespace

OrderSeen order_rule(const Problem& p, const std::vector<SpikeSeen>& seen) {
  OrderSeen order;
  int32_t longest = 0, end = 0;
  for (const SpikeSeen& s : seen)
    longest = std::max(longest, s.keys.end - s.keys.begin), end = std::max(end, s.keys.end);
  const std::vector<int32_t> sizes = tile_sizes(seen, end);
  if (sizes.empty()) {
    order.words = fmt::format("no end of a tile shows: up to {} keys share one maximum", longest);
    return order;
  }
  Layout best;
  double most = 0;
  const auto tried = [&](int32_t size, int32_t splits, int32_t split_keys, const Cut& cut) {
    const Layout l{size, splits, split_keys, cut, "", 0, nullptr};
    if (const double of = agreement(p, seen, l); of > most + kAsGood) most = of, best = l;
  };
  std::vector<RowBlock> blocks = {{0, false}, {1, false}};
  for (const RowBlock& block : row_blocks(p)) blocks.push_back(block);
  const auto in_blocks = [&](int32_t size, int32_t splits, Cut cut) {
    for (const RowBlock& block : blocks) {
      cut.block_rows = block.size, cut.packed = block.packed;
      tried(size, splits, 0, cut);
    }
  };
  for (const int32_t size : sizes)
    for (int32_t states = 1; states <= kOrderStates; ++states) in_blocks(size, 1, {.states = states});
  const auto in_parts = [&](int32_t size, int32_t states) {
    for (int32_t of = 1; of <= kOrderTiles && size * of < end; ++of)
      tried(size, (end + size * of - 1) / (size * of), size * of, {.states = states});
    for (int32_t least = 0; least <= kOrderTiles; ++least)
      for (const bool met : {true, false})
        for (int32_t splits = 2; splits <= kOrderParts && (least > 0 || met); ++splits)
          for (const int dealt : {0, 1, 2})
            in_blocks(size, splits,
                      {.least = least,
                       .least_met = met && least > 0,
                       .whole = dealt == 1,
                       .rest_first = dealt == 2,
                       .states = states});
  };
  for (const int32_t size : sizes)
    for (int32_t states = 1; states <= kOrderStates && most < 1 - kAsGood; ++states)
      if (most < kAgree || size == best.tile_keys) in_parts(size, states);
  order.layout = best;
  order.known = most >= kAgree && longest > kTiles * best.tile_keys;
  order.words = order.known ? order_words(best)
                            : fmt::format("not observed: at best {}, which gives {:.0f} % of it",
                                          order_words(best), 100 * most);
  return order;
}

}  // namespace assay
