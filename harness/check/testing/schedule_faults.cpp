// SPDX-License-Identifier: Apache-2.0
// Wrong schedules (see metadata_faults.hpp). Most begin with the right schedule: what is wrong is then one
// entry of a kind that a kernel would follow without noticing.
#include <algorithm>

#include "harness/check/testing/metadata_faults.hpp"

namespace {

using namespace assay_kernels;
using M = MetadataOperands;

// The first row of work that is a part.
int32_t first_part(const M& m) {
  int32_t i = 0;
  while (m.work_info.at(i, 6) < 0) ++i;
  return i;
}

constexpr int32_t kPs = ASSAY_OP_PS_METADATA;
const MetadataFault kFaults[] = {
    {"ps_right", kPs, [](M m) { right(m); }},
    {"ps_by_tiles",
     kPs,  // whole tiles in turns: right about the keys, and one worker has the longest request
     [](M m) {
       int32_t count = 0;
       for (int64_t r = 0; r < m.requests; ++r)
         for (int64_t t = 0; t < metadata::tiles_of(m, r); ++t)
           for (int32_t head = 0; head < m.heads; ++head, ++count) {
             const int32_t rows = rows_of(m, r), keys = m.kv_len.at(r);
             const int32_t first = static_cast<int32_t>(t) * m.tile_rows;
             const int32_t row[8] = {static_cast<int32_t>(r),
                                     head,
                                     m.cu_q.at(r) + first,
                                     m.cu_q.at(r) + std::min(first + m.tile_rows, rows),
                                     0,
                                     metadata::tile_keys_of(m, keys, rows, t),
                                     -1,
                                     keys - rows + first};
             for (int i = 0; i < 8; ++i) m.work_info.at(count, i) = row[i];
           }
       for (int32_t w = 0; w <= m.workers; ++w) {
         m.work_indptr.at(w) = count * w / m.workers;
         m.reduce_indptr.at(w) = 0;
       }
       for (int64_t i = 0; i < m.reduce_partial_map.columns; ++i) m.reduce_partial_map.at(i) = -1;
     }},
    {"ps_keys_of_request", kPs,  // every tile is given all keys, as if it were not causal
     [](M m) {
       right(m);
       for (int32_t i = 0; i < m.work_indptr.at(m.workers); ++i)
         if (m.work_info.at(i, 6) < 0) m.work_info.at(i, 5) = m.kv_len.at(m.work_info.at(i, 0));
     }},
    {"ps_drops_blind_rows", kPs,  // tiles without a key are left out: nobody writes their rows
     [](M m) {
       right(m);
       int32_t kept = 0, w = 0;
       const int32_t all = m.work_indptr.at(m.workers);
       for (int32_t i = 0; i < all; ++i) {
         for (; w <= m.workers && m.work_indptr.at(w) == i; ++w) m.work_indptr.at(w) = kept;
         if (m.work_info.at(i, 5) == 0) continue;
         for (int c = 0; c < 8; ++c) m.work_info.at(kept, c) = m.work_info.at(i, c);
         ++kept;
       }
       for (; w <= m.workers; ++w) m.work_indptr.at(w) = kept;
     }},
    {"ps_as_if_without_context", kPs,  // T: built from the lengths of the rows alone
     [](M m) {
       static int32_t lengths[64];
       Ints keys = m.kv_len;
       keys.data = lengths, keys.column = 1;
       for (int64_t r = 0; r < m.requests; ++r) keys.at(r) = rows_of(m, r);
       m.kv_len = keys;
       right(m);
     }},
    {"ps_starts_arange", kPs,  // T: a row of every request
     [](M m) {
       static int32_t starts[65];
       Ints rows = m.cu_q;
       rows.data = starts, rows.column = 1;
       for (int32_t r = 0; r <= m.requests; ++r) rows.at(r) = r;
       m.cu_q = rows;
       right(m);
     }},
    {"ps_count_in_last_entry", kPs,  // T: parts counted by the last entry, behind which nothing was written
     [](M m) {
       Ints short_list = m.reduce_indptr;
       short_list.columns = 0;
       for (int64_t i = 0; i < m.reduce_indptr.columns; ++i) m.reduce_indptr.at(i) = 0;
       M narrow = m;
       narrow.reduce_indptr = short_list;
       right(narrow);
     }},
    {"ps_cut_inside_block", kPs,
     [](M m) {
       right(m);
       const int32_t i = first_part(m);
       --m.work_info.at(i, 5), --m.work_info.at(i + 1, 4);
     }},
    {"ps_key_twice", kPs,
     [](M m) {
       right(m);
       const int32_t i = first_part(m);
       m.work_info.at(i, 5) += m.block_keys;
     }},
    {"ps_part_as_whole", kPs,
     [](M m) {
       right(m);
       m.work_info.at(first_part(m), 6) = -1;
     }},
    {"ps_parts_share_a_place", kPs,
     [](M m) {
       right(m);
       const int32_t i = first_part(m);
       m.work_info.at(i + 1, 6) = m.work_info.at(i, 6);
     }},
    {"ps_merges_other_head", kPs,
     [](M m) {
       right(m);
       m.reduce_final_map.at(0, 2) = (m.reduce_final_map.at(0, 2) + 1) % m.heads;
     }},
    {"ps_stale_tail", kPs,
     [](M m) {
       int64_t parts = 0;
       right(m);
       while (parts < m.reduce_partial_map.columns && m.reduce_partial_map.at(parts) >= 0) ++parts;
       for (int64_t i = parts; i < m.reduce_partial_map.columns; ++i) m.reduce_partial_map.at(i) = 0;
     }},
};

}  // namespace

std::span<const MetadataFault> schedule_faults() { return kFaults; }
