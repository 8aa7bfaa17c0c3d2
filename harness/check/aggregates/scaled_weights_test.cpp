// SPDX-License-Identifier: Apache-2.0
// Kernels that round P times V's scale of each token, as a matrix unit makes them do, on as many rows as show
// a lean of 2^-13: rows of one key, of few, and of one that outweighs the others. They do here what the
// header asks for and nothing else, in double; the output alone is rounded.
#include "harness/check/aggregates/scaled_weights.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "harness/check/aggregates/aggregates.hpp"
#include "reference/bounds/bounds_rows.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay {
namespace {

constexpr int32_t kScaledHeads = 4;

struct ScaledCase {
  Problem problem;
  Inputs inputs;
  HostOperands host;
  assay_arithmetic arithmetic = default_arithmetic();
  BoundedAttention bounded;

  struct What {
    int32_t requests = 300, keys = 1, dims = 3, o_format = ASSAY_FP32, p_format = ASSAY_BF16;
    float scale = 0.7f;
    uint64_t seed = 5;
    double all_scales = 0;  // in place of those that the values have
  };

  explicit ScaledCase(const What& w) {
    problem.op = ASSAY_OP_PREFILL;
    problem.table = ASSAY_TABLE_NONE;
    problem.heads_q = problem.heads_kv = kScaledHeads;
    problem.head_dim_qk = problem.head_dim_v = w.dims;
    problem.softmax_scale = w.scale;
    problem.q_format = ASSAY_BF16;
    problem.k_format = problem.v_format = ASSAY_INT8;
    problem.k_scale = problem.v_scale = ASSAY_SCALE_TOKEN_HEAD;
    problem.o_format = w.o_format;
    problem.mask = ASSAY_MASK_FULL;
    for (int32_t i = 0; i < w.requests; ++i) problem.requests.push_back({1, w.keys});
    problem.seed = w.seed;
    inputs = build_inputs(problem);
    const assay_tensor& scales = inputs.tensors.v_scale;
    if (w.all_scales > 0)
      for (int64_t n = 0; n < scales.shape[0]; ++n)
        for (int64_t head = 0; head < kScaledHeads; ++head)
          static_cast<float*>(scales.data)[n * scales.stride[0] + head * scales.stride[1]] =
              static_cast<float>(w.all_scales);
    host = {&inputs.tensors};
    arithmetic.p_format = w.p_format;
    bounded = bounded_attention(problem, host, select_rows(problem, 1e9).rows, arithmetic);
  }

  // O of a kernel whose weights are `p(weight, scale)`; `weight` is relative to the row's largest.
  std::vector<float> o(const std::function<double(double, double)>& p, double times = 1) const {
    const OperandReader operands(problem, host);
    const auto dims = static_cast<size_t>(problem.head_dim_v);
    std::vector<float> all(bounded.value.o.size());
    std::vector<double> v(dims), sum(dims);
    for (size_t n = 0; n < bounded.value.rows.size(); ++n)
      for (int32_t head = 0; head < kScaledHeads; ++head) {
        const RowId id = bounded.value.rows[n];
        const RowScores row = row_scores(problem, operands, id, head);
        const double top = *std::max_element(row.x.begin(), row.x.end());
        std::fill(sum.begin(), sum.end(), 0.0);
        double total = 0;
        for (size_t j = 0; j < row.x.size(); ++j) {
          const auto key = static_cast<int32_t>(row.begin) + static_cast<int32_t>(j);
          const double weight = std::exp(row.x[j] - top),
                       scale = operands.v_scale_size(id.request, key, head);
          operands.v(id.request, key, head, v.data());
          total += weight;
          for (size_t d = 0; d < dims; ++d) sum[d] += p(weight, scale) * v[d] / scale;
        }
        for (size_t d = 0; d < dims; ++d)
          all[(n * kScaledHeads + static_cast<size_t>(head)) * dims + d] =
              static_cast<float>(round_to(problem.o_format, times * sum[d] / total));
      }
    return all;
  }
  double round(double p) const {
    PRounding r = ErrorModel(problem, arithmetic).p_rounding();
    return rounding::round_p(r, p, 1.0).value;
  }
  // P against the row's maximum; or each key the largest of a tile of its own, as ascending scores have it.
  std::vector<float> at_maximum(double times = 1) const {
    return o([&](double weight, double scale) { return round(weight * scale); }, times);
  }
  std::vector<float> each_a_leader(double times = 1) const {
    return o([&](double weight, double scale) { return weight * round(scale); }, times);
  }

  int alarms(std::vector<float> values, Statistic which) const {
    const int32_t dims = problem.head_dim_v;
    const assay_tensor view{values.data(),
                            ASSAY_FP32,
                            3,
                            {static_cast<int64_t>(bounded.value.rows.size()), kScaledHeads, dims},
                            {int64_t{kScaledHeads} * dims, dims, 1}};
    int count = 0;
    for (const Finding& f : aggregates(bounded, problem, host, {&view, nullptr}, arithmetic).alarms)
      count += f.statistic == which;
    return count;
  }
};

TEST(ScaledWeights, LeanAsTheirScalesDo) {
  // Scales of operands lie a quarter of a step above numbers of bf16 as often as not (scale_set.cpp).
  for (const int32_t keys : {1, 2, 6})
    for (const uint64_t seed : {5u, 6u}) {
      const ScaledCase c({.keys = keys, .scale = keys > 2 ? 40.0f : 0.7f, .seed = seed});
      EXPECT_EQ(c.alarms(c.at_maximum(), Statistic::kSlope), 0) << keys;
      EXPECT_EQ(c.alarms(c.each_a_leader(), Statistic::kSlope), 0) << keys;
      EXPECT_EQ(c.alarms(c.at_maximum(), Statistic::kRms), 0) << keys;
    }
}

TEST(ScaledWeights, LeanByNoMoreThanTheirScalesDo) {
  // A bias of half of what one element may be off by, either way, beside what the scales make.
  for (const int32_t keys : {1, 2, 64}) {
    const ScaledCase c({.keys = keys});
    for (const double bias : {-0x1p-9, 0x1p-9})
      EXPECT_GT(c.alarms(c.at_maximum(1 + bias), Statistic::kSlope), 0) << keys << " " << bias;
  }
}

TEST(ScaledWeights, AreAllOffByHalfAStepWhereTheirScalesAre) {
  const double scale = 0x1.00fep-6;  // half a step of bf16 above 2^-6
  const ScaledCase c({.all_scales = scale});
  EXPECT_NEAR(std::fabs(c.round(scale) / scale - 1), 0x1p-8, 0x1p-12);
  EXPECT_EQ(c.alarms(c.at_maximum(), Statistic::kRms), 0);
  EXPECT_EQ(c.alarms(c.at_maximum(), Statistic::kSlope), 0);
  // Errors of this size, but of signs that no rounding of these scales has.
  int n = 0;
  const auto either = [&](double weight, double s) {
    return weight * s * (1 + (++n % 2 == 0 ? 2 : -2) * 0x1p-8);
  };
  EXPECT_GT(c.alarms(c.o(either), Statistic::kRms), 0);
}

TEST(ScaledWeights, AreReadFromASampleWhereRowsAreMany) {
  const ScaledCase few({.requests = 40, .keys = 300});
  const OperandReader operands(few.problem, few.host);
  ScaledWeights weights(few.problem, operands, few.bounded, few.arithmetic);
  std::vector<RowHead> rows;
  for (int64_t n = 0; n < 40; ++n)
    for (int32_t head = 0; head < kScaledHeads; ++head) rows.push_back({n, head});
  // 48,000 keys a time: all of them, twenty times over, and then none.
  int all = 0, some = 0;
  for (int i = 0; i < 30; ++i) {
    double seen = 0;
    const auto sums = weights.over(
        rows, 1, [&](RowHead, const ScaledWeights::Moves&, std::span<double> one) { one[0] = 1, seen += 1; });
    EXPECT_NEAR(sums[0].value, 160, 1e-9);
    (seen == 160 ? all : some) += 1;
  }
  EXPECT_EQ(all, 21);
  EXPECT_EQ(some, 9);
}

}  // namespace
}  // namespace assay
