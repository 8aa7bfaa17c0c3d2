// SPDX-License-Identifier: Apache-2.0
// Whole explanations of wrong kernels that share no code with the hypotheses: one per family from the
// catalogue of planted faults, and the misbehaving backend of harness/device, which declares no order of its
// arithmetic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "harness/base/error.hpp"
#include "harness/explain/causes.hpp"
#include "harness/explain/explanation.hpp"
#include "harness/explain/score.hpp"
#include "harness/explain/testing/mistakes.hpp"
#include "harness/scenario/scenario.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const std::string kFaulty = ASSAY_BINARY_DIR "/faulty/libassay_faulty.so";

Explanation explain_line(const std::string& line, const std::string& backend, const std::string& kernel) {
  omp_set_num_threads(1);  // children of this process inherit no threads
  CaptureOptions options;
  options.threads = 1;
  options.timeout_s = 30;
  const Problem problem = make_problem(parse_scenario(line));
  return explain(capture(line, problem, backend, kernel, options));
}

struct Expected {
  const char* kernel;
  const char* cause;
  const char* line;
};

TEST(Explain, PlantedFaultsOneOfEachFamily) {
  const Expected table[] = {
      {"paged_window_short", "mask.window_short", "paged h=4/2 d=64 window=63 batch=2q1s200_1q20s90 seed=1"},
      {"prefill_tree_transposed", "mask.tree_transposed",
       "prefill h=4/2 d=64 mask=tree batch=2q9s60_1q17s40 seed=2"},
      {"paged_key_dropped", "keys.one_dropped", "paged h=4/2 d=64 batch=2q1s100_1q9s70 seed=3"},
      {"paged_page_v_swapped", "page.v_only", "paged h=4/2 d=64 page=16 batch=2q1s100_1q9s70 seed=4"},
      {"paged_kv_head_modulo", "heads.kv_mapping", "paged h=4/2 d=64 batch=2q1s100_1q9s70 seed=5"},
      {"prefill_v_scale_1_percent", "scale.v_factor",
       "prefill h=4/2 d=64 kv=fp8_e4m3:head batch=1q20s70_1q5s90 seed=6"},
      {"paged_cap_before_scale", "softcap.before_scale",
       "paged h=4/2 d=64 cap=5 batch=2q1s100_1q9s70 seed=7"},
      {"paged_o_not_rescaled", "softmax.o_not_rescaled",
       "paged h=4/2 d=64 input=ascending batch=2q1s200_1q9s170 seed=8"},
      {"paged_lse_base_2", "lse.base2", "paged h=4/2 d=64 batch=2q1s100_1q9s70 seed=9"},
      {"paged_merge_base_2", "merge.base", "paged h=4/2 d=64 batch=2q1s300_1q9s270 seed=10"},
      {"paged_o_in_bf16", "precision.o_accumulator", "paged h=4/2 d=64 batch=2q1s300_1q9s270 seed=11"},
      {"paged_row_unwritten", "output.unwritten", "paged h=4/2 d=64 batch=2q1s100_1q9s70 seed=12"},
      // Codes without an exponent, of which no family may ask where their subnormals begin.
      {"paged_key_dropped", "keys.one_dropped", "paged h=4/2 d=64 kv=int8:head batch=2q1s100_1q9s70 seed=13"},
      {"prefill_tree_transposed", "mask.tree_transposed",
       "prefill h=4/2 d=64 mask=tree q=int8:tensor kv=int8:tensor batch=2q9s60_1q17s40 seed=14"},
  };
  for (const Expected& e : table) {
    const Explanation x = explain_line(e.line, kFaulty, e.kernel);
    EXPECT_EQ(x.outcome, Outcome::kWrong) << e.kernel << ": " << x.reason;
    EXPECT_EQ(first_cause(x), e.cause) << e.kernel << "\n"
                                       << explanation_text(x, make_problem(parse_scenario(e.line)), 5, false);
  }
}

TEST(Explain, KernelsThatDeclareNothing) {
  const std::string line = "paged h=4/2 d=32 page=16 batch=2q1s70_1q5s40 seed=1";
  const Expected table[] = {
      {"paged_lse2_fake", "lse.base2", ""},
      {"paged_unscaled_fake", "softmax.o_not_rescaled", ""},
      {"paged_zeros_fake", "output.zeros", ""},
      {"paged_nan_fake", "output.nan", ""},
      {"paged_droppage_fake", "keys.tail_dropped", ""},
      {"paged_leak_fake", "memory.unused_slot", ""},
      {"paged_overrun_fake", "memory.guard_written", ""},
      {"paged_spill_fake", "memory.guard_written",
       "paged h=4/2 d=32 page=16 strides=out batch=2q1s70_1q5s40 seed=1"},
      {"paged_writeinput_fake", "memory.input_written", ""},
      {"paged_planned_fake", "state.plan", ""},
      {"paged_flaky_fake", "race.unstable", ""},
      {"paged_silent_fake", "output.row_dropped", ""},
  };
  for (const Expected& e : table) {
    const std::string own = std::string(e.line).empty() ? line : std::string(e.line);
    const Explanation x = explain_line(own, kFake, e.kernel);
    EXPECT_EQ(first_cause(x), e.cause) << e.kernel << "\n"
                                       << explanation_text(x, make_problem(parse_scenario(own)), 5, false);
  }
}

// The LSE of another kernel, or none: O alone says what is wrong.
TEST(Explain, CausesAreFoundWithoutTheLse) {
  const Expected table[] = {
      {"paged_window_short", "mask.window_short", "paged h=4/2 d=64 window=63 batch=2q1s200_1q20s90 seed=1"},
      {"paged_kv_head_modulo", "heads.kv_mapping", "paged h=4/2 d=64 batch=2q1s100_1q9s70 seed=5"},
      {"paged_page_v_swapped", "page.v_only", "paged h=4/2 d=64 page=16 batch=2q1s100_1q9s70 seed=4"},
      {"paged_cap_before_scale", "softcap.before_scale",
       "paged h=4/2 d=64 cap=5 batch=2q1s100_1q9s70 seed=7"},
  };
  for (const Expected& e : table) {
    omp_set_num_threads(1);
    CaptureOptions options;
    options.threads = 1;
    options.timeout_s = 30;
    const Problem problem = make_problem(parse_scenario(e.line));
    Evidence evidence = capture(e.line, problem, kFaulty, e.kernel, options);
    for (CallResultCopy& call : evidence.calls)
      for (size_t i = 0; call.made && i < call.lse.size(); ++i) {
        const int64_t row = evidence.row_of[i / problem.heads_q];
        if (row >= 0) call.lse[i] = evidence.bounded.value.lse[row * problem.heads_q + i % problem.heads_q];
      }
    const Explanation x = explain(evidence);
    EXPECT_EQ(first_cause(x), e.cause) << e.kernel << "\n" << explanation_text(x, problem, 5, false);
  }
  const std::string line = "paged h=4/2 d=32 page=16 batch=2q1s70_1q5s40 seed=1";
  EXPECT_EQ(first_cause(explain_line(line, kFake, "paged_droppagenolse_fake")), "keys.tail_dropped");
}

TEST(Explain, CrashesAndHangsAreSurvived) {
  const Explanation crash = explain_line("paged h=2/1 d=32 batch=2q1s40", kFake, "paged_segfault_fake");
  EXPECT_EQ(crash.outcome, Outcome::kCrashed);
  EXPECT_THAT(crash.reason, HasSubstr("SIGSEGV"));
  EXPECT_EQ(first_cause(crash), "memory.out_of_range");
  const Explanation refused = explain_line("paged h=2/1 d=32 batch=2q1s40", kFake, "paged_refuse_fake");
  EXPECT_EQ(refused.outcome, Outcome::kUnsupported);
  EXPECT_FALSE(refused.explained);
}

TEST(Explain, AKernelOfAnotherOpIsRefused) {
  try {
    explain_line("prefill h=2/1 d=32 batch=2q9", kFake, "paged_ok_fake");
    FAIL() << "nobody looked at the op";
  } catch (const InputError& error) {
    EXPECT_THAT(error.message(),
                HasSubstr("kernel paged_ok_fake is for op paged, and the line is of op prefill"));
  }
}

// Rows before the first key, and requests without one, under everything a key may be displaced by.
TEST(Explain, RowsOfNegativePositionAreSurvived) {
  const Explanation x = explain_line("paged h=4/2 d=64 cap=20 sinks=on batch=1q1s60_1q1s0_1q3s1 seed=7",
                                     kFaulty, "paged_cap_after_mask");
  EXPECT_EQ(first_cause(x), "softcap.after_mask");
  // Pairs of changes, over requests without keys.
  const std::string line =
      "paged h=2 d=16 q=fp8_e4m3:request_head kv=fp8_e4m3:request_head "
      "batch=150q1s5_2q0s9_3q1s0_150q2s7 seed=58";
  CaptureOptions options;
  options.threads = 1;
  const Evidence e =
      capture(line, make_problem(parse_scenario(line)), kFaulty, "paged_empty_rows_nan", options);
  EXPECT_FALSE(sure(explain(e, {"output.nan"}).ranking));
}

// As many fitted numbers as wrong cells explain anything.
TEST(Explain, WhatIsFittedToEveryWrongCellIsNotSure) {
  Ranking ranking;
  ranking.nothing = 10;
  ranking.bad_cells = 3;
  ranking.list = {{"keys.one_dropped", "one key per row", 0, 1, 1.5, false, 3}};
  EXPECT_FALSE(sure(ranking));
  ranking.list[0].free = 2;
  EXPECT_TRUE(sure(ranking));
}

// A cause that leaves a fifth of the error is not the cause, and one of several that fit alike is not sure.
TEST(Explain, SaysSoOnlyWhereItKnows) {
  Explanation x;
  x.explained = true;
  x.outcome = Outcome::kWrong;
  x.ranking.nothing = 10;
  const Problem p = make_problem(parse_scenario("paged batch=1q1s5"));
  const auto text = [&](double first, double second) {
    x.ranking.list = {{"precision.exp", "how", 10 * (1 - first), first, 0, false},
                      {"lse.base2", "how", 10 * (1 - second), second, 0, false}};
    return explanation_text(x, p, 5, false);
  };
  EXPECT_THAT(text(0.42, 0.1),
              HasSubstr("so        none of the known causes: the best of them explains 42 %"));
  EXPECT_THAT(text(0.95, 0.1),
              ::testing::AllOf(HasSubstr("so        the exponential"), ::testing::Not(HasSubstr("\nor "))));
  EXPECT_THAT(text(1, 1), ::testing::AllOf(HasSubstr("so        the exponential"), HasSubstr("\nor        "),
                                           HasSubstr("cannot tell them apart")));
  EXPECT_EQ(explanation_json(x, p)["sure"], true);
  EXPECT_EQ(explanation_json(x, p)["equally_good"], 2);
  // Two that predict the same are one answer.
  text(1, 1);
  x.ranking.list[1].same_as_first = true;
  EXPECT_THAT(explanation_text(x, p, 5, false),
              ::testing::AllOf(HasSubstr("so        the exponential"),
                               HasSubstr("the same as: the LSE, or the logarithm in it, is in base 2"),
                               ::testing::Not(HasSubstr("\nor "))));
  // Four fifths are enough only where what is left is no more than legal rounding, of 10 and of 5.
  EXPECT_THAT(text(0.85, 0.1), HasSubstr("so        none of the known causes"));
  x.ranking.list = {{"precision.exp", "how", 0.75, 0.85, 0, false}};
  EXPECT_TRUE(sure(x.ranking));
  // Nor is one that leaves more than legal rounding of a large error, unless that is hardly any of it.
  x.ranking.list = {{"precision.exp", "how", 2, 0.92, 0, false}};
  EXPECT_FALSE(sure(x.ranking));
  x.ranking.list = {{"precision.exp", "how", 2, 0.98, 0, false}};
  EXPECT_TRUE(sure(x.ranking));
  // An observation that leaves half of the error open is not the cause either.
  x.ranking.list = {{"memory.unused_slot", "observed", 5, 0.5, 1, true}};
  EXPECT_FALSE(sure(x.ranking));
}

TEST(Explain, RightKernelHasNothingToExplain) {
  const std::string line = "paged h=4/2 d=32 page=16 batch=2q1s70_1q5s40 seed=1";
  const Explanation x = explain_line(line, kFake, "paged_ok_fake");
  EXPECT_EQ(x.outcome, Outcome::kPassed) << x.reason;
  EXPECT_EQ(x.bad_cells, 0);
  EXPECT_TRUE(x.ranking.list.empty());
  EXPECT_FALSE(x.explained);
  EXPECT_THAT(explanation_text(x, make_problem(parse_scenario(line)), 5, false),
              HasSubstr("nothing to explain"));
}

TEST(Explain, PatternAndPictureNameThePlace) {
  const std::string line = "paged h=4/2 d=128 page=16 window=63 batch=1q1s100_1q80s90 seed=1";
  const Explanation x = explain_line(line, kFaulty, "paged_window_short");
  ASSERT_EQ(x.first.size(), 1u);
  EXPECT_EQ(x.first[0].cell, (Cell{0, 0, 0}));
  EXPECT_THAT(x.pattern, Contains(HasSubstr("exactly rows whose window lies within the keys")));
  const nlohmann::json j = explanation_json(x, make_problem(parse_scenario(line)));
  EXPECT_EQ(j["causes"][0]["cause"], "mask.window_short");
  ASSERT_TRUE(j.contains("heat"));
  // The key that is missing carries the change of weight in every wrong row of the picture.
  for (const nlohmann::json& row : j["heat"]["rows"]) {
    if (!row["bad"].get<bool>()) continue;
    const int32_t oldest = row["begin"];
    EXPECT_LT(row["change"][oldest].get<double>(), -0.5 * row["weight"][oldest].get<double>());
  }
}

TEST(Explain, CausesAreUniqueAndSaid) {
  std::vector<std::string_view> names;
  for (const Cause& c : causes()) {
    EXPECT_GT(c.meaning.size(), 15u) << c.name;
    EXPECT_NE(c.name.find('.'), std::string_view::npos);
    names.push_back(c.name);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_NE(find_cause("merge.base"), nullptr);
  EXPECT_EQ(find_cause("merge.bass"), nullptr);
}

TEST(Explain, BadNamesSayWhatIsAccepted) {
  try {
    explain_line("paged h=2/1 d=32 batch=2q1s40", kFake, "paged_nothing_fake");
    FAIL() << "accepted a kernel that does not exist";
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("paged_ok_fake"));
  }
  ExplainScoreOptions options;
  options.backend = kFake;
  EXPECT_THROW(score_catalogue(options, [](const ExplainedFault&) {}), InputError);
  options.backend = kFaulty;
  options.filter = "no such fault*";
  options.suites = {"paged h=2/1 d=32 batch=2q1s40"};
  EXPECT_THROW(score_catalogue(options, [](const ExplainedFault&) {}), InputError);
}

}  // namespace
}  // namespace assay
