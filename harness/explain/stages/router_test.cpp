// SPDX-License-Identifier: Apache-2.0
// Whole steps of a router (testing/planted_router.cpp), wrong in one way each, explained: what became of new
// keys and where they went, which entries of a table are followed, what drafts see. The whole table is `assay
// explain --score` of their library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "harness/explain/stages/explain_step.hpp"
#include "harness/explain/testing/router_faults.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

StepExplanation router_explained(const std::string& kernel, const std::vector<std::string>& without = {}) {
  omp_set_num_threads(1);  // children of this process inherit no threads
  for (const planted_router::Entry& e : planted_router::kEntries)
    if (kernel == e.name)
      return explain_step(e.line, make_problem(parse_scenario(e.line)),
                          ASSAY_BINARY_DIR "/testing/libassay_planted_router.so", kernel, CaptureOptions{},
                          "/proc/self/exe", without);
  return {};
}

struct Routed {
  const char *kernel, *cause, *how;
};
void expect_routed(const std::vector<Routed>& all) {
  for (const Routed& one : all) {
    const StepExplanation x = router_explained(one.kernel);
    ASSERT_FALSE(x.causes.empty()) << one.kernel;
    EXPECT_EQ(x.causes[0].cause, one.cause) << one.kernel;
    EXPECT_THAT(x.causes[0].how, ::testing::HasSubstr(one.how)) << one.kernel;
    EXPECT_TRUE(x.sure()) << one.kernel;
  }
}

TEST(ExplainRouters, AreRightWhereNothingIsPlanted) {
  EXPECT_EQ(router_explained("router_right").outcome, Outcome::kPassed);
}

TEST(ExplainRouters, ReadOffTheCacheWhatBecameOfNewKeys) {
  expect_routed({{"router_key_normalised", "key_altered", "K of all rows: normalised"},
                 {"router_key_mean_less", "key_altered", "K of all rows: less their mean"},
                 {"router_key_turned", "key_altered", "a dimension and the one half the head on"},
                 {"router_first_new_zero", "key_altered", "K and V of the first row of every request: zeros"},
                 {"router_key_times_scale", "key_altered", "0.177 times what came"},
                 {"router_new_added_to_next", "key_altered", "mixed with the row before"},
                 {"router_four_bits", "codes_clamped", "codes end at -8 and 7"},
                 {"router_scale_of_slot_before", "scale_other", "lies in the slot before it"}});
}

TEST(ExplainRouters, ReadOffTheCacheWhereKeysWent) {
  expect_routed({{"router_slots_follow", "slots_shifted", "whichever page is next"},
                 {"router_slots_page_on", "slots_shifted", "a page on"},
                 {"router_first_of_page", "slots_shifted", "go to its first slot"}});
}

// What is changed beside new keys is the context's where a table says so, and goes by both names.
TEST(ExplainRouters, SayWhoseKeysWereDestroyed) {
  expect_routed(
      {{"router_last_context_zeroed", "context_overwritten", "V of key 39 of request 0 and 3 more"}});
  for (const char* name : {"context_overwritten", "beside_rows"})
    for (const StepRanked& r : router_explained("router_oldest_zeroed", {name}).causes)
      EXPECT_LT(r.explained, StepExplanation::kSure) << name << ": " << r.cause;
}

// Beside where new keys went what that did to the cache, by whose names it goes as well.
TEST(ExplainRouters, SayWhatIsTrueOfTheCacheToo) {
  const StepExplanation x = router_explained("router_slots_page_on");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_THAT(x.causes[0].names,
              ::testing::AllOf(::testing::Contains("beside_rows"), ::testing::Contains("context_overwritten"),
                               ::testing::Not(::testing::Contains("row_missing"))));
  EXPECT_THAT(
      explanation_text(x, 5, false),
      ::testing::HasSubstr("which is also called: the cache is changed in slots where no new key is to go"));
  EXPECT_FALSE(router_explained("router_slots_page_on", {"beside_rows"}).sure());
}

// A cause that is another's numbers on every line goes with it.
TEST(ExplainRouters, SayNoOtherWordForWhatIsTakenNotToBeKnown) {
  const StepExplanation known = router_explained("router_full_last_page_lost");
  ASSERT_TRUE(known.sure());
  const StepExplanation x = router_explained("router_full_last_page_lost", {known.causes[0].cause});
  EXPECT_FALSE(x.sure()) << x.causes[0].cause << ": " << x.causes[0].how;
}

TEST(ExplainRouters, FollowTablesAndTrees) {
  expect_routed(
      {{"router_pages_follow", "table_other", "pages follow the first of their request"},
       {"router_indptr_next", "table_of_next", "the entries of the request behind"},
       {"router_indptr_one_late", "table_shifted", "the one behind its first"},
       {"router_full_last_page_lost", "lengths_off_by_page", "the keys of the last page are missing"},
       {"router_parents_only", "mask.tree_cut", "the last alone"},
       {"router_first_branch", "mask_tree", "every draft of the first branch"},
       {"router_step_major", "mask.tree_shifted", "of the steps before"}});
}

// What holds of all rows is said before what holds in some of them alone.
TEST(ExplainRouters, SayPlainlyWhatPartsDo) {
  expect_routed({{"router_prefix_causal", "mask_causal", "a prefix and the rest"},
                 {"router_padding_joined", "empty_as_zero", "a part of zeros"}});
}

}  // namespace
}  // namespace assay
