// SPDX-License-Identifier: Apache-2.0
// Derived problems hold the same tokens and have, by the simple reference, the answers the relations say. A
// new relation: its comparison in HaveTheAnswersTheRelationsSay.
#include "harness/check/relations/relations_derive.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "harness/check/testing/itself.hpp"
#include "harness/device/testing/small_problem.hpp"
#include "harness/input/stored_reader.hpp"
#include "harness/problem/names.hpp"
#include "reference/attention/attention.hpp"

namespace assay {
namespace {

Problem plain(int32_t op) {
  Problem p = testkit::small_problem(op);
  p.requests = {{1, 37}, {9, 9}, {0, 20}, {3, 48}, {5, 3}, {2, 0}};
  if (op == ASSAY_OP_PAGED) {
    p.requests.push_back({2, 60, 3, 33});
    p.requests.push_back({1, 34, 6, 30});
    place_pages(p);
  }
  return p;
}

std::vector<Problem> shapes() {
  std::vector<Problem> list;
  const auto add = [&](int32_t op, const std::function<void(Problem&)>& change) {
    Problem p = plain(op);
    change(p);
    if (p.mask == ASSAY_MASK_TREE) {
      p.requests[4].kv_len = 5;
      p.requests[5] = {0, 0};
      p.tree_mask.resize(p.tree_indptr().back());
      for (size_t i = 0; i < p.tree_mask.size(); ++i) p.tree_mask[i] = (i * 2654435761u >> 7) & 1;
    }
    if (op == ASSAY_OP_PAGED) place_pages(p);
    list.push_back(p);
  };
  for (const int32_t op : {ASSAY_OP_PREFILL, ASSAY_OP_PAGED}) {
    add(op, [](Problem&) {});
    add(op, [](Problem& p) { p.sinks = true, p.softcap = 20; });
    add(op, [](Problem& p) { p.mask = ASSAY_MASK_FULL, p.sinks = true; });
    add(op, [](Problem& p) { p.mask = ASSAY_MASK_CROSS; });
    add(op, [](Problem& p) { p.mask = ASSAY_MASK_TREE, p.sinks = true; });
    add(op, [](Problem& p) { p.window_left = 12, p.alibi = ASSAY_ALIBI_LINEAR; });
    add(op, [](Problem& p) { p.chunk = 10, p.sinks = true; });
    for (const int32_t scale : {ASSAY_SCALE_TENSOR, ASSAY_SCALE_HOST, ASSAY_SCALE_HEAD,
                                ASSAY_SCALE_REQUEST_HEAD, ASSAY_SCALE_TOKEN_HEAD, ASSAY_SCALE_CHANNEL})
      add(op, [scale](Problem& p) {
        p.q_format = p.k_format = p.v_format = ASSAY_INT8;
        p.q_scale = p.k_scale = p.v_scale = scale;
      });
    for (const InputRecipe recipe :
         {InputRecipe::kBoundary, InputRecipe::kAscending, InputRecipe::kIncidence})
      add(op, [recipe](Problem& p) { p.recipe = recipe; });
  }
  add(ASSAY_OP_PAGED, [](Problem& p) { p.window_left = 12, p.swa_index = true; });
  add(ASSAY_OP_PAGED, [](Problem& p) { p.table = ASSAY_TABLE_CSR, p.strided.kv = true; });
  add(ASSAY_OP_PAGED, [](Problem& p) {
    p.layout = ASSAY_LAYOUT_MLA, p.heads_kv = 1, p.head_dim_v = 24;
    p.k_format = p.v_format = ASSAY_FP8_E4M3, p.k_scale = p.v_scale = ASSAY_SCALE_TOKEN_HEAD;
  });
  for (Problem& p : list) p.relations = testkit::kAllRelations;
  return list;
}

TEST(DerivedProblems, HoldTheSameTokens) {
  for (const Problem& p : shapes()) {
    const InputValues values(p);
    const Inputs whole = values.build(p, testkit::itself(p));
    StoredReader of_whole(whole);
    for (const DerivedCase& derived : derive_relations(p)) {
      EXPECT_EQ(derived.calls.empty(), !derived.nothing.empty());
      for (const DerivedCall& call : derived.calls) {
        const Inputs part = values.build(call.problem, call.from);
        StoredReader of_part(part);
        int64_t different = 0;
        for (int r = 0; r < static_cast<int>(call.problem.requests.size()); ++r) {
          const RequestOrigin& from = call.from.requests[r];
          const PageRange keep =
              p.op == ASSAY_OP_PAGED ? resident_pages(call.problem, r) : PageRange{0, 1 << 20};
          for (int32_t key = keep.first * p.page_size;
               key < std::min(call.problem.requests[r].kv_len, keep.last * p.page_size); ++key)
            for (int32_t h = 0; h < p.heads_kv; ++h) {
              for (int32_t d = 0; d < p.head_dim_qk; ++d)
                different += of_part.k(r, key, h, d) != of_whole.k(from.request, from.first_key + key, h, d);
              for (int32_t d = 0; d < p.head_dim_v; ++d)
                different += of_part.v(r, key, h, d) != of_whole.v(from.request, from.first_key + key, h, d);
            }
          for (int32_t row = 0; row < call.problem.requests[r].q_len; ++row)
            for (int32_t h = 0; h < p.heads_q; ++h)
              for (int32_t d = 0; d < p.head_dim_qk; ++d)
                different += of_part.q(r, row, h, d) != of_whole.q(from.request, from.first_row + row, h, d);
        }
        ASSERT_EQ(different, 0) << name_of(relation_names(), static_cast<int32_t>(derived.relation));
      }
    }
  }
}

struct Answers {
  AttentionResult result;
  DerivedCall call;
};

Answers solve(const InputValues& values, const DerivedCall& call) {
  const Inputs in = values.build(call.problem, call.from);
  const HostOperands host{&in.tensors, in.q_scale_host, in.k_scale_host, in.v_scale_host};
  return {attention_simple(call.problem, host, select_rows(call.problem, 1e12).rows), call};
}

// Every relation is true of the reference: rows of the derived problems, merged where the context was split,
// have the answers of the whole (of each other for sinks).
TEST(DerivedProblems, HaveTheAnswersTheRelationsSay) {
  std::map<uint32_t, int64_t> compared;
  for (const Problem& p : shapes()) {
    const InputValues values(p);
    const Answers whole = solve(values, {p, testkit::itself(p)});
    std::map<std::pair<int, int>, int64_t> at;
    for (size_t n = 0; n < whole.result.rows.size(); ++n)
      at[{whole.result.rows[n].request, whole.result.rows[n].row}] = static_cast<int64_t>(n);
    for (const DerivedCase& derived : derive_relations(p)) {
      SCOPED_TRACE(name_of(relation_names(), static_cast<int32_t>(derived.relation)));
      std::vector<Answers> parts;
      for (const DerivedCall& call : derived.calls) parts.push_back(solve(values, call));
      const auto expect = [&](int64_t n, int32_t head, const std::vector<double>& o, double lse) {
        ++compared[derived.relation];
        const double right = whole.result.lse_at(n, head);
        if (right != lse) {
          ASSERT_NEAR(lse, right, 1e-9);
        }
        for (int32_t d = 0; d < p.head_dim_v; ++d)
          ASSERT_NEAR(o[d], whole.result.o_at(n, head, d), 1e-9 * (1 + std::fabs(o[d])));
      };
      const auto row_of = [&](const Answers& a, int64_t n, int32_t head) {
        const double* first = a.result.o.data() + (n * p.heads_q + head) * p.head_dim_v;
        return std::vector<double>(first, first + p.head_dim_v);
      };
      if (parts.empty()) continue;
      for (size_t i = 0; i < parts[0].result.rows.size() && derived.relation == kRelateSink; ++i)
        for (int32_t head = 0; head < p.heads_q; ++head) {
          ++compared[derived.relation];
          const double low = parts[0].result.lse_at(i, head), none = parts[1].result.lse_at(i, head);
          if (std::isinf(none)) {
            ASSERT_EQ(low, kNoSink);
          } else {
            ASSERT_NEAR(low, none, 1e-9);
          }
          ASSERT_EQ(row_of(parts[0], i, head), row_of(parts[1], i, head));
        }
      if (derived.relation == kRelateSink) continue;
      if (derived.relation == kRelateSplit) {
        ASSERT_EQ(parts.size(), 2u);
        ASSERT_EQ(parts[0].result.rows, whole.result.rows);
        for (size_t n = 0; n < whole.result.rows.size(); ++n)
          for (int32_t head = 0; head < p.heads_q; ++head) {
            const double a = parts[0].result.lse_at(n, head), b = parts[1].result.lse_at(n, head);
            const double top = std::max(a, b);
            std::vector<double> o(p.head_dim_v, 0.0);
            double lse = top;
            if (!std::isinf(top)) {
              lse = top + std::log(std::exp(a - top) + std::exp(b - top));
              const std::vector<double> oa = row_of(parts[0], n, head), ob = row_of(parts[1], n, head);
              for (int32_t d = 0; d < p.head_dim_v; ++d)
                o[d] = std::exp(a - lse) * oa[d] + std::exp(b - lse) * ob[d];
            }
            expect(n, head, o, lse);
          }
        continue;
      }
      for (const Answers& part : parts)
        for (size_t n = 0; n < part.result.rows.size(); ++n) {
          const RowId id = part.result.rows[n];
          const RequestOrigin& from = part.call.from.requests[id.request];
          for (int32_t head = 0; head < p.heads_q; ++head)
            expect(at.at({from.request, from.first_row + id.row}), head, row_of(part, n, head),
                   part.result.lse_at(n, head));
        }
    }
  }
  for (const Name& relation : relation_names()) EXPECT_GT(compared[relation.value], 500) << relation.text;
}

TEST(DerivedProblems, AloneTakesTheEdgesOfLargeBatches) {
  Problem p = testkit::small_problem();
  p.requests.assign(100, {1, 20});
  p.requests[0].q_len = 0;
  p.requests[37].kv_len = 90;
  p.requests[61].kv_len = 1;
  place_pages(p);
  p.relations = kRelateAlone;
  const std::vector<DerivedCase> cases = derive_relations(p);
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].calls.size(), static_cast<size_t>(kMostAlone));
  std::set<int> chosen;
  for (const DerivedCall& call : cases[0].calls) chosen.insert(call.from.requests[0].request);
  for (const int r : {1, 99, 37, 61}) EXPECT_TRUE(chosen.count(r)) << r;
  EXPECT_FALSE(chosen.count(0));
}

}  // namespace
}  // namespace assay
