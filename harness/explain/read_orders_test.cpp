// SPDX-License-Identifier: Apache-2.0
// Explanations of kernels that do not exist (testing/mistakes.hpp): what is read off the results, what a
// block of rows takes from another row or from the block before, numbers that come round.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/explain/families/merges.hpp"
#include "harness/explain/testing/mistakes.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

void expect_order(const std::string& line, const char* cause, const char* how, const Mistakes& make,
                  const Declares& declare = {}) {
  const Explanation x = explain(fabricated(line, kFake, make, declare));
  const std::string text = explanation_text(x, make_problem(parse_scenario(line)), 5, false);
  EXPECT_EQ(first_cause(x), cause) << text;
  EXPECT_TRUE(sure(x.ranking)) << text;
  EXPECT_THAT(text, HasSubstr(how));
}

const std::string kReadLine = "paged h=4/2 d=64 batch=2q1s120_1q20s90 seed=3";

TEST(ReadOrders, DimensionsOfOInAnyOrder) {
  expect_order(kReadLine, "dims.v_shifted", "of every 8 dimensions: 4 in 2, 5 in 3, 2 in 4, 3 in 5",
               [](const Problem&, Rules& r) {
                 r.finish = [](const Scene&, std::vector<double>& o, double&) {
                   for (size_t d = 0; d < o.size(); d += 8)
                     std::swap(o[d + 2], o[d + 4]), std::swap(o[d + 3], o[d + 5]);
                 };
               });
}

TEST(ReadOrders, ScoresThatGrowWithThePosition) {
  expect_order(kReadLine, "scale.softmax", "1 + 0.1 log(floor(n / 32) + 1)", [](const Problem&, Rules& r) {
    r.score = [](const Scene& scene, const Term&, ScoreParts s) {
      s.scale *= 1 + 0.1 * std::log(std::floor((scene.position + 1) / 32.0) + 1);
      return standard_score(s);
    };
  });
}

TEST(ReadOrders, QueriesOfTheBlockBefore) {
  expect_order("paged h=4/4 d=64 batch=2q21s21_1q35s60 seed=118", "rows.query_of_other_row",
               "a last, incomplete block of 8 rows has the queries of the one before",
               [](const Problem&, Rules& r) {
                 r.query_of = [](const Scene& s) {
                   Cell c = s.cell;
                   if (c.row >= 8 && c.row >= s.problem.requests[c.request].q_len / 8 * 8) c.row -= 8;
                   return c;
                 };
               });
}

// By a loop of its own: one part, tiles of 16 keys, factors of row 0 of the request.
TEST(ReadOrders, OutputsRescaledAsAnotherRow) {
  expect_order(
      "paged h=4/4 d=64 batch=2q1s120_1q12s90 seed=3", "softmax.stale_maximum",
      "output rescaled as the first of 16 rows",
      [](const Problem&, Rules& r) {
        r.finish = [](const Scene& s, std::vector<double>& o, double&) {
          Predictor& p = *s.predictor;
          const Predictor::Weights own = p.weights(s.cell),
                                   first = p.weights({s.cell.request, 0, s.cell.head});
          const double inf = std::numeric_limits<double>::infinity();
          double top = -inf, top_of_first = -inf, sum = 0;
          std::fill(o.begin(), o.end(), 0.0);
          for (int32_t tile = 0; tile * 16 < s.kv_len; ++tile) {
            const auto largest = [&](const Predictor::Weights& w, double so_far) {
              for (size_t i = 0; i < w.positions.size(); ++i)
                if (w.positions[i] / 16 == tile) so_far = std::max(so_far, w.scores[i]);
              return so_far;
            };
            const double now = largest(own, top), now_of_first = largest(first, top_of_first);
            for (double& x : o) x *= tile == 0 ? 0 : std::exp(top_of_first - now_of_first);
            sum *= tile == 0 ? 0 : std::exp(top - now);
            top = now, top_of_first = now_of_first;
            for (size_t i = 0; i < own.positions.size(); ++i) {
              if (own.positions[i] / 16 != tile) continue;
              const double w = std::exp(own.scores[i] - top), *v = s.keys.v(own.positions[i]);
              sum += w;
              for (size_t d = 0; d < o.size(); ++d) o[d] += w * v[d];
            }
          }
          for (double& x : o) x /= sum;
        };
      },
      [](assay_arithmetic& a) { a.tile_keys = 16, a.order_declared = 1, a.p_format = ASSAY_FP32; });
}

TEST(ReadOrders, MaximaOfPartsAndRowsExchanged) {
  const auto parts = [](assay_arithmetic& a) { a.tile_keys = 16, a.splits = 3, a.order_declared = 1; };
  expect_order(
      kReadLine, "merge.without_maxima", "maxima of parts and 16 rows and heads",
      [](const Problem& p, Rules& r) {
        const Rules base = r;
        r.edit_parts = [base, &p](const Scene& s, std::vector<SplitPart>& list) {
          const auto n = static_cast<int32_t>(list.size());
          const int32_t own = s.cell.row * 2 + s.cell.head % 2, first = own / 16 * 16;
          if (n < 2) return;
          const std::vector<SplitPart> before = list;
          for (int32_t i = 0; i < n; ++i) {
            const int32_t flat = (own - first) * n + i, unit = first + flat % 16;
            Cell c = s.cell;
            c.row = unit / 2, c.head = c.head / 2 * 2 + unit % 2;
            double maximum = -std::numeric_limits<double>::infinity();
            if (c.row < p.requests[c.request].q_len) {
              const std::vector<SplitPart> theirs = parts_of(*s.predictor, base, c);
              maximum = theirs[flat / 16 % n].maximum;
            }
            list[i].lse = maximum + before[i].lse - before[i].maximum;
          }
        };
      },
      parts);
}

TEST(ReadOrders, DistancesAndPositionsThatComeRound) {
  expect_order("paged h=4/2 d=64 window=40 batch=2q1s390_1q4s330 seed=127", "mask.window_long",
               "distance kept in 8 bits", [](const Problem& p, Rules& r) {
                 r.sees = [&p](const Scene& s, int32_t j) {
                   return j <= s.position && (s.position - j) % 256 <= p.window_left;
                 };
               });
}

TEST(ReadOrders, ValuesThroughThePageOfTheTileBefore) {
  expect_order(
      "paged h=8/2 d=64 page=32 batch=2q1s150_1q5s90 seed=105", "page.v_only",
      "V through the page of the tile before",
      [](const Problem&, Rules& r) {
        r.edit_terms = [](Scene&, std::vector<Term>& terms) {
          for (Term& t : terms)
            if (t.position >= 16) t.v_row = (t.position - 16) / 32 * 32 + t.position % 32;
        };
      },
      [](assay_arithmetic& a) { a.tile_keys = 16; });
}

TEST(ReadOrders, LsesThatLackTheMeanScore) {
  expect_order(kReadLine, "lse.other_value", "-1 times the mean score of all keys",
               [](const Problem& p, Rules& r) {
                 r.lse = [&p](const Scene& s, const LseParts& l) {
                   std::vector<double> q(static_cast<size_t>(p.head_dim_qk));
                   s.predictor->reader().q({s.cell.request, s.cell.row}, s.cell.head, q.data());
                   double sum = 0;
                   for (int32_t j = 0; j < s.kv_len; ++j)
                     for (int32_t d = 0; d < p.head_dim_qk; ++d)
                       sum += q[static_cast<size_t>(d)] * s.keys.k(j)[d];
                   return l.lse - sum * p.softmax_scale / s.kv_len;
                 };
               });
}

TEST(ReadOrders, KeysOfAnotherRequestWhoseRowsStandAtItsEnd) {
  expect_order("paged h=4/2 d=64 batch=1q2s70_1q0s25_2q3s50 seed=117", "page.of_other_request",
               "keys and length of the request without rows before it, rows stand at that end",
               [](const Problem& p, Rules& r) {
                 r.kv_request_of = [](const Cell& c) { return c.request == 2 ? 1 : c.request; };
                 r.sees = [&p](const Scene& s, int32_t j) {
                   return j <= s.kv_len - p.requests[s.cell.request].q_len + s.cell.row;
                 };
               });
}

}  // namespace
}  // namespace assay
