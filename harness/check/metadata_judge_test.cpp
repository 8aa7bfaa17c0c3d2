// SPDX-License-Identifier: Apache-2.0
// The judge of the metadata ops: right kernels pass at every table and page size, with every list longer than
// its live part; each planted fault of testing/metadata_faults.cpp is rejected, by the name of what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "harness/check/verdict.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

const Backend& metadata_faults() {
  static const Backend backend = Backend::load(ASSAY_BINARY_DIR "/testing/libassay_metadata_faults.so");
  return backend;
}

Verdict judge_metadata(const std::string& line, const std::string& kernel) {
  Judge judge(make_problem(parse_scenario(line)), 1e9);
  return judge.judge(metadata_faults(), *metadata_faults().find(kernel), metadata_faults().device(0));
}

// A line of each op by which all its faults show.
const std::string kExpand = "expand_pages page=8 pad=5 batch=1q1s9_2q1s40_1q1s0_1q1s16";
const std::string kRanks = "dcp_lengths ranks=3 interleave=16 batch=1q1s0_1q1s47_1q1s49_1q4s1000";
const std::string kLocalBatches =
    "local_batches page=4 chunk=32 table=token pad=3 batch=1q4s9_1q5s26_1q3s2_1q1s1";
const std::string kDeep = "local_batches page=4 chunk=8 table=token pad=3 batch=1q4s9_1q5s26_1q3s2_1q1s1";
const std::string kSplit = "split_batch threshold=2 batch=1q9s9_2q2s40_1q7s30_1q1s1_1q0s5_1q3s8_1q5s5";
const std::string kSteps = "chunk_metadata budget=24 pad=2 batch=1q5s5_1q1s40_1q3s7_1q1s41";
const std::string kDecode = "decode_metadata page=8 pad=2 table=token batch=2q3s41_1q1s1_1q0s9";
const std::string kEncoder = "decode_metadata page=8 pad=2 encoder=19 batch=2q3s41_1q1s1_1q0s9 seed=2";
const std::string kPooled =
    "local_batches page=4 chunk=8 pool=full pad=3 batch=1q4s9_1q5s26_1q3s2_1q1s1 seed=2";
const std::string kCascade = "cascade_metadata page=8 prefix=20 batch=2q1s40p16_1q3s17p16_1q2s0";
const std::string kTree = "tree_tables page=8 pad=3 batch=2q4s40_1q7s37_1q4s9 seed=3";
const std::string kWindowMetadata = "window_metadata window=7 pad=3 batch=2q1s40_1q3s100_1q5_1q0s9_1q4s11";
const std::string kSwaTree = "swa_tree_table page=8 pad=3 batch=2q4s40_1q7s37_1q4s9 seed=3";
const std::string kPaying = "cascade_metadata prefix=256 h=4 batch=8q1s300p256";
const std::string kSchedule =
    "ps_metadata h=4/2 workers=5 tile=4/8 page=4 pad=3 batch=1q9s30_1q1s100_1q0s9_1q7s3_1q1s40";

TEST(MetadataJudge, RightKernelsPass) {
  for (const auto& [kernel, line] : {std::pair{"expand_right", kExpand},
                                     {"ranks_right", kRanks},
                                     {"local_right", kLocalBatches},
                                     {"local_right", kDeep},
                                     {"split_right", kSplit},
                                     {"steps_right", kSteps},
                                     {"decode_right", kDecode},
                                     {"decode_right", kEncoder},
                                     {"decode_right", kEncoder + " table=token strides=table"},
                                     {"local_right", kPooled},
                                     {"local_right", kPooled + " table=token"},
                                     {"local_right", kPooled + " table=csr"},
                                     {"cascade_right", kCascade},
                                     {"tree_right", kTree},
                                     {"swa_right", kSwaTree},
                                     {"tree_right", kTree + " tree=flat"},
                                     {"tree_right", kTree + " drafted=1"},
                                     {"swa_right", kSwaTree + " drafted=1"},
                                     {"cascade_right", kPaying},
                                     {"ps_right", kSchedule},
                                     {"window_right", kWindowMetadata}}) {
    const Verdict v = judge_metadata(line, kernel);
    EXPECT_EQ(v.outcome, Outcome::kPassed) << line << ": " << v.reason;
    EXPECT_GT(v.o.checked, 5) << line;
  }
}

TEST(MetadataJudge, FaultsAreNamed) {
  const struct {
    std::string kernel, line, what;  // what: where the first wrong entry is
  } cases[] = {
      {"expand_stale_tail", kExpand, "out_indices"},
      {"expand_tail_zero", kExpand, "out_indices[105]: 0 for -1"},
      {"expand_page_ids", kExpand, "out_indices"},
      {"expand_no_offset", kExpand, "out_indices[1]"},
      {"expand_first_table", kExpand, "out_indices[9]"},
      {"expand_short_starts", kExpand, "out_cu_kv"},
      {"expand_arange", kExpand, "out_cu_kv[1]: 1 for 9"},
      {"ranks_even", kRanks, "out_len"},
      {"ranks_of_bound", kRanks, "out_len"},
      {"ranks_rest_unclamped", kRanks, "out_len"},
      {"ranks_next", kRanks, "out_len"},
      {"local_chunk_cut", "local_batches page=4 chunk=32 batch=1q4s9_1q26s26 pad=9", "out_table not written"},
      {"local_starts_fall", kDeep, "out_cu_q"},
      {"local_per_token", kDeep, "out_table"},
      {"local_first_pages", kDeep, "out_table"},
      {"local_whole_chunks", kDeep, "out_len"},
      {"local_stale_lengths", kDeep, "out_len"},
      {"split_below_threshold", kSplit, "out_len"},
      {"split_short_starts", kSplit, "out_cu_q"},
      {"split_arange", kSplit, "out_cu_q[1]: 1 for 2"},
      {"split_not_rebased", kSplit, "out_cu_q"},
      {"split_unstable", kSplit, "out_request"},
      {"split_all_extend", kSplit, "out_counts[1][0]"},
      {"split_longest_key_is_query", kSplit, "out_counts[0][4]: 2 for 40"},
      {"split_keys_not_rebased", kSplit, "out_cu_kv"},
      {"steps_longest_of_first", "chunk_metadata budget=24 batch=1q5s5_1q1s40_1q3s7_1q1s39",
       "out_counts[6]: 8 for 7"},
      {"decode_stale_starts", kDecode, "out_cu_q"},
      {"cascade_always", kCascade, "out_counts[0]: 1 for 0"},
      {"cascade_with_bias", kPaying + " alibi=linear", "out_counts[0]: 1 for 0"},
      {"tree_new_alone", kTree + " drafted=1", "out_"},
      {"tree_flat_as_compact", kTree + " tree=flat", "out_"},
      {"steps_of_requests", kSteps, "out_"},
      {"steps_of_no_tokens", "chunk_metadata budget=2 batch=1q5s8_1q1s4_1q3s5", "out_len[0][0]: 0 for 1"},
      {"steps_not_clamped", kSteps, "out_len"},
      {"steps_from_zero", kSteps, "out_starts"},
      {"steps_skip_empty", kSteps, "out_request[0][0]: 0 for 1"},
      {"steps_stale_tail", kSteps, "out_request"},
      {"decode_length_of_context", kDecode, "out_len[0]: 38 for 41"},
      {"decode_one_row", kDecode, "out_len[0]: 39 for 41"},
      {"decode_per_token", kDecode, "out_table"},
      {"decode_per_token", kEncoder + " table=token", "out_table"},
      {"decode_from_encoder", kEncoder, "out_table[0][0]"},
      {"decode_encoder_in_pages", kEncoder, "out_table[0][0]"},
      {"local_own_pool", kPooled, "out_table[0][0]"},
      {"decode_not_divided", kDecode, "out_table"},
      {"decode_last_page_forgotten", kDecode, "out_table[0][5]: -1 for"},
      {"cascade_suffix_whole", kCascade, "out_len[1]: 40 for 24"},
      {"cascade_first_column", kCascade, "out_table[0][0]"},
      {"cascade_cut_pages", kCascade, "out_len[0]: 20 for 16"},
      {"cascade_rows_of_one", kCascade, "out_cu_q[1]: 1 for 7"},
      {"cascade_below_zero", kCascade, "out_len[4]: -16 for 0"},
      {"tree_diagonal", kTree, "out_len"},
      {"tree_reversed", kTree, "out_table"},
      {"tree_not_compacted", kTree, "out_table"},
      {"tree_pages", kTree, "out_table"},
      {"tree_first_mask", kTree, "out_"},
      {"tree_stale_lengths", kTree, "out_len"},
      {"swa_drafts_only", kSwaTree, "out_table not written"},
      {"swa_drafts_first", kSwaTree, "out_table"},
      {"swa_all_drafts", kSwaTree, "out_len"},
      {"swa_page_one", kSwaTree, "out_table"},
      {"ps_by_tiles", kSchedule, "its share is"},
      {"ps_keys_of_request", kSchedule, "work_info[0][5]: key 30"},
      {"ps_drops_blind_rows", kSchedule, "keys 0 to 0 missing"},
      {"ps_as_if_without_context", kSchedule, "work_info[0][5]"},
      {"ps_starts_arange", kSchedule, "work_info[0][3]: 1 for 4"},
      {"ps_count_in_last_entry", kSchedule, "reduce_indptr"},
      {"ps_cut_inside_block", kSchedule, "no block of the"},
      {"ps_key_twice", kSchedule, "its share is"},
      {"ps_part_as_whole", kSchedule, "is written as the whole"},
      {"ps_parts_share_a_place", kSchedule, "which another has"},
      {"ps_merges_other_head", kSchedule, "reduce_final_map[0]"},
      {"ps_stale_tail", kSchedule, "0 for -1"},
      {"window_one_short", kWindowMetadata, "out_len[0][0]: 8 for 9"},
      {"window_of_context", kWindowMetadata, "out_len[0][0]: 8 for 9"},
      {"window_from_zero", kWindowMetadata, "out_starts"},
      {"window_unclamped", kWindowMetadata, "out_starts"},
      {"window_stale_tail", kWindowMetadata, "out_request"},
  };
  std::set<std::string> planted;
  for (const auto& c : cases) {
    planted.insert(c.kernel);
    const Verdict v = judge_metadata(c.line, c.kernel);
    EXPECT_EQ(v.outcome, Outcome::kWrong) << c.kernel << ": " << v.reason;
    EXPECT_THAT(v.reason, HasSubstr(c.what)) << c.kernel;
    // Entries of lists belong to no request and head.
    EXPECT_THAT(v.reason, ::testing::Not(::testing::ContainsRegex("(worst|first) request"))) << c.kernel;
    EXPECT_THAT(place_of(v.o), ::testing::MatchesRegex("entry [0-9]+|row [0-9]+ column [0-9]+")) << c.kernel;
  }
  // Each fault that is planted has its line above.
  for (const assay_kernel* kernel : metadata_faults().kernels()) {
    const std::string name = kernel->name;
    EXPECT_TRUE(name.ends_with("_right") || planted.contains(name)) << name;
  }
}

}  // namespace
}  // namespace assay
