// SPDX-License-Identifier: Apache-2.0
// What steps declare where a stage's requests are not theirs: cut into chunks, lists of keys, windows that
// were gathered, heads that were repeated. Stages are kernels of one declaration each that never run.
#include "kernels/common/stage_arithmetic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/common/testing/fake_step.hpp"

namespace assay_kernels {
namespace {

struct Step : FakeStep {
  using FakeStep::FakeStep;
  assay_arithmetic declared() const {
    assay_arithmetic a = assay_default_arithmetic();
    EXPECT_EQ(kernel->arithmetic(kernel, &p, &a), ASSAY_OK);
    return a;
  }
};

void in_tiles_of_16(const assay_problem&, assay_arithmetic& a) {
  a.p_format = ASSAY_BF16, a.tile_keys = 16, a.order_declared = 1;
}
// As warps do that share the keys of a request of few rows.
void four_parts_of_few_rows(const assay_problem& p, assay_arithmetic& a) {
  in_tiles_of_16(p, a);
  bool few = false, many = false;
  for (int32_t r = 0; r < p.requests; ++r) (p.q_len[r] <= 8 ? few : many) = true;
  a.splits = few && many ? 2 : few ? 4 : 1;
  a.split_interleaved = a.splits > 1, a.order_declared = !(few && many);
}
void in_parts_of_512(const assay_problem& p, assay_arithmetic& a) {
  in_tiles_of_16(p, a);
  a.splits = 1;
  for (int32_t r = 0; r < p.requests; ++r) a.splits = std::max(a.splits, (p.kv_len[r] - 1) / 512 + 1);
  if (a.splits > 1) a.split_keys = 512;
}
void in_items_of_16_rows(const assay_problem& p, assay_arithmetic& a) {
  in_tiles_of_16(p, a);
  a.item_rows = 16, a.splits = 3, a.shares = 7;
}

const std::vector<int32_t> kRows = {1, 1, 16, 17, 40}, kKeys = {16, 17, 32, 33, 40};

TEST(StageArithmetic, OfChunksHoldsForEveryLengthThatMemoryMayHave) {
  Step step(kSglangFa, four_parts_of_few_rows, kRows, kKeys);
  step.p.chunk = 64;
  const assay_arithmetic a = step.declared();
  EXPECT_EQ(a.order_declared, 0);
  EXPECT_EQ(a.splits, 4);  // of a request of one row, though the host's bound is 40
  EXPECT_EQ(a.splits_vary, 1);
  EXPECT_EQ(a.tile_keys, 16);
}

// Where an encoder ends only memory says: a decoder's keys may be fewer than the host's.
TEST(StageArithmetic, BehindEncodersHoldsForFewerKeys) {
  Step step(kSglangFa, in_parts_of_512, {600}, {2000});
  EXPECT_EQ(step.declared().order_declared, 1);
  step.p.encoder_len = kKeys.data();
  const assay_arithmetic a = step.declared();
  EXPECT_EQ(a.order_declared, 0);
  EXPECT_EQ(a.splits, 4);
  EXPECT_EQ(a.splits_vary, 1);
}

TEST(StageArithmetic, OfChunksKeepsAnOrderThatChunksDoNotTouch) {
  for (const auto& [chunk, kept] : {std::pair{64, 1}, std::pair{16, 1}, std::pair{24, 0}, std::pair{8, 0}}) {
    Step step(kSglangFa, in_tiles_of_16, kRows, kKeys);
    step.p.chunk = chunk;
    EXPECT_EQ(step.declared().order_declared, kept) << chunk;
  }
  Step items(kSglangFa, in_items_of_16_rows, kRows, kKeys);
  items.p.chunk = 64;
  const assay_arithmetic a = items.declared();
  EXPECT_EQ(a.order_declared, 0);
  EXPECT_EQ(a.item_rows, 0);
  EXPECT_EQ(a.shares, 0);
  EXPECT_EQ(a.splits_vary, 1);
}

TEST(StageArithmetic, OfRequestsAsTheyAreIsTheStagesOwn) {
  const assay_arithmetic few = Step(kSglangFa, four_parts_of_few_rows, {1, 8}, {90, 70}).declared();
  EXPECT_EQ(few.order_declared, 1);
  EXPECT_EQ(few.splits, 4);
  const assay_arithmetic items = Step(kUnifiedStep, in_items_of_16_rows, kRows, kKeys).declared();
  EXPECT_EQ(items.order_declared, 1);
  EXPECT_EQ(items.item_rows, 16);
  EXPECT_EQ(items.shares, 7);
}

TEST(StageArithmetic, OfPathsOfDraftsHasNoOrder) {
  Step step(kSglangFa, in_tiles_of_16, {8, 8}, {70, 60});
  step.p.threshold = 8, step.p.mask = ASSAY_MASK_TREE, step.p.alibi = ASSAY_ALIBI_LINEAR;
  step.p.positions = kKeys.data();
  EXPECT_EQ(step.declared().order_declared, 0);
}

void stored_in_16_bits(const assay_problem& p, assay_arithmetic& a) {
  in_tiles_of_16(p, a);
  a.splits = 2, a.partial_format = ASSAY_BF16;
}

// Which requests have a chain, unless links hold stored results of their own; none where a window is gathered
// at once or nothing lies in the cache.
TEST(StageArithmetic, OfChunksSaysWhoseContextsAreCut) {
  const auto chained = [](const Pipeline& pipeline, FakeStep::Declaration stages,
                          const std::vector<int32_t>& keys) {
    Step step(pipeline, stages, {1, 9, 40}, keys);
    step.p.token_budget = 16;
    return step.declared().chained_requests;
  };
  EXPECT_EQ(chained(kMlaPrefill, in_tiles_of_16, {50, 60, 100}), ASSAY_REQUEST_ANY);
  EXPECT_EQ(chained(kAiterFa, in_tiles_of_16, {50, 60, 100}), ASSAY_REQUEST_EXTEND);
  EXPECT_EQ(chained(kMlaPrefill, stored_in_16_bits, {50, 60, 100}), 0);
  EXPECT_EQ(chained(kMlaPrefill, in_tiles_of_16, {1, 9, 40}), 0);
  Step window(kAiterFa, in_tiles_of_16, {9, 40}, {60, 100});
  window.p.window_left = 20;
  EXPECT_EQ(window.declared().chained_requests, 0);
}

// What stages weigh relative to an LSE a step does, too: its merges as they say it, and the keys of its
// parts.
TEST(StageArithmetic, OfWeightsRelativeToAnLseIsThatOfTheStages) {
  const auto two_passes = [](const assay_problem&, assay_arithmetic& a) {
    a.p_format = ASSAY_BF16, a.weights_lse_format = ASSAY_FP32;
  };
  Step step(kMlaPrefill, in_tiles_of_16, {1, 9, 40}, {50, 60, 100});
  step.p.token_budget = 16;
  EXPECT_EQ(step.declared().merge_lse_format, ASSAY_FORMAT_NONE);
  step.fakes[ASSAY_OP_MERGE_STATES].arithmetic = [](const assay_kernel*, const assay_problem*,
                                                    assay_arithmetic* a) -> int {
    a->merge_lse_format = ASSAY_FP32;
    return ASSAY_OK;
  };
  EXPECT_EQ(step.declared().merge_lse_format, ASSAY_FP32);
  EXPECT_EQ(step.declared().weights_lse_format, ASSAY_FORMAT_NONE);
  Step again(kMlaPrefill, two_passes, {1, 9, 40}, {50, 60, 100});
  EXPECT_EQ(again.declared().weights_lse_format, ASSAY_FP32);
  EXPECT_EQ(again.declared().order_declared, 0);

  // A stage that divides beside one that does not: the latter covers both, at any place of P's grid.
  assay_arithmetic divided = assay_default_arithmetic(), undivided = divided;
  divided.p_format = undivided.p_format = ASSAY_BF16;
  divided.row_sum_from_rounded_p = 1;
  undivided.weights_lse_format = ASSAY_FP16;
  const assay_arithmetic both = widest(divided, undivided);
  EXPECT_EQ(both.weights_lse_format, ASSAY_FP16);
  EXPECT_EQ(both.row_sum_from_rounded_p, 0);
  EXPECT_GE(both.p_roundings, 2);
}

// The keys that a window shows are gathered, so tiles begin where it does.
TEST(StageArithmetic, OfGatheredWindowsHasNoOrder) {
  Step step(kAiterFa, in_tiles_of_16, {9, 40}, {60, 100});
  step.p.alibi = ASSAY_ALIBI_LINEAR;  // all keys are gathered
  EXPECT_EQ(step.declared().order_declared, 1);
  step.p.window_left = 20;
  EXPECT_EQ(step.declared().order_declared, 0);
}

TEST(StageArithmetic, OfRepeatedHeadsCountsItemsInTheStepsRows) {
  for (const auto& [heads, rows] : {std::pair{16, 16}, std::pair{4, 4}, std::pair{1, 1}}) {
    Step step(kAiterMla, in_items_of_16_rows, {4, 4}, {300, 200});
    step.p.heads_q = heads, step.p.heads_kv = 1, step.p.layout = ASSAY_LAYOUT_MLA;
    EXPECT_EQ(step.declared().item_rows, rows) << heads;
    EXPECT_EQ(step.declared().order_declared, 1) << heads;
  }
}

}  // namespace
}  // namespace assay_kernels
