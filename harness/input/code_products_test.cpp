// SPDX-License-Identifier: Apache-2.0
// Of 8-bit Q with 8-bit K the recipes draw what accumulators can be too narrow for, counted in the codes a
// kernel reads: products of the largest codes with visible keys, beside another key that a saturated sum
// cannot tell from the first; and no recipe draws a Q that asks for nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "harness/input/answers_testing.hpp"
#include "harness/input/code_kinds.hpp"
#include "harness/input/inputs.hpp"
#include "harness/input/stored_reader.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

constexpr int32_t kSteps = 16;  // products of one instruction of a matrix unit, at least

// Codes of Q and K as numbers, and scores.
struct Products {
  double most_of_16 = 0;  // least of the partial sums over 16 dimensions of a pair, of all visible pairs
  double whole = 0;       // largest dot product of codes
  double score = 0;       // largest score, of either sign
  int told_apart = 0;     // rows whose heaviest key has one beside it that sums cut at 2^15 make as heavy
};

Products products_of(const Problem& p, double cut) {
  const Inputs inputs = build_inputs(p);
  StoredReader reader(inputs);
  Products met;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r)
    for (int32_t head = 0; head < p.heads_q; ++head) {
      const answers::Stored s = answers::gather(p, reader, r, head);
      std::vector<std::vector<double>> k(s.k.size(), std::vector<double>(p.head_dim_qk));
      for (size_t key = 0; key < k.size(); ++key)
        for (int32_t d = 0; d < p.head_dim_qk; ++d)
          k[key][d] = reader.code(false, r, static_cast<int32_t>(key), head / p.group(), d);
      for (int32_t row = 0; row < p.requests[r].q_len; ++row) {
        std::vector<double> q(p.head_dim_qk);
        for (int32_t d = 0; d < p.head_dim_qk; ++d) q[d] = reader.q_code(r, row, head, d);
        double top = -std::numeric_limits<double>::infinity(), next = top, cut_top = top, cut_next = top;
        for (const int32_t key : answers::visible_keys(p, r, row)) {
          double least = std::numeric_limits<double>::infinity(), whole = 0, score = 0, saturated = 0;
          for (int32_t first = 0; first < p.head_dim_qk; first += kSteps) {
            double sum = 0;
            for (int32_t d = first; d < std::min(first + kSteps, p.head_dim_qk); ++d) {
              sum += q[d] * k[key][d];
              score += s.q[row][d] * s.k[key][d] * p.softmax_scale;
            }
            least = std::min(least, sum);
            whole += sum;
            saturated += std::clamp(sum, -cut, cut);
          }
          met.most_of_16 = std::max(met.most_of_16, least);
          met.whole = std::max(met.whole, whole);
          met.score = std::max(met.score, std::fabs(score));
          if (score > top) {
            next = top, cut_next = cut_top;
            top = score, cut_top = saturated;
          } else if (score > next) {
            next = score, cut_next = saturated;
          }
        }
        // By a weight of e^-5 before, and not told apart when sums are cut.
        met.told_apart += top - next > 5 && cut_top == cut_next;
      }
    }
  return met;
}

Problem problem_of(const std::string& line) { return make_problem(parse_scenario(line)); }

TEST(CodeProducts, OfTheLargestCodesStandWhereAnAnswerHangsOnThem) {
  for (const char* format : {"int8", "fp8_e4m3", "fp8_e5m2"})
    for (const char* scales :
         {"tensor kv={0}:tensor", "host kv={0}:host", "head kv={0}:head", "request_head kv={0}:request_head",
          "token_head kv={0}:token_head", "tensor kv={0}:channel", "token_head kv={0}:tensor"})
      for (const char* shape :
           {"prefill h=4/2 d=64 batch=1q20s50_1q9", "prefill h=1 d=64 batch=1q20s30",
            "paged h=4/2 d=128 page=16 batch=1q20s50_1q9", "paged h=8/1 d=256 page=16 batch=2q1s60",
            "paged h=4/4 d=64 page=16 window=31 batch=1q9s70_2q1s50"})
        for (const int seed : {1, 66}) {
          const std::string line = fmt::format("{} input=codes q={}:{} seed={}", shape, format,
                                               fmt::format(fmt::runtime(scales), format), seed);
          SCOPED_TRACE(line);
          const Problem p = problem_of(line);
          const CodeGrid g = CodeGrid::of(p.k_format);
          const double largest = g.largest * g.largest, cut = p.k_format == ASSAY_INT8 ? 32767 : 65504;
          const Products met = products_of(p, cut);
          EXPECT_LE(met.score, 500);
          if (!CodeKinds(p).multiplies_largest()) {
            EXPECT_NE(p.k_format, ASSAY_INT8);
            continue;
          }
          // Large codes are the four largest of K, of e5m2 from half the largest on.
          const double of_largest = p.k_format == ASSAY_INT8 ? 0.95 : 0.6;
          EXPECT_GT(met.most_of_16, std::max(cut, 0.9 * of_largest * kSteps * largest));
          EXPECT_GT(met.whole, of_largest * p.head_dim_qk * largest);
          EXPECT_GT(met.told_apart, 0);
        }
}

// Of fp8 under a scale that smallest and largest codes share, one of the two kinds can matter: the seed says
// which.
TEST(CodeProducts, OfEveryFormatAndScaleAreDrawnBySomeSeeds) {
  for (const char* format : {"int8", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz"})
    for (const char* scale : {"tensor", "host", "head"}) {
      int drawn = 0;
      for (int seed = 0; seed < 32; ++seed)
        drawn += CodeKinds(problem_of(fmt::format("prefill h=4/2 d=64 batch=1q20s50 input=codes q={0}:{1} "
                                                  "kv={0}:{1} seed={2}",
                                                  format, scale, seed)))
                     .multiplies_largest();
      SCOPED_TRACE(fmt::format("{} {}", format, scale));
      EXPECT_GE(drawn, std::string(format) == "int8" ? 32 : 8);
      EXPECT_LE(drawn, std::string(format) == "int8" ? 32 : 24);
    }
}

TEST(CodeProducts, PatternsAskForSomething) {
  for (const char* formats : {"q=bf16 kv=bf16", "q=int8:tensor kv=int8:tensor",
                              "q=int8:token_head kv=int8:head", "q=fp8_e4m3:tensor kv=fp8_e4m3:tensor"})
    for (int seed = 0; seed < 64; ++seed) {
      const std::string line =
          fmt::format("prefill h=4/2 d=64 {} input=patterned batch=1q20s50_1q9 seed={}", formats, seed);
      SCOPED_TRACE(line);
      EXPECT_GT(products_of(problem_of(line), 1).score, 0);
    }
}

}  // namespace
}  // namespace assay
