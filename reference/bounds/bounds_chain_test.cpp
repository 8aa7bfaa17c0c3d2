// SPDX-License-Identifier: Apache-2.0
// Chains of stored partial results: kernels whose every rounding errs by all it may, all to the same side,
// stay within tier P and come near it, in both forms; one that cuts its context into more chunks than the
// step says does not. Which requests have a chain, and how their contexts are cut.
#include "reference/bounds/bounds_chain.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_cases.hpp"

namespace assay {
namespace {

using namespace testkit;

// Of a chain of `levels` merges, stored in bf16.
assay_arithmetic chained(int32_t levels, int32_t classes) {
  assay_arithmetic a = default_arithmetic();
  a.pv = a.qk = {ASSAY_ACC_FMA, 16, 0, 23}, a.row_sum_chain = 16;
  a.splits = levels + 1, a.partial_roundings = levels, a.partial_format = ASSAY_BF16;
  a.splits_vary = 1, a.chained_requests = classes;
  return a;
}

// Attention of one row and head whose context goes through chunks of `each` keys; what is stored errs by
// `unit` of itself, away from 0 where `away`.
std::vector<double> in_chunks(const DenseCase& c, int64_t row, int32_t head, int64_t each, double unit,
                              double away) {
  const Problem& p = c.problem;
  const int64_t d = p.head_dim_qk, context = p.requests[0].context_len(), seen = context + row + 1;
  std::vector<double> o(static_cast<size_t>(d));
  const auto store = [&](std::vector<double>& result) {
    for (double& x : result) x += unit * away * std::fabs(x);
  };
  double weight = 0;
  for (int64_t from = 0; from < seen;) {
    const int64_t to = from < context ? std::min(from + each, context) : seen;
    double own = 0;
    std::vector<double> part(o.size());
    for (int64_t j = from; j < to; ++j) {
      double x = 0;
      for (int64_t t = 0; t < d; ++t) x += c.q[(row * p.heads_q + head) * d + t] * c.k[j * d + t];
      const double w = std::exp(x * static_cast<double>(p.softmax_scale));
      own += w;
      for (int64_t t = 0; t < d; ++t) part[t] += w * c.v[j * d + t];
    }
    for (double& x : part) x /= own;
    store(part);
    for (int64_t t = 0; t < d; ++t) o[t] = (weight * o[t] + own * part[t]) / (weight + own);
    if (weight > 0 && from < context) store(o);
    weight += own, from = to;
  }
  return o;
}

struct Most {
  double fast = 0, slow = 0;  // error over tier P
};
Most most(const DenseCase& c, const assay_arithmetic& a, int64_t each) {
  const double unit = format_info(ASSAY_BF16).unit_roundoff;
  const BoundedAttention fast = bounded_attention(c.problem, c.host(), c.rows(), a),
                         slow = bounded_attention_elementwise(c.problem, c.host(), c.rows(), a);
  Most all;
  const int64_t d = c.problem.head_dim_v;
  for (const double away : {1.0, -1.0})
    for (int64_t row = 0; row < c.n(); ++row)
      for (int32_t head = 0; head < c.problem.heads_q; ++head) {
        const std::vector<double> o = in_chunks(c, row, head, each, unit, away);
        for (int64_t t = 0; t < d; ++t) {
          const auto at = static_cast<size_t>((row * c.problem.heads_q + head) * d + t);
          const double error = std::fabs(o[t] - fast.value.o[at]);
          all.fast = std::max(all.fast, error / fast.o_bound_p[at]);
          all.slow = std::max(all.slow, error / slow.o_bound_p[at]);
        }
      }
  return all;
}

TEST(Chains, OfRoundingsThatAllErrTheSameWayFillTierP) {
  for (const Family family : {Family::kNormal, Family::kPeaked, Family::kPositive, Family::kAscending})
    for (const auto& [context, each] : {std::pair{300, 300}, {300, 100}, {300, 37}, {512, 16}}) {
      DenseCase c = make_case(family, 3, context + 3, 32, 17);
      c.problem.token_budget = each;
      const int32_t levels = (context - 1) / each + 1;
      const Most of = most(c, chained(levels, ASSAY_REQUEST_ANY), each);
      EXPECT_LE(of.fast, 1) << static_cast<int>(family) << " " << each;
      EXPECT_LE(of.slow, 1) << static_cast<int>(family) << " " << each;
      EXPECT_GT(of.fast, 0.7) << static_cast<int>(family) << " " << each;
      EXPECT_GT(of.slow, 0.7) << static_cast<int>(family) << " " << each;
      // Not so where the declaration says no more than how many levels there are.
      if (levels > 2 && family == Family::kNormal) {
        EXPECT_LT(most(c, chained(levels, 0), each).fast, 0.5 * of.fast) << each;
      }
    }
}

TEST(Chains, CutElsewhereLeaveIt) {
  DenseCase c = make_case(Family::kNormal, 3, 303, 32, 18);
  c.problem.token_budget = 100;
  EXPECT_GT(most(c, chained(3, ASSAY_REQUEST_ANY), 30).fast, 1);
  EXPECT_LE(most(c, chained(3, 0), 30).fast, 1);
}

// A decode among extends is judged by the levels that it has, and by nothing of their chains.
TEST(Chains, AreNotCountedWhereARequestHasNone) {
  DenseCase c = make_case(Family::kNormal, 3, 303, 32, 19);
  c.problem.token_budget = 64, c.problem.threshold = 3;
  c.problem.requests.push_back({40, 840});  // 13 chunks; nobody asks for its rows
  c.store();
  c.tensors.cu_q.shape[0] = c.tensors.cu_kv.shape[0] = 3, c.tensors.kv_len.shape[0] = 2;
  const auto with = [](int32_t levels, int32_t classes) {
    assay_arithmetic a = chained(levels, classes);
    a.splits = 14;
    return a;
  };
  for (const int32_t inner : {0, 2})
    for (const auto bounds : {bounded_attention, bounded_attention_elementwise}) {
      const auto of = [&](const assay_arithmetic& a) { return bounds(c.problem, c.host(), c.rows(), a); };
      const BoundedAttention some = of(with(13 + inner, ASSAY_REQUEST_EXTEND)), own = of(with(1 + inner, 0)),
                             all = of(with(13 + inner, 0));
      EXPECT_EQ(some.o_bound_p, own.o_bound_p);
      EXPECT_EQ(some.o_bound, own.o_bound);
      EXPECT_EQ(some.lse_bound, own.lse_bound);
      EXPECT_GT(all.o_bound[0], 2 * own.o_bound[0]);
    }
}

TEST(Chains, AreThoseOfTheClassesThatHaveThem) {
  Problem p;
  p.token_budget = 100, p.threshold = 1;
  p.requests = {{1, 500}, {8, 400}, {8, 8}, {8, 9}};  // a decode, an extend, a prefill, an extend
  const auto of = [&](int32_t classes, int32_t request) {
    return Chains(p, chained(4, classes)).of(request);
  };
  EXPECT_EQ(of(ASSAY_REQUEST_ANY, 0).each, 33);
  EXPECT_EQ(of(ASSAY_REQUEST_ANY, 0).context, 499);
  EXPECT_EQ(of(ASSAY_REQUEST_ANY, 2).context, 0);
  EXPECT_FALSE(of(ASSAY_REQUEST_EXTEND, 0));
  EXPECT_FALSE(of(ASSAY_REQUEST_EXTEND, 2));
  EXPECT_EQ(of(ASSAY_REQUEST_EXTEND, 1).each, 50);
  EXPECT_FALSE(of(0, 1));
  const Chain chain = of(ASSAY_REQUEST_EXTEND, 1);
  EXPECT_EQ(chain.end(0), 50);
  EXPECT_EQ(chain.end(49), 50);
  EXPECT_EQ(chain.end(391), 392);  // the context's last, shorter chunk
  EXPECT_GT(chain.end(392), 400);
  // Of 9 levels the longer extend's chain has 8.
  const auto levels = [&](int32_t declared, int32_t classes, int32_t request) {
    const MergeLevels of = Chains(p, chained(declared, classes)).levels(request);
    return std::pair(of.all, of.rounded);
  };
  using Both = std::pair<int64_t, int64_t>;
  EXPECT_EQ(levels(9, ASSAY_REQUEST_EXTEND, 0), Both(2, 2));
  EXPECT_EQ(levels(9, ASSAY_REQUEST_EXTEND, 1), Both(9, 9));
  EXPECT_EQ(levels(9, ASSAY_REQUEST_EXTEND, 2), Both(2, 2));
  EXPECT_EQ(levels(9, ASSAY_REQUEST_EXTEND, 3), Both(9, 2));  // merged with empty chunks behind its one
  EXPECT_EQ(levels(3, ASSAY_REQUEST_EXTEND, 0), Both(1, 1));  // fewer than the chain has: one at least
  EXPECT_EQ(levels(9, 0, 0), Both(9, 9));
  EXPECT_EQ(levels(16, ASSAY_REQUEST_ANY, 0), Both(16, 16));
  EXPECT_EQ(levels(16, ASSAY_REQUEST_ANY, 2), Both(16, 1));
  assay_arithmetic whole = chained(4, ASSAY_REQUEST_ANY);
  whole.splits = 1;  // nothing is merged
  EXPECT_FALSE(Chains(p, whole).of(1));
}

}  // namespace
}  // namespace assay
