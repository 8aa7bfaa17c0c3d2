// SPDX-License-Identifier: Apache-2.0
// Forms of mistakes that strangers planted and no other test asks for: bits that stand for a division, tables
// read in other words, what only some lanes or one of two passes do, maxima that are kept. Kernels that do
// not exist (testing/mistakes.hpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <ostream>

#include "harness/explain/testing/mistakes.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

struct FormOf {
  const char *name, *line, *cause, *how;
  Mistakes make;
};
std::ostream& operator<<(std::ostream& to, const FormOf& f) { return to << f.name; }

class Forms : public ::testing::TestWithParam<FormOf> {};

TEST_P(Forms, AreNamedInTheirWords) {
  const FormOf& f = GetParam();
  const Explanation x = explain(fabricated(f.line, kFake, f.make));
  const std::string text = explanation_text(x, make_problem(parse_scenario(f.line)), 5, false);
  EXPECT_EQ(first_cause(x), f.cause) << text;
  EXPECT_TRUE(sure(x.ranking)) << text;
  ASSERT_FALSE(x.ranking.list.empty()) << text;
  EXPECT_THAT(x.ranking.list.front().text, HasSubstr(f.how)) << text;
}

constexpr const char* kPlainLine = "paged h=4/2 d=64 batch=2q1s170_1q9s90 seed=3";
const FormOf kFormsOf[] = {
    {"LargestWeightsAlone", kPlainLine, "softmax.small_dropped", "all but the 24 largest",
     [](const Problem&, Rules& r) {
       r.edit_scores = [](const Scene&, std::vector<double>& scores) {
         if (scores.size() <= 24) return;
         std::vector<double> sorted = scores;
         std::nth_element(sorted.begin(), sorted.begin() + 23, sorted.end(), std::greater<>());
         for (double& x : scores)
           if (x < sorted[23]) x = -std::numeric_limits<double>::infinity();
       };
     }},
    {"BaseOfEveryFourthLane", kPlainLine, "softmax.log2e", "in key 3 of every 4",
     [](const Problem&, Rules& r) {
       r.exponent_of = [](const Scene&, const Term& t) {
         return t.position % 4 == 3 ? std::numbers::ln2 : 1.0;
       };
     }},
    {"RowSumAloneLacksSmallWeights", "paged h=4/2 d=64 input=peaked batch=2q1s170_1q9s90 seed=3",
     "softmax.l_missing_key", "smaller weights are missing from the row sum",
     [](const Problem&, Rules& r) {
       r.exp_of = [](double x) { return std::exp(x) < 0.02 ? 0 : std::exp(x); };
       r.passes = Passes::kSum;
     }},
    {"RowSumAloneLacksTheOldestKeys", kPlainLine, "softmax.l_missing_key", "the first 16 keys of the request",
     [](const Problem&, Rules& r) {
       r.sees = [](const Scene& s, int32_t j) {
         return visible(s.problem, s.cell.request, s.cell.row, j) && j >= 16;
       };
       r.passes = Passes::kSum;
     }},
};
INSTANTIATE_TEST_SUITE_P(All, Forms, ::testing::ValuesIn(kFormsOf),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace assay
