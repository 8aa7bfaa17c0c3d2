// SPDX-License-Identifier: Apache-2.0
#include "harness/explain/stages/same_words.hpp"

#include <gtest/gtest.h>

namespace assay {
namespace {

StepRanked words_of(const char* cause, const char* how, std::vector<std::string> ways = {}) {
  StepRanked r{cause, how, 1, 0, ""};
  r.ways = std::move(ways);
  return r;
}

TEST(SameWords, AskForTheSamePartOfTheCase) {
  const StepRanked here = words_of(
      "mask.causal_anchor", "the last of 32 positions for all of them, in requests of a multiple of 4 keys");
  EXPECT_FALSE(
      same_words(here,
                 words_of("mask.causal_anchor",
                          "the last of 32 positions for all of them, in requests of at least 33 keys"),
                 false));
  EXPECT_TRUE(
      same_words(here,
                 words_of("mask.causal_anchor", "no such words",
                          {"the last of 16 positions for all of them, in requests of a multiple of 8 keys"}),
                 false));
  EXPECT_FALSE(same_words(here, words_of("mask.causal_short", here.how.c_str()), false));
}

// Nothing is asked for of what holds everywhere: a stage reads another thing by the numbers of each line.
TEST(SameWords, AreNotAskedForOfWhatHoldsEverywhere) {
  EXPECT_TRUE(same_words(words_of("lengths_off_by_page", "every length -16"),
                         words_of("lengths_off_by_page", "every length +8"), false));
}

// No line gives the number: one of many that were tried fits by chance.
TEST(SameWords, AskForTheSameNumberWhereManyWereTried) {
  const StepRanked here = words_of("lengths_other", "no more than 1024 keys of a request");
  EXPECT_FALSE(same_words(here, words_of("lengths_other", "no more than 1536 keys of a request"), false));
  EXPECT_TRUE(same_words(here,
                         words_of("lengths_other", "no more than 1536 keys of a request",
                                  {"every length -2", "no more than 1024 keys of a request"}),
                         false));
  EXPECT_TRUE(same_words(here, words_of("lengths_other", "no more than 768 keys of a request"), true));
}

TEST(SameWords, AreOfManyNumbersWhereThereIsOne) {
  EXPECT_TRUE(
      of_many_numbers(words_of("table_other", "the first 8 entries of every request again and again")));
  EXPECT_FALSE(of_many_numbers(words_of("table_other", "the last page of every request is the page before")));
  EXPECT_FALSE(of_many_numbers(words_of("lengths_off_by_one", "every length -1")));
}

// Of several sorts of rows the plainest is said; another line shows which it is.
TEST(SameWords, TakeTheSortOfRowsThatBothLinesShow) {
  const StepRanked here =
      words_of("mask_full", "no mask, in extends alone",
               {"no mask, in extends alone", "no mask, in requests with several rows alone"});
  const StepRanked there = words_of("mask_full", "no mask, in requests with several rows alone");
  EXPECT_EQ(way_of_both(here, there, false), "no mask, in requests with several rows alone");
  EXPECT_FALSE(same_words(here, words_of("mask_full", "no mask, in the first request alone"), false));
  EXPECT_TRUE(same_words(here, words_of("mask_full", "no mask"), false));  // all rows there are of that sort
}

}  // namespace
}  // namespace assay
