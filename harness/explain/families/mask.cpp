// SPDX-License-Identifier: Apache-2.0
// Hypotheses about which keys a row sees: windows, causality, chunks, trees. Each is the mask rule of
// reference/README.md with one number or one condition changed.
#include <algorithm>

#include "harness/explain/hypothesis.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

// The mask rule with every part that may go wrong as a parameter.
struct MaskRule {
  int32_t base, left, right, chunk;
  int32_t context_shift = 0;     // causal limit: position + shift
  bool top_left = false;         // position = row
  bool window_top_left = false;  // the same for window and chunk only
  int32_t chunk_shift = 0;
  bool window_from_last_row = false;  // the window stands where the request's last row stands
  bool window_from_first_row = false;
  bool chunk_from_first_row = false;
  int32_t left_grain = 1;   // first visible key rounded down to a multiple
  int32_t right_grain = 1;  // end rounded up
  bool left_up = false;     // rounded up instead
  enum class Tree { kGiven, kTransposed, kCausal, kFull, kHidden } tree = Tree::kGiven;
  int32_t tree_shift = 0, tree_row_shift = 0;
  int32_t tree_group = 0;   // columns in reverse within groups of so many, a power of two
  int32_t tree_stride = 0;  // 0: q_len
  bool tree_of_first = false;
  bool tree_row_packed = false;  // row of the packed (row, head of the group)

  bool sees(const Scene& s, int32_t j) const {
    const Problem& p = s.problem;
    const Request& r = p.requests[s.cell.request];
    const int32_t context = r.context_len();
    const int32_t position = top_left ? s.cell.row : s.position;
    int32_t limit = s.kv_len - 1;
    switch (static_cast<assay_mask>(base)) {
      case ASSAY_MASK_CAUSAL:
        limit = position + context_shift;
        break;
      case ASSAY_MASK_FULL:
      case ASSAY_MASK_CROSS:
        break;
      case ASSAY_MASK_TREE:
        if (j >= context && !draft(p, s, j - context)) return false;
        break;
    }
    int32_t anchor = window_top_left ? s.cell.row : position;
    if (window_from_last_row) anchor = context + r.q_len - 1;
    if (window_from_first_row) anchor = context;
    if (right >= 0) limit = std::min(limit, anchor + right);
    int32_t end = limit + 1;
    if (right_grain > 1) end = (end + right_grain - 1) / right_grain * right_grain;
    int32_t begin = left >= 0 ? std::max(0, anchor - left) : 0;
    if (left_grain > 1) begin = (left_up ? begin + left_grain - 1 : begin) / left_grain * left_grain;
    if (j < begin || j >= end) return false;
    if (chunk > 0) {
      const int32_t from = chunk_from_first_row ? std::max(0, context) : position;
      if (j > position) return false;
      if ((j + chunk_shift + 1024 * chunk) / chunk != (from + chunk_shift + 1024 * chunk) / chunk)
        return false;
    }
    return true;
  }

  bool draft(const Problem& p, const Scene& s, int32_t column) const {
    const int32_t n = p.requests[s.cell.request].q_len;
    int32_t row = s.cell.row;
    switch (tree) {
      case Tree::kCausal:
        return column <= row;
      case Tree::kFull:
        return true;
      case Tree::kHidden:
        return false;
      case Tree::kTransposed:
        std::swap(row, column);
        break;
      case Tree::kGiven:
        break;
    }
    if (tree_row_packed) row = (row * p.group() + s.cell.head % p.group()) % n;
    if (tree_group > 0) column = std::min(column ^ (tree_group - 1), n - 1);
    column = (column + tree_shift + n) % n;
    row = (row + tree_row_shift + n) % n;
    const std::vector<int64_t> first = p.tree_indptr();
    const int64_t size = static_cast<int64_t>(n) * n;
    const int64_t at = static_cast<int64_t>(row) * (tree_stride > 0 ? tree_stride : n) + column;
    if (tree_of_first) {
      const int64_t end = int64_t{p.requests[0].q_len} * p.requests[0].q_len;
      return end == 0 || p.tree_mask[at % end] != 0;
    }
    return p.tree_mask[first[s.cell.request] + at % size] != 0;
  }
};

class Proposer {
 public:
  Proposer(const Clues& clues, Hypotheses& out) : clues_(clues), out_(out) {
    const Problem& p = clues.problem();
    rule.base = p.mask;
    rule.left = p.window_left;
    rule.right = p.window_right;
    rule.chunk = p.chunk;
  }
  void operator()(std::string_view cause, std::string text, const MaskRule& changed, double cost = 0) {
    Hypothesis h = propose(clues_, cause, std::move(text), cost);
    h.rules.sees = [changed](const Scene& s, int32_t j) { return changed.sees(s, j); };
    out_.push_back(std::move(h));
  }
  void raw(Hypothesis h) { out_.push_back(std::move(h)); }
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
  if (p.window_left >= 0) {
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
  const MaskRule right = add.rule;
  MaskRule m = right;
  if (p.chunk > 0) {
    m.chunk = 0;
    add("mask.chunk_ignored", "chunks not applied", m);
    for (int32_t shift : {1, -1, 2, -2, 4, -4, 8, 16, p.chunk / 2}) {
      m = right;
      m.chunk_shift = shift;
      add("mask.chunk_shifted", fmt::format("chunks begin {} keys off", shift), m,
          shift * shift == 1 ? 0 : 0.3);
    }
    m = right;
    m.chunk_from_first_row = true;
    add("mask.chunk_shifted", "chunk of the first row serves all rows", m);
  }
  if (p.mask == ASSAY_MASK_TREE) {
    using Tree = MaskRule::Tree;
    m = right;
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
      m = right;
      m.tree_row_shift = shift;
      add("mask.tree_shifted", fmt::format("row {} further on", shift), m, 0.1);
    }
    for (int32_t group : {8, 16, 32, 64}) {
      m = right;
      m.tree_group = group;
      add("mask.tree_shifted", fmt::format("columns in reverse within groups of {}", group), m, 0.2);
    }
    m = right;
    m.tree_stride = p.max_q_len();
    add("mask.tree_shifted", "rows of the matrix taken as long as the longest request's", m, 0.1);
    m = right;
    m.tree_of_first = true;
    add("mask.tree_shifted", "matrix of the first request read by all", m, 0.1);
    if (p.group() > 1) {
      m = right;
      m.tree_row_packed = true;
      add("mask.tree_shifted", "row of the matrix counted with the heads of the group", m, 0.1);
    }
  }
}

}  // namespace assay
