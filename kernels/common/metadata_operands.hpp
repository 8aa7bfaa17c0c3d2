// SPDX-License-Identifier: Apache-2.0
// What the metadata ops (metadata.hpp) read and write, and what their functions share: teams of threads,
// places in tables, sums and fills.
#pragma once

#include "kernels/common/operands.hpp"

#if defined(__CUDACC__) || defined(__HIPCC__)
#  define ASSAY_MEMBER __host__ __device__
#  define ASSAY_TEAM static __device__ inline  // what a team runs: on the host there is none
// Bodies are long and full of addresses of 64 bits: several at a time take more registers than there are.
#  define ASSAY_ONE_AT_A_TIME _Pragma("unroll 1")
#else
#  define ASSAY_MEMBER
#  define ASSAY_TEAM ASSAY_INLINE
#  define ASSAY_ONE_AT_A_TIME
#endif

namespace assay_kernels {

// int32 [rows, columns] or [columns]; strides in elements.
struct Ints {
  int32_t* data;  // null: not used
  int64_t rows, columns, row, column;
  ASSAY_MEMBER int32_t& at(int64_t i) const { return data[i * column]; }
  ASSAY_MEMBER int32_t& at(int64_t i, int64_t j) const { return data[i * row + j * column]; }
};

struct MetadataOperands {
  int32_t op, requests, table, page_size, chunk;
  int32_t ranks, interleave, threshold, token_budget, prefix_tokens, window_left;
  int32_t heads_q, heads, workers, tile_rows, block_keys;
  int32_t drafted;        // draft steps before the rows
  bool flat_tree, plain;  // plain: neither bias, window nor chunks
  int64_t rows;           // of out_len of the tree tables
  // Read. pages: the block table or that of slots.
  Ints cu_q, kv_len, context_len, pages, indptr, indices;
  Ints encoder_len;  // tokens that stand before a request's own in its row of the table; null: none
  Ints slot_map;     // from slots of the table to those of the cache; null: they are the same
  const uint8_t* tree_mask;
  const int64_t* tree_indptr;
  int64_t tree_mask_stride, tree_indptr_stride;
  // Written.
  Ints out_len, out_cu_q, out_cu_kv, out_starts, out_table, out_indices, out_request, out_counts;
  Ints work_indptr, work_info, reduce_indptr, reduce_final_map, reduce_partial_map;
};

// False and a text when a needed operand is missing or contradicts the problem.
bool make_metadata_operands(const assay_problem*, const assay_tensors*, MetadataOperands*, char* error,
                            size_t error_size);

// Of the entries in the C table, whose kernels differ in their op alone: any problem of it; integers.
int metadata_supports(const assay_kernel*, const assay_problem*, const assay_tensors*, const assay_device*,
                      char* why, size_t size);
int metadata_arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic*);

// The smallest team.
struct OneThread {
  int32_t thread() const { return 0; }
  int32_t threads() const { return 1; }
  int64_t sum(int64_t x) const { return x; }
  int32_t least(int32_t x) const { return x; }
  int64_t before(int64_t) const { return 0; }
};

namespace metadata {

ASSAY_INLINE int32_t rows_of(const MetadataOperands& m, int64_t r) { return m.cu_q.at(r + 1) - m.cu_q.at(r); }
ASSAY_INLINE int32_t greater(int32_t a, int32_t b) { return a > b ? a : b; }
ASSAY_INLINE int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
ASSAY_INLINE int32_t pages_of(const MetadataOperands& m, int32_t tokens) {
  return tokens / m.page_size + (tokens % m.page_size != 0 ? 1 : 0);
}
ASSAY_INLINE int32_t encoder_of(const MetadataOperands& m, int64_t r) {
  return m.encoder_len.data == nullptr ? 0 : m.encoder_len.at(r);
}
// Where the pages of a request's own keys stand in the table: page i is first[i * step] / slots.
struct PageRow {
  const int32_t* first;
  int64_t step;
  int32_t slots;
};
ASSAY_INLINE PageRow page_row(const MetadataOperands& m, int64_t r) {
  if (m.table == ASSAY_TABLE_CSR) return {&m.indices.at(m.indptr.at(r)), m.indices.column, 1};
  if (m.table == ASSAY_TABLE_TOKEN)
    return {&m.pages.at(r, encoder_of(m, r)), m.page_size * m.pages.column, m.page_size};
  return {&m.pages.at(r, pages_of(m, encoder_of(m, r))), m.pages.column, 1};
}
// A page of the table as it stands there, and where it lies in this layer's cache.
ASSAY_INLINE int32_t listed_page(const MetadataOperands& m, int64_t r, int64_t page) {
  const PageRow row = page_row(m, r);
  return row.first[page * row.step] / row.slots;
}
ASSAY_INLINE int32_t mapped_page(const MetadataOperands& m, int32_t listed) {
  return m.slot_map.data == nullptr ? listed : m.slot_map.at(int64_t{listed} * m.page_size) / m.page_size;
}
ASSAY_INLINE int32_t page_of(const MetadataOperands& m, int64_t r, int64_t page) {
  return mapped_page(m, listed_page(m, r, page));
}
ASSAY_INLINE int32_t slot_of(const MetadataOperands& m, int64_t r, int64_t key) {
  if (m.table == ASSAY_TABLE_TOKEN && m.slot_map.data == nullptr)
    return m.pages.at(r, encoder_of(m, r) + key);
  if (m.table == ASSAY_TABLE_TOKEN) return m.slot_map.at(m.pages.at(r, encoder_of(m, r) + key));
  return page_of(m, r, key / m.page_size) * m.page_size + static_cast<int32_t>(key % m.page_size);
}

// The sum of value(i) over i < end, known to every thread.
template <class Team, class Value>
ASSAY_TEAM int64_t sum_below(const Team& team, int64_t end, const Value& value) {
  int64_t own = 0;
  ASSAY_ONE_AT_A_TIME
  for (int64_t i = team.thread(); i < end; i += team.threads()) own += value(i);
  return team.sum(own);
}
template <class Team, class Value>
ASSAY_TEAM int32_t least_below(const Team& team, int64_t end, int32_t none, const Value& value) {
  int32_t own = none;
  ASSAY_ONE_AT_A_TIME
  for (int64_t i = team.thread(); i < end; i += team.threads()) own = smaller(own, value(i));
  return team.least(own);
}
// list[from ..] = value, to the end of the tensor.
template <class Team>
ASSAY_TEAM void fill(const Team& team, const Ints& list, int64_t from, int64_t value) {
  for (int64_t i = from + team.thread(); i < list.columns; i += team.threads())
    list.at(i) = static_cast<int32_t>(value);
}

}  // namespace metadata
}  // namespace assay_kernels
