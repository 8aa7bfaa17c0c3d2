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
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kPlanted = ASSAY_BINARY_DIR "/testing/libassay_planted_steps.so";
const std::string kCpu = ASSAY_BINARY_DIR "/libassay_cpu.so";

StepExplanation explained(const std::string& line, const std::string& kernel,
                          const std::string& backend = kPlanted) {
  omp_set_num_threads(1);  // children of this process inherit no threads
  CaptureOptions options;
  options.timeout_s = 120;
  return explain_step(line, make_problem(parse_scenario(line)), backend, kernel, options);
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

// A sixth of the catalogue, by the same road as `assay explain --score`.
TEST(ExplainSteps, OfTheCatalogue) {
  omp_set_num_threads(1);
  ExplainScoreOptions options;
  options.backend = kPlanted;
  options.suites = {};
  options.jobs = 1;
  options.every = 6;
  const ExplainScore s = score_catalogue(options, [](const ExplainedFault& f) {
    EXPECT_EQ(f.problem, "") << f.name;
    EXPECT_EQ(f.said_place, f.place) << f.name;
  });
  EXPECT_GE(s.places, 18);
  EXPECT_GE(10 * s.first, 9 * s.known);
}

}  // namespace
}  // namespace assay
