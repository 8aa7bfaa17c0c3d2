// SPDX-License-Identifier: Apache-2.0
// Faults of addressing: pages, tables, strides, heads, rows, dimensions, and memory that no key occupies.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

int visible_keys(const assay_problem* p) { return any_visible(*p); }
int visible_pages(const assay_problem* p) { return paged(*p) && any_visible(*p); }
int64_t page_of(const assay_problem& p, int64_t key) { return key / p.page_size; }

// ---- pages

// The first two pages share a tile of 64 keys, so that exchanging them changes neither the weights nor their
// rounding, only who is masked.
bool first_pages_in_tile(const assay_problem& p) { return paged(p) && 2 * p.page_size <= kTile; }
bool two_pages(const assay_problem& p, const RowView& v) {
  return paged(p) && v.kv_len > p.page_size && !v.empty();
}
bool sees_both_pages_or_none(const assay_problem& p, const RowView& v) {
  const int64_t both = 2 * int64_t{p.page_size};
  const bool all = v.begin == 0 && v.end >= both && !(v.tree && v.context() < both);
  return (all || v.begin >= both) && p.alibi == ASSAY_ALIBI_NONE;
}
int first_pages_cut(const assay_problem* p) {
  return any_row(*p, [&](const RowView& v) { return two_pages(*p, v) && !sees_both_pages_or_none(*p, v); });
}
int first_pages_whole(const assay_problem* p) {
  return first_pages_in_tile(*p) && !first_pages_cut(p) &&
         any_row(*p, [&](const RowView& v) { return two_pages(*p, v) && v.begin == 0; });
}
int sees_first_pages(const assay_problem* p) {
  return paged(*p) && any_row(*p, [&](const RowView& v) {
           return !v.empty() && v.kv_len > p->page_size && v.begin < 2 * p->page_size;
         });
}
int sees_middle_page(const assay_problem* p) {
  return paged(*p) && any_row(*p, [&](const RowView& v) {
           const int64_t pages = ceil_div(v.kv_len, p->page_size);
           return pages > 1 && !v.empty() && page_of(*p, v.begin) <= pages / 2 &&
                  page_of(*p, v.end - 1) >= pages / 2;
         });
}
int sees_page_of_other_tile(const assay_problem* p) {
  return paged(*p) && any_row(*p, [&](const RowView& v) {
           for (int64_t key = std::max<int64_t>(v.begin, kTile); key < v.end; ++key)
             if (page_of(*p, key - kTile) != page_of(*p, key)) return true;
           return false;
         });
}
int tile_straddles_pages(const assay_problem* p) {
  return paged(*p) && p->page_size > kTile && any_row(*p, [&](const RowView& v) {
           for (int64_t page = 1; page * p->page_size < v.end; ++page) {
             const int64_t first = page * p->page_size, tile_end = ceil_div(first, kTile) * kTile;
             if (std::max(first, v.begin) < std::min(tile_end, v.end)) return true;
           }
           return false;
         });
}
int sees_second_page(const assay_problem* p) {
  return paged(*p) && any_row(*p, [&](const RowView& v) { return !v.empty() && page_of(*p, v.end - 1) > 0; });
}
int table_of_long_pages(const assay_problem* p) {
  return p->table != ASSAY_TABLE_TOKEN && p->page_size > 1 && visible_pages(p);
}
int table_beyond_first_entry(const assay_problem* p) {
  return table_of_long_pages(p) && any_row(*p, [](const RowView& v) { return !v.empty() && v.end > 1; });
}
int several_requests(const assay_problem* p) { return p->requests > 1 && visible_pages(p); }
int last_page_after_first_request(const assay_problem* p) {
  return paged(*p) && any_row(*p, [&](const RowView& v) {
           return v.request > 0 && !v.empty() && page_of(*p, v.end - 1) == page_of(*p, v.kv_len - 1);
         });
}
int table_rows(const assay_problem* p) { return p->table != ASSAY_TABLE_CSR && several_requests(p); }
int new_keys_behind_context(const assay_problem* p) {
  return paged(*p) &&
         any_row(*p, [](const RowView& v) { return !v.empty() && v.context() > 0 && v.end > v.context(); });
}
int newest_of_two(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return v.kv_len > 1 && v.sees(v.kv_len - 1); });
}
// Blocks are drawn from the whole cache; four times the pages in use is more than any placement leaves free.
int cache_beyond_16_bits(const assay_problem* p) {
  int64_t tokens = p->total_kv;
  if (paged(*p)) {
    tokens = 0;
    for (int32_t r = 0; r < p->requests; ++r) tokens += ceil_div(p->kv_len[r], p->page_size) * p->page_size;
    tokens = 4 * tokens + 8 * p->page_size;
  }
  return any_visible(*p) && tokens * (p->heads_kv + 1) * std::max(p->head_dim_qk, p->head_dim_v) > (1 << 16);
}

// ---- heads, rows, dimensions

int grouped_heads(const assay_problem* p) { return group(*p) > 1 && p->heads_kv > 1 && any_visible(*p); }
int odd_group(const assay_problem* p) {
  const int32_t g = group(*p);
  return (g & (g - 1)) != 0 && p->heads_kv > 1 && any_visible(*p);
}
int several_heads(const assay_problem* p) { return p->heads_q > 1 && any_visible(*p); }
int heads_not_by_8(const assay_problem* p) { return p->heads_q % 8 != 0 && p->total_q > 0; }
int several_rows_visible(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return v.q_len > 1 && !v.empty(); });
}
int several_rows(const assay_problem* p) {
  return any_request(*p, [](int32_t, int32_t q, int32_t kv) { return q > 1 && kv > 0; });
}
int qk_beyond_64(const assay_problem* p) { return p->head_dim_qk > 64 && any_visible(*p); }
int qk_halves(const assay_problem* p) { return p->head_dim_qk > 1 && any_visible(*p); }
int v_not_by_64(const assay_problem* p) { return p->head_dim_v % 64 != 0 && any_visible(*p); }
int v_wider_than_k(const assay_problem* p) { return p->head_dim_v > p->head_dim_qk && any_visible(*p); }
int v_dims_turn(const assay_problem* p) { return 8 % p->head_dim_v != 0 && any_visible(*p); }
int latent_wider_than_v(const assay_problem* p) {
  return paged(*p) && p->layout == ASSAY_LAYOUT_MLA && p->head_dim_qk > p->head_dim_v && any_visible(*p);
}
int any_rows(const assay_problem* p) { return p->total_q > 0; }
int token_scales(const assay_problem* p) {
  return (p->q_scale_kind == ASSAY_SCALE_TOKEN_HEAD || p->k_scale_kind == ASSAY_SCALE_TOKEN_HEAD ||
          p->v_scale_kind == ASSAY_SCALE_TOKEN_HEAD) &&
         any_visible(*p);
}

// ---- memory

bool holds_nan(const assay_problem& p) { return p.v_format != ASSAY_INT8; }
int last_page_partial(const assay_problem* p) {
  return paged(*p) && holds_nan(*p) && any_row(*p, [&](const RowView& v) {
           return !v.empty() && v.kv_len % p->page_size != 0 && v.kv_len % kTile != 0 &&
                  v.end > v.kv_len / kTile * kTile;
         });
}
int keys_in_pages(const assay_problem* p) {
  return paged(*p) && any_request(*p, [](int32_t, int32_t, int32_t kv) { return kv > 0; });
}
int window_begins_in_tile(const assay_problem* p) {
  return paged(*p) && holds_nan(*p) &&
         any_row(*p, [](const RowView& v) { return !v.empty() && v.begin % kTile != 0; });
}
int tile_partial(const assay_problem* p) {
  return paged(*p) && holds_nan(*p) && any_row(*p, [](const RowView& v) {
           return !v.empty() && v.kv_len % kTile != 0 && v.end > v.kv_len / kTile * kTile;
         });
}

constexpr Planter kAddressing{"addressing", kWhole};

const Row kRows[] = {
    paged_only(kAddressing("page_swapped", "the first two pages of a request are exchanged", "T11",
                           "page.swapped", {.page_swapped = Pick::kFirst}, first_pages_cut)),
    control(paged_only(kAddressing(
        "page_swapped_whole", "the same where every row sees both pages whole, so that nothing is wrong",
        "T11", "page.swapped", {.page_swapped = Pick::kFirst}, first_pages_whole))),
    paged_only(kAddressing("page_v_swapped", "the first two pages of V are exchanged, those of K are not",
                           "proto:PAGE_SWAP_V", "page.v_only", {.page_v_swapped = Pick::kFirst},
                           sees_first_pages)),
    paged_only(kAddressing("page_replaced", "the middle page of a request is read from its first one",
                           "proto:PAGE_WRONG AI-18", "page.wrong", {.page_wrong = Pick::kMiddle},
                           sees_middle_page)),
    paged_only(kAddressing("page_v_late", "V is read through the page ids of the tile before", "FI-01 TR-01",
                           "page.v_only", {.page_v_of_previous_tile = true}, sees_page_of_other_tile)),
    paged_only(kAddressing("page_of_tile_start",
                           "a tile has one page id although pages are no multiple of tiles", "VL-24",
                           "page.wrong", {.page_of_tile_start = true}, tile_straddles_pages)),
    paged_only(kAddressing("page_of_manager", "the table is indexed with pages twice as long", "VL-25",
                           "page.wrong", {.page_index_halved = true}, sees_second_page)),
    paged_only(kAddressing("page_per_token", "the table is indexed by the token instead of its page",
                           "AI-01 SG-17", "page.wrong", {.page_index_per_token = true},
                           table_beyond_first_entry)),
    paged_only(kAddressing("page_id_as_slot", "page ids are multiplied by the page size once more",
                           "SG-12 SG-13", "page.wrong", {.page_id_times_page = true}, table_of_long_pages)),
    paged_only(kAddressing("page_of_next_request", "the table row of the next request is read", "AI-15",
                           "page.of_other_request", {.page_of_next_request = true}, several_requests)),
    paged_only(kAddressing(
        "page_tail_stale", "the entry of the last page was left behind by the request before", "VL-30",
        "page.of_other_request", {.last_page_of_previous = true}, last_page_after_first_request)),
    paged_only(kAddressing("page_table_dense", "rows of the page table are taken to be packed", "FA-02",
                           "memory.stride_ignored", {.page_table_dense = true}, table_rows)),
    paged_only(kAddressing("new_keys_from_start", "new tokens are looked for at the start of the request",
                           "VL-32", "keys.shifted", {.new_keys_from_start = true}, new_keys_behind_context)),
    kAddressing("newest_key_stale", "the newest key is still another token", "proto:STALE_TOKEN SG-16",
                "keys.stale_token", {.key_stale = Pick::kLast}, newest_of_two),
    kAddressing("offset_16_bits", "cache offsets wrap at 2^16 elements (the museum's wrap at 2^31)",
                "VL-15 AI-06 AI-07 FI-27", "page.wrong", {.offset_bits = 16}, cache_beyond_16_bits),
    kAddressing("q_packed", "the strides of Q are taken from its shape", "FI-29", "memory.stride_ignored",
                {.q_stride_dense = true}, visible_keys),
    kAddressing("kv_packed", "the strides of the cache are taken from its shape", "AI-13 AI-03 FI-52 FA-02",
                "memory.stride_ignored", {.kv_stride_dense = true}, visible_keys),
    kAddressing("o_with_q_strides", "O is stored with the strides of Q", "FI-30", "memory.stride_ignored",
                {.o_stride_of_q = true}, any_rows),
    kAddressing("lse_packed", "the strides of the LSE are taken from its shape", "VL-07 FA-06",
                "memory.stride_ignored", {.lse_stride_dense = true}, any_rows),
    kAddressing("scales_packed", "the strides of scales by token are taken from their shape", "VL-41",
                "memory.stride_ignored", {.scale_stride_dense = true}, token_scales),
    kAddressing("kv_head_modulo", "query head h reads KV head h mod heads_kv", "FI-28", "heads.kv_mapping",
                {.kv_head_map = HeadMap::kModulo}, grouped_heads),
    kAddressing("kv_head_power_of_two", "groups are rounded up to a power of two", "FI-04 FI-07",
                "heads.kv_mapping", {.kv_head_map = HeadMap::kPowerOfTwo}, odd_group),
    kAddressing("q_heads_swapped", "neighbouring query heads are exchanged", "TR-02 FA-34", "heads.q_swapped",
                {.q_heads_swapped = true}, several_heads),
    kAddressing("heads_remapped", "heads dealt to 8 dies: one is computed twice, one never", "AI-28",
                "output.unwritten", {.head_remap8 = true}, heads_not_by_8),
    kAddressing("q_of_next_row", "a row uses the query of the next one", "FI-38", "rows.query_of_other_row",
                {.q_row_shift = 1}, several_rows_visible),
    kAddressing("o_to_next_row", "results are stored one row late", "FA-10", "rows.written_to_other_row",
                {.o_row_shift = 1}, several_rows),
    kAddressing("qk_last_dim", "the last dimension of the product is left out", "proto:D_DROP",
                "dims.qk_dropped", {.qk_dims_dropped = 1}, visible_keys),
    kAddressing("qk_64_dims", "the product takes 64 dimensions, whatever the head has", "TL-01",
                "dims.qk_dropped", {.qk_dims_limit = 64}, qk_beyond_64),
    kAddressing("qk_second_half", "the second half of the product overwrites the first", "FI-53",
                "dims.qk_dropped", {.qk_first_half_lost = true}, qk_halves),
    kAddressing("v_whole_blocks", "dimensions of V beyond the last whole block of 64 are left out", "VL-19",
                "dims.v_dropped", {.v_dims_floor = 64}, v_not_by_64),
    kAddressing("v_dims_of_k", "V is read with the width of K", "FA-21", "dims.v_dropped",
                {.v_dims_of_qk = true}, v_wider_than_k),
    kAddressing("v_dims_rotated", "the dimensions of V are displaced by 8", "TR-02 FA-31", "dims.v_shifted",
                {.v_dim_shift = 8}, v_dims_turn),
    paged_only(kAddressing("mla_v_from_end", "V is the end of the latent row instead of its front", "VL-06",
                           "dims.v_shifted", {.mla_v_from_end = true}, latent_wider_than_v)),
    paged_only(kAddressing("tail_slots_read", "V of slots behind the last key is multiplied with weight 0",
                           "FI-40 FI-66 VL-21 VL-22 FA-29 FI-39", "memory.unused_slot",
                           {.reads_unused_slots = true}, last_page_partial)),
    paged_only(kAddressing("freed_pages_read", "V before the window is multiplied with weight 0", "VL-01",
                           "memory.unused_slot", {.reads_before_window = true}, window_begins_in_tile)),
    paged_only(kAddressing("block_zero_read", "lanes behind the last key read block 0 with weight 0",
                           "AI-08 VL-47", "memory.unused_slot", {.reads_block_zero = true}, tile_partial)),
    paged_only(
        kAddressing("table_overrun", "the page behind the last one is fetched, whatever the table says there",
                    "AI-16 FA-30 VL-34", "memory.out_of_range", {.reads_past_table = true}, keys_in_pages)),
};

}  // namespace

std::span<const Row> addressing_faults() { return kRows; }

}  // namespace assay_faulty
