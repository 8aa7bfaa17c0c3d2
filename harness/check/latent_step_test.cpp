// SPDX-License-Identifier: Apache-2.0
// Steps of latent attention made of kernels of the CPU: with heads unfolded (step_mla_prefill) and absorbed
// (step_aiter_mla) every branch is right, what they enqueue follows from the problem, what they do not take
// is named, and wrong stages are rejected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "harness/check/testing/judged_step.hpp"
#include "harness/check/testing/planted_stage.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using testkit::cpu;
using testkit::dispatch;
using testkit::judge;
using testkit::stages_of;

// Any order of requests, with and without context: chunks without keys, one chunk, many, several merges.
TEST(LatentSteps, StagesOfMlaPrefillAreRightInEveryBranch) {
  const std::string h = "step h=4 d=96/64 page=8 ";
  const struct {
    std::string line, stages;  // of step_mla_prefill_cpu, in order
  } cases[] = {
      {h + "batch=2q9_1q30", "write new"},
      {h + "budget=64 batch=1q12_2q9s40", "write chunks lengths new gather context merge"},
      {h + "budget=16 batch=1q9s30_1q12_1q5s8_1q1s40",  // chunks of 5 tokens
       "write chunks lengths new gather context gather context merge gather context merge gather context "
       "merge gather context merge gather context merge gather context merge gather context merge merge"},
      {h + "budget=50 cap=5 kv=fp8_e4m3:head batch=2q9s60_1q20",
       "write chunks lengths new gather context gather context merge gather context merge merge"},
      {h + "pad=3 layout=hnd table=csr strides=q+kv+out batch=1q9s40_1q0s7_1q7",
       "write chunks lengths new gather context merge"},
      {h + "batch=2q0s40", ""},
      // The rope part of new keys comes once for all heads, K and V as halves of each head of one projection.
      {h + "sources=2 batch=2q9_1q30", "k_join write new"},
      {h + "budget=64 pad=3 kv=fp8_e4m3:head sources=2 strides=q+kv+out batch=1q12_2q9s40",
       "k_join write chunks lengths new gather context merge"},
      {h + "sources=2 batch=2q0s40", ""},
  };
  testkit::expect_right({"step_mla_prefill_cpu"}, cases);
  testkit::expect_refused("step_mla_prefill_cpu", {{h + "window=5 batch=1q6s30", "a window"},
                                                   {h + "alibi=linear batch=1q6s30", "a bias"},
                                                   {h + "sinks=on batch=1q6s30", "sinks"},
                                                   {h + "mask=tree batch=1q6s30", "drafts of a tree"}});
}

const std::string kFew = "step h=4/1 d=96/64 layout=mla page=8 ";
const std::string kAbsorbed = "step h=16/1 d=96/64 layout=mla page=8 ";

TEST(LatentSteps, StagesOfAiterMlaAreRightInEveryBranch) {
  const struct {
    std::string line, stages;  // of step_aiter_mla_cpu, in order
  } cases[] = {
      {kAbsorbed + "batch=3q1s40_1q1s300_1q1s1", "write tokens decode merge"},
      {kAbsorbed + "batch=1q1s3_1q1s5000", "write tokens decode merge"},  // as many parts as there may be
      {kAbsorbed + "batch=2q4s40_1q9s300_1q1s7_1q20", "write tokens extend"},
      {kAbsorbed + "kv=fp8_e4m3:host table=csr batch=2q1s40_1q0s9_1q1s300", "write tokens decode merge"},
      {kAbsorbed + "q=fp8_e4m3:tensor kv=fp8_e4m3:tensor table=token batch=2q1s40_1q1s300",
       "write tokens decode merge"},
      {kAbsorbed + "q=fp8_e4m3 kv=fp8_e4m3 pad=3 out=fp32 batch=2q4s40_1q1s300", "write tokens extend"},
      {kAbsorbed + "q=fp16 from=fp16 kv=fp16 strides=q+out+table batch=1q1s17_1q1s16",
       "write tokens decode merge"},
      {kAbsorbed + "batch=2q0s40", ""},
      // Fewer heads than 16 as 16, Q as a pair of tensors, both.
      {kFew + "batch=2q1s40_1q1s300", "write q_heads tokens decode merge o_heads"},
      {kFew + "pad=2 out=fp32 strides=q+out batch=2q4s40_1q9s300_1q1s7",
       "write q_heads tokens extend o_heads"},
      {kAbsorbed + "sources=2 batch=3q1s40_1q1s300", "write q_heads tokens decode merge"},
      {kAbsorbed + "sources=2 pad=3 q=fp8_e4m3:tensor kv=fp8_e4m3:tensor strides=q+last batch=2q4s40_1q1s300",
       "write q_heads tokens extend"},
      {kFew + "sources=2 q=fp16 from=fp16 kv=fp16 batch=2q1s40_1q1s300",
       "write q_heads tokens decode merge o_heads"},
      {kFew + "sources=2 batch=2q0s40", ""},
      {kFew + "q=int8:token_head kv=int8 strides=scales batch=2q1s40_1q1s300",
       "write q_heads q_heads tokens decode merge o_heads"},
      {kFew + "q=int8:channel kv=int8:channel batch=2q4s40_1q1s300",
       "write q_heads q_heads tokens extend o_heads"},
      {kFew + "q=fp8_e4m3:head kv=fp8_e4m3 sources=2 batch=2q4s40_1q1s300",
       "write q_heads q_heads tokens extend o_heads"},
      {kFew + "q=fp8_e4m3:request_head kv=fp8_e4m3 batch=2q4s40", "write q_heads tokens extend o_heads"},
  };
  testkit::expect_right({"step_aiter_mla_cpu"}, cases);
  // Every count of heads that divides 16 or is a multiple of it, at pages of 1 and others.
  for (const char* heads : {"1", "2", "4", "8", "16", "32", "48", "128"})
    for (const char* page : {"1", "16", "528"}) {
      const std::string line = std::string("step h=") + heads + "/1 d=96/64 layout=mla page=" + page;
      for (const char* batch : {" batch=2q1s40_1q1s300", " batch=1q3s40_1q1s17"})
        EXPECT_EQ(judge(cpu(), line + batch, "step_aiter_mla_cpu").outcome, Outcome::kPassed)
            << line << batch;
    }
  EXPECT_THAT(dispatch("step_aiter_mla_cpu", kAbsorbed + "batch=1q1s600"),
              HasSubstr("tokens: expand_pages_cpu, pages of 8 as 600 of one token\ndecode: "));
  EXPECT_THAT(dispatch("step_aiter_mla_cpu", kFew + "sources=2 batch=1q1s60"),
              HasSubstr("q_heads: join_heads_cpu, 4 heads as 16, latent and rope part\n"));
  // By a schedule, for as many heads as there are then.
  const std::string scheduled = "step_aiter_mla_cpu(decode=persistent_paged_cpu)";
  EXPECT_EQ(stages_of(scheduled, kFew + "batch=1q1s600_2q1s9"),
            "write q_heads tokens schedule decode reduce o_heads");
  EXPECT_EQ(judge(cpu(), kFew + "batch=1q1s600_2q1s9", scheduled).outcome, Outcome::kPassed);
  // One call in place of parts and merge.
  const std::string one = "step_aiter_mla_cpu(decode=paged_naive_cpu)";
  EXPECT_EQ(stages_of(one, kAbsorbed + "batch=1q1s600"), "write tokens decode");
  EXPECT_EQ(judge(cpu(), kAbsorbed + "batch=1q1s600", one).outcome, Outcome::kPassed);
}

TEST(LatentSteps, AiterMlaSaysWhatItDoesNotTake) {
  testkit::expect_refused("step_aiter_mla_cpu",
                          {{"step h=12/1 d=96/64 layout=mla batch=1q1s30", "12 heads"},
                           {"step h=24/1 d=96/64 layout=mla batch=1q1s30", "divisors of 16"},
                           {"step h=4 d=96/64 batch=1q9", "keys with their heads unfolded"},
                           {kAbsorbed + "window=5 batch=1q6s30", "a window"},
                           {kAbsorbed + "alibi=linear batch=1q6s30", "a bias"},
                           {kAbsorbed + "cap=5 batch=1q6s30", "a soft cap"},
                           {kAbsorbed + "sinks=on batch=1q6s30", "sinks"},
                           {kAbsorbed + "chunk=16 batch=1q6s30", "local attention"},
                           {kAbsorbed + "threshold=8 mask=tree batch=1q6s30", "drafts of a tree"}});
}

TEST(LatentSteps, ThoseThatReadOneTensorRefuseTwo) {
  testkit::expect_refused("step_unified_cpu", {{kAbsorbed + "sources=2 batch=1q1s30", "two tensors"}});
  for (const char* kernel : {"step_unified_cpu", "step_aiter_fa_cpu", "step_ixformer_fa_cpu"})
    testkit::expect_refused(kernel, {{"step h=4 d=96/64 sources=2 batch=1q9s30", "two tensors"}});
}

// SGLang's step takes the pair in every branch that latent attention has there.
TEST(LatentSteps, SglangTakesQInTwoTensors) {
  const struct {
    std::string line, stages;  // of step_sglang_fa_cpu, in order
  } cases[] = {
      {kAbsorbed + "sources=2 batch=3q1s40_1q1s300", "q_heads write decode"},
      {kAbsorbed + "sources=2 kv=fp8_e4m3:tensor pad=2 strides=q batch=2q4s40_1q9s60",
       "q_heads write q_cast extend"},
      {kAbsorbed + "sources=2 threshold=8 mask=tree batch=2q8s70_1q5s9",
       "q_heads write prefix drafts draft merge"},
      {"step h=4 d=96/64 sources=2 batch=1q9s30_1q12", "k_join write extend"},
  };
  testkit::expect_right({"step_sglang_fa_cpu"}, cases);
}

// Wrong in the stages that make one tensor of two, and 16 heads of fewer (testing/join_faults.cpp).
TEST(LatentSteps, WrongHeadsAndPartsAreRejected) {
  static const Backend backend = Backend::load(ASSAY_BINARY_DIR "/testing/libassay_join_faults.so");
  const std::string pair = kFew + "sources=2 batch=2q1s40_1q1s300 seed=3";
  const std::string unfolded = "step h=4 d=96/64 page=8 sources=2 batch=2q9s40_1q12 seed=3";
  for (const std::string& line : {pair, kFew + "batch=2q4s40_1q2s60 seed=3"})
    EXPECT_EQ(judge(backend, line, "joined_right").outcome, Outcome::kPassed) << line;
  EXPECT_EQ(judge(backend, unfolded, "unfolded_right").outcome, Outcome::kPassed);
  const std::pair<const char*, std::string> faults[] = {
      {"heads_in_turn", kFew + "batch=2q1s40_1q1s300 seed=3"},
      {"first_heads_taken", kFew + "batch=2q1s40_1q1s300 seed=3"},
      {"rope_dropped", pair},
      {"rope_of_first_head", pair},
      {"rope_first", pair},
      {"shared_rope_dropped", unfolded},
      {"rope_of_first_row", unfolded},
      {"heads_as_if_packed", unfolded},
  };
  for (const auto& [name, line] : faults) {
    const Verdict v = judge(backend, line, name);
    EXPECT_EQ(v.outcome, Outcome::kWrong) << name << ": " << v.reason;
  }
}

// The seed's among them: starts 0, 1, 2, ... although requests have several rows.
TEST(LatentSteps, WrongStagesOfAiterMlaAreRejected) {
  using P = assay_problem;
  using T = assay_tensors;
  const std::string decodes = kAbsorbed + "batch=2q1s40_1q1s600_1q1s9 seed=3";
  const std::string extends = kAbsorbed + "kv=fp8_e4m3:tensor batch=2q4s40_1q2s60 seed=3";
  testkit::expect_rejected(
      "step_aiter_mla_cpu",
      {
          {"tokens", "tables_exchanged", decodes,
           [](P&, T& t) {
             t.block_table = testkit::frozen(t.block_table);
             auto* pages = static_cast<int32_t*>(t.block_table.data);
             std::swap(pages[0], pages[t.block_table.stride[0]]);
           }},
          {"tokens", "old_lengths", extends,
           [](P& p, T& t) {
             static std::vector<int32_t> context;
             context.clear();
             for (int32_t r = 0; r < p.requests; ++r) context.push_back(p.kv_len[r] - p.q_len[r]);
             t.kv_len = testkit::list_of(context.data(), p.requests);
           }},
          {"decode", "one_index_late", decodes,
           [](P&, T& t) {
             t.indices = testkit::frozen(t.indices);
             auto* slots = static_cast<int32_t*>(t.indices.data);
             std::rotate(slots, slots + 1, slots + t.indices.shape[0]);
           }},
          {"decode", "starts_of_the_first", decodes, [](P&, T& t) { t.indptr.stride[0] = 0; }},
          {"decode", "rope_forgotten", decodes, [](P& p, T&) { p.head_dim_qk = p.head_dim_v; }},
          {"decode", "scale_of_the_latent_part", decodes, [](P& p, T&) { p.softmax_scale *= 1.2247449f; }},
          {"decode", "a_part_less", decodes, [](P& p, T&) { p.states -= 1; }},
          {"merge", "first_part_alone", decodes, [](P& p, T&) { p.states = 1; }},
          {"extend", "arange_starts", extends,
           [](P& p, T& t) {
             static std::vector<int32_t> arange;
             arange.clear();
             for (int32_t r = 0; r <= p.requests; ++r) arange.push_back(r);
             t.cu_q = testkit::list_of(arange.data(), p.requests + 1);
           }},
          {"extend", "not_causal", extends, [](P& p, T&) { p.mask = ASSAY_MASK_FULL; }},
          {"extend", "codes_without_scale", extends,
           [](P& p, T&) { p.k_scale_kind = p.v_scale_kind = ASSAY_SCALE_NONE; }},
          {"write", "forgets_a_key", extends, [](P& p, T&) { --p.rows; }},
      });
}

}  // namespace
}  // namespace assay
