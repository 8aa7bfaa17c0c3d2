// SPDX-License-Identifier: Apache-2.0
// Steps into caches with a scale per token and head, which they compute: the judge takes codes and scales
// that a right kernel may leave and no others, step_ixformer_fa is right in every branch and names what it
// does not take, and wrong stages of it are rejected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/check/testing/judged_step.hpp"
#include "harness/check/testing/planted_stage.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using testkit::cpu;
using testkit::judge;
using testkit::stages_of;

const std::string kHeads = "step h=4/2 d=64 layout=hnd ";
const std::string kGroups = "step h=8/2 d=64 layout=hnd ";
const std::string kType1 = kHeads + "kv=int8:token_head/int8:channel ";
const std::string kType2 = kHeads + "kv=int8:token_head/bf16 ";

TEST(Int8Steps, EveryPipelineWritesScalesPerToken) {
  for (const char* kv :
       {"int8:token_head", "fp8_e4m3:token_head", "int8:token_head/bf16", "fp8_e4m3:head/int8:token_head"})
    for (const char* rest : {"batch=2q1s40_2q9s60_1q12", "layout=shuffled batch=2q1s40_1q9s60",
                             "pad=3 table=csr strides=q+kv+out+scales batch=1q1s40_1q12",
                             "from=fp32 input=outlier batch=1q1s40_1q12"}) {
      const std::string line = std::string("step h=4/2 d=64 budget=32 kv=") + kv + " " + rest;
      for (const char* kernel : {"step_unified_cpu", "step_aiter_fa_cpu", "step_sglang_fa_cpu"}) {
        const Verdict v = judge(cpu(), line, kernel);
        EXPECT_EQ(v.outcome, Outcome::kPassed) << line << ": " << kernel << ": " << v.reason;
      }
    }
  const auto refused = [](const char* line, const char* why) {
    try {
      parse_scenario(line);
      ADD_FAILURE() << line;
    } catch (const InputError& e) {
      EXPECT_THAT(e.what(), HasSubstr(why)) << line;
    }
  };
  refused("step h=4/1 d=64/32 layout=mla kv=int8:token_head batch=1q1s9",
          "V of layout=mla has none of its own");
  refused("step h=4/2 d=64 kv=int8:token_head input=exact batch=1q1s9",
          "computes the scales of its new keys");
}

TEST(Int8Steps, StagesOfIxformerAreRightInEveryBranch) {
  const std::string decodes = "batch=3q1s40_1q1s300", mixed = "batch=2q1s40_2q9s60_1q12";
  const struct {
    std::string line, stages;  // of step_ixformer_fa_cpu, in order
  } cases[] = {
      {kHeads + decodes, "write decode"},
      {kHeads + mixed, "write split decode prefill"},
      {kHeads + "batch=1q12_2q9s60", "write prefill"},
      {kHeads + "q=fp8_e4m3:tensor kv=fp8_e4m3:head window=9 cap=5 sinks=on " + mixed,
       "write split decode prefill"},
      {kHeads + "alibi=sqrt storage=stacked page=32 " + mixed, "write split decode prefill"},
      {kType1 + decodes, "write decode"},
      {kType1 + "q=int8:token_head threshold=4 batch=3q4s40_1q1s9", "write decode"},
      {kType1 + mixed, "k_codes v_codes write split decode prefill"},
      {kType1 + "q=int8:token_head strides=scales pad=3 " + mixed,
       "k_codes v_codes write split decode prefill"},
      {kType1 + "batch=1q12_2q9s60", "k_codes v_codes write prefill"},
      {kType2 + decodes, "write decode"},
      {kType2 + "q=int8:token_head sinks=on " + mixed, "k_codes write split decode prefill"},
      {kType2 + "from=fp16 table=token " + mixed, "write split decode prefill"},
      {kHeads + "batch=2q0s40", ""},
      // Cascades where they pay: 8 requests, 256 keys, rows of one with waves to save, several rows always.
      {kGroups + "prefix=256 workers=4 batch=8q1s300p256", "write cascade prefix suffix merge"},
      {kGroups + "prefix=299 workers=4 sinks=on cap=5 table=csr batch=9q1s300p299",
       "write cascade prefix suffix merge"},
      {kHeads + "prefix=256 threshold=3 table=token pad=2 batch=8q3s260p256",
       "write cascade prefix suffix merge"},
      {"step h=2 d=64 prefix=256 out=fp32 batch=8q1s257p256", "write cascade prefix suffix merge"},
      {kHeads + "prefix=256 batch=8q9s300p256", "write cascade prefix suffix merge"},
      {kGroups + "prefix=256 workers=132 batch=8q1s300p256", "write decode"},
      {kHeads + "prefix=256 batch=7q3s300p256", "write prefill"},
      {kHeads + "prefix=255 threshold=3 batch=8q3s300p255", "write decode"},
      {kHeads + "prefix=256 threshold=3 alibi=linear batch=8q3s300p256", "write decode"},
      {kHeads + "prefix=256 threshold=3 window=40 batch=8q3s300p256", "write decode"},
      {kHeads + "prefix=256 threshold=3 kv=fp8_e4m3:head batch=8q3s300p256", "write decode"},
      {kType2 + "prefix=256 threshold=3 batch=8q3s300p256", "write decode"},
  };
  testkit::expect_right({"step_ixformer_fa_cpu"}, cases);
  testkit::expect_refused("step_ixformer_fa_cpu",
                          {{kHeads + "page=8 batch=1q1s9", "pages of 8"},
                           {"step h=4/2 d=60 batch=1q1s9", "heads of 60"},
                           {"step h=4/2 d=264 batch=1q1s9", "heads of 264"},
                           {"step h=4/1 d=64/32 layout=mla batch=1q1s9", "layout mla"},
                           {kHeads + "threshold=8 mask=tree batch=1q6s30", "drafts of a tree"},
                           {kHeads + "chunk=16 batch=1q6s30", "local attention"},
                           {kHeads + "kv=int8:channel batch=1q1s9", "a cache of another type"},
                           {kHeads + "kv=fp8_e4m3/bf16 batch=1q1s9", "a cache of another type"},
                           {kHeads + "batch=1q9s30_1q1s9", "requests in another order"}});
}

// A kernel of a whole step in the place of decodes: they have no write where they are alone, and what it
// writes are codes that stages before it made.
TEST(Int8Steps, DecodesMayWriteTheirKeysThemselves) {
  const std::string decodes = "batch=3q1s40_1q1s300", mixed = "batch=2q1s40_2q9s60_1q12";
  const std::string fused = "step_ixformer_fa_cpu(decode=step_unified_cpu)";
  const struct {
    std::string line, stages;
  } cases[] = {
      {kType1 + decodes, "k_codes v_codes decode"},
      {kType1 + "q=int8:token_head threshold=4 pad=3 strides=q+kv+out+scales batch=3q4s40_1q1s9_1q0s5",
       "k_codes v_codes decode"},
      {kType1 + "write=off " + decodes, "decode"},
      {kType1 + mixed, "k_codes v_codes write split decode prefill"},
      {kType1 + "batch=1q12_2q9s60", "k_codes v_codes write prefill"},
      {kType2 + "sinks=on cap=5 table=token " + decodes, "k_codes decode"},
      {kType2 + mixed, "k_codes write split decode prefill"},
      {kType2 + "from=fp16 " + decodes, "decode"},
      {kHeads + "kv=fp8_e4m3:head window=9 " + decodes, "decode"},
      {kHeads + "threshold=3 alibi=sqrt batch=3q3s40_1q1s9", "decode"},
      {kHeads + mixed, "write split decode prefill"},
      {kHeads + "write=off " + mixed, "split decode prefill"},
      {kGroups + "prefix=256 workers=4 batch=8q1s300p256", "write cascade prefix suffix merge"},
  };
  testkit::expect_right({fused.c_str()}, cases);
  const std::string alone = kType1 + "batch=2q1s40_1q1s9 seed=3";
  testkit::expect_rejected(fused.c_str(),
                           {
                               {"k_codes", "codes_of_the_first_row", alone,
                                [](assay_problem&, assay_tensors& t) { t.source.stride[0] = 0; }},
                               {"k_codes", "scales_of_one_head", alone,
                                [](assay_problem&, assay_tensors& t) { t.q_scale.stride[1] = 0; }},
                               {"v_codes", "scale_of_channel_0", alone,
                                [](assay_problem&, assay_tensors& t) { t.q_scale.stride[1] = 0; }},
                           });
}

// Decodes by lists made ahead of them, where the kernel that follows lists takes the step: neither drafts nor
// windows nor a mixed batch.
TEST(Int8Steps, DecodesMayFollowASchedule) {
  const std::string decodes = "batch=3q1s40_1q1s300", mixed = "batch=2q1s40_2q9s60_1q12";
  const std::string lists = "step_ixformer_fa_cpu(decode=persistent_paged_cpu)";
  const struct {
    std::string line, stages;
  } cases[] = {
      {kHeads + "workers=5 " + decodes, "write schedule decode reduce"},
      {kHeads + "workers=1 batch=2q1s40_1q0s9_1q1", "write schedule decode reduce"},
      {kGroups + "workers=7 page=32 kv=fp8_e4m3:head table=csr pad=2 strides=q+kv+out alibi=sqrt cap=5 " +
           decodes,
       "write schedule decode reduce"},
      {kType1 + "workers=9 q=int8:token_head " + decodes, "write schedule decode reduce"},
      {kType2 + "workers=3 table=token " + decodes, "write schedule decode reduce"},
      {kHeads + "workers=5 threshold=3 batch=3q3s40_1q1s9", "write prefill"},
      {kHeads + "workers=5 window=9 " + decodes, "write prefill"},
      {kHeads + "workers=5 sinks=on " + decodes, "write prefill"},
      {kHeads + "workers=5 " + mixed, "write split prefill prefill"},
  };
  testkit::expect_right({lists.c_str()}, cases);
  const std::string line = kHeads + "workers=5 batch=2q1s40_1q1s300 seed=3";
  testkit::expect_rejected(
      lists.c_str(),
      {
          {"schedule", "a_request_less", line, [](assay_problem& p, assay_tensors&) { --p.requests; }},
          {"schedule", "keys_of_the_first", line,
           [](assay_problem&, assay_tensors& t) { t.kv_len.stride[0] = 0; }},
          {"decode", "scaled_twice", line,
           [](assay_problem& p, assay_tensors&) { p.softmax_scale *= p.softmax_scale; }},
          {"reduce", "first_part_alone", line,
           [](assay_problem&, assay_tensors& t) { t.reduce_partial_map.stride[0] = 0; }},
      });
}

// Decodes and the others are calls of their own, each with the scales of its requests, heads and rows.
TEST(Int8Steps, ScalesOfQGoWithTheirRows) {
  const std::string latent = "step h=4/1 d=64/32 layout=mla ";
  const struct {
    const char* kernel;
    std::string start;
  } cases[] = {{"step_unified_cpu", kHeads},     {"step_sglang_fa_cpu", kHeads},
               {"step_ixformer_fa_cpu", kHeads}, {"step_ixformer_fa_cpu", kType1},
               {"step_ixformer_fa_cpu", kType2}, {"step_aiter_mla_cpu", latent}};
  for (const auto& c : cases)
    for (const char* format : {"fp8_e4m3", "fp8_e5m2fnuz", "int8"})
      for (const char* scale : {"host", "tensor", "head", "request_head", "token_head"})
        for (const char* batch :
             {"batch=2q1s40_2q9s60_1q12", "pad=3 strides=q batch=1q0s5_1q1s9_1q5s8_1q3"}) {
          const std::string line = c.start + "q=" + format + ":" + scale + " " + batch + " seed=7";
          const Verdict v = judge(cpu(), line, c.kernel);
          EXPECT_EQ(v.outcome, Outcome::kPassed) << line << ": " << c.kernel << ": " << v.reason;
        }
}

// The seed's among them: keys as many as the longest query has rows, though they reach further back.
TEST(Int8Steps, WrongStagesOfIxformerAreRejected) {
  using P = assay_problem;
  using T = assay_tensors;
  const std::string decodes = kType1 + "batch=2q1s40_1q1s9 seed=3",
                    mixed = kType1 + "batch=2q1s40_2q9s60 seed=3";
  const std::string shared = kHeads + "prefix=256 threshold=2 sinks=on batch=8q2s300p256 seed=3";
  testkit::expect_rejected(
      "step_ixformer_fa_cpu",
      {
          {"prefix", "causal_prefix", shared, [](P& p, T&) { p.mask = ASSAY_MASK_CAUSAL; }},
          {"prefix", "a_page_less", shared,
           [](P& p, T& t) {
             static int32_t length;
             length = p.kv_len[0] - p.page_size;
             t.kv_len = testkit::list_of(&length, 1);
           }},
          {"prefix", "sink_of_the_prefix", shared,
           [](P& p, T& t) {
             static std::vector<float> ones(static_cast<size_t>(p.heads_q), 2.0f);
             p.has_sinks = 1, t.sinks = testkit::list_of(ones.data(), p.heads_q);
           }},
          {"suffix", "first_page_alone", shared, [](P&, T& t) { t.block_table.stride[1] = 0; }},
          {"suffix", "table_of_the_first", shared, [](P&, T& t) { t.block_table.stride[0] = 0; }},
          {"suffix", "not_causal", shared, [](P& p, T&) { p.mask = ASSAY_MASK_FULL; }},
          {"merge", "sink_dropped", shared, [](P& p, T&) { p.has_sinks = 0; }},
          {"merge", "prefix_alone", shared, [](P& p, T&) { p.states = 1; }},
          {"write", "forgets_a_key", decodes, [](P& p, T&) { --p.rows; }},
          {"write", "scales_to_one_head", decodes, [](P&, T& t) { t.k_scale.stride[1] = 0; }},
          {"write", "scales_to_the_first_slot", decodes, [](P&, T& t) { t.k_scale.stride[2] = 0; }},
          {"write", "ready_scales_of_the_first_row", mixed, [](P&, T& t) { t.dense_k_scale.stride[0] = 0; }},
          {"write", "v_for_k", mixed, [](P&, T& t) { t.dense_k.data = t.dense_v.data; }},
          {"k_codes", "scales_on_one_row", mixed, [](P&, T& t) { t.q_scale.stride[0] = 0; }},
          {"k_codes", "rows_one_late", mixed,
           [](P&, T& t) { t.source.data = static_cast<uint16_t*>(t.source.data) + t.source.stride[1]; }},
          {"v_codes", "scale_of_the_first_channel", mixed, [](P&, T& t) { t.q_scale.stride[1] = 0; }},
          {"v_codes", "scales_of_the_first_head", mixed, [](P&, T& t) { t.q_scale.stride[0] = 0; }},
          {"decode", "codes_without_scales", decodes, [](P& p, T&) { p.k_scale_kind = ASSAY_SCALE_NONE; }},
          {"decode", "scale_of_the_first_slot", decodes, [](P&, T& t) { t.k_scale.stride[2] = 0; }},
          {"prefill", "keys_of_the_query", mixed,
           [](P& p, T& t) { t.kv_len = testkit::list_of(p.q_len, p.requests); }},
          {"prefill", "not_causal", mixed, [](P& p, T&) { p.mask = ASSAY_MASK_FULL; }},
      });
}

}  // namespace
}  // namespace assay
