// SPDX-License-Identifier: Apache-2.0
// Merging: the closed forms, the -inf rules, and the identity that attention over parts of the keys, merged,
// is attention over all of them: two halves, N parts, context-parallel ranks, with a sink entering once.
#include "reference/data_ops/merge.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/attention/test_operands.hpp"
#include "reference/data_ops/dcp.hpp"
#include "reference/formats/special_values.hpp"

namespace assay {
namespace {

using testkit::kInf;
using testkit::kNaN;

TEST(Merge, ClosedForms) {
  const AttentionState equal = merge_states({{1, 4}, 0}, {{3, 0}, 0});
  EXPECT_EQ(equal.o, (std::vector<double>{2, 2}));
  EXPECT_DOUBLE_EQ(equal.lse, std::log(2));
  // Weights 1 and 3: three keys in the second state.
  const AttentionState weighted = merge_states({{0}, 0}, {{4}, std::log(3)});
  EXPECT_DOUBLE_EQ(weighted.o[0], 3);
  EXPECT_DOUBLE_EQ(weighted.lse, std::log(4));
  const AttentionState huge = merge_states({{0}, 1000}, {{1}, 1001});
  const double e = std::exp(1.0);
  EXPECT_DOUBLE_EQ(huge.o[0], e / (1 + e));
  EXPECT_DOUBLE_EQ(huge.lse, 1000 + std::log(1 + e));
}

TEST(Merge, EmptyStates) {
  const AttentionState some{{5}, 2}, none{{kNaN}, -kInf};
  for (const AttentionState& merged : {merge_states(some, none), merge_states(none, some)}) {
    EXPECT_EQ(merged.o[0], 5);
    EXPECT_EQ(merged.lse, 2);
  }
  const AttentionState nothing = merge_states(none, none);
  EXPECT_EQ(nothing.o[0], 0);
  EXPECT_EQ(nothing.lse, -kInf);
  const std::vector<AttentionState> states = {none, some, none};
  EXPECT_EQ(merge_states(states, 1).o[0], 5);
  EXPECT_EQ(merge_states(states, 1).lse, 2);
  EXPECT_EQ(merge_states(std::span<const AttentionState>{}, 3).o, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(merge_states(std::span(states).first(1), 1).lse, -kInf);
  EXPECT_EQ(merge_states(std::span(states).first(1), 1).o[0], 0);
}

TEST(Merge, RefusesWhatIsNoState) {
  EXPECT_THROW(merge_states({{1}, kInf}, {{1}, 0}), CheckError);
  EXPECT_THROW(merge_states({{1}, 0}, {{1}, kNaN}), CheckError);
  EXPECT_THROW(merge_states({{1}, 0}, {{1, 2}, 0}), CheckError);
  const std::vector<AttentionState> states = {{{1}, 0}, {{1}, kInf}};
  EXPECT_THROW(merge_states(states, 1), CheckError);
}

// Attention of the one row over those of 40 keys that `keys` lists.
AttentionState attend(const std::vector<int32_t>& keys, bool sink) {
  Problem p;
  p.op = ASSAY_OP_PREFILL;
  p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = 8;
  p.mask = ASSAY_MASK_FULL;
  p.softmax_scale = 0.7f;
  p.sinks = sink;
  test::Values values = test::random_values(p, 11);
  const test::ElementFn k = values.k, v = values.v;
  values.k = [=](int r, int32_t j, int32_t h, int32_t d) { return k(r, keys[j], h, d); };
  values.v = [=](int r, int32_t j, int32_t h, int32_t d) { return v(r, keys[j], h, d); };
  p.requests = {{1, int32_t(keys.size())}};
  const test::TestOperands operands(p, values);
  const AttentionResult result = attention_simple(operands.problem(), operands.host(), {{0, 0}});
  return {result.o, result.lse[0]};
}

void expect_same_merge(const AttentionState& got, const AttentionState& want) {
  EXPECT_NEAR(got.lse, want.lse, 1e-14);
  for (size_t d = 0; d < want.o.size(); ++d) EXPECT_NEAR(got.o[d], want.o[d], 1e-14);
}

std::vector<int32_t> keys_from(int32_t begin, int32_t end) {
  std::vector<int32_t> keys;
  for (int32_t j = begin; j < end; ++j) keys.push_back(j);
  return keys;
}

TEST(Merge, HalvesMakeTheWhole) {
  for (const int32_t cut : {0, 1, 20, 39, 40})
    expect_same_merge(merge_states(attend(keys_from(0, cut), false), attend(keys_from(cut, 40), false)),
                      attend(keys_from(0, 40), false));
}

TEST(Merge, PartsInAnyOrderMakeTheWholeAndTheSinkEntersOnce) {
  const AttentionState whole = attend(keys_from(0, 40), true);
  const std::vector<AttentionState> parts = {attend(keys_from(30, 40), false), attend({}, false),
                                             attend(keys_from(0, 7), true), attend(keys_from(7, 30), false)};
  expect_same_merge(merge_states(parts, 8), whole);
  std::vector<AttentionState> twice = parts;
  twice[0] = attend(keys_from(30, 40), true);
  EXPECT_GT(merge_states(twice, 8).lse, whole.lse + 1e-6);
}

TEST(Dcp, LengthsByHand) {
  using Ints = std::vector<int32_t>;
  EXPECT_EQ(dcp_lengths(10, 4, 2), (Ints{4, 2, 2, 2}));
  EXPECT_EQ(dcp_lengths(11, 4, 2), (Ints{4, 3, 2, 2}));
  EXPECT_EQ(dcp_lengths(3, 4, 1), (Ints{1, 1, 1, 0}));
  EXPECT_EQ(dcp_lengths(5, 3, 8), (Ints{5, 0, 0})) << "ranks with no token exist";
  EXPECT_EQ(dcp_lengths(0, 2, 1), (Ints{0, 0}));
  EXPECT_EQ(dcp_lengths(1000, 1, 16), (Ints{1000}));
  EXPECT_THROW(dcp_local_length(10, 4, 2, 4), CheckError);
  EXPECT_THROW(dcp_local_length(10, 4, 0, 0), CheckError);
}

TEST(Dcp, LengthsCountTheInterleavedKeys) {
  for (int32_t ranks = 1; ranks <= 5; ++ranks)
    for (int32_t interleave = 1; interleave <= 4; ++interleave)
      for (int32_t kv_len = 0; kv_len < 50; ++kv_len) {
        std::vector<int32_t> counted(ranks, 0);
        for (int32_t j = 0; j < kv_len; ++j) ++counted[j / interleave % ranks];
        ASSERT_EQ(dcp_lengths(kv_len, ranks, interleave), counted)
            << kv_len << " " << ranks << " " << interleave;
      }
}

TEST(Dcp, RanksMakeTheWhole) {
  constexpr int32_t kRanks = 3, kInterleave = 4;
  std::vector<AttentionState> parts;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    std::vector<int32_t> keys;
    for (int32_t j = 0; j < 40; ++j)
      if (j / kInterleave % kRanks == rank) keys.push_back(j);
    ASSERT_EQ(int32_t(keys.size()), dcp_local_length(40, kRanks, kInterleave, rank));
    parts.push_back(attend(keys, false));
  }
  expect_same_merge(merge_states(parts, 8), attend(keys_from(0, 40), false));
}

}  // namespace
}  // namespace assay
