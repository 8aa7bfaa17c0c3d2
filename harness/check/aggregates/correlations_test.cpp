// SPDX-License-Identifier: Apache-2.0
// A bias of O in rows of more keys than a case may read for many rows: one or two of each group are looked at
// however long they are. Results are the reference's own, moved by a share that all have in common.
#include "harness/check/aggregates/correlations.hpp"

#include <gtest/gtest.h>

#include "harness/check/aggregates/aggregates.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// One row of 8 heads, normal data, the order of keys declared: as `assay power` asks of a million keys.
struct LongRows {
  Problem problem;
  Inputs inputs;
  HostOperands host;
  assay_arithmetic arithmetic = default_arithmetic();
  BoundedAttention bounded;

  explicit LongRows(int32_t keys) {
    problem.op = ASSAY_OP_PREFILL;
    problem.table = ASSAY_TABLE_NONE;
    problem.heads_q = 8;
    problem.heads_kv = 1;
    problem.head_dim_qk = problem.head_dim_v = 64;
    problem.softmax_scale = 0.125f;
    problem.q_format = problem.k_format = problem.v_format = problem.o_format = ASSAY_BF16;
    problem.mask = ASSAY_MASK_FULL;
    problem.requests = {{1, keys}};
    problem.seed = 5;
    inputs = build_inputs(problem);
    host = {&inputs.tensors};
    arithmetic.qk = arithmetic.pv = {ASSAY_ACC_BLOCK, 16, 25, 23};
    arithmetic.p_format = ASSAY_BF16;
    arithmetic.exp_relative_error = 0x1p-22;
    arithmetic.tile_keys = 128;
    arithmetic.order_declared = 1;
    bounded = bounded_attention(problem, host, {{0, 0}}, arithmetic);
  }
  bool seen(double bias) const {
    std::vector<uint16_t> o(bounded.value.o.size());
    for (size_t i = 0; i < o.size(); ++i)
      store(ASSAY_BF16, o.data(), static_cast<int64_t>(i),
            (bounded.o_low[i] + bounded.o_high[i]) / 2 * (1 + bias));
    const assay_tensor view{o.data(), ASSAY_BF16, 3, {1, 8, 64}, {512, 64, 1}};
    for (const Finding& f : aggregates(bounded, problem, host, {&view, nullptr}, arithmetic).alarms)
      if (f.statistic == Statistic::kSlope) return true;
    return false;
  }
};

TEST(Correlations, OfRowsThatAreLongerThanTheBudgetOfKeys) {
  const LongRows rows(140'000);
  EXPECT_FALSE(rows.seen(0));
  EXPECT_TRUE(rows.seen(0x1p-8));
}

}  // namespace
}  // namespace assay
