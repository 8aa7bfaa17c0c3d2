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

#include "harness/explain/families/mask_rule.hpp"
#include "harness/explain/testing/mistakes.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

struct FormOf {
  const char *name, *line, *cause, *how;
  Mistakes make;
};
std::ostream& operator<<(std::ostream& to, const FormOf& f) { return to << f.name; }

const std::string kCpuLibrary = ASSAY_BINARY_DIR "/libassay_cpu.so";
void undeclared(assay_arithmetic& a) { a.order_declared = 0; }

class Forms : public ::testing::TestWithParam<FormOf> {};

TEST_P(Forms, AreNamedInTheirWords) {
  const FormOf& f = GetParam();
  const Explanation x = explain(fabricated(f.line, kCpuLibrary, f.make, undeclared, "paged_naive_cpu"));
  const std::string text = explanation_text(x, make_problem(parse_scenario(f.line)), 5, false);
  EXPECT_EQ(first_cause(x), f.cause) << text;
  EXPECT_TRUE(sure(x.ranking)) << text;
  ASSERT_FALSE(x.ranking.list.empty()) << text;
  EXPECT_THAT(x.ranking.list.front().text, HasSubstr(f.how)) << text;
}

// Keys of the row's own chunk, where one begins by these bits.
Mistakes chunk_by(int64_t (*of)(int64_t at)) {
  return [of](const Problem&, Rules& r) {
    r.sees = [of](const Scene& s, int32_t j) { return j <= s.position && of(j) == of(s.position); };
  };
}

constexpr const char* kPlainLine = "paged h=4/2 d=64 batch=2q1s170_1q9s90 seed=3";
constexpr const char* kChunks = "paged h=4/2 d=64 chunk=24 batch=1q1s150_1q20s90_1q1s77 seed=3";

const FormOf kFormsOf[] = {
    {"ChunkOfTheBitsThatItsSizeLacks", kChunks, "mask.chunk_size", "its size less one lacks",
     chunk_by([](int64_t at) { return at & ~int64_t{23}; })},
    {"ChunkOfThePowerOfTwoBelow", kChunks, "mask.chunk_size", "power of two below",
     chunk_by([](int64_t at) { return at / 16; })},
    {"TreeTableInWordsOf32Bits", "paged h=4/2 d=32 mask=tree batch=1q9s30_1q5s34_1q4s20_1q6s40 seed=3",
     "mask.tree_shifted", "words of 32 bits",
     [](const Problem& p, Rules& r) {
       MaskRule m = given_mask(p);
       m.tree_begin = [](const Problem& q, int32_t request) {
         const int64_t entry = q.tree_indptr()[request / 2];
         return request % 2 == 0 ? entry & 0xffffffff : entry >> 32;
       };
       r.sees = [m](const Scene& s, int32_t j) { return m.sees(s, j); };
     }},
    {"EntriesBeginByTheLongest", "paged h=4/2 d=64 table=csr page=16 batch=1q1s50_1q3s90_1q2s70 seed=3",
     "page.wrong", "the pages of the longest request",
     [](const Problem& p, Rules& r) {
       int32_t most = 0;
       for (const auto& request : p.requests)
         most = std::max(most, (request.kv_len + p.page_size - 1) / p.page_size);
       r.edit_terms = [most, size = p.page_size](Scene& s, std::vector<Term>& terms) {
         for (Term& t : terms)
           t.k_row = t.v_row = s.keys.through_table_of(0, int64_t{s.cell.request} * most + t.position / size,
                                                       t.position % size);
       };
     }},
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
    {"MaximumKeptWhileTheSumIsRescaled", "paged h=4/2 d=64 input=ascending batch=2q1s170_1q9s90 seed=3",
     "softmax.stale_maximum", "",
     [](const Problem&, Rules& r) {
       r.arithmetic.tile_keys = 32;
       r.lazy_below = 1, r.lazy_sum_rescaled = true;
     }},
};
INSTANTIATE_TEST_SUITE_P(All, Forms, ::testing::ValuesIn(kFormsOf),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace assay
