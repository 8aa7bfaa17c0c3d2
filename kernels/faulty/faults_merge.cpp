// SPDX-License-Identifier: Apache-2.0
// Faults of splitting the keys of a row into parts and merging the partial results. All kernels here have
// four parts.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

int visible_keys(const assay_problem* p) { return any_visible(*p); }
int parts_merge(const assay_problem* p) { return several_parts(*p); }
int sees_last_part(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return !v.empty() && part_of(v, v.end - 1) == kParts - 1; });
}
int has_empty_part(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return parts_seen(v) < kParts || v.tree; });
}
int empty_rows(const assay_problem* p) {
  return !p->has_sinks &&
         any_row(*p, [](const RowView& v) { return v.empty() || (v.tree && v.begin >= v.context()); });
}
int first_part_empty(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return !v.empty() && (v.tree || part_of(v, v.begin) > 0); });
}
int window_skips_parts(const assay_problem* p) {
  return p->window_left >= 0 &&
         any_row(*p, [](const RowView& v) { return !v.empty() && part_of(v, v.begin) > 0; });
}
int shorter_than_longest(const assay_problem* p) {
  const int64_t tiles = ceil_div(p->max_kv_len, kTile);
  return any_row(*p, [&](const RowView& v) { return ceil_div(v.kv_len, kTile) != tiles; });
}
// Keys of the last part, which holds the last ceil(tiles / parts) tiles.
int64_t keys_of_last_part(const RowView& v) {
  const int64_t tiles = ceil_div(v.kv_len, kTile);
  return v.kv_len - tiles * (kParts - 1) / kParts * kTile;
}
int last_part_below_rows(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return !v.empty() && keys_of_last_part(v) < v.q_len; });
}
int last_part_below_4(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return !v.empty() && keys_of_last_part(v) < 4; });
}
int widths_differ_in_third_part(const assay_problem* p) {
  return p->head_dim_qk != p->head_dim_v &&
         any_row(*p, [](const RowView& v) { return !v.empty() && part_of(v, v.end - 1) >= 2; });
}
int packed_tile_cuts_group(const assay_problem* p) {
  const int64_t g = group(*p);
  return any_row(*p, [&](const RowView& v) {
    return parts_seen(v) > 1 && (v.row * g) / 16 != (v.row * g + g - 1) / 16;
  });
}
int rows_pad_to_4(const assay_problem* p) {
  int64_t padded = 0, packed = 0;
  for (int32_t r = 0; r < p->requests; ++r) {
    for (int32_t i = 0; padded != packed && i < p->q_len[r]; ++i)
      if (parts_seen(row_view(*p, r, i)) > 1) return 1;
    packed += p->q_len[r], padded += ceil_div(p->q_len[r], 4) * 4;
  }
  return 0;
}

constexpr Planter kMergeSplit{"merge", kSplit};

const Row kRows[] = {
    kMergeSplit("merge_base_2", "natural LSEs are merged with exp2", "proto:LSE_BASE VL-09 SG-10 VL-10",
                "merge.base", {.merge_base2 = true}, parts_merge),
    kMergeSplit("merge_uniform", "all parts weigh the same", "AI-09 FI-12", "merge.uniform_weights",
                {.merge_uniform = true}, parts_merge),
    kMergeSplit("last_part_dropped", "the last part is not merged", "proto:LAST_SPLIT AI-11",
                "merge.split_dropped", {.split_dropped = Pick::kLast}, sees_last_part),
    kMergeSplit("merge_skipped", "the first part that has keys is the result", "FA-08", "merge.split_dropped",
                {.merge_skipped = true}, parts_merge),
    kMergeSplit("merge_group_cut", "heads behind the cut of a packed tile are not merged", "FI-04",
                "merge.split_dropped", {.merge_group_unsplit = true}, packed_tile_cuts_group),
    kMergeSplit("merge_padded_rows",
                "partial results are read as if every request had its rows padded to four", "FI-11",
                "rows.written_to_other_row", {.merge_padded_rows = true}, rows_pad_to_4),
    kMergeSplit("lse_of_last_part", "every part stores its LSE, so the last one remains", "FI-59 FI-60",
                "merge.lse_wrong", {.lse_of_split = true}, parts_merge),
    kMergeSplit("empty_part_counted", "a part without keys has LSE 0 and what lies in its place",
                "VL-50 FI-54", "merge.empty_split_counted", {.merge_empty_counted = true}, has_empty_part),
    kMergeSplit("empty_parts_nan", "merging parts that are all empty gives -inf - -inf",
                "VL-02 VL-03 FI-63 FA-25", "output.nan", {.merge_empty_nan = true}, empty_rows),
    kMergeSplit("leading_part_nan", "an empty first part starts the merge with -inf - -inf", "VL-04",
                "output.nan", {.merge_leading_nan = true}, first_part_empty),
    kMergeSplit("skipped_parts_merged",
                "parts that the window skipped are merged with what lies in their place", "VL-20 SG-21",
                "merge.partial_stale", {.merge_partial_stale = true}, window_skips_parts),
    kMergeSplit("parts_of_longest", "parts are sized by the longest request; empty ones are merged",
                "AI-09 SG-07 FI-64", "merge.partial_stale", {.splits_of_longest = true},
                shorter_than_longest),
    kMergeSplit("last_part_below_rows_nan", "a last part with fewer keys than new tokens is NaN",
                "AI-21 AI-04", "output.nan", {.split_short_nan = -1}, last_part_below_rows),
    kMergeSplit("last_part_below_4_nan", "a last part with fewer than 4 keys is NaN", "AI-23", "output.nan",
                {.split_short_nan = 4}, last_part_below_4),
    kMergeSplit("partials_with_k_width",
                "from the third part on partial outputs are read with the width of K", "VL-08 MX-01",
                "memory.stride_ignored", {.merge_stride_of_qk = true}, widths_differ_in_third_part),
    kMergeSplit("partials_in_bf16", "partial outputs are stored in bf16", "proto:PART_BF16",
                "precision.partials", {.partial_format = ASSAY_BF16}, visible_keys),
    kMergeSplit("partials_in_fp16", "partial outputs are stored in fp16", "proto:PART_FP16",
                "precision.partials", {.partial_format = ASSAY_FP16}, visible_keys),
    kMergeSplit("part_lse_in_bf16", "partial LSEs are stored in bf16", "proto:LSE_BF16",
                "precision.partial_lse", {.partial_lse_format = ASSAY_BF16}, visible_keys),
};

}  // namespace

std::span<const Row> merge_faults() { return kRows; }

}  // namespace assay_faulty
