// SPDX-License-Identifier: Apache-2.0
// Every rule with a case that breaks it and nothing else, combinations that must stay allowed, and the
// promise covering arrays live on: a rule looks at the fields it names and at no other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "harness/scenario/extent.hpp"
#include "harness/scenario/fields.hpp"
#include "harness/scenario/limits.hpp"
#include "harness/scenario/random_scenario.hpp"

namespace assay {
namespace {

const Rule& rule_named(std::string_view name) {
  for (const Rule& rule : rules())
    if (rule.name == name) return rule;
  throw std::runtime_error("no rule " + std::string(name));
}

TEST(Rules, EachIsBrokenByItsCase) {
  const Scenario good = parse_scenario("paged h=8/1 d=64 batch=2q4s100");
  std::map<std::string_view, std::vector<std::function<void(Scenario&)>>> broken;
  broken["heads"] = {[](Scenario& s) { s.heads_kv = 3; }, [](Scenario& s) { s.heads_kv = 0; },
                     [](Scenario& s) { s.heads_q = 2048; }};
  broken["head_dims"] = {[](Scenario& s) { s.head_dim_v = 0; }, [](Scenario& s) { s.head_dim_qk = 1025; }};
  broken["formats"] = {[](Scenario& s) { s.k.scale = ASSAY_SCALE_HEAD; },
                       [](Scenario& s) { s.q.format = ASSAY_INT8; },
                       [](Scenario& s) { s.o_format = ASSAY_INT8; }};
  broken["cache_fields"] = {[](Scenario& s) { s.op = ASSAY_OP_PREFILL, s.page_size = 32; },
                            [](Scenario& s) { s.op = ASSAY_OP_PREFILL, s.table = ASSAY_TABLE_CSR; }};
  broken["page_size"] = {[](Scenario& s) { s.page_size = 0; }};
  broken["mla_heads"] = {[](Scenario& s) { s.layout = ASSAY_LAYOUT_MLA, s.heads_kv = 2; }};
  broken["mla_dims"] = {[](Scenario& s) { s.layout = ASSAY_LAYOUT_MLA, s.head_dim_v = 65; }};
  broken["mla_formats"] = {[](Scenario& s) { s.layout = ASSAY_LAYOUT_MLA, s.v.format = ASSAY_FP16; }};
  broken["mla_storage"] = {[](Scenario& s) { s.layout = ASSAY_LAYOUT_MLA, s.storage = Storage::kStacked; }};
  broken["packed_dim"] = {[](Scenario& s) { s.layout = ASSAY_LAYOUT_X, s.head_dim_qk = s.head_dim_v = 68; },
                          [](Scenario& s) {
                            s.layout = ASSAY_LAYOUT_X, s.head_dim_qk = 72;  // fits bf16 (8), not fp8 (16)
                            s.k = s.v = {ASSAY_FP8_E4M3, ASSAY_SCALE_TENSOR};
                          }};
  broken["packed_page"] = {[](Scenario& s) { s.layout = ASSAY_LAYOUT_SHUFFLED, s.page_size = 4; }};
  broken["shared_storage"] = {[](Scenario& s) { s.storage = Storage::kStacked, s.head_dim_v = 32; },
                              [](Scenario& s) {
                                s.storage = Storage::kInterleaved, s.head_dim_qk = s.head_dim_v = 66,
                                s.k = {ASSAY_INT8, ASSAY_SCALE_TENSOR};
                              }};
  broken["swa_index"] = {
      [](Scenario& s) { s.swa_index = true; },
      [](Scenario& s) { s.swa_index = true, s.window_left = 5, s.mask = ASSAY_MASK_TREE; }};
  broken["strided_table"] = {[](Scenario& s) { s.strided.table = true, s.table = ASSAY_TABLE_CSR; },
                             [](Scenario& s) { s.op = ASSAY_OP_PREFILL, s.strided.table = true; }};
  broken["strided_last"] = {[](Scenario& s) { s.strided.last = true, s.layout = ASSAY_LAYOUT_X; },
                            [](Scenario& s) { s.strided.last = true, s.layout = ASSAY_LAYOUT_SHUFFLED; }};
  broken["drawn_slots"] = {[](Scenario& s) { s.drawn_slots = true; },
                           [](Scenario& s) { s.drawn_slots = true, s.table = ASSAY_TABLE_CSR; },
                           [](Scenario& s) { s.op = ASSAY_OP_PREFILL, s.drawn_slots = true; },
                           [](Scenario& s) { s.op = ASSAY_OP_STEP, s.drawn_slots = true; }};
  broken["strided_scales"] = {[](Scenario& s) { s.strided.scales = true; }};
  broken["window"] = {[](Scenario& s) { s.window_right = -2; }};
  broken["chunk"] = {[](Scenario& s) { s.chunk = 8, s.mask = ASSAY_MASK_FULL; },
                     [](Scenario& s) { s.chunk = -1; }};
  broken["positions_end"] = {[](Scenario& s) { s.first_key = kMaxTokens - 99; },
                             [](Scenario& s) { s.positions = kMaxTokens - 99; }};
  broken["positions"] = {
      [](Scenario& s) { s.positions = kDepthPositions; },
      [](Scenario& s) { s.positions = 100, s.mask = ASSAY_MASK_TREE; },
      [](Scenario& s) { s.first_key = 0, s.recipe = InputRecipe::kExact; },
      [](Scenario& s) { s.first_key = kDrawnPositions, s.swa_index = true, s.window_left = 5; },
      [](Scenario& s) { s.first_key = 3, s.op = ASSAY_OP_MERGE_STATES; }};
  broken["relate_positions"] = {
      [](Scenario& s) { s.relations = kRelateSplit, s.first_key = 5; },
      [](Scenario& s) { s.relations = kRelateChunked, s.positions = 5; },
      [](Scenario& s) { s.relations = kRelateWindow, s.positions = kDrawnPositions; }};
  broken["magnitudes"] = {[](Scenario& s) { s.softcap = -1; },
                          [](Scenario& s) { s.softmax_scale = 1.0 / 0.0; }};
  broken["batch_given"] = {[](Scenario& s) { s.batch.groups.clear(); }};
  broken["batch_lengths"] = {[](Scenario& s) { s.batch.groups[0].shared = 101; },
                             [](Scenario& s) { s.batch.groups[0].q_len = -1; },
                             [](Scenario& s) { s.batch.groups[0].count = 0; }};
  broken["shared_prefix"] = {[](Scenario& s) { s.op = ASSAY_OP_PREFILL, s.batch.groups[0].shared = 3; }};
  broken["tree_drafts"] = {[](Scenario& s) { s.mask = ASSAY_MASK_TREE, s.batch.groups[0].q_len = 101; },
                           [](Scenario& s) {
                             s.op = ASSAY_OP_STEP, s.mask = ASSAY_MASK_TREE, s.drafted = 3,
                             s.batch.groups[0].q_len = 26;
                           }};
  broken["drafted_tree"] = {
      [](Scenario& s) { s.drafted = 1, s.mask = ASSAY_MASK_TREE; },
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.drafted = 1; },
      [](Scenario& s) { s.op = ASSAY_OP_TREE_TABLES, s.drafted = 1, s.flat_tree = true; }};
  broken["shared_context"] = {
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.batch.groups[0].shared = 100; },
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.mask = ASSAY_MASK_CROSS, s.batch.groups[0].shared = 1; }};
  broken["prefix_in_common"] = {
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.prefix_tokens = 16, s.batch.groups[0].count = 2; }};
  broken["tree_bits_op"] = {[](Scenario& s) { s.tree_bits = "1000/1100/1010/1111"; },
                            [](Scenario& s) { s.op = ASSAY_OP_MERGE_STATES, s.tree_bits = "1"; },
                            [](Scenario& s) {
                              s.op = ASSAY_OP_STEP, s.mask = ASSAY_MASK_TREE, s.drafted = 1;
                              s.tree_bits = "1000/1100/1010/1111";
                            }};
  broken["tree_bits"] = {[](Scenario& s) { s.mask = ASSAY_MASK_TREE, s.tree_bits = "100/110/101"; },
                         [](Scenario& s) { s.mask = ASSAY_MASK_TREE, s.tree_bits = "1000/110/1010/1111"; },
                         [](Scenario& s) {
                           s.mask = ASSAY_MASK_TREE, s.tree_bits = "1000/1100/1010/1111";
                           s.batch.groups.push_back({1, 3, 50, 0});
                         }};
  broken["tree_bits_depth"] = {[](Scenario& s) {
    s.op = ASSAY_OP_STEP, s.mask = ASSAY_MASK_TREE, s.positions = kDepthPositions;
    s.tree_bits = "1000/0100/1010/0011";  // the last sees the third, and not what that sees
  }};
  broken["layers"] = {
      [](Scenario& s) { s.layers = 2; }, [](Scenario& s) { s.layers = 2, s.storage = Storage::kStacked; },
      [](Scenario& s) { s.layers = 2, s.storage = Storage::kInterleaved, s.layout = ASSAY_LAYOUT_X; },
      [](Scenario& s) { s.op = ASSAY_OP_PREFILL, s.layers = 2; }};
  broken["computed_scales_of_channels"] = {
      [](Scenario& s) { s.computed_scales = true; },
      [](Scenario& s) {
        s.op = ASSAY_OP_QUANTIZE_INT8, s.q = {ASSAY_INT8, ASSAY_SCALE_HEAD}, s.computed_scales = true;
      }};
  broken["no_write"] = {[](Scenario& s) { s.no_write = true; }};
  broken["size"] = {[](Scenario& s) { s.batch.groups[0].kv_len = 2000000000; }};
  broken["answer_terms"] = {[](Scenario& s) { s.recipe = InputRecipe::kExact, s.alibi = ASSAY_ALIBI_SQRT; },
                            [](Scenario& s) { s.recipe = InputRecipe::kIncidence, s.softcap = 30; },
                            [](Scenario& s) { s.recipe = InputRecipe::kDyadic, s.sinks = true; }};
  broken["answer_dims"] = {[](Scenario& s) {
                             s.recipe = InputRecipe::kDyadic;  // 7 bits, 3 constants, 1 level
                             s.head_dim_qk = s.head_dim_v = 10;
                           },
                           [](Scenario& s) {
                             s.recipe = InputRecipe::kIncidence, s.layout = ASSAY_LAYOUT_MLA;
                             s.head_dim_v = 60;  // 4 dimensions behind the latent part
                           }};
  broken["dyadic"] = {[](Scenario& s) { s.recipe = InputRecipe::kDyadic, s.softmax_scale = 0.125; },
                      [](Scenario& s) { s.recipe = InputRecipe::kDyadic, s.o_format = ASSAY_FP32; }};
  broken["relate_pages"] = {[](Scenario& s) { s.relations = kRelatePages, s.op = ASSAY_OP_PREFILL; }};
  broken["relate_batch"] = {
      [](Scenario& s) { s.relations = kRelateOrder, s.batch.groups[0].count = 1; },
      [](Scenario& s) { s.relations = kRelateAlone, s.batch = parse_batch("uniform(n=1,q=1,s=1:9)", {}); }};
  broken["relate_split"] = {[](Scenario& s) { s.relations = kRelateSplit, s.window_left = 5; },
                            [](Scenario& s) { s.relations = kRelateSplit, s.window_right = 5; },
                            [](Scenario& s) { s.relations = kRelateSplit, s.chunk = 5; },
                            [](Scenario& s) { s.relations = kRelateSplit, s.alibi = ASSAY_ALIBI_LINEAR; },
                            [](Scenario& s) { s.relations = kRelateSplit, s.batch.groups[0].q_len = 100; },
                            [](Scenario& s) { s.relations = kRelateSplit, s.batch.groups[0].q_len = 0; },
                            [](Scenario& s) {
                              s.relations = kRelateSplit, s.mask = ASSAY_MASK_FULL;
                              s.batch.groups[0].kv_len = 1;
                            }};
  broken["relate_chunked"] = {[](Scenario& s) { s.relations = kRelateChunked, s.mask = ASSAY_MASK_FULL; },
                              [](Scenario& s) { s.relations = kRelateChunked, s.batch.groups[0].q_len = 1; }};
  broken["relate_window"] = {[](Scenario& s) { s.relations = kRelateWindow, s.window_left = 5; },
                             [](Scenario& s) { s.relations = kRelateWindow, s.window_right = 0; },
                             [](Scenario& s) { s.relations = kRelateWindow, s.chunk = 64; }};
  broken["relate_sink"] = {[](Scenario& s) { s.relations = kRelateSink; }};
  broken["block_fields"] = {[](Scenario& s) { s.op = ASSAY_OP_MERGE_STATES, s.softcap = 30; },
                            [](Scenario& s) { s.op = ASSAY_OP_CACHE_WRITE, s.sinks = true; },
                            [](Scenario& s) { s.op = ASSAY_OP_CACHE_GATHER, s.relations = kRelatePages; },
                            [](Scenario& s) { s.op = ASSAY_OP_DECODE_SPLITKV, s.sinks = true; }};
  broken["op_masks"] = {
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.positions = kDrawnPositions; },
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.mask = ASSAY_MASK_TREE, s.positions = kDrawnPositions; }};
  broken["block_from"] = {
      [](Scenario& s) { s.source_format = ASSAY_FP16; },
      [](Scenario& s) { s.op = ASSAY_OP_CACHE_WRITE, s.source_format = ASSAY_INT8; },
      [](Scenario& s) { s.op = ASSAY_OP_QUANTIZE_INT8, s.source_format = ASSAY_FORMAT_NONE; },
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.source_format = ASSAY_FORMAT_NONE; }};
  broken["block_states"] = {[](Scenario& s) { s.op = ASSAY_OP_CACHE_WRITE, s.states = 3; },
                            [](Scenario& s) { s.op = ASSAY_OP_MERGE_STATES, s.states = 0; },
                            [](Scenario& s) { s.op = ASSAY_OP_DECODE_SPLITKV, s.states = 4; }};
  broken["block_part"] = {[](Scenario& s) { s.op = ASSAY_OP_MERGE_STATES, s.part_tokens = 64; },
                          [](Scenario& s) { s.op = ASSAY_OP_DECODE_SPLITKV, s.part_tokens = -1; }};
  broken["block_pad"] = {[](Scenario& s) { s.padded_rows = 1; },
                         [](Scenario& s) { s.op = ASSAY_OP_CACHE_WRITE, s.padded_rows = -1; }};
  broken["latent_sources"] = {[](Scenario& s) { s.op = ASSAY_OP_CACHE_WRITE, s.split_latent = true; },
                              [](Scenario& s) {
                                s.op = ASSAY_OP_CACHE_WRITE, s.split_latent = true;
                                s.layout = ASSAY_LAYOUT_MLA, s.heads_kv = 1;
                              },
                              [](Scenario& s) { s.op = ASSAY_OP_STEP, s.split_latent = true; }};
  broken["sources_mask"] = {[](Scenario& s) {
    s.op = ASSAY_OP_STEP, s.split_latent = s.no_write = true, s.head_dim_qk = 96, s.head_dim_v = 64;
    s.mask = ASSAY_MASK_FULL;
  }};
  broken["shared_rope"] = {[](Scenario& s) {
    s.op = ASSAY_OP_STEP, s.split_latent = true, s.head_dim_qk = 96, s.head_dim_v = 64;
    s.recipe = InputRecipe::kExact;
  }};
  broken["encoder"] = {
      [](Scenario& s) { s.encoder_tokens = 5; },
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.encoder_tokens = 5, s.table = ASSAY_TABLE_CSR; },
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.encoder_tokens = 5, s.mask = ASSAY_MASK_CROSS; },
      [](Scenario& s) { s.op = ASSAY_OP_DECODE_METADATA, s.encoder_tokens = kMaxTokens; }};
  broken["full_pool"] = {[](Scenario& s) { s.full_pool = true; },
                         [](Scenario& s) { s.op = ASSAY_OP_DECODE_METADATA, s.full_pool = true; }};
  broken["encoder_step"] = {
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.mask = ASSAY_MASK_FULL; },
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.mask = ASSAY_MASK_FULL, s.no_write = true; }};
  broken["cross_distances"] = {
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.mask = ASSAY_MASK_CROSS, s.window_left = 5; },
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.mask = ASSAY_MASK_CROSS, s.alibi = ASSAY_ALIBI_SQRT; }};
  broken["ranks_heads"] = {
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.ranks = s.heads_q + 1; },
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.heads_q = 6, s.heads_kv = 2, s.ranks = 4; }};
  broken["ranks_batch"] = {
      [](Scenario& s) { s.op = ASSAY_OP_STEP, s.ranks = 2, s.batch.groups[0].shared = 1; }};
  broken["ranks_cache"] = {[](Scenario& s) { s.op = ASSAY_OP_STEP, s.ranks = 2, s.no_write = true; },
                           [](Scenario& s) { s.op = ASSAY_OP_STEP, s.ranks = 2, s.mask = ASSAY_MASK_TREE; },
                           [](Scenario& s) {
                             s.op = ASSAY_OP_STEP, s.ranks = 2, s.q = {ASSAY_FP8_E4M3, ASSAY_SCALE_TENSOR};
                           },
                           [](Scenario& s) {
                             s.op = ASSAY_OP_STEP, s.ranks = 2, s.k = {ASSAY_INT8, ASSAY_SCALE_TOKEN_HEAD};
                           }};
  broken["block_q"] = {[](Scenario& s) { s.op = ASSAY_OP_QUANTIZE_INT8; },
                       [](Scenario& s) {
                         s.op = ASSAY_OP_QUANTIZE_INT8, s.q = {ASSAY_INT8, ASSAY_SCALE_REQUEST_HEAD};
                       },
                       [](Scenario& s) { s.op = ASSAY_OP_CACHE_WRITE, s.q.format = ASSAY_FP16; }};
  broken["block_kv"] = {[](Scenario& s) {
                          s.op = ASSAY_OP_CACHE_WRITE, s.k = {ASSAY_FP8_E4M3, ASSAY_SCALE_REQUEST_HEAD};
                        },
                        [](Scenario& s) {
                          s.op = ASSAY_OP_CACHE_WRITE, s.v = {ASSAY_INT8, ASSAY_SCALE_REQUEST_HEAD};
                        }};
  broken["computed_scales"] = {[](Scenario& s) {
    s.op = ASSAY_OP_STEP, s.k = {ASSAY_INT8, ASSAY_SCALE_TOKEN_HEAD}, s.recipe = InputRecipe::kExact;
  }};
  broken["block_rows"] = {[](Scenario& s) { s.op = ASSAY_OP_CACHE_GATHER, s.batch.groups[0].q_len = 101; },
                          [](Scenario& s) { s.op = ASSAY_OP_DECODE_SPLITKV, s.batch.groups[0].q_len = 2; }};
  broken["parts"] = {[](Scenario& s) {
    s.op = ASSAY_OP_DECODE_SPLITKV, s.part_tokens = 1;
    s.batch.groups[0] = {2, 1, 5000};
  }};
  broken["block_strides"] = {[](Scenario& s) { s.op = ASSAY_OP_MERGE_STATES, s.strided.kv = true; },
                             [](Scenario& s) { s.op = ASSAY_OP_CACHE_WRITE, s.strided.out = true; },
                             [](Scenario& s) { s.op = ASSAY_OP_CACHE_GATHER, s.strided.q = true; }};
  broken["metadata_chunk"] = {[](Scenario& s) { s.op = ASSAY_OP_LOCAL_BATCHES, s.chunk = 100; }};
  broken["block_input"] = {
      [](Scenario& s) { s.op = ASSAY_OP_MERGE_STATES, s.recipe = InputRecipe::kOutlier; },
      [](Scenario& s) { s.op = ASSAY_OP_CACHE_GATHER, s.recipe = InputRecipe::kExact; },
      [](Scenario& s) {
        s.op = ASSAY_OP_DECODE_SPLITKV, s.recipe = InputRecipe::kIncidence;
        for (BatchGroup& g : s.batch.groups) g.q_len = 1;
      },
      [](Scenario& s) { s.op = ASSAY_OP_CACHE_WRITE, s.recipe = InputRecipe::kPeaked; }};
  for (const Rule& rule : rules()) {
    ASSERT_TRUE(broken.count(rule.name)) << "no case breaks rule " << rule.name;
    for (const auto& breaks : broken[rule.name]) {
      Scenario s = good;
      ASSERT_EQ(broken_rule(s), nullptr);
      breaks(s);
      ASSERT_NE(broken_rule(s), nullptr) << rule.name;
      EXPECT_EQ(broken_rule(s)->name, rule.name);
      EXPECT_FALSE(rule.message(s).empty());
    }
  }
}

// What no kernel writes needs no rule for writing.
TEST(Rules, StepsThatWriteNothing) {
  const std::string step = "step h=4/2 d=64 batch=2q1s33_1q9s20 ";
  EXPECT_NO_THROW(parse_scenario(step + "kv=int8:token_head input=exact write=off"));
  EXPECT_NO_THROW(parse_scenario(step + "kv=int8:token_head/bf16 input=dyadic write=off"));
  const auto refusal = [](const std::string& line) -> std::string {
    try {
      parse_scenario(line);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;
  EXPECT_THAT(refusal(step + "kv=int8:token_head input=exact"), HasSubstr("write=off"));
  EXPECT_THAT(
      refusal(step + "kv=fp8_e4m3:request_head write=off"),
      AllOf(HasSubstr("scales of a request"), HasSubstr("paged"), Not(HasSubstr("writes its new keys"))));
  EXPECT_THAT(refusal("step h=4/1 d=64/32 layout=mla kv=int8:token_head write=off batch=1q1s9"),
              AllOf(HasSubstr("paged"), Not(HasSubstr("computes"))));
  EXPECT_THAT(refusal(step + "positions=drawn window=20"),
              AllOf(HasSubstr("positions= of step"), Not(HasSubstr("mask=causal"))));
  EXPECT_THAT(refusal(step + "positions=depth"), AllOf(HasSubstr("mask=tree"), Not(HasSubstr("causal"))));
}

TEST(Rules, DefinedCombinationsStayAllowed) {
  for (const char* line : {
           "paged mask=tree window=5/3 alibi=sqrt cap=3 sinks=on batch=2q4s9",
           "paged mask=cross window=5/3 batch=2q4s9",
           "paged mask=full window=-1/3 batch=2q9s4",
           "paged chunk=64 window=15 batch=2q9s4",
           "paged chunk=64 index=swa batch=2q9s4",
           "paged kv=int8:token_head/fp8_e4m3:channel layout=hnd batch=1q1",
           "paged kv=int8:token_head/bf16 layout=shuffled batch=1q1",
           "paged h=8/1 d=576/512 layout=mla kv=fp8_e4m3:token_head strides=kv+scales table=csr batch=1q1",
           "paged h=8/1 table=token strides=table page=528 batch=1q1",
           "paged batch=1q0s0_2q0s5_1q5s0",
           "prefill q=int8:token_head kv=int8:token_head/bf16 strides=q+kv+out+scales batch=1q5s3",
           "paged layout=x page=1 batch=1q1",
           "paged relate=pages+order+alone+split+chunked+window+sink+strides sinks=on batch=2q4s9",
           "prefill mask=tree relate=order+alone+split+strides batch=2q4s9",
           "paged mask=full relate=split batch=1q9s9",
           "paged window=7 index=swa relate=pages+chunked batch=1q9s40",
           "paged d=16 input=dyadic out=fp16 window=7 batch=1q9s40",
           "paged h=8/1 d=576/512 layout=mla input=incidence batch=1q1s32k",
           "paged blocks=64k page=1 batch=1q1s40",
           "paged table=token slots=drawn strides=last page=528 batch=1q1s40",
           "cache_write slots=drawn strides=q+last layout=mla h=4/1 batch=1q1s40",
           "cache_write slots=drawn layout=shuffled batch=1q1s40",
       })
    EXPECT_NO_THROW(parse_scenario(line)) << line;
}

TEST(Rules, LookOnlyAtTheirFields) {
  std::set<std::string_view> names;
  for (const Rule& rule : rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << "two rules " << rule.name;
    for (const std::string_view field : rule.fields)
      ASSERT_GE(field_index(field), 0) << rule.name << ": " << field;
  }
  ScenarioGenerator random(3);
  std::map<std::string_view, int> failures;
  for (int i = 0; i < 20000; ++i) {
    Scenario a = random.any(), b = random.any();
    if (random.chance(4))
      a.batch = parse_batch("9q1s1m", {}), a.head_dim_qk = 1024;  // make "size" interesting
    for (const Rule& rule : rules()) {
      Scenario mixed = b;
      for (const std::string_view name : rule.fields) {
        const Field& field = fields()[field_index(name)];
        std::string text;
        field.print(a, text);
        field.parse({text, 0}, mixed);
      }
      ASSERT_EQ(rule.holds(mixed), rule.holds(a)) << rule.name << " looks at a field it does not name\n"
                                                  << print(a) << "\n"
                                                  << print(mixed);
      failures[rule.name] += !rule.holds(a);
    }
  }
  // The property says nothing about a rule that never fails.
  for (const char* name :
       {"heads",        "mla_heads",     "packed_dim",     "packed_page",   "shared_storage",
        "swa_index",    "strided_table", "strided_scales", "chunk",         "tree_drafts",
        "size",         "cache_fields",  "answer_terms",   "answer_dims",   "dyadic",
        "relate_pages", "relate_split",  "relate_chunked", "relate_window", "relate_sink"})
    EXPECT_GT(failures[name], 20) << name;
}

TEST(Size, LimitsByHand) {
  const Scenario s = parse_scenario("paged h=8/2 d=64 batch=1q1s1");
  // 2 KV heads x 64 x 2 bytes, K and V: 512 bytes a token; 64 GiB are 2^27 tokens, of which 7/8 may be used.
  Extent e;
  e.requests = 1;
  e.total_kv = e.max_kv = 0.86 * (1 << 27);
  EXPECT_TRUE(case_fits(s, e));
  e.total_kv = e.max_kv = 0.88 * (1 << 27);
  EXPECT_FALSE(case_fits(s, e));
  EXPECT_EQ(rule_named("size").name, "size");
  EXPECT_THROW(parse_scenario("prefill h=1 d=1 batch=4q1s1000m"), InputError);          // int32 lengths
  EXPECT_THROW(parse_scenario("paged h=1 d=1 batch=1000000q1_1000000q1"), InputError);  // requests
  EXPECT_THROW(parse_scenario("prefill h=1 d=1 mask=tree batch=1q40k"), InputError);    // tree bits
  EXPECT_NO_THROW(parse_scenario("prefill h=1 d=1 mask=tree batch=1q30k"));
  EXPECT_THROW(parse_scenario("paged h=1 d=1 table=token batch=100000q1_1q1s1m"),
               InputError);  // table of 400 GB
}

}  // namespace
}  // namespace assay
