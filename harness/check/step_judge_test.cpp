// SPDX-License-Identifier: Apache-2.0
// The judge of steps: right kernels pass, whichever bytes they read their new keys from as long as they say
// so; each planted fault of testing/step_faults.cpp is rejected. And the steps that are made of kernels of
// the CPU: every branch of each is right, and what they enqueue follows from the problem alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "harness/base/error.hpp"
#include "harness/check/testing/judged_step.hpp"
#include "harness/check/testing/planted_stage.hpp"
#include "harness/input/inputs.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

const Backend& step_faults() {
  static const Backend backend = Backend::load(ASSAY_BINARY_DIR "/testing/libassay_step_faults.so");
  return backend;
}
using testkit::cpu;
using testkit::dispatch;
using testkit::judge;
using testkit::stages_of;

// Decodes, extends and prefills at once: 16-bit, quantised, with a window, a cap, a bias, drafts.
const std::string kPlain = "step h=4/2 d=64 page=4 batch=2q1s33_2q5s37_1q9 seed=3";
const std::string kCoded = "step h=4/2 d=64 kv=fp8_e4m3:head page=4 batch=2q1s33_2q5s37_1q9 seed=3";
const std::string kWindow = "step h=4/2 d=64 page=4 window=11 batch=2q1s33_2q5s37_1q9 seed=3";
const std::string kCap = "step h=4/2 d=64 page=4 cap=2 batch=2q1s33_2q5s37_1q9 seed=3";
const std::string kBias = "step h=4/2 d=64 page=4 alibi=linear batch=2q1s33_2q5s37_1q9 seed=3";
const std::string kDrafts = "step h=4/2 d=64 page=4 threshold=4 batch=3q4s33_2q5s37_1q9 seed=3";

TEST(StepJudge, RightKernelsPass) {
  for (const std::string& line : {kPlain, kCoded, kWindow, kCap, kBias, kDrafts})
    for (const char* kernel : {"step_right", "step_all_from_cache_right"}) {
      const Verdict v = judge(step_faults(), line, kernel);
      EXPECT_EQ(v.outcome, Outcome::kPassed) << line << ": " << kernel << ": " << v.reason;
      EXPECT_GT(v.o.checked, 20 * 4 * 64) << line;    // O
      EXPECT_EQ(v.lse.checked, v.o.checked) << line;  // two sides of half the heads
      EXPECT_LE(v.o.max_ratio, 1) << line;
    }
}

// New keys come as the recipe spells them, through dense rows that hold them exactly.
TEST(StepJudge, KnownAnswersAreReachedInEveryRow) {
  for (const char* input : {"exact", "incidence", "dyadic"})
    for (const std::string& line : {kPlain, kCoded, kWindow, kDrafts}) {
      for (const char* kernel : {"step_right", "step_all_from_cache_right"}) {
        const Verdict v = judge(step_faults(), line + " input=" + input, kernel);
        EXPECT_EQ(v.outcome, Outcome::kPassed)
            << line << " input=" << input << ": " << kernel << ": " << v.reason;
      }
      EXPECT_EQ(judge(step_faults(), line + " input=" + input, "step_chunk_drops_key").outcome,
                Outcome::kWrong);
    }
  // Few rows are compared with their bounds, all of them with the answer.
  Judge few(make_problem(parse_scenario("step h=2/1 d=64 page=16 batch=40q9s20 input=exact seed=3")), 3000);
  const Verdict v =
      few.judge(step_faults(), *step_faults().find("step_row_of_next_request"), step_faults().device(0));
  EXPECT_EQ(v.outcome, Outcome::kWrong);
  EXPECT_LT(v.rows_checked, v.rows_total);
}

// Padding has no answer: a batch that is judged whole says so.
TEST(StepJudge, RowsOfPaddingAreNotCountedAsLeftOut) {
  const Verdict v = judge(step_faults(), kPlain + " pad=3", "step_right");
  EXPECT_EQ(v.outcome, Outcome::kPassed) << v.reason;
  EXPECT_EQ(v.rows_total, 2 * 1 + 2 * 5 + 9);
  EXPECT_EQ(v.rows_checked, v.rows_total);
}

TEST(StepJudge, FaultsAreRejected) {
  const struct {
    std::string kernel, line, check;
  } cases[] = {
      {"step_key_unwritten", kPlain, "unwritten"},
      {"step_other_slot", kPlain, "finite"},
      {"step_slots_of_requests", kPlain, "unwritten"},
      {"step_forgets_v", kPlain, "unwritten"},
      {"step_block_for_slot", kPlain, ""},
      {"step_scale_of_next_head", kCoded, "cache"},
      {"step_unscaled", kCoded, "cache"},
      {"step_neighbour_touched", kPlain, ""},
      {"step_context_rewritten", kPlain, ""},
      {"step_stale_length", kPlain, ""},
      {"step_length_plus_one", kPlain, ""},
      {"step_short_starts", kPlain, "unwritten"},
      {"step_arange_starts", kDrafts, "unwritten"},
      {"step_other_table", kPlain, ""},
      {"step_attends_first", kPlain, ""},
      {"step_says_cache", kCoded, "tier"},
      {"step_says_dense", kCoded, "tier"},
      {"step_decode_dense", kCoded, "tier"},
      {"step_chunk_drops_key", kPlain, "tier"},
      {"step_chunk_repeats_key", kPlain, "tier"},
      {"step_new_keys_full", kPlain, "tier"},
      {"step_causal_behind", kPlain, "tier"},
      {"step_window_wider", kWindow, "tier"},
      {"step_window_of_new_row", kWindow, "tier"},
      {"step_cap_in_decodes_only", kCap, "tier"},
      {"step_bias_from_chunk", kBias, "tier"},
      {"step_mean_of_parts", kPlain, "tier"},
      {"step_larger_part", kPlain, "tier"},
      {"step_base2_merge", kPlain, "tier"},
      {"step_new_keys_twice", kPlain, "tier"},
      {"step_last_row_unwritten", kPlain, "unwritten"},
      {"step_row_of_next_request", kPlain, "tier"},
  };
  std::set<std::string> planted;
  for (const auto& c : cases) {
    planted.insert(c.kernel);
    const Verdict v = judge(step_faults(), c.line, c.kernel);
    EXPECT_EQ(v.outcome, Outcome::kWrong) << c.kernel << ": " << v.reason;
    EXPECT_THAT(v.check, HasSubstr(c.check)) << c.kernel << ": " << v.reason;
  }
  // Each fault that is planted has its line above; cheats are right until they are timed.
  for (const assay_kernel* kernel : step_faults().kernels()) {
    const std::string name = kernel->name;
    EXPECT_TRUE(name.ends_with("_right") || name.ends_with("_cheat") || planted.contains(name)) << name;
  }
}

// What is not written may be written elsewhere, and a slot that is read before it is written is no unused
// memory.
TEST(StepJudge, ReasonsTellUnwrittenFromUnusedAndMisplaced) {
  const auto reason = [](const std::string& line, const char* kernel) {
    return judge(step_faults(), line, kernel).reason;
  };
  const auto early =
      AllOf(HasSubstr("what slots of new keys held before the step"), Not(HasSubstr("unused")));
  for (const std::string& line :
       {kPlain, kPlain + " strides=kv+last", kPlain + " kv=int8:head", kPlain + " kv=fp8_e4m3:head"})
    EXPECT_THAT(reason(line, "step_attends_first"), early) << line;
  EXPECT_THAT(reason(kPlain, "step_other_slot"), early);
  EXPECT_THAT(
      reason(kPlain, "step_block_for_slot"),
      AllOf(
          HasSubstr("k not written in"),
          MatchesRegex(".*elements beside these changed, first of [kv] block [0-9]+ slot [0-9]+ head 0 dim 0 "
                       "\\(.*of.* request.*\\)")));
  EXPECT_THAT(reason(kPlain, "step_key_unwritten"),
              AllOf(HasSubstr("not written in"), Not(HasSubstr("beside these"))));
}

// O is what is found wrong first; the byte that was changed says why.
TEST(StepJudge, SaysWhatElseChangedInTheCacheWhereTheOutputIsWrong) {
  const std::string reason = judge(step_faults(), kPlain, "step_context_rewritten").reason;
  EXPECT_THAT(reason, MatchesRegex("O wrong in .*; [0-9]+ elements beside these changed, first of [kv] block "
                                   "[0-9]+ slot [0-9]+ head 0 dim 0 \\(key [0-9]+ of request [0-9]+\\)"));
}

TEST(StepJudge, ComposedKernelsAreRightInEveryBranch) {
  const std::string h = "step h=4/2 d=64 page=8 ";
  const struct {
    std::string line, stages;  // of step_aiter_fa_cpu, in order
  } cases[] = {
      {h + "batch=3q1s40_1q1s300", "write decode merge"},
      {h + "batch=2q9_1q30", "write prefill"},
      {h + "budget=64 batch=2q9s40", "write chunks window extend gather context merge"},
      {h + "budget=16 batch=1q9s30_1q5s40_1q7s8",  // chunks of 5 tokens: 7 of them, 7 merges
       "write chunks window extend gather context gather context merge gather context merge gather context "
       "merge "
       "gather context merge gather context merge gather context merge merge"},
      {h + "batch=2q1s40_1q9s30_1q12",
       "write split prefill chunks window extend gather context merge decode merge"},
      {h + "window=7 batch=2q1s40_1q9s30_1q12", "write split prefill window gather extend unified"},
      {h + "alibi=linear batch=2q1s40_1q9s30_1q12", "write split prefill window gather extend decode merge"},
      {h + "threshold=3 batch=2q3s40_1q2s9_1q9s30",
       "write split chunks window extend gather context merge unified"},
      {"step h=4/2 d=32 batch=2q1s40", "write unified"},
      {h + "layout=shuffled batch=2q1s40_1q9s30",
       "write split chunks window extend gather context merge unified"},
      {h + "kv=fp8_e4m3:head budget=32 cap=20 batch=2q1s40_1q9s60_1q12",
       "write split prefill chunks window extend gather context gather context merge merge decode merge"},
      {h + "kv=fp8_e4m3 window=7 strides=q+kv+out+table batch=2q1s40_1q9s30_1q12",
       "write split prefill window gather extend unified"},
      {h + "q=fp16 from=fp16 kv=int8:channel out=fp32 table=token storage=stacked budget=20 "
           "batch=1q1s40_2q9s30",
       "write split chunks window extend gather context gather context merge gather context merge merge "
       "decode "
       "merge"},
      {h + "batch=2q0s40", ""},
      {h + "batch=1q0s0_1q1s1_1q2s2", "write split prefill decode merge"},
  };
  testkit::expect_right({"step_unified_cpu", "step_aiter_fa_cpu"}, cases);
}

// Chains, draft trees (with windows along their paths), local attention, padding behind the last request.
TEST(StepJudge, StagesOfSglangAreRightInEveryBranch) {
  const std::string h = "step h=4/2 d=64 page=8 ", tree = h + "threshold=8 mask=tree ";
  const struct {
    std::string line, stages;  // of step_sglang_fa_cpu, in order
  } cases[] = {
      {h + "batch=3q1s40_1q1s300", "write decode"},
      {h + "pad=3 batch=2q1s40_1q9s30_1q12", "write extend"},
      {h + "threshold=5 kv=fp8_e4m3:head sinks=on batch=3q5s40_1q2s9", "write q_cast decode"},
      {h + "window=7 cap=5 alibi=linear strides=q+kv+out+table batch=2q1s40_1q9s30_1q12", "write extend"},
      {h + "chunk=16 batch=2q1s40_1q9s30_1q40_1q0s5", "write local extend"},
      {h + "chunk=16 window=3 sinks=on table=token kv=int8:channel batch=1q1s16_1q17s33_1q16s32",
       "write local extend"},
      {tree + "batch=2q6s40_1q1s9_1q8_1q0s5", "write prefix drafts draft merge"},
      {tree + "pad=2 sinks=on cap=5 kv=fp8_e4m3 table=csr batch=2q6s40_1q8s300",
       "write q_cast prefix drafts draft merge"},
      {tree + "positions=depth out=fp32 batch=2q6s40_1q1s9", "write prefix drafts draft merge"},
      {tree + "window=5 positions=depth table=csr batch=2q6s40_1q1s9_1q8", "write paths path"},
      {tree + "alibi=linear positions=depth sinks=on batch=2q6s40_1q1s9_1q8", "write paths path"},
      {"step h=8/1 d=96/64 layout=mla threshold=8 mask=tree kv=fp8_e4m3 batch=2q6s40_1q1s9_1q8",
       "write q_cast prefix drafts draft merge"},
      {h + "write=off kv=fp8_e4m3:head batch=2q1s40_1q9s30_1q12", "q_cast extend"},
      {h + "batch=2q0s40", ""},
  };
  testkit::expect_right({"step_unified_cpu", "step_sglang_fa_cpu"}, cases);
  for (const auto& [line, why] :
       {std::pair{h + "chunk=12 batch=1q9s30", "chunks of 12 tokens in pages of 8"},
        {tree + "window=5 batch=1q6s30", "over the slots of drafts"},
        {tree + "q=fp8_e4m3:request_head batch=1q6s30", "scales of Q per request where requests are cut"}}) {
    const Verdict v = judge(cpu(), line, "step_sglang_fa_cpu");
    EXPECT_EQ(v.outcome, Outcome::kUnsupported) << line;
    EXPECT_THAT(v.reason, HasSubstr(why));
    EXPECT_EQ(judge(cpu(), line, "step_unified_cpu").outcome, Outcome::kPassed) << line;
  }
  for (const std::string& line : {tree + "batch=1q6s30", h + "chunk=16 batch=1q6s30"})
    EXPECT_EQ(judge(cpu(), line, "step_aiter_fa_cpu").outcome, Outcome::kUnsupported) << line;
  // Draft decode of several branches: the step's own keys are those of the steps before and the new ones.
  const std::string branches = tree + "drafted=2 ";
  for (const auto& [line, stages] :
       {std::pair{branches + "batch=2q4s40_1q1s9_1q0s5_1q3s9", "write prefix drafts draft merge"},
        {branches + "sinks=on cap=5 kv=fp8_e4m3 table=csr pad=2 batch=2q8s300",
         "write q_cast prefix drafts draft merge"},
        {branches + "window=4 positions=depth table=token batch=2q4s40_1q3s9", "write paths path"},
        {branches + "alibi=sqrt positions=depth batch=2q4s40_1q3s9", "write paths path"},
        {branches + "input=exact batch=2q4s40", "write prefix drafts draft merge"}}) {
    const Verdict right = judge(cpu(), line, "step_sglang_fa_cpu");
    EXPECT_EQ(right.outcome, Outcome::kPassed) << line << ": " << right.reason;
    EXPECT_EQ(stages_of("step_sglang_fa_cpu", line), stages) << line;
    EXPECT_THAT(judge(cpu(), line, "step_unified_cpu").reason, HasSubstr("drafts of steps before")) << line;
  }
  // A stage that reads the host's lengths has no place where only memory has them.
  const Verdict v = judge(cpu(), tree + "batch=1q6s30", "step_sglang_fa_cpu(draft=paged_online_cpu)");
  EXPECT_EQ(v.outcome, Outcome::kUnsupported);
  EXPECT_THAT(v.reason, HasSubstr("stage draft by paged_online_cpu, which does not promise to read lengths"));
}

// One entry for every row and draft, or memory behind the mask would be read.
TEST(StepJudge, MasksOfDraftsAreAsLargeAsTheDraftsNeed) {
  const Inputs inputs = build_inputs(
      make_problem(parse_scenario("step h=4/2 d=64 threshold=6 mask=tree drafted=1 batch=2q3s40_1q2s9")));
  for (const char* name : {"step_unified_cpu", "step_sglang_fa_cpu"}) {
    const assay_kernel& kernel = *cpu().find(name);
    assay_tensors t = inputs.tensors;
    char why[400] = "";
    const auto status = [&] {
      return kernel.supports(&kernel, inputs.view->get(), &t, nullptr, why, sizeof why);
    };
    if (std::string(name) != "step_unified_cpu") {
      EXPECT_EQ(status(), ASSAY_OK) << why;
    }
    --t.tree_mask.shape[0];
    EXPECT_EQ(status(), ASSAY_INVALID_ARGUMENT);
    EXPECT_THAT(why, HasSubstr("tree_mask has 43 entries, the drafts of 3 requests need 44"));
  }
}

// The seed's mistakes among them: sinks in both passes, tables in pages, a context cut by a causal mask.
TEST(StepJudge, WrongStagesOfSglangAreRejected) {
  using P = assay_problem;
  using T = assay_tensors;
  const std::string tree = "step h=4/2 d=64 page=4 threshold=8 mask=tree sinks=on batch=2q6s40_1q5s9 seed=3";
  const std::string path =
      "step h=4/2 d=64 page=4 threshold=8 mask=tree window=4 positions=depth batch=2q6s40_1q5s9 seed=3";
  const std::string local = "step h=4/2 d=64 page=4 chunk=8 batch=2q6s40_1q5s9 seed=3";
  const std::string step =
      "step h=4/2 d=64 page=4 threshold=8 mask=tree positions=depth drafted=2 batch=2q6s40_1q3s9 seed=3";
  const std::string step_path = step + " window=4", scaled = step + " q=fp8_e4m3:tensor";
  const auto to_pages = [](P& p, T& t) {  // slots of drafts taken for pages
    static std::vector<int32_t> pages;
    pages.clear();
    for (int64_t i = 0; i < t.block_table.shape[0] * t.block_table.stride[0]; ++i)
      pages.push_back(std::max(0, static_cast<const int32_t*>(t.block_table.data)[i] / p.page_size));
    t.block_table.data = pages.data();
  };
  testkit::expect_rejected(
      "step_sglang_fa_cpu",
      {
          {"prefix", "sees_drafts", tree,
           [](P& p, T& t) { t.kv_len = testkit::list_of(p.kv_len, p.requests); }},
          {"prefix", "causal_context", tree, [](P& p, T&) { p.mask = ASSAY_MASK_CAUSAL; }},
          {"prefix", "sink_of_its_own", tree,
           [](P& p, T& t) {
             static std::vector<float> ones(static_cast<size_t>(p.heads_q), 2.0f);
             p.has_sinks = 1, t.sinks = testkit::list_of(ones.data(), p.heads_q);
           }},
          {"prefix", "scale_twice", tree, [](P& p, T&) { p.softmax_scale *= p.softmax_scale; }},
          {"prefix", "first_table", tree, [](P&, T& t) { t.block_table.stride[0] = 0; }},
          {"drafts", "all_drafts", tree,
           [](P& p, T& t) {
             static std::vector<uint8_t> ones;
             ones.assign(static_cast<size_t>(p.total_q * p.max_q_len), 1);
             t.tree_mask = testkit::list_of(ones.data(), p.total_q * p.max_q_len);
           }},
          {"prefix", "sees_steps_before", step,
           [](P& p, T& t) {
             static std::vector<int32_t> lengths;
             lengths.clear();
             for (int32_t r = 0; r < p.requests; ++r) lengths.push_back(p.kv_len[r] - p.q_len[r]);
             t.kv_len = testkit::list_of(lengths.data(), p.requests);
           }},
          {"drafts", "new_alone", step, [](P& p, T&) { p.drafted = 0; }},
          {"drafts", "a_step_less", step, [](P& p, T&) { --p.drafted; }},
          {"drafts", "branches_of_first", step, [](P&, T& t) { t.tree_indptr.stride[0] = 0; }},
          {"draft", "drafts_in_pages", step, to_pages},
          {"draft", "newest_forgotten", step,
           [](P& p, T& t) {
             static std::vector<int32_t> lengths;
             lengths.clear();
             for (int64_t i = 0; i < t.kv_len.shape[0]; ++i)
               lengths.push_back(static_cast<const int32_t*>(t.kv_len.data)[i] - 1);
             t.kv_len = testkit::list_of(lengths.data(), p.total_q);
           }},
          // The seed's scales of requests, taken for those of the requests that a stage makes of rows.
          {"draft", "descale_of_requests", scaled,
           [](P& p, T& t) {
             static std::vector<float> scales;
             scales.assign(static_cast<size_t>(p.requests * p.heads_kv), 1.0f);
             std::fill_n(scales.begin(), 3 * p.heads_kv, *static_cast<const float*>(t.q_scale.data));
             p.q_scale_kind = ASSAY_SCALE_REQUEST_HEAD;
             t.q_scale.data = scales.data(), t.q_scale.rank = 2;
             t.q_scale.shape[0] = p.requests, t.q_scale.shape[1] = p.heads_kv;
             t.q_scale.stride[0] = p.heads_kv, t.q_scale.stride[1] = 1;
           }},
          {"paths", "path_of_new_alone", step_path, [](P& p, T&) { p.drafted = 0; }},
          // The seed's windowed layer: rows of the step counted as the last of the context, nothing to their
          // right.
          {"prefix", "right_side_cuts_context", step, [](P& p, T&) { p.window_right = 0; }},
          {"drafts", "first_mask", tree, [](P&, T& t) { t.tree_indptr.stride[0] = 0; }},
          {"draft", "tables_in_pages", tree, to_pages},
          {"merge", "forgets_the_sink", tree, [](P& p, T&) { p.has_sinks = 0; }},
          {"merge", "context_alone", tree, [](P& p, T&) { p.states = 1; }},
          {"merge", "drafts_twice", tree,
           [](P&, T& t) {
             t.partial_o.data = static_cast<uint16_t*>(t.partial_o.data) + t.partial_o.stride[0];
             t.partial_lse.data = static_cast<float*>(t.partial_lse.data) + t.partial_lse.stride[0];
             t.partial_o.stride[0] = t.partial_lse.stride[0] = 0;
           }},
          {"paths", "drafts_alone", path, [](P& p, T&) { p.op = ASSAY_OP_TREE_TABLES; }},
          {"path", "window_wider", path, [](P& p, T&) { ++p.window_left; }},
          {"path", "no_window", path, [](P& p, T&) { p.window_left = -1; }},
          {"local", "half_chunks", local, [](P& p, T&) { p.chunk /= 2; }},
          {"extend", "not_causal", local, [](P& p, T&) { p.mask = ASSAY_MASK_FULL; }},
          {"write", "forgets_a_key", local, [](P& p, T&) { --p.rows; }},
      });
}

TEST(StepJudge, StagesAreReplaced) {
  const std::string line = "step h=4/2 d=64 window=9 budget=20 batch=2q1s40_1q9s30_1q12";
  const std::string library = ASSAY_BINARY_DIR "/examples/libexample_cpu.so";
  const auto with = [&](const std::string& more, const std::string& stages) {
    return judge(cpu(), line + more, "step_aiter_fa_cpu(" + stages + ")");
  };
  Verdict v = with("", "unified=paged_online_cpu;prefill=prefill_online_cpu");
  EXPECT_EQ(v.outcome, Outcome::kPassed) << v.reason;
  // Decodes by another op: one call instead of parts and their merge.
  const std::string decodes = "step h=4/2 d=64 batch=2q1s40";
  EXPECT_THAT(dispatch("step_aiter_fa_cpu(decode=paged_naive_cpu)", decodes),
              AllOf(HasSubstr("decode: paged_naive_cpu"), Not(HasSubstr("merge"))));
  EXPECT_EQ(judge(cpu(), decodes, "step_aiter_fa_cpu(decode=paged_naive_cpu)").outcome, Outcome::kPassed);
  // Kernels of another library. A stage that is wrong makes the step wrong, and one that refuses is named.
  if (!std::filesystem::exists(library)) GTEST_SKIP() << "no examples in this build";
  v = with("", "unified=paged_example_cpu@" + library);
  EXPECT_EQ(v.outcome, Outcome::kPassed) << v.reason;
  EXPECT_EQ(with("", "unified=paged_forgetful_cpu@" + library).outcome, Outcome::kWrong);
  v = with(" cap=5", "unified=paged_example_cpu@" + library);
  EXPECT_EQ(v.outcome, Outcome::kUnsupported);
  EXPECT_THAT(v.reason, HasSubstr("stage unified, paged_example_cpu: supported: bf16"));
}

// Each has zeros of its own before its first run, and what it leaves there in the next one.
TEST(StepJudge, StagesKeepMemoryFromRunToRun) {
  const std::string fake = ASSAY_BINARY_DIR "/testing/libassay_fake.so";
  if (!std::filesystem::exists(fake)) GTEST_SKIP() << "no fake backend in this build";
  const std::string line = "step h=4/2 d=64 batch=2q1s300_1q1s40_1q12";
  for (const std::string pipeline : {"step_aiter_fa_cpu", "step_ixformer_fa_cpu"}) {
    const auto by = [&](const std::string& kernel) {
      std::string stages;
      for (const char* place : {"decode", "prefill"}) {
        if (std::string(place) == "prefill" && pipeline == "step_aiter_fa_cpu") continue;  // of another op
        stages += (stages.empty() ? "" : ";") + std::string(place) + "=" + kernel + "@" + fake;
      }
      return judge(cpu(), line, pipeline + "(" + stages + ")");
    };
    const Verdict kept = by("paged_semaphore_fake");
    EXPECT_EQ(kept.outcome, Outcome::kPassed) << pipeline << ": " << kept.reason;
    EXPECT_EQ(by("paged_dirty_fake").outcome, Outcome::kWrong) << pipeline;
  }
}

TEST(StepJudge, StagesThatDoNotFitAreNamed) {
  for (const auto& [stages, why] :
       {std::pair{"(unifed=paged_naive_cpu)", "step_aiter_fa_cpu has no stage unifed; it has write, split"},
        {"(unified=prefill_naive_cpu)", "prefill_naive_cpu is a kernel of another op than paged_naive_cpu"},
        {"(unified=nobody)",
         "no kernel nobody; for stage unified there are paged_naive_cpu, paged_online_cpu"},
        {"(unified)", "expected STAGE=KERNEL at 'unified'"},
        {"(unified=paged_naive_cpu", "expected NAME(STAGE=KERNEL;STAGE=KERNEL)"}}) {
    try {
      cpu().find(std::string("step_aiter_fa_cpu") + stages);
      ADD_FAILURE() << stages;
    } catch (const InputError& e) {
      EXPECT_THAT(e.what(), HasSubstr(why));
    }
  }
  EXPECT_THROW(cpu().find("paged_naive_cpu(unified=paged_online_cpu)"), InputError);
  EXPECT_EQ(cpu().find("nobody(unified=paged_online_cpu)"), nullptr);
}

TEST(StepJudge, ComposedKernelsSayWhatTheyDoNotTake) {
  for (const auto& [line, why] : {std::pair{"batch=1q9_1q1s40", "requests in another order"},
                                  {"sinks=on batch=1q1s40", "sinks"},
                                  {"layout=mla h=4/1 batch=1q1s40", "layout mla"},
                                  {"layout=shuffled window=9 batch=1q1s40", "a window in decodes"},
                                  {"layout=shuffled threshold=2 batch=1q2s40", "decodes of several rows"},
                                  {"layout=shuffled d=32 batch=1q1s40", "heads below 64"}}) {
    const std::string text =
        std::string("step ") + (std::string(line).find("h=") == std::string::npos ? "h=4/2 " : "") + line;
    const Verdict v = judge(cpu(), text, "step_aiter_fa_cpu");
    EXPECT_EQ(v.outcome, Outcome::kUnsupported) << text;
    EXPECT_THAT(v.reason, HasSubstr(why)) << text;
    EXPECT_EQ(judge(cpu(), text, "step_unified_cpu").outcome, Outcome::kPassed) << text;
  }
}

}  // namespace
}  // namespace assay
