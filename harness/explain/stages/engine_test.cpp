// SPDX-License-Identifier: Apache-2.0
// Whole steps of an engine of their own (testing/planted_engine.cpp), wrong in one way each, explained: what
// the cache and the results show where no operand read otherwise says it. The whole table is `assay explain
// --score` of their library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "harness/explain/stages/explain_step.hpp"
#include "harness/explain/testing/engine_faults.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

const std::string kEngine = ASSAY_BINARY_DIR "/testing/libassay_planted_engine.so";

StepExplanation engine_explained(const std::string& kernel, const std::vector<std::string>& without = {}) {
  omp_set_num_threads(1);  // children of this process inherit no threads
  for (const planted_engine::Entry& e : planted_engine::kEntries)
    if (kernel == e.name)
      return explain_step(e.line, make_problem(parse_scenario(e.line)), kEngine, kernel, CaptureOptions{},
                          "/proc/self/exe", without);
  return {};
}

struct Said {
  const char *kernel, *cause, *how;
};
void expect(const std::vector<Said>& all) {
  for (const Said& one : all) {
    const StepExplanation x = engine_explained(one.kernel);
    ASSERT_FALSE(x.causes.empty()) << one.kernel;
    EXPECT_EQ(x.causes[0].cause, one.cause) << one.kernel;
    EXPECT_THAT(x.causes[0].how, HasSubstr(one.how)) << one.kernel;
    EXPECT_TRUE(x.sure()) << one.kernel;
  }
}

TEST(ExplainEngines, AreRightWhereNothingIsPlanted) {
  EXPECT_EQ(engine_explained("engine_right").outcome, Outcome::kPassed);
}

TEST(ExplainEngines, ReadOffTheCacheWhoseVectorsLieWhere) {
  expect({{"engine_last_head_of_v", "heads_missing", "V of head 1"},
          {"engine_four_rows", "row_missing", "rows"},
          {"engine_dims_apart", "dims_order", "dimensions"},
          {"engine_heads_for_slots", "memory.layout", "rows lie in the order slot, head, dimension"},
          {"engine_slots_of_half_width", "slots_shifted", ""},
          {"engine_double_pages", "slots_shifted", ""}});
}

TEST(ExplainEngines, ReadOffTheCacheHowNumbersBecameCodes) {
  expect({{"engine_largest_of_half", "scale_other", "the first half of the dimensions"},
          {"engine_scale_unstored", "scale_unwritten", "scales lie as before"},
          {"engine_scale_twice", "scale_twice", "the scales of K and V"},
          {"engine_overflow_to_nan", "codes_overflow", "beyond the largest code"},
          {"engine_other_bias", "format.fnuz_as_fn", "codes of another format"},
          {"engine_subnormals_flushed", "format.subnormals", "become zero"}});
}

// Elements of V that no rule for codes is about are neither right nor wrong by it.
TEST(ExplainEngines, ExplainNoMoreThanAllWhereTheOtherSideHasNoCodes) {
  const StepExplanation x = engine_explained("engine_codes_down");
  ASSERT_FALSE(x.causes.empty());
  EXPECT_EQ(x.causes[0].cause, "codes_rounded");
  EXPECT_EQ(x.causes[0].how, "down");
  EXPECT_TRUE(x.sure());
  for (const StepRanked& r : x.causes) EXPECT_LE(r.explained, 1) << r.cause;
}

TEST(ExplainEngines, TakeAContextApart) {
  expect({{"engine_chunks_overlap", "keys.one_doubled",
           "every part of the context but the first begins 1 keys early"},
          {"engine_chunks_in_whole_eights", "keys.one_dropped", "whole runs of 8 keys"},
          {"engine_last_chunk_stale", "chunk_stale", "in chunks of 16 keys"},
          {"engine_first_chunk_missing", "state_missing", "the first part of the context left out"}});
}

TEST(ExplainEngines, SayHowPartsAreJoined) {
  expect({{"engine_weights_exchanged", "states_exchanged", "with each other's weights"},
          {"engine_lse_turned", "lse_turned", "LSE"},
          {"engine_largest_lse_kept", "merge.lse_wrong", "the larger of both"},
          {"engine_base2_between_chunks", "merge_base2", "of chunks of the context alone"}});
}

TEST(ExplainEngines, SayWhatIsOtherInOnePart) {
  expect({{"engine_window_from_chunk_end", "mask.window_anchor", "part's last key in the context"},
          {"engine_causal_in_chunks", "mask_causal", "in the context"},
          {"engine_bias_from_chunk_end", "bias_other", "rows that stand at the part's end in the context"},
          {"engine_context_uncapped", "cap_missing", "no cap in the context"},
          {"engine_context_heads_in_turn", "heads.kv_mapping", "in turn in the context"}});
}

TEST(ExplainEngines, SayWhoseRowsTreesAndPositionsAreMeant) {
  expect({{"engine_queries_by_requests", "rows.query_of_other_row", "takes the query of row"},
          {"engine_rows_by_requests", "rows.written_to_other_row", "is that of row"},
          {"engine_padding_computed", "rows_beyond", "behind the last request"},
          {"engine_tree_of_rows", "mask.tree_shifted", "the number of rows before them"},
          {"engine_positions_ignored", "positions_other", "whatever is given"}});
}

// What a reading leads to that is as wide as the results are large shows nothing.
TEST(ExplainEngines, SayNothingOfMemoryThatNobodyOccupies) {
  for (const StepRanked& r : engine_explained("engine_last_part_missing").causes)
    EXPECT_NE(r.cause, "table_units");
}

TEST(ExplainEngines, SayNothingOfWhatIsTakenNotToBeKnown) {
  StepExplanation x = engine_explained("engine_base2_between_chunks", {"merge_base2"});
  EXPECT_FALSE(x.sure()) << x.causes[0].cause;
  for (const StepRanked& r : x.causes) EXPECT_NE(r.cause, "merge_base2");
  x = engine_explained("engine_last_head_of_v", {"heads_missing"});
  EXPECT_FALSE(x.sure()) << x.causes[0].cause;
}

}  // namespace
}  // namespace assay
