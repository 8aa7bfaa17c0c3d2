// SPDX-License-Identifier: Apache-2.0
// Whole steps of a second server (testing/planted_server.cpp), wrong in one class of requests, one split or
// one sort of rows alone, explained. The whole table is `assay explain --score` of their library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "harness/explain/stages/explain_step.hpp"
#include "harness/explain/testing/server_faults.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

StepExplanation server_explained(const std::string& kernel) {
  omp_set_num_threads(1);  // children of this process inherit no threads
  for (const planted_server::Entry& e : planted_server::kEntries)
    if (kernel == e.name)
      return explain_step(e.line, make_problem(parse_scenario(e.line)),
                          ASSAY_BINARY_DIR "/testing/libassay_planted_server.so", kernel, CaptureOptions{},
                          "/proc/self/exe", {});
  return {};
}

TEST(ExplainServers, AreRightWhereNothingIsPlanted) {
  EXPECT_EQ(server_explained("server_right").outcome, Outcome::kPassed);
}

TEST(ExplainServers, SayWhatIsOtherInOneClassOfRequests) {
  const struct {
    const char *kernel, *cause, *how;
  } cases[] = {
      {"server_rows_by_longest", "rows_shifted", "the slot of row "},
      {"server_scale_of_row_before", "scale_other", "of the row before, of a request's first its own"},
      {"server_scale_of_request", "scale_of_one", "of its request's first row"},
      {"server_sixty_four_keys", "lengths_other", "no more than 64 keys"},
      {"server_drafts_of_self_alone", "mask_tree", "whatever the tree says of that"},
      {"server_trees_of_one_width", "mask.tree_shifted", "trees as large as request 0's"},
      {"server_cap_before_scale", "softcap.before_scale", "capped before they are scaled"},
      {"server_bias_of_tiles", "alibi.shifted", "the first of their run of 16"},
      {"server_padding_in_slot_zero", "rows_beyond", "which is padding, lies in K's slot 0"},
      {"server_k_by_scale_of_v", "scale_other", ""},
      {"server_v_times_scale_in_decodes", "scale.inverted", "numbers times the scale"},
      {"server_scale_over_in_bf16", "precision.scale", "one over the scale in bf16"},
      {"server_new_v_as_it_came", "dense_for_cache", "V of new keys as they came, K from the cache"},
      {"server_rows_at_first", "mask.causal_anchor",
       "the causal limit of the first row of the request for all of them, in extends alone"},
      {"server_drafts_of_last", "mask.tree_shifted",
       "the row of the last draft, and every draft sees itself"},
      {"server_encoder_followed", "encoder_rounded_down", "follow the encoder's last token in its page"},
      {"server_map_by_block", "map_shifted", "looked up by block, for a slot of the block"},
  };
  for (const auto& c : cases) {
    const StepExplanation x = server_explained(c.kernel);
    ASSERT_FALSE(x.causes.empty()) << c.kernel;
    EXPECT_EQ(x.causes[0].cause, c.cause) << c.kernel;
    EXPECT_THAT(x.causes[0].how, ::testing::HasSubstr(c.how)) << c.kernel;
    EXPECT_TRUE(x.sure()) << c.kernel;
  }
}

}  // namespace
}  // namespace assay
