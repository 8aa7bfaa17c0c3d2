// SPDX-License-Identifier: Apache-2.0
// Faults of paths: what a kernel that is right in general does wrong where it takes a special way, for a
// shape of the batch or for two features that meet. Each acts only on the problems that its predicate names.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

// ---- shapes of a batch

bool single_rows(const assay_problem& p) { return p.max_q_len == 1; }
bool has_window(const assay_problem& p) { return p.window_left >= 0; }
int windowed_decode(const assay_problem* p) {
  return single_rows(*p) && any_row(*p, [](const RowView& v) { return v.begin > 0 && !v.empty(); });
}
int capped_decode(const assay_problem* p) { return single_rows(*p) && p->softcap > 0 && any_visible(*p); }
int sink_in_decode(const assay_problem* p) { return single_rows(*p) && p->has_sinks && any_visible(*p); }
int full_last_tile(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) {
    return v.kv_len % kTile == 0 && v.sees(v.kv_len - 1) && v.begin + 1 < v.end;
  });
}
int one_tile_each(const assay_problem* p) { return p->max_kv_len <= kTile && any_visible(*p); }
int one_row_over(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return v.q_len > 1 && v.q_len % 16 == 1 && !v.empty(); });
}
int odd_requests(const assay_problem* p) {
  const int32_t last = p->requests - 1;
  return p->requests > 1 && p->requests % 2 == 1 && p->q_len[last] > 0 && any_visible(*p);
}
int mixed_batch(const assay_problem* p) {
  const bool single = any_request(*p, [](int32_t, int32_t q, int32_t) { return q == 1; });
  const bool several = any_request(*p, [](int32_t, int32_t q, int32_t) { return q > 1; });
  return single && several && causal(*p) && any_visible(*p);
}
int one_key(const assay_problem* p) {
  return p->v_scale_kind != ASSAY_SCALE_NONE &&
         any_request(*p, [](int32_t, int32_t, int32_t kv) { return kv == 1; }) && any_visible(*p);
}

// ---- shapes of heads and dimensions

int multi_head(const assay_problem* p) { return group(*p) == 1 && p->heads_q > 1 && any_visible(*p); }
int odd_dims(const assay_problem* p) { return p->head_dim_qk % 32 != 0 && any_visible(*p); }
int single_kv_head(const assay_problem* p) {
  return p->heads_kv == 1 && p->heads_q > 1 && p->q_scale_kind == ASSAY_SCALE_HEAD && any_visible(*p);
}

// ---- two features that meet

int window_and_sinks(const assay_problem* p) { return has_window(*p) && p->has_sinks && any_visible(*p); }
int cap_and_bias(const assay_problem* p) {
  return p->softcap > 0 && p->alibi != ASSAY_ALIBI_NONE && any_visible(*p);
}
int window_and_bias(const assay_problem* p) {
  return p->alibi != ASSAY_ALIBI_NONE &&
         any_row(*p, [](const RowView& v) { return v.begin > 0 && v.begin + 1 < v.end; });
}
int window_in_8_bits(const assay_problem* p) {
  return quantized(p->k_format) && has_window(*p) &&
         any_row(*p, [](const RowView& v) { return v.begin > 0 && !v.empty(); });
}
int cap_in_8_bits(const assay_problem* p) {
  return quantized(p->k_format) && p->softcap > 0 && any_visible(*p);
}
int bias_in_groups(const assay_problem* p) {
  return p->alibi != ASSAY_ALIBI_NONE && group(*p) > 1 && any_visible(*p);
}
int sinks_of_latent(const assay_problem* p) {
  return p->layout == ASSAY_LAYOUT_MLA && paged(*p) && p->v_scale_kind != ASSAY_SCALE_NONE && any_visible(*p);
}
int window_of_encoder(const assay_problem* p) {
  return (p->mask == ASSAY_MASK_CROSS || p->mask == ASSAY_MASK_FULL) &&
         any_row(*p, [](const RowView& v) { return v.begin > 0 && !v.empty(); });
}
int scales_beside_heads(const assay_problem* p) {
  return paged(*p) && p->layout == ASSAY_LAYOUT_HND && p->k_scale_kind == ASSAY_SCALE_TOKEN_HEAD &&
         any_row(*p, [](const RowView& v) { return !v.empty() && v.begin < v.kv_len - 1; });
}
int window_by_csr(const assay_problem* p) {
  return paged(*p) && p->table == ASSAY_TABLE_CSR && p->page_size > 1 &&
         any_row(*p, [&](const RowView& v) { return v.begin > 0 && v.begin % p->page_size != 0; });
}
int new_keys_by_token(const assay_problem* p) {
  return paged(*p) && p->table == ASSAY_TABLE_TOKEN &&
         any_row(*p, [](const RowView& v) { return v.kv_len > 1 && v.sees(v.kv_len - 1); });
}
int tree_of_latent(const assay_problem* p) {
  return p->mask == ASSAY_MASK_TREE && p->layout == ASSAY_LAYOUT_MLA && paged(*p) &&
         any_request(*p, [](int32_t, int32_t q, int32_t) { return q > 1; });
}
int tree_in_8_bits(const assay_problem* p) {
  return p->mask == ASSAY_MASK_TREE && p->v_scale_kind != ASSAY_SCALE_NONE && any_visible(*p);
}
int chunk_and_sinks(const assay_problem* p) { return p->chunk > 0 && p->has_sinks && any_visible(*p); }
int merged_by_half(const assay_problem* p) { return p->o_format == ASSAY_FP16 && several_parts(*p); }
int scale_of_latent(const assay_problem* p) {
  return p->layout == ASSAY_LAYOUT_MLA && paged(*p) && p->softmax_scale != default_scale(p->head_dim_qk) &&
         any_visible(*p);
}
int window_on_tiles(const assay_problem* p) {
  return p->q_format == ASSAY_FP16 &&
         any_row(*p, [](const RowView& v) { return v.begin > 0 && v.begin % kTile != 0 && !v.empty(); });
}
int requests_in_8_bits(const assay_problem* p) {
  return p->q_scale_kind != ASSAY_SCALE_NONE && p->k_scale_kind == ASSAY_SCALE_REQUEST_HEAD &&
         p->requests > 1 && any_visible(*p);
}

constexpr Row path(Row row) { return row.only_where_reached = true, row; }
constexpr Planter kBatches{"metadata", kWhole}, kPlaces{"addressing", kWhole}, kMasks{"mask", kWhole},
    kScales{"dequant", kWhole}, kScores{"scores", kWhole}, kTiles{"softmax", kWhole}, kParts{"merge", kSplit},
    kOutputs{"output", kWhole};

const Row kRows[] = {
    path(kMasks("decode_loses_window", "the way for requests of one row has no window", "T06",
                "mask.window_ignored", {.window_left_ignored = true}, windowed_decode)),
    path(kScores("decode_loses_cap", "the way for requests of one row has no soft cap", "T20",
                 "softcap.ignored", {.softcap = Softcap::kIgnored}, capped_decode)),
    path(kScores("decode_loses_sink", "the way for requests of one row has no sink", "T20", "sinks.ignored",
                 {.sink = Sink::kIgnored}, sink_in_decode)),
    path(kTiles("full_last_tile_shared", "a last tile that is full: its last key counts twice", "T10",
                "keys.one_doubled", {.key_doubled = Pick::kLast}, full_last_tile)),
    path(kOutputs("one_tile_lse_base2", "requests of one tile leave their LSE in base 2", "VL-07",
                  "lse.base2", {.lse = Lse::kBase2}, one_tile_each)),
    path(kOutputs("row_over_block_lost", "a row alone in a block of 16 is not written", "T04",
                  "output.row_dropped", {.row_unwritten = Pick::kLast}, one_row_over)),
    path(kBatches("odd_request_lost", "requests taken in pairs: the last of an odd number is not seen", "T26",
                  "output.row_dropped", {.q_start = QStart::kEntryShort}, odd_requests)),
    path(kMasks("mixed_batch_short", "batches of single rows and others: rows do not see their own key",
                "AI-14", "mask.causal_short", {.causal_delta = -1}, mixed_batch)),
    path(kScales("one_key_unscaled", "a request of one key: V is copied without its scale", "T18",
                 "scale.v_missing", {.v_scale_missing = true}, one_key)),
    path(kPlaces("equal_heads_swapped", "as many KV heads as heads: neighbours are exchanged", "T16",
                 "heads.q_swapped", {.q_heads_swapped = true}, multi_head)),
    path(kPlaces("dims_behind_32_lost", "head dimensions that 32 does not divide: the last one is left out",
                 "T17", "dims.qk_dropped", {.qk_dims_dropped = 1}, odd_dims)),
    path(kScales("one_kv_head_scale", "a single KV head: Q has the scale of the next head", "T18",
                 "scale.q_of_other_head", {.q_scale_head = 1}, single_kv_head)),
    path(kScores("window_loses_sink", "with a window there is no sink", "T20", "sinks.ignored",
                 {.sink = Sink::kIgnored}, window_and_sinks)),
    path(kScores("cap_loses_bias", "with a soft cap there is no bias", "T20", "alibi.ignored",
                 {.alibi = Alibi::kIgnored}, cap_and_bias)),
    path(kMasks("bias_shortens_window", "with a bias the window is one key short", "T06", "mask.window_short",
                {.window_left_delta = -1}, window_and_bias)),
    path(kMasks("codes_widen_window", "over 8-bit keys the window is one key longer", "T06",
                "mask.window_long", {.window_left_delta = 1}, window_in_8_bits)),
    path(kScores("codes_cap_first", "over 8-bit keys the soft cap comes before the scale", "T20",
                 "softcap.before_scale", {.softcap = Softcap::kBeforeScale}, cap_in_8_bits)),
    path(kScores("bias_of_group", "heads that share keys have the slope of the next one", "FA-32",
                 "alibi.other_head", {.alibi = Alibi::kOtherHead}, bias_in_groups)),
    path(paged_only(kScales("latent_v_unscaled", "latent rows: V is taken without the scale of K", "T18",
                            "scale.v_missing", {.v_scale_missing = true}, sinks_of_latent))),
    path(kMasks("encoder_loses_window", "rows that see keys behind them have no window", "T06",
                "mask.window_ignored", {.window_left_ignored = true}, window_of_encoder)),
    path(paged_only(kScales("hnd_scale_of_next", "pages by head: K's scale is that of the next token", "T18",
                            "scale.k_of_other_token", {.k_scale_token = 1}, scales_beside_heads))),
    path(paged_only(kMasks("csr_window_by_page", "pages in a list: the window begins with a page", "T10",
                           "mask.window_coarse", {.window_page_granular = true}, window_by_csr))),
    path(paged_only(kPlaces("token_table_stale", "a table of tokens: the newest key is another one's",
                            "VL-30", "keys.stale_token", {.key_stale = Pick::kLast}, new_keys_by_token))),
    path(paged_only(kMasks("latent_tree_turned", "latent rows: the tree is read transposed", "SG-03",
                           "mask.tree_transposed", {.tree_transposed = true}, tree_of_latent))),
    path(kScales("tree_v_unscaled", "trees: V is taken without its scale", "T18", "scale.v_missing",
                 {.v_scale_missing = true}, tree_in_8_bits)),
    path(kScores("chunk_loses_sink", "within chunks there is no sink", "T20", "sinks.ignored",
                 {.sink = Sink::kIgnored}, chunk_and_sinks)),
    path(kParts("half_merge_uniform", "results in fp16: parts are averaged without their weights", "T02",
                "merge.uniform_weights", {.merge_uniform = true}, merged_by_half)),
    path(paged_only(kScores("latent_scale_default",
                            "latent rows: the softmax scale is that of the dimensions", "AI-22",
                            "scale.softmax_default", {.softmax_scale_default = true}, scale_of_latent))),
    path(kMasks("half_window_by_tile", "Q in fp16: the window begins with a tile", "T06",
                "mask.window_coarse", {.window_tile_granular = true}, window_on_tiles)),
    path(kScales("q_scale_of_first_pair", "scales by request: Q has those of the next request", "AI-15",
                 "scale.q_of_other_request", {.q_scale_request = 1}, requests_in_8_bits)),
};

}  // namespace

std::span<const Row> path_faults() { return kRows; }

}  // namespace assay_faulty
