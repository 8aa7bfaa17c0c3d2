// SPDX-License-Identifier: Apache-2.0
// Hypotheses about which keys a row sees: windows, causality, chunks, trees. Each is the mask rule of
// reference/README.md with one number or one condition changed.
#include <algorithm>
#include <bit>

#include "harness/explain/families/head_maps.hpp"
#include "harness/explain/families/judged_tiles.hpp"
#include "harness/explain/families/mask_rule.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

class Proposer {
 public:
  Proposer(const Clues& clues, Hypotheses& out)
      : rule(given_mask(clues.problem())), clues_(clues), out_(out) {}
  void operator()(std::string_view cause, std::string text, const MaskRule& changed, double cost = 0) {
    Hypothesis h = propose(clues_, cause, std::move(text), cost);
    h.rules.sees = [changed](const Scene& s, int32_t j) { return changed.sees(s, j); };
    out_.push_back(std::move(h));
  }
  void raw(Hypothesis h) { out_.push_back(std::move(h)); }
  // Of what was proposed last: what else it is called.
  void also_called(std::string_view cause) { out_.back().also_called.push_back(cause); }
  MaskRule rule;

 private:
  const Clues& clues_;
  Hypotheses& out_;
};

std::vector<int32_t> grains(const Clues& clues) {
  std::vector<int32_t> list = clues.tile_sizes;
  const Problem& p = clues.problem();
  if (op_of(p).has_cache && p.page_size > 1) list.push_back(p.page_size);
  for (int32_t g : {16, 32, 64, 128}) list.push_back(g);
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

void windows(const Clues& clues, Proposer& add) {
  const Problem& p = clues.problem();
  const MaskRule right = add.rule;
  if (p.window_left >= 0) {
    MaskRule m = right;
    m.left = -1;
    add("mask.window_ignored", "left window not applied", m);
    if (p.window_right >= 0) {
      m.right = -1;
      add("mask.window_ignored", "neither side of the window applied", m);
    }
    std::vector<int32_t> steps = {1, 2, 3, 4, 8, 16};
    if (op_of(p).has_cache) steps.push_back(p.page_size);
    for (int32_t step : steps) {
      const double cost = step == 1 ? 0 : 0.5;
      m = right;
      if (p.window_left - step >= 0) {
        m.left = p.window_left - step;
        add("mask.window_short", fmt::format("{} keys to the left instead of {}", m.left, p.window_left), m,
            cost);
      }
      m.left = p.window_left + step;
      add("mask.window_long", fmt::format("{} keys to the left instead of {}", m.left, p.window_left), m,
          cost);
    }
    for (const auto& [left, how] : {std::pair{p.window_left / 2, "half"}, {2 * p.window_left, "twice"}})
      if (left != p.window_left) {
        m = right;
        m.left = left;
        add(left < p.window_left ? "mask.window_short" : "mask.window_long",
            fmt::format("{} the keys to the left", how), m, 0.3);
      }
    for (int32_t grain : grains(clues)) {
      m = right;
      m.left_grain = grain;
      add("mask.window_coarse", fmt::format("left edge rounded down to a multiple of {}", grain), m, 0.2);
      m.left_up = true;
      add("mask.window_coarse", fmt::format("left edge rounded up to a multiple of {}", grain), m, 0.2);
    }
  }
  // What the rows of a block see together, whole tiles of it: the row's own edge is not looked at again.
  if (p.window_left >= 0 || p.chunk > 0)
    for (const RowBlock& block : row_blocks(p))
      for (int32_t grain : grains(clues)) {
        if (grain >= p.max_kv_len()) continue;
        Hypothesis h = propose(
            clues, p.window_left >= 0 ? "mask.window_coarse" : "mask.chunk_wide",
            fmt::format("left edge that of {}, rounded down to a multiple of {}", block.words(), grain), 0.3);
        MaskRule open = right;
        open.left = -1, open.chunk = 0;
        h.rules.sees = [=](const Scene& s, int32_t j) {
          const KeyRange range = block.keys(s.problem, s.cell);
          return range.begin < range.end && j >= range.begin / grain * grain &&
                 (s.problem.chunk == 0 || j <= s.position) && open.sees(s, j);
        };
        add.raw(std::move(h));
      }
  if (p.window_left >= 0) {
    // A distance that is kept in few bits comes round again.
    for (int32_t bits = 4; 1 << bits <= p.max_kv_len(); ++bits) {
      MaskRule whole = right;
      whole.left = -1;
      Hypothesis h = propose(clues, "mask.window_long", fmt::format("distance kept in {} bits", bits), 0.3);
      h.rules.sees = [whole, bits](const Scene& s, int32_t j) {
        const int32_t distance = s.position - place_of_key(s, j);
        return whole.sees(s, j) && (distance & ((1 << bits) - 1)) <= s.problem.window_left;
      };
      add.raw(std::move(h));
    }
    // Keys of the context pass untested and new tokens are tested, or the other way round.
    MaskRule open = right;
    open.left = -1;
    for (bool of_context : {true, false}) {
      Hypothesis h = propose(
          clues, "mask.window_ignored",
          fmt::format("left window not applied to the {}", of_context ? "context" : "new tokens"), 0.1);
      h.rules.sees = [open, right, of_context](const Scene& s, int32_t j) {
        const int32_t context = s.problem.requests[s.cell.request].context_len();
        return (j < context) == of_context ? open.sees(s, j) : right.sees(s, j);
      };
      add.raw(std::move(h));
    }
  }
  if (p.window_right >= 0) {
    MaskRule m = right;
    m.right = -1;
    add("mask.window_right_ignored", "right window not applied", m);
    if (p.window_left >= 0 && p.window_left != p.window_right) {
      const bool longer = p.window_left > p.window_right;
      m.right = p.window_left;
      add(longer ? "mask.window_long" : "mask.window_short", "as many keys to the right as to the left", m,
          0.05);
      m = right;
      m.left = p.window_right;
      add(longer ? "mask.window_short" : "mask.window_long", "as many keys to the left as to the right", m,
          0.05);
      m = right;
    }
    for (int32_t step : {1, 2, 4}) {
      m.right = p.window_right + step;
      add("mask.window_long", fmt::format("{} keys to the right instead of {}", m.right, p.window_right), m,
          0.3);
      if (p.window_right < step) continue;
      m.right = p.window_right - step;
      add("mask.window_short", fmt::format("{} keys to the right instead of {}", m.right, p.window_right), m,
          0.3);
    }
    for (int32_t grain : grains(clues)) {
      m = right;
      m.right_grain = grain;
      add("mask.window_coarse", fmt::format("right edge rounded up to a multiple of {}", grain), m, 0.2);
    }
  }
  if (p.window_left >= 0 || p.window_right >= 0) {
    MaskRule m = right;
    m.window_top_left = true;
    add("mask.window_anchor", "window stands at the row's number in the request, context left out", m, 0.15);
    m = right;
    m.window_from_last_row = true;
    add("mask.window_anchor", "window of the last row serves all rows", m, 0.15);
    m = right;
    m.window_from_first_row = true;
    add("mask.window_anchor", "window of the first row serves all rows", m, 0.15);
  }
}

void bases(const Clues& clues, Proposer& add) {
  const Problem& p = clues.problem();
  const MaskRule right = add.rule;
  MaskRule m = right;
  if (p.mask == ASSAY_MASK_CAUSAL) {
    for (int32_t shift : {1, 2, 3, 4, 8}) {
      const double cost = shift == 1 ? 0 : 0.5;
      m = right;
      m.context_shift = -shift;
      add("mask.causal_short", fmt::format("{} newest {} not seen", shift, shift > 1 ? "keys" : "key"), m,
          cost);
      if (shift == 1) add.also_called("keys.one_dropped");
      m.context_shift = shift;
      add("mask.causal_long",
          fmt::format("{} {} after the row's position seen", shift, shift > 1 ? "keys" : "key"), m, cost);
    }
    for (int32_t grain : grains(clues)) {
      m = right;
      m.right_grain = grain;
      add("mask.causal_long", fmt::format("diagonal rounded up to a multiple of {}", grain), m, 0.4);
    }
    m = right;
    m.base = ASSAY_MASK_FULL;
    add("mask.causal_ignored", "every key of the request seen", m);
    m = right;
    m.top_left = true;
    add("mask.causal_top_left", "row i stands at position i, also for the window and the chunk", m);
    // Only the causal limit: the window still knows the position.
    Hypothesis h = propose(clues, "mask.causal_top_left", "row i sees keys up to i", 0.1);
    const MaskRule given = right;
    h.rules.sees = [given](const Scene& s, int32_t j) { return j <= s.cell.row && given.sees(s, j); };
    add.raw(std::move(h));
  } else {
    m.base = ASSAY_MASK_CAUSAL;
    add(p.mask == ASSAY_MASK_TREE ? "mask.tree_ignored" : "mask.full_as_causal", "causal mask applied", m);
    m.top_left = true;
    if (p.mask != ASSAY_MASK_TREE)
      add("mask.full_as_causal", "causal mask applied from the top left", m, 0.1);
  }
}

}  // namespace

void mask_family(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  Proposer add(clues, out);
  windows(clues, add);
  bases(clues, add);
  judged_tiles(clues, out);
  const MaskRule right = add.rule;
  MaskRule m = right;
  if (!p.first_key.empty())
    for (int sign : {1, -1}) {
      const auto at = [sign](const Scene& s) {
        return s.position + sign * static_cast<int32_t>(s.problem.first_key[s.cell.request]);
      };
      const std::string how = sign > 0 ? "keys counted from 0, rows from the first key on"
                                       : "rows counted from 0, keys from the first key on";
      m = right;
      if (p.chunk > 0 && p.window_left < 0) {  // what chunks allow is what is wrong
        m.chunk_at = at;
        add("mask.chunk_shifted", how + ", for the chunk alone", m, 0.05);
        m.chunk_open = true;
        add("mask.chunk_shifted", how + ", for the chunk's beginning alone", m, 0.06);
        m.chunk_open = false;
        m.causal_at = at;
        add("mask.chunk_shifted", how, m, 0.07);
        continue;
      }
      m.window_at = m.causal_at = m.chunk_at = at;
      add(p.window_left >= 0 ? "mask.window_anchor" : "mask.causal_anchor", how, m, 0.05);
    }
  m = right;
  if (p.group() > 1) {
    m.causal_at = [](const Scene& s) { return s.position + s.cell.row * (s.problem.group() - 1); };
    add("mask.causal_anchor", "rows taken to stand as far apart as the group has heads", m, 0.15);
    m = right;
  }
  if (p.chunk > 0) {
    m.chunk = 0;
    add("mask.chunk_ignored", "chunks not applied", m);
    for (int32_t shift : {1, -1, 2, -2, 4, -4, 8, 16, p.chunk / 2}) {
      m = right;
      m.chunk_shift = shift;
      add("mask.chunk_shifted", fmt::format("chunks begin {} keys off", shift), m,
          shift * shift == 1 ? 0 : 0.3);
    }
    // Bits that stand for a division where the size is a power of two.
    if ((p.chunk & (p.chunk - 1)) != 0) {
      const MaskRule open = [right] {
        MaskRule rule = right;
        rule.chunk = 0;
        return rule;
      }();
      const auto by_bits = [&](std::string text, std::function<int64_t(int64_t, int32_t chunk)> of) {
        Hypothesis h = propose(clues, "mask.chunk_size", std::move(text), 0.15);
        h.rules.sees = [open, of](const Scene& s, int32_t j) {
          const Problem& q = s.problem;
          const int64_t first = q.first_key.empty() ? 0 : q.first_key[s.cell.request];
          return open.sees(s, j) && j <= s.position &&
                 of(j + first, q.chunk) == of(s.position + first, q.chunk);
        };
        add.raw(std::move(h));
      };
      by_bits("chunk of the bits that its size less one lacks",
              [](int64_t at, int32_t chunk) { return at & ~static_cast<int64_t>(chunk - 1); });
      by_bits("chunk of the bits that its size has, and those above",
              [](int64_t at, int32_t chunk) { return at & -static_cast<int64_t>(chunk); });
      by_bits("chunks of the power of two below their size", [](int64_t at, int32_t chunk) {
        return at / static_cast<int64_t>(std::bit_floor(static_cast<uint32_t>(chunk)));
      });
      by_bits("chunks of the power of two above their size", [](int64_t at, int32_t chunk) {
        return at / static_cast<int64_t>(std::bit_ceil(static_cast<uint32_t>(chunk)));
      });
    }
    m = right;
    m.chunk_from_first_row = true;
    add("mask.chunk_shifted", "chunk of the first row serves all rows", m);
    if (!p.first_key.empty()) {
      m = right;
      m.chunk_from_first_key = true;
      add("mask.chunk_shifted", "chunks begin at the request's first key", m);
      const std::pair<const char*, int32_t (*)(int32_t, int32_t)> others[] = {
          {"request 0", [](int32_t, int32_t) { return 0; }},
          {"the request before", [](int32_t r, int32_t) { return std::max(0, r - 1); }},
          {"the next request", [](int32_t r, int32_t n) { return std::min(n - 1, r + 1); }},
          {"the last request", [](int32_t, int32_t n) { return n - 1; }}};
      for (const auto& [name, of] : others) {
        m = right;
        m.chunk_origin = [of = of](const Scene& s) {
          const auto& first = s.problem.first_key;
          const int32_t other = of(s.cell.request, static_cast<int32_t>(first.size()));
          return static_cast<int32_t>(first[s.cell.request] % s.problem.chunk -
                                      first[other] % s.problem.chunk);
        };
        add("mask.chunk_shifted", fmt::format("chunks counted from the first key of {}", name), m, 0.1);
      }
    }
  }
  if (p.mask == ASSAY_MASK_TREE) {
    using Tree = MaskRule::Tree;
    m = right;
    if (!p.positions.empty() && (p.window_left >= 0 || p.window_right >= 0 || p.chunk > 0)) {
      m.keys_by_number = true;
      add("mask.window_anchor", "drafts taken to stand where their numbers say, not at their positions", m,
          0.1);
      m = right;
    }
    m.tree = Tree::kTransposed;
    add("mask.tree_transposed", "entry (column, row) instead of (row, column)", m);
    m.tree = Tree::kFull;
    add("mask.tree_ignored", "every draft token seen", m);
    m.tree = Tree::kCausal;
    add("mask.tree_ignored", "draft tokens seen causally", m);
    m.tree = Tree::kHidden;
    add("mask.tree_ignored", "no draft token seen", m, 0.1);
    for (int32_t shift : {1, -1, 2, -2}) {
      m = right;
      m.tree_shift = shift;
      add("mask.tree_shifted", fmt::format("column {} further on", shift), m, 0.1);
      m.tree_edge = true;
      add("mask.tree_shifted", fmt::format("column {} further on, no further than the edge", shift), m, 0.12);
      m.tree_edge = false, m.tree_open = true;
      if (shift < 0)
        add("mask.tree_shifted", fmt::format("column {} further on, the first ones always seen", shift), m,
            0.12);
      m = right;
      m.tree_row_shift = shift;
      add("mask.tree_shifted", fmt::format("row {} further on", shift), m, 0.1);
      m.tree_edge = true;
      add("mask.tree_shifted", fmt::format("row {} further on, no further than the edge", shift), m, 0.12);
    }
    for (int32_t group : {8, 16, 32, 64}) {
      m = right;
      m.tree_group = group;
      add("mask.tree_shifted", fmt::format("columns in reverse within groups of {}", group), m, 0.2);
    }
    m = right;
    m.tree_stride = p.max_q_len();
    add("mask.tree_shifted", "rows of the matrix taken as long as the longest request's", m, 0.1);
    m.tree_clamped = true;
    add("mask.tree_shifted",
        "rows of the matrix taken as long as the longest request's, up to the last entry of all", m, 0.1);
    m.tree_clamped = false;
    m.tree_kept = true;
    add("mask.tree_shifted",
        "rows of the matrix taken as long as the longest request's, up to its own last entry", m, 0.1);
    m.tree_kept = false;
    m.tree_on = true;
    add("mask.tree_shifted", "rows of the matrix taken as long as the longest request's, round the tensor", m,
        0.1);
    m = right;
    m.tree_of_first = true;
    add("mask.tree_shifted", "matrix of the first request read by all", m, 0.1);
    // Its first entry stands in 64 bits, and the table is read in words of 32: every other one is a low half.
    m = right;
    m.tree_begin = [](const Problem& problem, int32_t r) {
      const int64_t entry = problem.tree_indptr()[r / 2];
      return r % 2 == 0 ? entry & 0xffffffff : entry >> 32;
    };
    add("mask.tree_shifted", "table of first entries read in words of 32 bits", m, 0.15);
    for (const IndexMap& map : request_maps(p)) {
      m.tree_begin = [of = map.of](const Problem& problem, int32_t r) {
        return problem.tree_indptr()[of(r)];
      };
      add("mask.tree_shifted", "matrix of " + map.name, m, 0.15 + map.cost);
    }
    m.tree_begin = nullptr;
    const auto begins = [&](const char* words, std::function<int64_t(const Problem&, int32_t)> of) {
      m = right;
      m.tree_begin = std::move(of);
      add("mask.tree_shifted", fmt::format("the request's matrix taken to begin at {}", words), m, 0.1);
    };
    const auto rows_before = [](const Problem& problem, int32_t request) {
      int64_t rows = 0;
      for (int32_t r = 0; r < request; ++r) rows += problem.requests[r].q_len;
      return rows;
    };
    begins("its first row times its rows", [rows_before](const Problem& problem, int32_t r) {
      return rows_before(problem, r) * problem.requests[r].q_len;
    });
    begins("its first row times the longest request's rows",
           [rows_before](const Problem& problem, int32_t r) {
             return rows_before(problem, r) * problem.max_q_len();
           });
    begins("its first row", rows_before);
    begins("its number times the square of its rows", [](const Problem& problem, int32_t r) {
      const int64_t n = problem.requests[r].q_len;
      return n * n * r;
    });
    begins("its number times the square of the first request's rows", [](const Problem& problem, int32_t r) {
      const int64_t n = problem.requests[0].q_len;
      return n * n * r;
    });
    begins("its number times the square of the longest request's rows",
           [](const Problem& problem, int32_t r) {
             const int64_t n = problem.max_q_len();
             return n * n * r;
           });
    m = right;
    if (p.group() > 1) {
      m = right;
      m.tree_row_packed = true;
      add("mask.tree_shifted", "row of the matrix counted with the heads of the group", m, 0.1);
    }
  }
}

}  // namespace assay
