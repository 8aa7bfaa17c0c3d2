// SPDX-License-Identifier: Apache-2.0
#include "harness/explain/stages/same_answer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

StepRanked says(const char* cause, bool whole, double explained = 1) {
  StepRanked r{cause, "how", explained, 0, ""};
  r.whole = whole;
  return r;
}
StepExplanation answer(std::vector<StepRanked> causes) {
  StepExplanation x;
  x.causes = std::move(causes);
  return x;
}

// Two readings under which nothing is wrong predict the same; one that leaves something is another answer.
TEST(SameAnswer, IsGivenByWhateverExplainsEverything) {
  StepExplanation x = answer({says("scale_other", true), says("keys.head_dropped", false),
                              says("scale.inverted", true, 0.98), says("scale_missing", true, 0.5)});
  x.beside = true;
  join_same(x);
  EXPECT_THAT(x.causes[0].names, ElementsAre("scale.inverted"));
  ASSERT_EQ(x.causes.size(), 4u);
  EXPECT_EQ(x.causes[1].cause, "keys.head_dropped") << "an or stands behind the first";
  EXPECT_EQ(x.causes[2].cause, "scale.inverted");
  EXPECT_TRUE(x.causes[2].same_as_first);
  EXPECT_FALSE(x.causes[3].same_as_first) << "not said";
}

// On one line alone two may predict the same that are not: said of this line, and no name.
TEST(SameAnswer, IsANameOnlyWhereAnotherLineWasAsked) {
  StepExplanation x = answer({says("scale_other", true), says("scale.inverted", true, 0.98)});
  join_same(x);
  EXPECT_THAT(x.causes[0].names, IsEmpty());
  EXPECT_TRUE(x.causes[1].same_as_first);
  EXPECT_THAT(explanation_text(
                  [&] {
                    x.blame = StepBlame::kEnd;
                    return x;
                  }(),
                  5, false),
              ::testing::HasSubstr("which here is the same as: K or V is divided by its scale"));
}

// A sentence that implies another says both, whichever vocabulary it is of; the other way round it does not.
TEST(SameAnswer, SaysWhatItImplies) {
  StepExplanation x = answer({says("slots_off_by_one", true)});
  join_same(x);
  EXPECT_THAT(x.causes[0].names, UnorderedElementsAre("slots_shifted"));
  x = answer({says("slots_shifted", true)});
  join_same(x);
  EXPECT_THAT(x.causes[0].names, IsEmpty());
  x = answer({says("window_missing", true)});
  join_same(x);
  EXPECT_THAT(x.causes[0].names, UnorderedElementsAre("mask.window_ignored"));
}

// What comes to the same as a cause that is not known is no answer either, by whichever of its names.
TEST(SameAnswer, GoesWithWhatIsTakenAway) {
  StepExplanation x = answer({says("scale.inverted", true), says("scale_twice", true)});
  x.without = {"scale_other"};
  join_same(x);
  EXPECT_THAT(same_as_taken(x), IsEmpty()) << "nothing that was taken away explains this";
  x.taken = {says("scale_other", true)};
  EXPECT_THAT(same_as_taken(x), ElementsAre("scale.inverted", "scale_twice"));
  x.causes[0].whole = false;
  EXPECT_THAT(same_as_taken(x), IsEmpty()) << "it predicts something else";
  x = answer({says("slots_off_by_one", true)});
  x.without = {"slots_shifted"};
  join_same(x);
  EXPECT_THAT(same_as_taken(x), ElementsAre("slots_off_by_one"));
}

// ... on every line: one that another line refutes takes nothing with it.
TEST(SameAnswer, IsAskedForOnEveryLine) {
  StepExplanation x = answer({says("scale.inverted", true)}), there = x;
  x.taken = {says("scale_other", true), says("scale_missing", true)};
  there.taken = {says("scale_missing", true)};
  keep_taken(x, there, false);
  ASSERT_EQ(x.taken.size(), 1u);
  EXPECT_EQ(x.taken[0].cause, "scale_missing");
}

}  // namespace
}  // namespace assay
