// SPDX-License-Identifier: Apache-2.0
// See stage_buffers.hpp. Pieces of work follow each other: the blocks of rows of a head, the heads, the
// requests. Each visits the tiles that its rows see, and a visit uses the stage of its number.
#include "harness/explain/families/stage_buffers.hpp"

#include <algorithm>
#include <optional>

#include "harness/explain/families/row_block.hpp"

namespace assay {
namespace {

constexpr double kCost = 0.6;
constexpr int kPiecesBack = 24;    // that may not have used a stage
constexpr int32_t kMostRows = 64;  // of a block
constexpr size_t kMostBlocks = 6;
constexpr int32_t kLeastRows = 4;  // ... that is more than one row

struct Order {
  RowBlock block;
  int32_t tile, stages;
  bool reverse;
  bool operator==(const Order&) const = default;
};

// The tiles that the block of a cell visits.
struct Visits {
  int32_t first = 0, count = 0;
  bool reverse = false;
  int32_t tile_of(int32_t visit) const { return reverse ? first + count - 1 - visit : first + visit; }
  int32_t visit_of(int32_t tile) const { return reverse ? first + count - 1 - tile : tile - first; }
};
Visits visits_of(const Order& order, const Problem& p, const Cell& c) {
  const KeyRange keys = order.block.keys(p, c);
  if (keys.begin >= keys.end) return {0, 0, order.reverse};
  const auto first = static_cast<int32_t>(keys.begin / order.tile);
  return {first, static_cast<int32_t>((keys.end + order.tile - 1) / order.tile) - first, order.reverse};
}

// A cell of the piece of work before.
bool piece_before(const Order& order, const Problem& p, Cell& c) {
  const int32_t first = order.block.rows(p, c).first;
  if (first > 0) return c.row = first - 1, true;
  c.head -= order.block.packed ? p.group() : 1;
  if (c.head < 0) {
    do
      if (--c.request < 0) return false;
    while (p.requests[c.request].q_len == 0);
    c.head = p.heads_q - 1;
  }
  c.row = p.requests[c.request].q_len - 1;
  return true;
}

// What lies in the stage of a visit until its tile has come: a key, or zeros, as where nobody has written.
struct Held {
  int32_t request = 0, head = 0, position = -1;
};
std::optional<Held> held(const Order& order, const Problem& p, const Cell& cell, int32_t visit,
                         int32_t lane) {
  const auto key = [&](const Cell& c, const Visits& of, int32_t at) -> Held {
    const int32_t position = of.tile_of(at) * order.tile + lane;
    const KeyRange seen = order.block.keys(p, c);
    return {c.request, c.head, position >= seen.begin && position < seen.end ? position : -1};
  };
  if (visit >= order.stages) return key(cell, visits_of(order, p, cell), visit - order.stages);
  Cell c = cell;
  for (int back = 0; back < kPiecesBack && piece_before(order, p, c); ++back) {
    const Visits of = visits_of(order, p, c);
    const int32_t stage = visit % order.stages;
    if (of.count <= stage) continue;
    return key(c, of, (of.count - 1 - stage) / order.stages * order.stages + stage);
  }
  return std::nullopt;
}

struct Missed {
  const char* words;
  bool (*visit)(int32_t visit, const Visits&, int32_t stages);
  bool (*lane)(int32_t lane, int32_t tile);
};
bool all_lanes(int32_t, int32_t) { return true; }
bool second_half(int32_t lane, int32_t tile) { return lane >= tile / 2; }
bool last_visit(int32_t visit, const Visits& of, int32_t) { return visit == of.count - 1; }
constexpr Missed kMissed[] = {
    {"the last tile visited", last_visit, all_lanes},
    {"the second half of the last tile visited", last_visit, second_half},
    {"the last tile visited, where its stage has been used",
     [](int32_t visit, const Visits& of, int32_t stages) { return visit == of.count - 1 && visit >= stages; },
     all_lanes},
    {"every tile", [](int32_t, const Visits&, int32_t) { return true; }, all_lanes},
    {"every tile whose stage has been used",
     [](int32_t visit, const Visits&, int32_t stages) { return visit >= stages; }, all_lanes},
    {"the first tile visited", [](int32_t visit, const Visits&, int32_t) { return visit == 0; }, all_lanes},
};

}  // namespace

void stage_buffer_family(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (!clues.wants("keys.lanes_stale")) return;
  std::vector<RowBlock> blocks = {{1, false}};
  if (p.group() > 1 && p.max_q_len() == 1) blocks.push_back({p.group(), true});
  for (const RowBlock& b : row_blocks(p))
    if (b.size >= kLeastRows && b.size <= kMostRows && blocks.size() < kMostBlocks) blocks.push_back(b);
  const char* sides[] = {"K and V", "K", "V"};
  for (const int32_t tile : clues.tile_sizes)
    for (const RowBlock& block : blocks)
      for (const bool reverse : {false, true})
        for (const int32_t stages : {1, 2})
          for (const Missed& missed : kMissed)
            for (int side = 0; side < 3; ++side) {
              if (tile <= 1 || tile >= p.max_kv_len()) continue;
              const Order order{block, tile, stages, reverse};
              Hypothesis h = propose(
                  clues, "keys.lanes_stale",
                  fmt::format(
                      "{} of {} not loaded: what the stage of {} held for {} before{}, tiles of {} keys",
                      sides[side], missed.words, stages, block.words(),
                      reverse ? ", from the last tile to the first" : "", tile),
                  kCost);
              h.rules.edit_terms = [=, visit_of = missed.visit, lane_of = missed.lane](
                                       Scene& s, std::vector<Term>& terms) {
                const Visits of = visits_of(order, s.problem, s.cell);
                for (Term& t : terms) {
                  const int32_t lane = t.position % tile, visit = of.visit_of(t.position / tile);
                  if (visit < 0 || visit >= of.count || !lane_of(lane, tile) || !visit_of(visit, of, stages))
                    continue;
                  const auto was = held(order, s.problem, s.cell, visit, lane);
                  if (!was || was->position < 0) {
                    if (side != 2) t.k_factor = 0;
                    if (side != 1) t.v_factor = 0;
                    continue;
                  }
                  const int32_t kv_head = was->head / s.problem.group();
                  const bool own = was->request == s.keys.request() && kv_head == s.kv_head;
                  const int32_t row =
                      own ? was->position : s.keys.token(was->request, kv_head, was->position);
                  if (side != 2) t.k_row = row;
                  if (side != 1) t.v_row = row;
                }
              };
              out.push_back(std::move(h));
            }
}

}  // namespace assay
