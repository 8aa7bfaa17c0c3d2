// SPDX-License-Identifier: Apache-2.0
// Runs every hand-worked case through both references. `attention_hand_test --gtest_list_tests` prints the
// list with the rule each case shows.
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <set>

#include "harness/ops/problem_view.hpp"
#include "reference/attention/attention.hpp"
#include "reference/attention/hand_cases_mask.hpp"
#include "reference/attention/hand_cases_score.hpp"
#include "reference/attention/hand_cases_storage.hpp"

namespace assay {
namespace test {

void PrintTo(const HandCase& c, std::ostream* out) { *out << c.shows; }

}  // namespace test

namespace {

using test::HandCase;
using test::TestOperands;

class Hand : public ::testing::TestWithParam<HandCase> {};

void expect_close(double got, double want, const char* what, const HandCase& c, const test::Expected& x) {
  if (std::isinf(want) || want == 0)
    EXPECT_EQ(got, want) << what << " of row " << x.row.row << " head " << x.head << ": " << c.shows;
  else
    EXPECT_NEAR(got, want, 4e-15 * std::max(1.0, std::fabs(want)))
        << what << " of request " << x.row.request << " row " << x.row.row << " head " << x.head << ": "
        << c.shows;
}

void expect_case(const HandCase& c, const TestOperands& operands,
                 AttentionResult (*attention)(const Problem&, const HostOperands&,
                                              const std::vector<RowId>&)) {
  for (const test::Expected& x : c.expected) {
    const AttentionResult result = attention(operands.problem(), operands.host(), {x.row});
    ASSERT_EQ(int32_t(x.o.size()), operands.problem().head_dim_v) << "the case itself is incomplete";
    for (size_t d = 0; d < x.o.size(); ++d)
      expect_close(result.o_at(0, x.head, int32_t(d)), x.o[d], "O", c, x);
    expect_close(result.lse_at(0, x.head), x.lse, "LSE", c, x);
  }
}

TEST_P(Hand, Simple) {
  const TestOperands operands(GetParam().problem, GetParam().values);
  check_problem(operands.problem());
  ASSERT_FALSE(GetParam().expected.empty());
  expect_case(GetParam(), operands, attention_simple);
}

TEST_P(Hand, Fast) {
  const TestOperands operands(GetParam().problem, GetParam().values);
  expect_case(GetParam(), operands, attention_fast);
}

const auto kName = [](const ::testing::TestParamInfo<HandCase>& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Mask, Hand, ::testing::ValuesIn(test::mask_cases()), kName);
INSTANTIATE_TEST_SUITE_P(Score, Hand, ::testing::ValuesIn(test::score_cases()), kName);
INSTANTIATE_TEST_SUITE_P(Storage, Hand, ::testing::ValuesIn(test::storage_cases()), kName);

TEST(HandCases, AreManyAndDistinct) {
  std::set<std::string> names;
  size_t count = 0;
  for (const auto& group : {test::mask_cases(), test::score_cases(), test::storage_cases()})
    for (const HandCase& c : group) {
      names.insert(c.name);
      ++count;
    }
  EXPECT_EQ(names.size(), count);
  EXPECT_GE(count, 30u);
  RecordProperty("hand_cases", int(count));
}

}  // namespace
}  // namespace assay
