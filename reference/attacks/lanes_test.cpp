// SPDX-License-Identifier: Apache-2.0
// A legal fp32 kernel that deals keys to lanes, on V whose signs follow the lanes: each lane's sum is as
// large as V's absolute values make it, while sums in the order of the keys stay near zero. The order of
// tiles is declared, and so are the lanes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_cases.hpp"

namespace assay {
namespace {

constexpr int64_t kKeys = 1 << 18, kLanes = 16;
constexpr int32_t kValues = 8;

// One row as such a kernel computes it, against the exact largest score: fp32 from the weights on.
std::vector<double> by_lanes(const testkit::DenseCase& c) {
  std::vector<double> score(kKeys);
  double top = -1e300;
  for (int64_t j = 0; j < kKeys; ++j) {
    double dot = 0;
    for (int32_t t = 0; t < c.problem.head_dim_qk; ++t)
      dot += static_cast<double>(c.q[t]) * c.k[j * c.problem.head_dim_qk + t];
    score[j] = dot * c.problem.softmax_scale, top = std::max(top, score[j]);
  }
  std::vector<float> sums(kLanes * kValues), weights(kLanes);
  for (int64_t j = 0; j < kKeys; ++j) {
    const auto p = static_cast<float>(std::exp(score[j] - top));
    weights[j % kLanes] += p;
    for (int32_t d = 0; d < kValues; ++d) {
      float& sum = sums[j % kLanes * kValues + d];
      sum = std::fma(p, static_cast<float>(c.v[j * kValues + d]), sum);
    }
  }
  std::vector<double> o(kValues);
  const auto fold = [](std::vector<float> x) {  // pairwise
    for (size_t half = x.size() / 2; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) x[i] += x[i + half];
    return x[0];
  };
  for (int32_t d = 0; d < kValues; ++d) {
    std::vector<float> lanes(kLanes);
    for (int64_t n = 0; n < kLanes; ++n) lanes[n] = sums[n * kValues + d];
    o[d] = fold(lanes) / fold(weights);
  }
  return o;
}

TEST(Lanes, HoldMoreThanPrefixesOfTheRow) {
  testkit::DenseCase c = testkit::make_case(testkit::Family::kNormal, 1, 1, 4, 1, ASSAY_FP32);
  Problem& p = c.problem;
  p.requests = {{1, static_cast<int32_t>(kKeys)}};
  p.head_dim_v = kValues, p.k_format = ASSAY_BF16, p.v_format = ASSAY_BF16, p.o_format = ASSAY_FP32;
  c.k.resize(kKeys * p.head_dim_qk), c.v.resize(kKeys * kValues);
  CounterRng(1, 1).normals(0, static_cast<int64_t>(c.k.size()), c.k.data());
  CounterRng(1, 2).normals(0, static_cast<int64_t>(c.v.size()), c.v.data());
  for (int64_t j = 0; j < kKeys; ++j)
    for (int32_t d = 0; d < kValues; ++d) {
      auto& v = c.v[j * kValues + d];
      v = static_cast<std::remove_reference_t<decltype(v)>>((j % 2 ? -1 : 1) * (1 + 0.1 * v));
    }
  c.store();
  assay_arithmetic a = default_arithmetic();
  a.qk.block = a.pv.block = kLanes, a.p_format = ASSAY_FP32;
  a.tile_keys = 64, a.order_declared = 1, a.exp_relative_error = 0x1p-23;
  a.row_sum_chain = kKeys / kLanes + 4;
  const std::vector<double> o = by_lanes(c);
  const auto worst = [&] {
    const BoundedAttention b = bounded_attention(p, c.host(), c.rows(), a);
    double ratio = 0;
    for (int32_t d = 0; d < kValues; ++d)
      ratio = std::max(ratio, std::fabs(o[d] - b.value.o[d]) / std::min(b.o_bound[d], b.o_bound_p[d]));
    return ratio;
  };
  const double dealt = worst();
  EXPECT_LE(dealt, 1);
  // As one chain the kernel would be judged by prefixes that it does not form, and comes near their bound.
  a.pv.block = 1;
  const double chain = worst();
  std::printf("  largest error over bound: %.3f, declared as one chain %.3f\n", dealt, chain);
  EXPECT_GT(chain, 5 * dealt);
}

}  // namespace
}  // namespace assay
