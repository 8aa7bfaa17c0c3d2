// SPDX-License-Identifier: Apache-2.0
// Wrong tables of draft trees (see metadata_faults.hpp).
#include <algorithm>

#include "harness/check/testing/metadata_faults.hpp"

namespace {

using namespace assay_kernels;
using M = MetadataOperands;
constexpr int32_t kTree = ASSAY_OP_TREE_TABLES, kSwaTree = ASSAY_OP_SWA_TREE_TABLE;

// Every live row of a tree table: the request, the row within it.
template <class Row>
void each_row(const M& m, const Row& row) {
  for (int64_t r = 0; r < m.requests; ++r)
    for (int32_t i = 0; i < rows_of(m, r); ++i) row(r, i, m.cu_q.at(r) + i);
}

const MetadataFault kFaults[] = {
    {"tree_right", kTree, [](M m) { right(m); }},
    {"tree_diagonal", kTree,  // every draft is expected to see itself
     [](M m) {
       right(m);
       each_row(m, [&](int64_t r, int32_t i, int64_t row) {
         const int32_t n = rows_of(m, r);
         int32_t count = 0;
         for (int32_t j = 0; j < n; ++j)
           count += j == i || m.tree_mask[m.tree_indptr[r] + i * n + j] != 0 ? 1 : 0;
         m.out_len.at(row) = count;
       });
     }},
    {"tree_reversed", kTree,
     [](M m) {
       right(m);
       each_row(m, [&](int64_t, int32_t, int64_t row) {
         const int32_t n = m.out_len.at(row);
         for (int32_t i = 0; i < n / 2; ++i)
           std::swap(m.out_table.at(row, i), m.out_table.at(row, n - 1 - i));
       });
     }},
    {"tree_not_compacted", kTree,  // drafts at their own column
     [](M m) {
       right(m);
       each_row(m, [&](int64_t r, int32_t i, int64_t row) {
         const int32_t n = rows_of(m, r), context = m.kv_len.at(r) - n;
         for (int32_t j = 0; j < n; ++j)
           if (m.tree_mask[m.tree_indptr[r] + i * n + j] != 0)
             m.out_table.at(row, j) = metadata::slot_of(m, r, context + j);
       });
     }},
    {"tree_pages", kTree,  // pages where slots belong
     [](M m) {
       right(m);
       each_row(m, [&](int64_t, int32_t, int64_t row) {
         for (int32_t i = 0; i < m.out_len.at(row); ++i) m.out_table.at(row, i) /= m.page_size;
       });
     }},
    {"tree_first_mask", kTree,  // every request reads the mask at 0
     [](M m) {
       static const int64_t zeros[1] = {0};
       m.tree_indptr = zeros, m.tree_indptr_stride = 0;
       right(m);
     }},
    {"tree_flat_as_compact", kTree,  // the columns of the context are taken for drafts
     [](M m) {
       m.flat_tree = false;
       right(m);
     }},
    {"tree_new_alone", kTree,  // drafts of steps before are context
     [](M m) {
       m.drafted = 0;
       right(m);
     }},
    {"tree_stale_lengths", kTree,
     [](M m) {
       m.rows = m.cu_q.at(m.requests);
       right(m);
     }},
    {"swa_right", kSwaTree, [](M m) { right(m); }},
    {"swa_drafts_only", kSwaTree,
     [](M m) {
       m.op = kTree;
       right(m);
     }},
    {"swa_drafts_first", kSwaTree,
     [](M m) {
       right(m);
       each_row(m, [&](int64_t r, int32_t, int64_t row) {
         const int32_t context = m.kv_len.at(r) - rows_of(m, r), n = m.out_len.at(row);
         int32_t* first = &m.out_table.at(row, 0);
         if (m.out_table.column == 1) std::rotate(first, first + context, first + n);
       });
     }},
    {"swa_all_drafts", kSwaTree,  // length of prefix and every draft
     [](M m) {
       right(m);
       each_row(m, [&](int64_t r, int32_t, int64_t row) { m.out_len.at(row) = m.kv_len.at(r); });
     }},
    {"swa_page_one", kSwaTree,  // T: right at pages of one token only
     [](M m) {
       right(m);
       each_row(m, [&](int64_t r, int32_t, int64_t row) {
         for (int32_t j = 0; j < m.kv_len.at(r) - rows_of(m, r); ++j)
           m.out_table.at(row, j) = metadata::page_of(m, r, j / m.page_size);
       });
     }},
};

}  // namespace

std::span<const MetadataFault> tree_faults() { return kFaults; }
