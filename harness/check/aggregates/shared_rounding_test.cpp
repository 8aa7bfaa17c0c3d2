// SPDX-License-Identifier: Apache-2.0
// Rows that see one key, and rows that see many: what their roundings of P have in common. The values are the
// reference's own, moved by what a legal kernel's rounding may be, so nothing here rounds but the output.
#include "harness/check/aggregates/shared_rounding.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/check/aggregates/aggregates.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay {
namespace {

// One key and a sink: results differ from row to row, but the key's weight is the largest of each row, 1, and
// a kernel that rounds it times a scale rounds the same number for all of them.
struct OneKey {
  Problem problem;
  Inputs inputs;
  HostOperands host;
  assay_arithmetic arithmetic = default_arithmetic();
  BoundedAttention bounded;

  explicit OneKey(int32_t keys) {
    problem.op = ASSAY_OP_PREFILL;
    problem.table = ASSAY_TABLE_NONE;
    problem.heads_q = 12;
    problem.heads_kv = 3;
    problem.head_dim_qk = problem.head_dim_v = 2;
    problem.softmax_scale = 0.7f;
    problem.q_format = problem.k_format = problem.v_format = ASSAY_BF16;
    problem.o_format = ASSAY_FP32;
    problem.sinks = true;
    problem.mask = ASSAY_MASK_FULL;
    problem.requests = {{8, keys}, {8, keys}};
    problem.seed = 3;
    inputs = build_inputs(problem);
    host = {&inputs.tensors};
    arithmetic.p_format = ASSAY_BF16;
    bounded = bounded_attention(problem, host, select_rows(problem, 1e9).rows, arithmetic);
  }
  // Every element off by `relative`, or by its key's own sign of that.
  AggregateReport report(double relative, bool by_key) {
    std::vector<float> o(bounded.value.o.size());
    for (size_t i = 0; i < o.size(); ++i) {
      const size_t head = i / 2 % 12, request = i / 24 / 8;
      const double sign = by_key && (head / 4 + request) % 3 == 1 ? -1 : 1;
      o[i] = static_cast<float>(bounded.value.o[i] * (1 + sign * relative));
    }
    const assay_tensor view{o.data(), ASSAY_FP32, 3, {16, 12, 2}, {24, 2, 1}};
    return aggregates(bounded, problem, host, {&view, nullptr}, arithmetic);
  }
};

int slopes(const AggregateReport& r) {
  for (const Finding& f : r.alarms)
    if (f.statistic == Statistic::kSlope) return 1;
  return 0;
}

TEST(SharedRounding, RowsOfOneKeyShareItsRounding) {
  OneKey one(1);
  ASSERT_TRUE(std::isfinite(one.bounded.o_bound_p[0]));
  for (const bool by_key : {false, true})
    for (const double relative : {-0x1p-9, 0x1.8p-10, 0x1p-9})
      EXPECT_EQ(slopes(one.report(relative, by_key)), 0) << relative;
  // Beyond what one rounding can do, and where each row has weights of its own, a lean is one.
  EXPECT_EQ(slopes(one.report(0x1p-6, false)), 1);
  OneKey many(60);
  EXPECT_EQ(slopes(many.report(0x1p-9, false)), 1);
}

TEST(SharedRounding, IsThatOfWeightsAtOnePlaceOfTheGrid) {
  const ErrorModel model(OneKey(1).problem, OneKey(1).arithmetic);
  const auto shared = [&](int32_t keys, int64_t of_rows) {
    OneKey c(keys);
    const OperandReader operands(c.problem, c.host);
    std::vector<RowHead> rows;
    for (int64_t n = 0; n < 8; ++n)
      for (int32_t head = 0; head < 4; ++head) rows.push_back({n, head});
    std::vector<double> w;
    for (const RowHead& at : rows)
      for (int64_t d = 0; d < 2; ++d) w.push_back(c.bounded.value.o[(at.n * 12 + at.head) * 2 + d]);
    return shared_rounding(c.problem, operands, c.bounded, model.p_rounding(), 0, {rows, w, of_rows});
  };
  // Their weights are shares of the sink's, so unequal; the largest of 32 equal ones would leave 31.
  EXPECT_GT(shared(1, 32), 15);
  EXPECT_NEAR(shared(1, 320) / shared(1, 32), 319.0 / 31, 1e-9);
  EXPECT_LT(shared(200, 32), 3);
}

}  // namespace
}  // namespace assay
