// SPDX-License-Identifier: Apache-2.0
// The C view carries every field, every invariant is broken once, and the parts of a decode_splitkv are cut
// by hand. A new rule of check_problem wants a line in `RejectsEveryBrokenRule`.
#include "harness/ops/problem_view.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "harness/base/error.hpp"
#include "harness/ops/parts.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

Problem small_view() {
  Problem p;
  p.heads_q = 4;
  p.heads_kv = 2;
  p.head_dim_qk = p.head_dim_v = 16;
  p.softmax_scale = 0.25f;
  p.requests = {{3, 8}, {1, 5}};
  p.page_size = 4;
  place_pages(p);
  return p;
}

TEST(ProblemView, CarriesEveryField) {
  Problem p = small_view();
  p.mask = ASSAY_MASK_FULL;
  p.head_dim_v = 8;
  p.q_format = ASSAY_FP16;
  p.k_format = ASSAY_FP8_E4M3;
  p.v_format = ASSAY_INT8;
  p.o_format = ASSAY_FP32;
  p.q_scale = ASSAY_SCALE_NONE;
  p.k_scale = ASSAY_SCALE_HOST;
  p.v_scale = ASSAY_SCALE_CHANNEL;
  p.softcap = 30;
  p.window_left = 3;
  p.window_right = 2;
  p.chunk = 6;
  p.alibi = ASSAY_ALIBI_SQRT;
  p.sinks = true;
  p.layout = ASSAY_LAYOUT_HND;
  p.table = ASSAY_TABLE_CSR;
  const ProblemView view(p, 2, 3, 4);
  const assay_problem& c = *view.get();
  EXPECT_EQ(c.struct_size, sizeof(assay_problem));
  EXPECT_EQ(c.op, ASSAY_OP_PAGED);
  EXPECT_EQ(c.mask, ASSAY_MASK_FULL);
  EXPECT_EQ(c.heads_q, 4);
  EXPECT_EQ(c.heads_kv, 2);
  EXPECT_EQ(c.head_dim_qk, 16);
  EXPECT_EQ(c.head_dim_v, 8);
  EXPECT_EQ(c.q_format, ASSAY_FP16);
  EXPECT_EQ(c.k_format, ASSAY_FP8_E4M3);
  EXPECT_EQ(c.v_format, ASSAY_INT8);
  EXPECT_EQ(c.o_format, ASSAY_FP32);
  EXPECT_EQ(c.q_scale_kind, ASSAY_SCALE_NONE);
  EXPECT_EQ(c.k_scale_kind, ASSAY_SCALE_HOST);
  EXPECT_EQ(c.v_scale_kind, ASSAY_SCALE_CHANNEL);
  EXPECT_EQ(c.q_scale_host, 1);  // not HOST: the value is not used
  EXPECT_EQ(c.k_scale_host, 3);
  EXPECT_EQ(c.v_scale_host, 1);
  EXPECT_EQ(c.softmax_scale, 0.25f);
  EXPECT_EQ(c.softcap, 30);
  EXPECT_EQ(c.window_left, 3);
  EXPECT_EQ(c.window_right, 2);
  EXPECT_EQ(c.chunk, 6);
  EXPECT_EQ(c.alibi, ASSAY_ALIBI_SQRT);
  EXPECT_EQ(c.has_sinks, 1);
  EXPECT_EQ(c.layout, ASSAY_LAYOUT_HND);
  EXPECT_EQ(c.page_size, 4);
  EXPECT_EQ(c.table, ASSAY_TABLE_CSR);
  EXPECT_EQ(c.requests, 2);
  EXPECT_EQ(c.max_q_len, 3);
  EXPECT_EQ(c.max_kv_len, 8);
  EXPECT_EQ(c.total_q, 4);
  EXPECT_EQ(c.total_kv, 13);
  EXPECT_EQ(c.q_len[1], 1);
  EXPECT_EQ(c.kv_len[1], 5);
  p.op = ASSAY_OP_PREFILL;
  EXPECT_EQ(ProblemView(p).get()->table, ASSAY_TABLE_NONE);
  EXPECT_EQ(ProblemView(p).get()->page_size, 0);
}

TEST(ProblemView, CarriesWhatOfMetadataOpsTheOpTakes) {
  Problem p = small_view();
  p.pages.clear();
  p.ranks = 5, p.interleave = 16, p.threshold = 4, p.token_budget = 99, p.prefix_tokens = 12;
  p.op = ASSAY_OP_DCP_LENGTHS;
  const ProblemView ranks(p);
  EXPECT_EQ(ranks.get()->ranks, 5);
  EXPECT_EQ(ranks.get()->interleave, 16);
  EXPECT_EQ(ranks.get()->token_budget, 0);
  p.op = ASSAY_OP_SPLIT_BATCH;
  EXPECT_EQ(ProblemView(p).get()->threshold, 4);
  EXPECT_EQ(ProblemView(p).get()->ranks, 0);
  p.op = ASSAY_OP_CHUNK_METADATA;
  EXPECT_EQ(ProblemView(p).get()->token_budget, 99);
  p.op = ASSAY_OP_CASCADE_METADATA;
  EXPECT_EQ(ProblemView(p).get()->prefix_tokens, 12);
}

struct Broken {
  const char* message;  // a part of what the error must say
  std::function<void(Problem&)> breaks;
};

TEST(CheckProblem, RejectsEveryBrokenRule) {
  EXPECT_NO_THROW(check_problem(small_view()));
  const std::vector<Broken> cases = {
      {"op is 1000", [](Problem& p) { p.op = 1000; }},
      {"mask is 9", [](Problem& p) { p.mask = 9; }},
      {"alibi is -1", [](Problem& p) { p.alibi = -1; }},
      {"both must be positive", [](Problem& p) { p.heads_kv = 0; }},
      {"heads_q 5 is not a multiple of heads_kv 2", [](Problem& p) { p.heads_q = 5; }},
      {"head dims are 0", [](Problem& p) { p.head_dim_qk = 0; }},
      {"window is (-2", [](Problem& p) { p.window_left = -2; }},
      {"chunk is -1", [](Problem& p) { p.chunk = -1; }},
      {"softcap is -1", [](Problem& p) { p.softcap = -1; }},
      {"softmax_scale is 0", [](Problem& p) { p.softmax_scale = 0; }},
      {"request 1 has q_len -1", [](Problem& p) { p.requests[1].q_len = -1; }},
      {"shares with 1", [](Problem& p) { p.requests[1].shared_with = 1; }},
      {"shares 6 tokens, at most 5",
       [](Problem& p) {
         p.requests[1].shared_with = 0;
         p.requests[1].shared_tokens = 6;
       }},
      {"shares 1 tokens, at most 0", [](Problem& p) { p.requests[0].shared_tokens = 1; }},
      {"offsets hold at most", [](Problem& p) { p.requests[1].q_len = p.requests[0].q_len = 1 << 30; }},
      {"tree_mask has 1 entries, needed are 0", [](Problem& p) { p.tree_mask = {1}; }},
      {"tree_mask has 0 entries, needed are 10", [](Problem& p) { p.mask = ASSAY_MASK_TREE; }},
      {"tree_mask holds 2",
       [](Problem& p) {
         p.mask = ASSAY_MASK_TREE;
         p.tree_mask.assign(10, 2);
       }},
      {"q_format is int32", [](Problem& p) { p.q_format = ASSAY_INT32; }},
      {"k_format is ?", [](Problem& p) { p.k_format = ASSAY_FORMAT_NONE; }},
      {"o_format is int8", [](Problem& p) { p.o_format = ASSAY_INT8; }},
      {"bf16 values carry no scale", [](Problem& p) { p.v_scale = ASSAY_SCALE_HEAD; }},
      {"int8 codes need a scale", [](Problem& p) { p.q_format = ASSAY_INT8; }},
      {"layout is 8", [](Problem& p) { p.layout = 8; }},
      {"needs a page table", [](Problem& p) { p.table = ASSAY_TABLE_NONE; }},
      {"page_size is 0", [](Problem& p) { p.page_size = 0; }},
      {"5 blocks, at least 6 wanted", [](Problem& p) { p.min_blocks = 6; }},
      {"head_dim_qk 12 is not a multiple of x = 8",
       [](Problem& p) {
         p.layout = ASSAY_LAYOUT_X;
         p.head_dim_qk = 12;
       }},
      {"page_size 4 is not a multiple of x = 8", [](Problem& p) { p.layout = ASSAY_LAYOUT_SHUFFLED; }},
      {"one KV head", [](Problem& p) { p.layout = ASSAY_LAYOUT_MLA; }},
      {"takes V from K's row",
       [](Problem& p) {
         p.layout = ASSAY_LAYOUT_MLA;
         p.heads_kv = 1;
         p.head_dim_v = 32;
       }},
      {"one latent cache",
       [](Problem& p) {
         p.layout = ASSAY_LAYOUT_MLA;
         p.heads_kv = 1;
         p.v_format = ASSAY_FP16;
       }},
      {"no V plane",
       [](Problem& p) {
         p.layout = ASSAY_LAYOUT_MLA;
         p.heads_kv = 1;
         p.storage = Storage::kStacked;
       }},
      {"must have one head dim",
       [](Problem& p) {
         p.storage = Storage::kInterleaved;
         p.head_dim_v = 8;
       }},
      {"needs a window", [](Problem& p) { p.swa_index = true; }},
      {"pages of 1 requests", [](Problem& p) { p.pages.pop_back(); }},
      {"has 1 pages, 8 keys need 2", [](Problem& p) { p.pages[0].pop_back(); }},
      {"is block -1", [](Problem& p) { p.pages[0][0] = -1; }},
      {"is block 5 of 5", [](Problem& p) { p.pages[0][0] = p.num_blocks; }},
      {"which holds page 0 of request 0", [](Problem& p) { p.pages[1][0] = p.pages[0][0]; }},
      {"and, shared by 1, block",
       [](Problem& p) {
         p.requests[1].shared_with = 0;
         p.requests[1].shared_tokens = 4;
       }},
      {"outside the window but its block",
       [](Problem& p) {
         p.swa_index = true;
         p.window_left = 0;
         p.requests[0] = {1, 8};
         p.pages[0][0] = p.pages[1][1];
       }},
      {"property of a paged cache",
       [](Problem& p) {
         p.op = ASSAY_OP_PREFILL;
         p.pages.clear();
         p.swa_index = true;
       }},
      {"has no pages", [](Problem& p) { p.op = ASSAY_OP_PREFILL; }},
      {"0 ranks in turns of 1 tokens", [](Problem& p) { p.op = ASSAY_OP_DCP_LENGTHS, p.ranks = 0; }},
      {"chunks of 6 tokens in pages of 4", [](Problem& p) { p.op = ASSAY_OP_LOCAL_BATCHES, p.chunk = 6; }},
      {"a threshold of -1 rows", [](Problem& p) { p.op = ASSAY_OP_SPLIT_BATCH, p.threshold = -1; }},
      {"a budget of 0 tokens", [](Problem& p) { p.op = ASSAY_OP_CHUNK_METADATA, p.token_budget = 0; }},
      {"a prefix of -1 tokens", [](Problem& p) { p.op = ASSAY_OP_CASCADE_METADATA, p.prefix_tokens = -1; }},
  };
  for (const Broken& broken : cases) {
    Problem p = small_view();
    ASSERT_EQ(p.num_blocks, 5);
    broken.breaks(p);
    try {
      check_problem(p);
      ADD_FAILURE() << "accepted: " << broken.message;
    } catch (const CheckError& error) {
      EXPECT_NE(std::string(error.what()).find(broken.message), std::string::npos)
          << "wanted: " << broken.message << "\ngot: " << error.what();
    }
  }
}

std::string parts_text(const Problem& p, int32_t kv_len) {
  std::string text;
  for (int32_t s = 0; s < p.states; ++s) {
    const KeyRange keys = part_keys(p, kv_len, s);
    text += std::to_string(keys.begin) + "-" + std::to_string(keys.end) + " ";
  }
  return text;
}

TEST(Parts, AreOfSoManyKeys) {
  Problem p;
  p.op = ASSAY_OP_DECODE_SPLITKV, p.part_tokens = 256, p.states = 3;
  EXPECT_EQ(parts_text(p, 700), "0-256 256-512 512-700 ");
  EXPECT_EQ(parts_text(p, 256), "0-256 256-256 256-256 ");
  EXPECT_EQ(parts_text(p, 0), "0-0 0-0 0-0 ");
}

TEST(Parts, AreWholePagesSharedOut) {
  Problem p;
  p.op = ASSAY_OP_DECODE_SPLITKV, p.page_size = 4, p.states = 3;
  EXPECT_EQ(parts_text(p, 10), "0-4 4-8 8-10 ");
  EXPECT_EQ(parts_text(p, 17), "0-4 4-12 12-17 ") << "5 pages: 1, 2 and 2";
  p.states = 4;  // more than pages
  EXPECT_EQ(parts_text(p, 10), "0-0 0-4 4-8 8-10 ");
  p.states = 1;
  EXPECT_EQ(parts_text(p, 10), "0-10 ");
}

TEST(Parts, HideTheKeysOfTheOthers) {
  Problem p;
  p.op = ASSAY_OP_DECODE_SPLITKV, p.part_tokens = 4, p.states = 3, p.window_left = 5;
  p.requests = {{1, 10}};
  std::string seen;
  for (int32_t s = 0; s < p.states; ++s) {
    const Problem part = part_of(p, s);
    for (int32_t key = 0; key < 10; ++key) seen += visible(part, 0, 0, key) ? '#' : '.';
    const KeyRange range = visible_range(part, 0, 0);
    seen += " " + std::to_string(range.begin) + "-" + std::to_string(range.end) + "\n";
  }
  // Position 9 sees keys 4 .. 9, of which the first part holds none.
  EXPECT_EQ(seen, ".......... 0-0\n....####.. 4-8\n........## 8-10\n");
}

}  // namespace
}  // namespace assay
