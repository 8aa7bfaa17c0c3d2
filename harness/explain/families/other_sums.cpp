// SPDX-License-Identifier: Apache-2.0
// Row sums that hold something else than the weights of the keys that O holds: another cell's sum, keys
// behind the mask, the scale that is V's. O itself is summed rightly.
#include "harness/explain/families/other_sums.hpp"

#include <cmath>

#include "harness/explain/families/fit.hpp"

namespace assay {
namespace {

// O divided by the sum of another cell, both relative to the same: their LSEs say by how much it is off.
void of_other_cells(const Clues& clues, Hypotheses& out) {
  const int32_t heads = clues.problem().heads_q, group = clues.problem().group();
  Predictor* predictor = &clues.predictor;
  const auto add = [&](const char* name, auto map) {
    Hypothesis h =
        propose(clues, "softmax.l_of_other", fmt::format("O divided by the whole sum of {}", name), 0.2);
    h.rules.finish = [predictor, map](const Scene& s, std::vector<double>& o, double& lse) {
      const Cell c = map(s.cell);
      if (c == s.cell) return;
      const double of_other = predictor->predict(predictor->right(), c).lse;
      if (!std::isfinite(of_other) || !std::isfinite(lse)) return;  // of no keys there is no sum
      for (double& x : o) x *= std::exp(lse - of_other);
    };
    out.push_back(std::move(h));
  };
  add("the head before", [](Cell c) { return c.head = std::max(0, c.head - 1), c; });
  add("the next head", [=](Cell c) { return c.head = std::min(heads - 1, c.head + 1), c; });
  add("the head beside it, in pairs",
      [=](Cell c) { return c.head = (c.head ^ 1) < heads ? c.head ^ 1 : c.head, c; });
  add("the group's first head", [=](Cell c) { return c.head = c.head / group * group, c; });
  add("head 0", [](Cell c) { return c.head = 0, c; });
  add("the row before", [](Cell c) { return c.row = std::max(0, c.row - 1), c; });
  add("the request's first row", [](Cell c) { return c.row = 0, c; });
}

// Weights of keys behind the mask, which bring no value: of all keys, or of the tiles that hold a visible
// one.
void of_masked_keys(const Clues& clues, Hypotheses& out) {
  std::vector<int32_t> tiles = {0};
  for (const int32_t tile : clues.tile_sizes) tiles.push_back(tile);
  for (const int32_t tile : tiles) {
    Hypothesis h =
        propose(clues, "softmax.l_extra_key",
                tile == 0 ? "weights of all keys of the request in the row sum, masked ones too"
                          : fmt::format("weights of masked keys of visited tiles of {} in the row sum", tile),
                0.2 + 0.02 * (tile > 0));
    h.rules.edit_terms = [tile](Scene& s, std::vector<Term>& terms) {
      if (terms.empty()) return;
      int32_t begin = 0, end = s.kv_len;
      if (tile > 0) {
        begin = terms.front().position / tile * tile;
        end = std::min(end, (terms.back().position / tile + 1) * tile);
      }
      std::vector<char> seen(static_cast<size_t>(s.kv_len), 0);
      for (const Term& t : terms)
        if (t.position >= 0 && t.position < s.kv_len) seen[static_cast<size_t>(t.position)] = 1;
      for (int32_t j = begin; j < end; ++j) {
        if (seen[static_cast<size_t>(j)]) continue;
        Term more{j, j, j};
        more.in_output = 0;
        terms.push_back(more);
      }
    };
    out.push_back(std::move(h));
  }
}

// Where every token has its own scale of V, which joins P: the sum of the scaled weights.
void of_scaled_weights(const Clues& clues, Hypotheses& out) {
  if (clues.problem().v_scale != ASSAY_SCALE_TOKEN_HEAD) return;
  Predictor* predictor = &clues.predictor;
  Hypothesis h = propose(clues, "scale.v_in_sum", "weights times V's scale in the row sum and the LSE", 0.15);
  h.rules.edit_terms = [predictor](Scene& s, std::vector<Term>& terms) {
    for (Term& t : terms)
      if (t.position >= 0 && t.position < s.kv_len)
        t.in_sum *= predictor->reader().v_scale_size(s.cell.request, t.position, s.kv_head);
  };
  out.push_back(std::move(h));
}

}  // namespace

void other_sums(const Clues& clues, Hypotheses& out) {
  if (!too_large(clues, kLargestCell)) of_other_cells(clues, out);
  of_masked_keys(clues, out);
  of_scaled_weights(clues, out);
}

}  // namespace assay
