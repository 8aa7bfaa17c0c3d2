// SPDX-License-Identifier: Apache-2.0
// Faults of the schedule: lengths, first rows, tiles and tails of keys. Nearly half of the museum lies
// outside the attention loop, most of it here and in the merge.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

int several_rows(const assay_problem* p) {
  return any_request(*p, [](int32_t, int32_t q, int32_t) { return q > 1; });
}
int several_rows_and_keys(const assay_problem* p) {
  return any_row(
      *p, [](const RowView& v) { return !v.empty() && v.end > std::max<int64_t>(1, v.context() + 1); });
}
// Only the path for several new tokens or a window takes the short table.
int last_request_on_mixed_path(const assay_problem* p) {
  return p->requests > 0 && p->q_len[p->requests - 1] > 0 && (p->max_q_len > 1 || p->window_left >= 0);
}
int rows_not_arange(const assay_problem* p) {
  int64_t first = 0;
  for (int32_t r = 0; r < p->requests; first += p->q_len[r++])
    if (p->q_len[r] > 1 || (p->q_len[r] == 1 && first != r)) return 1;
  return 0;
}
int first_rows_uneven(const assay_problem* p) {
  int64_t first = 0;
  for (int32_t r = 0; r < p->requests; first += p->q_len[r++])
    if (p->q_len[r] > 0 && first != int64_t{r} * p->max_q_len) return 1;
  return 0;
}
int cross_lengths_differ(const assay_problem* p) {
  int64_t q = 0, kv = 0;
  if (p->mask != ASSAY_MASK_CROSS) return 0;
  for (int32_t r = 0; r < p->requests; ++r) {
    if (p->q_len[r] > 0 && q != kv) return 1;
    q += p->q_len[r], kv += p->kv_len[r];
  }
  return 0;
}
int group_beyond_tile(const assay_problem* p) {
  return any_request(
      *p, [&](int32_t, int32_t q, int32_t) { return ceil_div(q, 16) * 16 < int64_t{q} * group(*p); });
}
int beyond_256_requests(const assay_problem* p) {
  return any_request(*p, [](int32_t r, int32_t, int32_t) { return r >= 256; });
}
int longer_than_first(const assay_problem* p) {
  return any_row(*p, [&](const RowView& v) { return !v.empty() && v.end > p->kv_len[0]; });
}
int partial_page_seen(const assay_problem* p) {
  return paged(*p) && any_row(*p, [&](const RowView& v) {
           return !v.empty() && v.kv_len % p->page_size != 0 &&
                  v.end > v.kv_len / p->page_size * p->page_size;
         });
}
int partial_tile_seen(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) {
    return !v.empty() && v.kv_len % kTile != 0 && v.end > v.kv_len / kTile * kTile;
  });
}
int csr_partial_page(const assay_problem* p) {
  return paged(*p) && p->table == ASSAY_TABLE_CSR && any_row(*p, [&](const RowView& v) {
           return v.kv_len % p->page_size != 0 && !v.empty() && v.end == v.kv_len;
         });
}
bool mask_open(const assay_problem& p) {
  return (p.mask == ASSAY_MASK_FULL || p.mask == ASSAY_MASK_CROSS) && p.chunk == 0;
}
bool reaches_partial_tile(const RowView& v) {
  return !v.empty() && v.end == v.kv_len && v.kv_len % kTile != 0;
}
int open_end(const assay_problem* p) { return mask_open(*p) && any_row(*p, reaches_partial_tile); }
int single_rows_open_end(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return v.q_len == 1 && reaches_partial_tile(v); });
}
int sees_middle_tile(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) {
    const int64_t tiles = ceil_div(v.kv_len, kTile);
    return tiles > 2 && !v.empty() && v.begin / kTile <= tiles / 2 && (v.end - 1) / kTile >= tiles / 2;
  });
}
int visible_keys(const assay_problem* p) { return any_visible(*p); }
int sees_last_key(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return !v.empty() && v.end == v.kv_len; });
}
// The first key of the second part.
int sees_second_part(const assay_problem* p) {
  return any_row(
      *p, [](const RowView& v) { return v.kv_len > kTile && v.sees(ceil_div(v.kv_len, kTile) / 2 * kTile); });
}
int open_end_or_single_row(const assay_problem* p) {
  return paged(*p) && any_row(*p, [&](const RowView& v) {
           return !v.empty() && v.end == v.kv_len && (mask_open(*p) || v.q_len == 1);
         });
}

constexpr Planter kMetadata{"metadata", kWhole};
constexpr Planter kMetadataHalves{"metadata", kHalves};

const Row kRows[] = {
    kMetadata("cu_q_entry_short", "row starts handed over one entry short: the last request has no rows",
              "spec:5.2", "output.row_dropped", {.q_start = QStart::kEntryShort}, last_request_on_mixed_path),
    kMetadata("cu_q_arange", "row starts 0, 1, 2, ... although requests have several new tokens",
              "spec:5.2 FI-18", "output.row_dropped", {.q_start = QStart::kArange}, rows_not_arange),
    kMetadata("one_row_per_request", "only the first new token of a request is planned", "FI-18",
              "output.row_dropped", {.q_len_cap = 1}, several_rows),
    kMetadata("cu_q_uniform", "request r begins at r times the longest request", "PT-05",
              "rows.written_to_other_row", {.q_start = QStart::kUniform}, first_rows_uneven),
    kMetadata("cu_q_of_keys", "rows of cross attention begin where the keys of the request begin", "TR-09",
              "rows.written_to_other_row", {.q_start = QStart::kOfKeys}, cross_lengths_differ),
    kMetadata("tiles_without_group", "tiles of 16 packed rows counted as if a KV head had one query head",
              "FI-48", "output.row_dropped", {.packed_rows_uncovered = true}, group_beyond_tile),
    kMetadata("requests_beyond_256", "requests from the 257th on are not scheduled", "FA-20",
              "output.row_dropped", {.request_cap = 256}, beyond_256_requests),
    kMetadata("kv_len_of_first", "every request is as long as the first at most", "FA-12 TR-07",
              "keys.kv_len_short", {.kv_len_of_first = true}, longer_than_first),
    kMetadata("kv_len_without_drafts", "draft tokens are not counted in the length", "VL-43",
              "keys.kv_len_short", {.kv_len_minus_draft = true}, several_rows_and_keys),
    paged_only(kMetadata("kv_len_one_long", "the length counts a token that is not there yet", "SG-16",
                         "memory.unused_slot", {.kv_len_delta = 1}, open_end_or_single_row)),
    paged_only(kMetadata("page_floor", "the last, partly filled page is not visited", "PT-02",
                         "keys.tail_dropped", {.kv_len_page_floor = true}, partial_page_seen)),
    kMetadata("tile_floor", "the last, partly filled tile is not visited", "TR-08", "keys.tail_dropped",
              {.kv_len_tile_floor = true}, partial_tile_seen),
    paged_only(kMetadata("last_page_full", "last_page_len is taken to be the page size", "VL-35 FI-44",
                         "memory.unused_slot", {.last_page_len_ignored = true}, csr_partial_page)),
    kMetadata("tail_lanes_not_causal",
              "zero keys fill the last tile and are seen where no causal mask hides them", "FI-26 PT-04",
              "keys.tail_unmasked", {.zero_tail_to_tile = 1}, open_end),
    kMetadata("tail_lanes_decode",
              "single rows skip the mask, so the zero keys that fill the last tile are seen", "FA-27",
              "keys.tail_unmasked", {.zero_tail_to_tile = 2}, single_rows_open_end),
    kMetadata("tail_of_16_zeros", "16 zero keys behind the last one are seen by rows that reach it",
              "proto:TAIL_ZERO", "keys.tail_unmasked", {.zero_tail_keys = 16}, sees_last_key),
    kMetadata("key_dropped", "one key is left out", "proto:DROP1", "keys.one_dropped",
              {.key_dropped = Pick::kHashed}, visible_keys),
    kMetadata("key_doubled", "one key is counted twice", "proto:DUP1", "keys.one_doubled",
              {.key_doubled = Pick::kHashed}, visible_keys),
    kMetadataHalves("parts_overlap", "the first part reads one key beyond its end", "FI-08 FI-02",
                    "keys.one_doubled", {.split_overlap_keys = 1}, sees_second_part),
    kMetadata("tile_dropped", "a tile in the middle is skipped", "SA-05 SG-09", "keys.tile_dropped",
              {.tile_dropped = Pick::kMiddle}, sees_middle_tile),
};

}  // namespace

std::span<const Row> metadata_faults() { return kRows; }

}  // namespace assay_faulty
