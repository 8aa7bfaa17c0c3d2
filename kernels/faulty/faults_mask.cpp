// SPDX-License-Identifier: Apache-2.0
// Faults of the mask: windows, causality, chunks and draft trees.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

// The window, and nothing else, decides where the visible keys begin.
bool window_cuts(const assay_problem& p, const RowView& v) {
  return p.window_left >= 0 && v.begin == v.position - p.window_left && v.begin >= 0;
}
int64_t chunk_begin(const assay_problem& p, const RowView& v) {
  return p.chunk > 0 && v.position >= 0 ? v.position / p.chunk * p.chunk : 0;
}

int window_short(const assay_problem* p) {
  return any_row(*p, [&](const RowView& v) { return window_cuts(*p, v) && !v.empty(); });
}
int window_long(const assay_problem* p) {
  return any_row(*p, [&](const RowView& v) {
    return window_cuts(*p, v) && v.begin > chunk_begin(*p, v) && v.begin <= v.end;
  });
}
int window_hides(const assay_problem* p) {
  return any_row(*p, [&](const RowView& v) {
    return p->window_left >= 0 && v.position - p->window_left > chunk_begin(*p, v) && v.end > 0;
  });
}
int window_hides_context(const assay_problem* p) {
  return any_row(*p, [&](const RowView& v) {
    return p->window_left >= 0 && v.position - p->window_left > chunk_begin(*p, v) &&
           v.context() > chunk_begin(*p, v);
  });
}
int window_inside_tile(const assay_problem* p) {
  return any_row(*p, [&](const RowView& v) {
    return window_cuts(*p, v) && v.begin % kTile != 0 && v.begin > chunk_begin(*p, v) && v.begin <= v.end;
  });
}
int window_inside_page(const assay_problem* p) {
  const int32_t page = paged(*p) ? p->page_size : 16;
  return any_row(*p, [&](const RowView& v) {
    return window_cuts(*p, v) && v.begin % page != 0 && v.begin > chunk_begin(*p, v) && v.begin <= v.end;
  });
}
int window_of_earlier_rows(const assay_problem* p) {
  return any_row(*p, [&](const RowView& v) {
    return p->window_left >= 0 && !v.empty() && int64_t{v.kv_len} - 1 - p->window_left > v.begin;
  });
}
int window_right_hides(const assay_problem* p) {
  return any_row(*p, [&](const RowView& v) {
    const int64_t open = causal(*p) ? std::min<int64_t>(v.kv_len, v.position + 1) : v.kv_len;
    return p->window_right >= 0 && v.end < open;
  });
}

int sees_newest(const assay_problem* p) {
  return p->mask == ASSAY_MASK_CAUSAL &&
         any_row(*p, [](const RowView& v) { return v.end == v.position + 1 && !v.empty(); });
}
// Causality alone hides the key after the row's own.
bool causality_hides_next(const assay_problem& p, const RowView& v) {
  return p.mask == ASSAY_MASK_CAUSAL && p.chunk == 0 && p.window_right != 0 && v.position + 1 < v.kv_len;
}
int next_is_hidden(const assay_problem* p) {
  return any_row(*p, [&](const RowView& v) { return v.position + 1 >= 0 && causality_hides_next(*p, v); });
}
int later_are_hidden(const assay_problem* p) {
  return any_row(*p, [&](const RowView& v) { return causality_hides_next(*p, v); });
}
int position_is_not_row(const assay_problem* p) {
  return p->mask == ASSAY_MASK_CAUSAL &&
         any_row(*p, [](const RowView& v) { return v.context() != 0 && v.kv_len > 0; });
}
int rows_before_keys(const assay_problem* p) {
  return p->mask == ASSAY_MASK_CAUSAL && p->chunk == 0 && p->window_right < 0 &&
         any_row(*p, [](const RowView& v) { return v.position < 0 && v.kv_len > 0; });
}
int full_and_later_keys(const assay_problem* p) {
  return (p->mask == ASSAY_MASK_FULL || p->mask == ASSAY_MASK_CROSS) && p->chunk == 0 &&
         any_row(*p, [](const RowView& v) { return v.end > v.position + 1 && !v.empty(); });
}
// Packed rows (row * group + head of the group) in tiles of 16: a tile that ends inside a group.
int tile_cuts_group(const assay_problem* p) {
  const int64_t g = group(*p);
  return p->mask == ASSAY_MASK_CAUSAL && 16 % g != 0 && any_row(*p, [&](const RowView& v) {
           for (int64_t h = 0; h < g; ++h) {
             const int64_t tile = (v.row * g + h) / 16;
             if (v.context() + 16 * (tile + 1) / g < v.end && !v.empty()) return true;
           }
           return false;
         });
}

int chunk_hides(const assay_problem* p) {
  return p->chunk > 0 && any_row(*p, [&](const RowView& v) { return v.position >= p->chunk; });
}
int chunk_visible(const assay_problem* p) { return p->chunk > 0 && any_visible(*p); }
int chunk_changes_in_request(const assay_problem* p) {
  return p->chunk > 0 && any_row(*p, [&](const RowView& v) {
           return v.position >= 0 && (v.context() < 0 || v.position / p->chunk != v.context() / p->chunk);
         });
}

bool has_tree(const assay_problem& p) { return p.mask == ASSAY_MASK_TREE; }
int tree(const assay_problem* p) {
  return has_tree(*p) && any_request(*p, [](int32_t, int32_t q, int32_t) { return q > 0; });
}
int tree_of_two(const assay_problem* p) {
  return has_tree(*p) && any_request(*p, [](int32_t, int32_t q, int32_t) { return q > 1; });
}
int trees_differ_in_size(const assay_problem* p) {
  return has_tree(*p) && any_request(*p, [&](int32_t, int32_t q, int32_t) { return q != p->max_q_len; });
}
int tree_after_first(const assay_problem* p) {
  return has_tree(*p) && any_request(*p, [](int32_t r, int32_t, int32_t) { return r > 0; });
}
int tree_and_group(const assay_problem* p) { return group(*p) > 1 && tree_of_two(p); }

constexpr Planter kMask{"mask", kWhole};

const Row kRows[] = {
    kMask("window_short", "the oldest key of the window is left out", "SG-01 proto:WIN_SHORT",
          "mask.window_short", {.window_left_delta = -1}, window_short),
    kMask("window_long", "one key before the window is seen", "FI-31 proto:WIN_EXTRA", "mask.window_long",
          {.window_left_delta = 1}, window_long),
    kMask("window_ignored", "the left side of the window is not applied", "VL-38", "mask.window_ignored",
          {.window_left_ignored = true}, window_hides),
    kMask("window_ignored_in_context", "keys of the prefix are not tested against the window", "VL-37",
          "mask.window_ignored", {.window_context_ignored = true}, window_hides_context),
    kMask("window_skips_tiles_only", "the window skips whole tiles; inside the first one all keys are seen",
          "SG-15", "mask.window_coarse", {.window_tile_granular = true}, window_inside_tile),
    kMask("window_to_page", "the window begins at the page that holds its first key", "SG-15",
          "mask.window_coarse", {.window_page_granular = true}, window_inside_page),
    kMask("window_of_last_row", "all rows of a request have the window of its last one", "AI-19 SG-16",
          "mask.window_anchor", {.window_of_last_row = true}, window_of_earlier_rows),
    kMask("window_right_ignored", "the right side of the window is not applied", "VL-38",
          "mask.window_right_ignored", {.window_right_ignored = true}, window_right_hides),
    kMask("causal_short", "a row does not see its own key", "AI-14", "mask.causal_short",
          {.causal_delta = -1}, sees_newest),
    kMask("causal_long", "a row sees the key after its own", "AI-29", "mask.causal_long", {.causal_delta = 1},
          next_is_hidden),
    kMask("causal_top_left", "the diagonal begins in the top left corner", "FA-26 VL-38",
          "mask.causal_top_left", {.causal_top_left = true}, position_is_not_row),
    kMask("causal_ignored", "new tokens see each other without a causal mask", "FI-18", "mask.causal_ignored",
          {.causal_ignored = true}, later_are_hidden),
    kMask("causal_unsigned", "the causal test wraps for rows before the first key, which then see all",
          "FI-55", "mask.causal_ignored", {.causal_unsigned = true}, rows_before_keys),
    kMask("full_as_causal", "a mask that lets rows see later keys is taken as causal", "FI-16",
          "mask.full_as_causal", {.full_as_causal = true}, full_and_later_keys),
    kMask("causal_bound_packed", "the last key of a packed tile is rounded down where the tile cuts a group",
          "FI-07", "mask.causal_short", {.causal_bound_packed = true}, tile_cuts_group),
    kMask("chunk_ignored", "the chunks are not applied", "FA-16", "mask.chunk_ignored",
          {.chunk_ignored = true}, chunk_hides),
    kMask("chunk_late", "the chunks begin one key late", "VL-33", "mask.chunk_shifted", {.chunk_shift = 1},
          chunk_visible),
    kMask("chunk_early", "the chunks begin one key early", "VL-12", "mask.chunk_shifted", {.chunk_shift = -1},
          chunk_visible),
    kMask("chunk_of_first_row", "all rows of a request have the chunk of its first one", "VL-29 SG-11",
          "mask.chunk_shifted", {.chunk_of_first_row = true}, chunk_changes_in_request),
    kMask("tree_transposed", "the draft mask is read with rows and columns exchanged", "SG-03",
          "mask.tree_transposed", {.tree_transposed = true}, tree_of_two),
    kMask("tree_ignored", "drafts see each other causally", "SG-06", "mask.tree_ignored",
          {.tree_ignored = true}, tree),
    kMask("tree_shifted", "the draft mask is read one column late", "FI-62", "mask.tree_shifted",
          {.tree_shift = 1}, tree_of_two),
    kMask("tree_stride_of_longest",
          "the rows of the draft mask are as far apart as those of the longest request", "PT-05",
          "mask.tree_shifted", {.tree_stride_of_max = true}, trees_differ_in_size),
    kMask("tree_of_first_request", "every request reads the draft mask of the first one", "FI-10 SG-05",
          "mask.tree_shifted", {.tree_of_first = true}, tree_after_first),
    kMask("tree_row_packed", "the draft mask is indexed by the packed row, head of the group included",
          "PT-03", "mask.tree_shifted", {.tree_row_packed = true}, tree_and_group),
};

}  // namespace

std::span<const Row> mask_faults() { return kRows; }

}  // namespace assay_faulty
