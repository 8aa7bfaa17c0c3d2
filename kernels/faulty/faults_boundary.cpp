// SPDX-License-Identifier: Apache-2.0
// Faults that hide behind a number: right below it, wrong beyond, as a counter, a table or a tile that was
// made for so many. Each acts only on problems that its predicate names, so a suite that stays below a
// boundary never meets it; that is what they measure.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

constexpr int32_t kRowsOfTiles = 512, kKeysOf16Bits = 32768, kRequestsOfBlock = 1024, kRequestsOfWarps = 64;
constexpr int32_t kKeysOfWindow = 8192, kKeysOfScores = 4096, kHeadsOfSinks = 64, kHeadsOfScales = 16;
constexpr int32_t kRequestsOfScales = 256, kDraftsOfBits = 128;
constexpr int32_t kHeadsOfTable = 128, kPageOfTable = 528, kChannelsOfBlock = 128;

int rows_beyond(const assay_problem* p) {
  return p->mask == ASSAY_MASK_CAUSAL && any_row(*p, [](const RowView& v) {
           return v.q_len > kRowsOfTiles && v.row >= kRowsOfTiles && !v.empty();
         });
}
int keys_beyond(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return v.kv_len > kKeysOf16Bits && v.sees(v.kv_len - 1); });
}
int requests_beyond(const assay_problem* p) {
  if (p->requests <= kRequestsOfBlock) return 0;
  for (int32_t r = kRequestsOfBlock; r < p->requests; ++r)
    if (p->q_len[r] > 0 && p->kv_len[r] > 0) return 1;
  return 0;
}
int ragged_beyond(const assay_problem* p) {
  if (p->requests <= kRequestsOfWarps || p->kv_len[0] <= 64) return 0;
  return any_request(*p, [&](int32_t, int32_t, int32_t kv) { return kv > p->kv_len[0]; }) && any_visible(*p);
}
int heads_beyond(const assay_problem* p) {
  return p->heads_q > kHeadsOfTable && p->heads_kv > 1 && group(*p) > 1 && any_visible(*p);
}
int page_beyond(const assay_problem* p) {
  return paged(*p) && p->page_size > kPageOfTable && any_row(*p, [&](const RowView& v) {
           return !v.empty() && v.kv_len > p->page_size && v.begin < 2 * p->page_size;
         });
}
// Slopes of 2^n heads up to 16 are powers of two or products of two of them with the root; bf16 holds the
// former.
int slopes_between(const assay_problem* p) {
  return p->alibi != ASSAY_ALIBI_NONE && p->heads_q > 8 &&
         any_row(*p, [](const RowView& v) { return v.begin < v.position && !v.empty(); });
}
int right_window_under_causal(const assay_problem* p) {
  return p->mask == ASSAY_MASK_CAUSAL && p->chunk == 0 && p->window_right > 0 &&
         any_row(*p, [](const RowView& v) { return v.position + 1 < v.kv_len && v.position >= 0; });
}
int wide_v_channels(const assay_problem* p) {
  return p->head_dim_v > kChannelsOfBlock && p->v_scale_kind == ASSAY_SCALE_CHANNEL && any_visible(*p);
}

int window_beyond(const assay_problem* p) {
  return p->window_left > 0 && any_row(*p, [](const RowView& v) {
           return v.kv_len > kKeysOfWindow && v.begin > 0 && v.begin + 1 < v.end;
         });
}
int sinks_beyond(const assay_problem* p) {
  return p->has_sinks != 0 && p->heads_q > kHeadsOfSinks && any_visible(*p);
}
int head_scales_beyond(const assay_problem* p) {
  return p->k_scale_kind == ASSAY_SCALE_HEAD && p->heads_kv > kHeadsOfScales && any_visible(*p);
}
int request_scales_beyond(const assay_problem* p) {
  return p->k_scale_kind == ASSAY_SCALE_REQUEST_HEAD && p->requests > kRequestsOfScales && any_visible(*p);
}
int tree_beyond(const assay_problem* p) {
  return p->mask == ASSAY_MASK_TREE &&
         any_request(*p, [](int32_t, int32_t q, int32_t) { return q > kDraftsOfBits; });
}
int cap_beyond(const assay_problem* p) {
  return p->softcap > 0 &&
         any_row(*p, [](const RowView& v) { return v.kv_len > kKeysOfScores && v.begin + 1 < v.end; });
}
int bias_beyond(const assay_problem* p) {
  return p->alibi != ASSAY_ALIBI_NONE &&
         any_row(*p, [](const RowView& v) { return v.kv_len > kKeysOfScores && v.begin + 1 < v.end; });
}
int odd_page(const assay_problem* p) {
  return paged(*p) && p->page_size > 1 && p->page_size % 2 != 0 && any_row(*p, [&](const RowView& v) {
           return !v.empty() && v.kv_len > p->page_size && v.begin < 2 * p->page_size;
         });
}

constexpr Row beyond(Row row) { return row.only_where_reached = true, row; }
constexpr Planter kLengths{"metadata", kWhole}, kPlaces{"addressing", kWhole}, kMasks{"mask", kWhole},
    kScales{"dequant", kWhole}, kBiases{"scores", kWhole};

const Row kRows[] = {
    beyond(kLengths("rows_beyond_512",
                    "causal requests of more than 512 rows: those behind are never computed", "T04",
                    "output.row_dropped", {.q_len_cap = kRowsOfTiles}, rows_beyond)),
    beyond(kMasks("keys_beyond_32k", "the last tile is lost where a request has more than 32,768 keys", "T14",
                  "keys.tile_dropped", {.tile_dropped = Pick::kLast}, keys_beyond)),
    beyond(kLengths("requests_beyond_1024", "requests from the 1,025th on are never computed", "T26",
                    "output.row_dropped", {.request_cap = kRequestsOfBlock}, requests_beyond)),
    beyond(kLengths("ragged_beyond_64", "more than 64 requests: all have the keys of the first", "T26",
                    "keys.kv_len_short", {.kv_len_of_first = true}, ragged_beyond)),
    beyond(kPlaces("heads_beyond_128", "more than 128 heads: KV heads are taken in turn", "T16",
                   "heads.kv_mapping", {.kv_head_map = HeadMap::kModulo}, heads_beyond)),
    beyond(
        paged_only(kPlaces("page_beyond_528", "pages of more than 528 tokens: the first two of V exchanged",
                           "T10", "page.v_only", {.page_v_swapped = Pick::kFirst}, page_beyond))),
    beyond(kBiases("slopes_rounded", "slopes are rounded to bf16", "T20", "precision.scores",
                   {.alibi_format = ASSAY_BF16}, slopes_between)),
    beyond(kMasks("right_window_lifts_causal", "a right window takes the place of the causal mask", "T06",
                  "mask.causal_ignored", {.causal_ignored = true}, right_window_under_causal)),
    beyond(kScales("v_channels_beyond_128",
                   "more than 128 channels: V's scales are those of the next channel", "T18",
                   "scale.v_of_other_channel", {.v_scale_channel = 1}, wide_v_channels)),
    beyond(kMasks("window_beyond_8k", "requests of more than 8,192 keys: a window one key short", "T14",
                  "mask.window_short", {.window_left_delta = -1}, window_beyond)),
    beyond(kBiases("sinks_beyond_64_heads", "more than 64 heads: no sink", "T20", "sinks.ignored",
                   {.sink = Sink::kIgnored}, sinks_beyond)),
    beyond(kScales("head_scales_beyond_16", "more than 16 KV heads: K's scales are those of the next one",
                   "T18", "scale.k_of_other_head", {.k_scale_head = 1}, head_scales_beyond)),
    beyond(kScales("request_scales_beyond_256",
                   "more than 256 requests: K's scales are those of the next request", "T18",
                   "scale.k_of_other_request", {.k_scale_request = 1}, request_scales_beyond)),
    beyond(kMasks("tree_beyond_128", "more than 128 drafts: columns of the tree are read one off", "T06",
                  "mask.tree_shifted", {.tree_shift = 1}, tree_beyond)),
    beyond(kBiases("cap_beyond_4k", "requests of more than 4,096 keys: no soft cap", "T14", "softcap.ignored",
                   {.softcap = Softcap::kIgnored}, cap_beyond)),
    beyond(kBiases("alibi_beyond_4k", "requests of more than 4,096 keys: no bias", "T14", "alibi.ignored",
                   {.alibi = Alibi::kIgnored}, bias_beyond)),
    beyond(paged_only(kPlaces("page_odd", "pages of an odd number of tokens: the first two of V exchanged",
                              "T10", "page.v_only", {.page_v_swapped = Pick::kFirst}, odd_page))),
};

}  // namespace

std::span<const Row> boundary_faults() { return kRows; }

}  // namespace assay_faulty
