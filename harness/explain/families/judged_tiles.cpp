// SPDX-License-Identifier: Apache-2.0
// See judged_tiles.hpp. A tile has a first and a last key, a block a first and a last row, and each row an
// edge: right is one comparison of the eight, so the others are tried, and those that are off by one.
#include "harness/explain/families/judged_tiles.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "harness/explain/families/mask_rule.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr int32_t kMostRows = 64;  // of a block
constexpr double kFull = 0.3, kSkipped = 0.35;

// Keys of a tile, and the edges of the first and the last row of a block: the newest or the oldest keys that
// they see.
struct JudgedTile {
  int32_t first, last, of_first, of_last;
  int32_t held;  // the last key, as far as the request has keys
  bool holds(int32_t key) const { return first <= key && key <= last; }
};
struct Judgement {
  const char* words;
  bool (*of)(const JudgedTile&);
};

// Taken as full, below the newest keys.
constexpr Judgement kFullBelow[] = {
    {"whose first key the first row sees", [](const JudgedTile& t) { return t.first <= t.of_first; }},
    {"whose last key the last row sees", [](const JudgedTile& t) { return t.last <= t.of_last; }},
    {"whose last key that there is the last row sees",
     [](const JudgedTile& t) { return t.held <= t.of_last; }},
    {"whose first key the last row sees", [](const JudgedTile& t) { return t.first <= t.of_last; }},
    {"that end one key behind the first row's newest one or before",
     [](const JudgedTile& t) { return t.last <= t.of_first + 1; }},
    {"other than that of the first row's newest key",
     [](const JudgedTile& t) { return !t.holds(t.of_first); }},
    {"other than that of the last row's newest key", [](const JudgedTile& t) { return !t.holds(t.of_last); }},
    {"of the first row's newest key", [](const JudgedTile& t) { return t.holds(t.of_first); }},
};
// Left out, where the last row sees some of it.
constexpr Judgement kSkippedBelow[] = {
    {"whose last key the first row does not see", [](const JudgedTile& t) { return t.last > t.of_first; }},
    {"whose last key the last row does not see", [](const JudgedTile& t) { return t.last > t.of_last; }},
    {"whose last key that there is the first row does not see",
     [](const JudgedTile& t) { return t.held > t.of_first; }},
    {"whose first key the first row does not see", [](const JudgedTile& t) { return t.first > t.of_first; }},
    {"that begin with the last row's newest key", [](const JudgedTile& t) { return t.first >= t.of_last; }},
    {"that begin with the first row's newest key", [](const JudgedTile& t) { return t.first >= t.of_first; }},
};
// Taken as full, behind the oldest keys.
constexpr Judgement kFullBehind[] = {
    {"of the first row's oldest key", [](const JudgedTile& t) { return t.holds(t.of_first); }},
    {"of the last row's oldest key", [](const JudgedTile& t) { return t.holds(t.of_last); }},
    {"whose last key the last row sees", [](const JudgedTile& t) { return t.last >= t.of_last; }},
    {"whose first key the first row sees", [](const JudgedTile& t) { return t.first >= t.of_first; }},
    {"that begin one key before the last row's oldest one or behind",
     [](const JudgedTile& t) { return t.first >= t.of_last - 1; }},
    {"other than that of the first row's oldest key",
     [](const JudgedTile& t) { return !t.holds(t.of_first); }},
    {"other than that of the last row's oldest key", [](const JudgedTile& t) { return !t.holds(t.of_last); }},
};
constexpr Judgement kSkippedBehind[] = {
    {"whose first key the first row does not see", [](const JudgedTile& t) { return t.first < t.of_first; }},
    {"whose first key the last row does not see", [](const JudgedTile& t) { return t.first < t.of_last; }},
    {"whose last key the last row does not see", [](const JudgedTile& t) { return t.last < t.of_last; }},
    {"that end with the first row's oldest key", [](const JudgedTile& t) { return t.last <= t.of_first; }},
    {"that end with the last row's oldest key", [](const JudgedTile& t) { return t.last <= t.of_last; }},
};

// The first key of the chunk of a position.
int32_t chunk_begins(const Problem& p, int32_t request, int32_t position) {
  const auto first = p.first_key.empty() ? 0 : static_cast<int32_t>(p.first_key[request] % p.chunk);
  return (position + first) / p.chunk * p.chunk - first;
}

class TileJudge {
 public:
  TileJudge(const Clues& clues, Hypotheses& out, RowBlock block, int32_t tile)
      : clues_(clues), out_(out), block_(block), tile_(tile) {}

  // `newest`: the tiles below the edge, else those behind the oldest keys. `open`: the mask without it.
  void full(std::string_view cause, const char* what, bool newest, const MaskRule& open,
            std::span<const Judgement> judgements) {
    for (const Judgement& j : judgements)
      add(cause,
          fmt::format("{} not looked at in tiles of {} keys {} of {}", what, tile_, j.words, block_.words()),
          kFull, [=, *this, of = j.of](const Scene& s, int32_t key) {
            const JudgedTile t = judged(s, key, newest);
            const bool visited = newest ? t.first <= t.of_last : t.last >= t.of_first;
            return visited && of(t) ? open.sees(s, key) : visible(s.problem, s.cell.request, s.cell.row, key);
          });
  }
  void skipped(std::string_view cause, bool newest, std::span<const Judgement> judgements) {
    for (const Judgement& j : judgements)
      add(cause, fmt::format("tiles of {} keys left out {} of {}", tile_, j.words, block_.words()), kSkipped,
          [=, *this, of = j.of](const Scene& s, int32_t key) {
            return !of(judged(s, key, newest)) && visible(s.problem, s.cell.request, s.cell.row, key);
          });
  }

 private:
  JudgedTile judged(const Scene& s, int32_t key, bool newest) const {
    const Problem& p = s.problem;
    const auto [from, to] = block_.rows(p, s.cell);
    const auto edge = [&](int32_t row) {
      const int32_t at = s.position + row - s.cell.row;
      if (newest) return std::min(s.kv_len - 1, p.window_right >= 0 ? at + p.window_right : at);
      return std::max(0, p.chunk > 0 ? chunk_begins(p, s.cell.request, at) : at - p.window_left);
    };
    const int32_t first = key / tile_ * tile_;
    return {first, first + tile_ - 1, edge(from), edge(to), std::min(first + tile_, s.kv_len) - 1};
  }
  void add(std::string_view cause, std::string text, double cost,
           std::function<bool(const Scene&, int32_t)> sees) {
    Hypothesis h = propose(clues_, cause, std::move(text), cost);
    h.rules.sees = std::move(sees);
    out_.push_back(std::move(h));
  }
  const Clues& clues_;
  Hypotheses& out_;
  RowBlock block_;
  int32_t tile_;
};

}  // namespace

void judged_tiles(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (!p.positions.empty()) return;
  const bool newest = p.mask == ASSAY_MASK_CAUSAL || (p.window_right >= 0 && p.mask != ASSAY_MASK_TREE);
  const bool oldest = p.window_left >= 0 || p.chunk > 0;
  if (!newest && !oldest) return;
  std::vector<int32_t> tiles = {16, 32, 64, 128};
  tiles.insert(tiles.end(), clues.tile_sizes.begin(), clues.tile_sizes.end());
  if (op_of(p).has_cache && p.page_size > 1) tiles.push_back(p.page_size);
  std::sort(tiles.begin(), tiles.end());
  tiles.erase(std::unique(tiles.begin(), tiles.end()), tiles.end());
  std::vector<RowBlock> blocks = row_blocks(p);
  std::erase_if(blocks, [](const RowBlock& b) { return b.size > kMostRows; });
  blocks.insert(blocks.begin(), RowBlock{1, false});
  MaskRule no_newest = given_mask(p), no_oldest = no_newest;
  no_newest.right = -1, no_newest.base = ASSAY_MASK_FULL;
  no_oldest.left = -1, no_oldest.chunk = 0;
  for (const RowBlock& block : blocks)
    for (const int32_t tile : tiles) {
      if (tile <= 1 || tile >= p.max_kv_len()) continue;
      TileJudge judge(clues, out, block, tile);
      if (newest && p.chunk == 0) {
        const bool causal = p.mask == ASSAY_MASK_CAUSAL;
        judge.full(causal ? "mask.causal_long" : "mask.window_long", "newest key", true, no_newest,
                   kFullBelow);
        judge.skipped(causal ? "mask.causal_short" : "mask.window_short", true, kSkippedBelow);
      }
      if (!oldest) continue;
      judge.full(p.chunk > 0 ? "mask.chunk_wide" : "mask.window_long", "oldest key", false, no_oldest,
                 kFullBehind);
      if (p.chunk == 0) judge.skipped("mask.window_short", false, kSkippedBehind);
    }
}

}  // namespace assay
