// SPDX-License-Identifier: Apache-2.0
// The published example of local batches, and the proof by computation that causal attention over the virtual
// batches equals chunk-mask attention, through the real page tables. Also what the chunk-cutting rule found
// in the field (cut to the longest request, then down to a page multiple) does to the mathematics.
#include "reference/data_ops/local_batches.hpp"

#include <gtest/gtest.h>

#include "reference/attention/test_operands.hpp"

namespace assay {
namespace {

using Ints = std::vector<int32_t>;

TEST(LocalBatches, PublishedExample) {
  const Ints q = {4, 10, 5}, kv = {6, 17, 9};
  std::vector<Ints> table(3);
  for (int32_t r = 0; r < 3; ++r)
    for (int32_t i = 0; i < 10; ++i) table[r].push_back(10 * r + i);
  const LocalBatches local = local_batches(q, kv, 4, 2, table);
  EXPECT_EQ(local.q_lens, (Ints{2, 2, 1, 4, 4, 1, 4, 1}));
  EXPECT_EQ(local.k_lens, (Ints{4, 2, 4, 4, 4, 1, 4, 1}));
  EXPECT_EQ(local.cu_q, (Ints{0, 2, 4, 5, 9, 13, 14, 18, 19}));
  EXPECT_EQ(local.table,
            (std::vector<Ints>{{0, 1}, {2, 3}, {12, 13}, {14, 15}, {16, 17}, {18, 19}, {22, 23}, {24, 25}}));
  EXPECT_EQ(local.request, (Ints{0, 0, 1, 1, 1, 1, 2, 2}));
  EXPECT_EQ(local.first_row, (Ints{0, 2, 0, 1, 5, 9, 0, 4}));
  EXPECT_EQ(local.first_key, (Ints{0, 4, 4, 8, 12, 16, 4, 8}));
}

TEST(LocalBatches, EdgesOfTheRange) {
  // No rows; no keys; more rows than keys; a chunk longer than everything; a table that ends inside a chunk.
  const Ints q = {0, 2, 3, 1}, kv = {5, 0, 1, 3};
  const LocalBatches local = local_batches(q, kv, 100);
  EXPECT_EQ(local.request, (Ints{1, 2, 2, 3}));
  EXPECT_EQ(local.q_lens, (Ints{2, 2, 1, 1}));
  EXPECT_EQ(local.k_lens, (Ints{0, 0, 1, 3}));
  const std::vector<Ints> table = {{7, 8, 9}};
  EXPECT_EQ(local_batches(Ints{1}, Ints{5}, 8, 2, table).table, (std::vector<Ints>{{7, 8, 9, 9}}));
  EXPECT_THROW(local_batches(Ints{1}, Ints{5}, 5, 2, table), CheckError);
  EXPECT_THROW(local_batches(Ints{1}, Ints{7}, 8, 2, table), CheckError);
  EXPECT_THROW(local_batches(Ints{1}, Ints{5}, 0), CheckError);
}

Problem chunked_problem(int32_t chunk, std::vector<Request> requests) {
  Problem p;
  p.heads_q = 2;
  p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = 8;
  p.softmax_scale = 0.5f;
  p.page_size = 2;
  p.chunk = chunk;
  p.requests = std::move(requests);
  return p;
}

// Causal attention over the virtual batches, on the cache of `operands`.
AttentionResult over_local_batches(test::TestOperands& operands, int32_t chunk) {
  const Problem& whole = operands.problem();
  const LocalBatches local =
      local_batches(whole.q_lens(), whole.kv_lens(), chunk, whole.page_size, whole.pages);
  Problem p = whole;
  p.chunk = 0;
  p.requests.clear();
  for (size_t b = 0; b < local.q_lens.size(); ++b) p.requests.push_back({local.q_lens[b], local.k_lens[b]});
  Ints kv_lens = local.k_lens, cu_q = local.cu_q, table;
  const auto width = int64_t(chunk / whole.page_size), batches = int64_t(local.q_lens.size());
  for (Ints row : local.table) {
    row.resize(width, -1);
    table.insert(table.end(), row.begin(), row.end());
  }
  assay_tensors tensors = operands.tensors();
  tensors.cu_q = {cu_q.data(), ASSAY_INT32, 1, {batches + 1}, {1}};
  tensors.kv_len = {kv_lens.data(), ASSAY_INT32, 1, {batches}, {1}};
  tensors.block_table = {table.data(), ASSAY_INT32, 2, {batches, width}, {width, 1}};
  HostOperands host;
  host.tensors = &tensors;
  return attention_simple(p, host, test::all_rows(p));
}

TEST(LocalBatches, CausalOverThemIsChunkAttention) {
  for (const int32_t chunk : {2, 4, 6, 64}) {
    const Problem p = chunked_problem(chunk, {{4, 6}, {10, 17}, {5, 9}, {3, 1}, {1, 12}, {0, 4}, {7, 7}});
    test::TestOperands operands(p, test::random_values(p, chunk));
    const AttentionResult masked =
        attention_simple(operands.problem(), operands.host(), test::all_rows(operands.problem()));
    const AttentionResult local = over_local_batches(operands, chunk);
    EXPECT_EQ(masked.o, local.o) << "chunk " << chunk;
    EXPECT_EQ(masked.lse, local.lse) << "chunk " << chunk;
  }
}

TEST(LocalBatches, CuttingTheChunkDownToAPageMultipleIsAnotherMask) {
  // Chunk 100 over a longest request of 7 with pages of 2: cut to 7, then to 6. Position 6 loses its past.
  const Problem p = chunked_problem(100, {{7, 7}});
  test::TestOperands operands(p, test::random_values(p, 1));
  const AttentionResult masked =
      attention_simple(operands.problem(), operands.host(), test::all_rows(operands.problem()));
  EXPECT_EQ(over_local_batches(operands, 8).o, masked.o)
      << "rounding up past the longest request is harmless";
  const AttentionResult cut = over_local_batches(operands, 6);
  for (int64_t n = 0; n < 6; ++n) EXPECT_EQ(cut.lse_at(n, 0), masked.lse_at(n, 0)) << n;
  EXPECT_NE(cut.lse_at(6, 0), masked.lse_at(6, 0));
}

}  // namespace
}  // namespace assay
