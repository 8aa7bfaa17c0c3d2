// SPDX-License-Identifier: Apache-2.0
// Steps that are wrong on purpose (testing/planted_*.cpp), explained: which stage is wrong, why, and what is
// wrong between stages that are right. The whole table is `assay explain --score` of their library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "harness/explain/score.hpp"
#include "harness/explain/stages/explain_step.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

const std::string kPlanted = ASSAY_BINARY_DIR "/testing/libassay_planted_steps.so";
const std::string kCaptures = ASSAY_BINARY_DIR "/testing/libassay_planted_captures.so";
const std::string kRanks = ASSAY_BINARY_DIR "/testing/libassay_rank_faults.so";
const std::string kWholes = ASSAY_BINARY_DIR "/testing/libassay_step_faults.so";
const std::string kProgram = ASSAY_BINARY_DIR "/assay";
const std::string kCpu = ASSAY_BINARY_DIR "/libassay_cpu.so";

StepExplanation explained(const std::string& line, const std::string& kernel,
                          const std::string& backend = kPlanted) {
  omp_set_num_threads(1);  // children of this process inherit no threads
  CaptureOptions options;
  options.timeout_s = 120;
  return explain_step(line, make_problem(parse_scenario(line)), backend, kernel, options, kProgram);
}

const std::string kTree = "step h=4/2 d=64 page=4 threshold=8 mask=tree sinks=on batch=2q6s40_1q5s9 seed=11";
const std::string kPlain = "step h=4/2 d=64 page=8 batch=2q1s40_1q9s60_1q12 seed=11";

TEST(ExplainSteps, NameTheStageThatIsWrongOnItsOwnInputs) {
  const StepExplanation x = explained(kTree, "all_drafts");
  EXPECT_EQ(x.outcome, Outcome::kWrong);
  EXPECT_EQ(x.where(), "drafts");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "drafts_all");
  EXPECT_TRUE(x.sure());
  EXPECT_THAT(x.entries, Contains(HasSubstr("out_len[0]: 6 was written, ")));
  EXPECT_THAT(x.stages, Contains("prefix, paged_naive_cpu: right on what it was given"));
  EXPECT_THAT(explanation_text(x, 5, false),
              AllOf(HasSubstr("stage drafts, tree_tables_cpu, is wrong on its own inputs"),
                    HasSubstr("so        drafts: every draft is seen")));
  const StepExplanation again = step_explanation(explanation_json(x));
  EXPECT_EQ(explanation_json(again), explanation_json(x));
}

TEST(ExplainSteps, NameWhatAStageWasGivenWhereAllAreRight) {
  const StepExplanation x = explained(kTree, "prefix_after_append");
  EXPECT_EQ(x.where(), "wiring prefix");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "lengths_with_new");
  EXPECT_THAT(x.stages, Not(Contains(HasSubstr("wrong in"))));
  EXPECT_THAT(explanation_text(x, 5, false), HasSubstr("every stage is right on its inputs"));
}

TEST(ExplainSteps, NameTheStageThatIsMissingOrLate) {
  StepExplanation x = explained(kPlain, "nobody_writes");
  EXPECT_EQ(x.where(), "wiring write");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "left_out");
  x = explained(kPlain, "written_last");
  EXPECT_EQ(x.where(), "wiring write");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "out_of_order");
}

TEST(ExplainSteps, NameThePartOfAStepWithoutStages) {
  StepExplanation x = explained(kPlain, "whole_full");
  EXPECT_EQ(x.where(), "end attend");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "mask_full");
  x = explained(kPlain, "whole_v_for_k");
  EXPECT_EQ(x.where(), "end write");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "v_for_k");
}

// Rows that come in two tensors are one where attention is looked at, and where halves of heads are written.
TEST(ExplainSteps, JoinWhatComesInTwoTensors) {
  StepExplanation x = explained("step h=4/1 d=48/32 layout=mla page=8 sources=2 batch=2q1s20_2q4s10 seed=7",
                                "whole_rope_of_q_missing");
  EXPECT_EQ(x.where(), "end attend");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "dims_missing");
  EXPECT_TRUE(x.sure());
  x = explained("step h=4/2 d=64/48 sources=2 page=8 batch=2q1s20_2q4s30 seed=7", "whole_halves_scaled");
  EXPECT_EQ(x.where(), "end attend");
  EXPECT_THAT(x.stages, Contains("the cache: right"));
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "softmax_scale");
  EXPECT_TRUE(x.sure());
}

// Whole steps of a third party: what attention does wrong by itself, border between context and new keys, a
// side that is not written.
TEST(ExplainSteps, NameWhatAThirdPartysWholeDoes) {
  const std::string plain = "step h=4/2 d=64 page=4 batch=2q1s33_2q5s37_1q9 seed=3";
  const std::string bias = "step h=4/2 d=64 page=4 alibi=linear batch=2q1s33_2q5s37_1q9 seed=3";
  const struct {
    const char *kernel, *cause;
    const std::string& line;
  } cases[] = {
      {"step_causal_behind", "mask.causal_short", plain},
      {"step_chunk_repeats_key", "keys.one_doubled", plain},
      {"step_bias_from_chunk", "bias_other", bias},
      {"step_forgets_v", "v_unwritten", plain},
      {"step_stale_length", "new_keys_missing", plain},
  };
  for (const auto& c : cases) {
    const StepExplanation x = explained(c.line, c.kernel, kWholes);
    ASSERT_FALSE(x.causes.empty()) << c.kernel;
    EXPECT_EQ(x.causes[0].cause, c.cause) << c.kernel;
    EXPECT_TRUE(x.sure()) << c.kernel;
  }
}

// Each reading of a write: which row is not written, where its slots lead, whose scales it takes.
TEST(ExplainSteps, NameHowAWriteReadItsSlotsAndScales) {
  const std::string plain = "step h=4/2 d=64 page=8 batch=2q1s40_1q9s60_1q12 seed=17";
  const std::string codes = "step h=4/2 d=64 kv=fp8_e4m3:head page=8 batch=2q1s40_2q9s60 seed=17";
  const struct {
    std::string kernel, line, cause, how;
  } cases[] = {
      {"drawn2_one_row_unwritten", plain, "row_missing", "alone is not written"},
      {"drawn2_slots_backwards", plain, "slots_shifted", "slots in the opposite order"},
      {"drawn2_scales_exchanged", codes, "scale_other", "the scales of K and V exchanged"},
      {"drawn3_rows_of_the_first", plain, "rows_shifted", "K and V of the first row for all"},
      {"drawn3_scales_inverted", codes, "scale_other", "one over the scales"},
      {"drawn2_scale_of_first_head", codes, "scale_of_one", "k_scale and v_scale of the first entry"},
  };
  for (const auto& c : cases) {
    const StepExplanation x = explained(c.line, c.kernel);
    EXPECT_EQ(x.where(), "end write") << c.kernel;
    ASSERT_FALSE(x.causes.empty()) << c.kernel;
    EXPECT_EQ(x.causes[0].cause, c.cause) << c.kernel;
    EXPECT_THAT(x.causes[0].how, HasSubstr(c.how)) << c.kernel;
    EXPECT_TRUE(x.sure()) << c.kernel;
  }
}

// On the second line, which has more requests, the shortest stands far behind.
TEST(ExplainSteps, NameTheLengthThatIsTakenForAll) {
  const StepExplanation x =
      explained("step h=4/2 d=64 page=8 batch=1q3s70_3q3s40_1q3s90 seed=17", "drawn2_shortest_length");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "lengths_of_one");
  EXPECT_TRUE(x.sure());
}

// Every stage of every pipeline is right on what it is given, in every way it comes: no blame where none is
// due.
TEST(ExplainSteps, BlameNobodyForWhatIsRight) {
  const struct {
    const char *kernel, *line;
  } cases[] = {
      {"step_unified_cpu", "step h=4/2 d=64 page=8 batch=2q1s40_1q9s60_1q12 seed=3"},
      {"step_sglang_fa_cpu",
       "step h=4/2 d=64 page=4 threshold=8 mask=tree pad=2 sinks=on table=csr batch=2q6s40_1q5s9 seed=3"},
  };
  for (const auto& c : cases) {
    const StepExplanation x = explained(c.line, c.kernel, kCpu);
    EXPECT_EQ(x.outcome, Outcome::kPassed) << c.kernel << ": " << x.reason;
    EXPECT_EQ(x.where(), "");
    EXPECT_THAT(explanation_text(x, 5, false), HasSubstr("nothing to explain"));
  }
}

// Right when it is called: what the capture kept.
TEST(ExplainSteps, NameWhatACapturedCallKept) {
  const std::string decodes = "step h=4/2 d=64 page=8 batch=3q1s40_2q1s23 seed=2";
  StepExplanation x = explained(decodes, "stale_lengths", kCaptures);
  EXPECT_EQ(x.outcome, Outcome::kWrong);
  EXPECT_THAT(x.reason, HasSubstr("replayed for "));
  EXPECT_EQ(x.where(), "replay attend");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "captured_lengths");
  EXPECT_THAT(explanation_text(x, 5, false), HasSubstr("own inputs, when it is captured and replayed"));
  const StepExplanation again = step_explanation(explanation_json(x));
  EXPECT_EQ(explanation_json(again), explanation_json(x));
  // Partial results of a decode, judged row by row; rows of padding, behind a list that was kept; what held
  // no numbers when the call was captured.
  x = explained(decodes, "stale_decodes", kCaptures);
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "captured_lengths");
  x = explained("step h=4/2 d=64 page=4 threshold=4 batch=2q4s30_2q4s9 seed=2", "stale_starts", kCaptures);
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "captured_starts");
  x = explained("step h=4/2 d=64 page=4 threshold=6 mask=tree sinks=on batch=2q6s30_2q6s13 seed=3",
                "drawn_stale_parts", kCaptures);
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "captured_values");
  EXPECT_TRUE(x.sure());
  // The pipeline gives a right stage what the capture gave.
  x = explained(decodes, "given_stale_q", kCaptures);
  EXPECT_EQ(x.where(), "replay wiring attend");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "captured_values");
  for (const char* right : {"captured_unified_right", "captured_aiter_right"})
    EXPECT_EQ(explained(decodes, right, kCaptures).outcome, Outcome::kPassed) << right;
}

TEST(ExplainSteps, NameTheRankOrWhatIsExchanged) {
  const std::string line = "step h=4/2 d=32 ranks=2 interleave=4 page=4 batch=2q1s33_1q5s40_1q1s3 seed=3";
  EXPECT_EQ(explained(line, "dcp_right", kRanks).outcome, Outcome::kPassed);
  StepExplanation x = explained(line, "dcp_writes_none", kRanks);
  EXPECT_EQ(x.where(), "rank 1 write");
  EXPECT_THAT(explanation_text(x, 5, false), HasSubstr("is wrong on its own inputs, on rank 1"));
  x = explained(line, "dcp_no_correction", kRanks);
  EXPECT_EQ(x.where(), "exchange correct");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "merge_unweighted");
  EXPECT_THAT(explanation_text(x, 5, false), HasSubstr("what is wrong between ranks is correct"));
}

// A part of each catalogue, by the same road as `assay explain --score`.
TEST(ExplainSteps, OfTheCatalogues) {
  omp_set_num_threads(1);
  const struct {
    std::string library;
    int every, least;
    double first;  // of those that are known, at least
  } catalogues[] = {
      {kPlanted, 6, 18, 0.9}, {kCaptures, 4, 7, 0.7}, {kRanks, 8, 2, 0.6}, {kWholes, 6, 5, 0.8}};
  for (const auto& c : catalogues) {
    ExplainScoreOptions options;
    options.backend = c.library;
    options.suites = {};
    options.jobs = 1;
    options.every = c.every;
    options.program = kProgram;
    const ExplainScore s = score_catalogue(options, [](const ExplainedFault& f) {
      EXPECT_EQ(f.problem, "") << f.name;
      EXPECT_EQ(f.said_place, f.place) << f.name;
    });
    EXPECT_GE(s.places, c.least) << c.library;
    EXPECT_GE(s.first, c.first * s.known) << c.library;
  }
}

// What a write left says which rows lie where, in whichever list the mistake was.
TEST(ExplainSteps, ReadOffTheCacheWhatAWriteDid) {
  const struct {
    const char *kernel, *cause, *how;
    const char* line = "step h=4/2 d=64 page=8 batch=2q1s40_1q9s60_1q12 seed=7";
  } all[] = {
      {"whole_last_rows_unwritten", "row_missing", "K and V of the last row of every request with several"},
      {"whole_padding_over_first_row", "slots_shifted", "the slot of row 0 holds row 25, which is padding",
       "step h=4/2 d=64 page=8 pad=3 batch=2q1s40_1q9s60_1q12 seed=7"},
      {"whole_round_the_first_page", "slots_shifted",
       "rows behind the first of a request go round the page of that one"},
  };
  for (const auto& one : all) {
    const StepExplanation x = explained(one.line, one.kernel);
    ASSERT_FALSE(x.causes.empty()) << one.kernel;
    EXPECT_EQ(x.causes[0].cause, one.cause) << one.kernel;
    EXPECT_EQ(x.causes[0].how, one.how);
    EXPECT_TRUE(x.sure()) << one.kernel;
    EXPECT_EQ(x.place, "write");
  }
}

// What is not known by one name is not known by the other.
TEST(StepCauses, OneMechanismHasOneNameInStepsAndInKernels) {
  const auto both = [](const char* name) { return with_other_names({name}); };
  EXPECT_THAT(both("window_missing"), UnorderedElementsAre("window_missing", "mask.window_ignored"));
  EXPECT_THAT(both("mask.window_ignored"), UnorderedElementsAre("window_missing", "mask.window_ignored"));
  EXPECT_THAT(both("map_missing"), ElementsAre("map_missing"));
  EXPECT_THAT(with_other_names({"cap_missing", "softcap.ignored"}),
              ElementsAre("cap_missing", "softcap.ignored"));
}

}  // namespace
}  // namespace assay
