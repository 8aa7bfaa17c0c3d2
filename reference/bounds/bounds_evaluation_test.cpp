// SPDX-License-Identifier: Apache-2.0
// Tier D of the bounds against its second evaluation (bounds_evaluation.hpp): over the whole language of
// declarations the code is never below it and at most 1 % above. What the evaluation takes from the document
// and the code from its own reading must be the same formula, term by term.
#include "reference/bounds/bounds_evaluation.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_rows.hpp"

namespace assay {
namespace {

using testkit::DenseCase;
using testkit::Evaluation;
using testkit::Family;
using testkit::Interval;

class EvaluationDraw {
 public:
  explicit EvaluationDraw(uint64_t seed) : random_(seed, 41) {}
  int32_t operator()(uint64_t n) { return static_cast<int32_t>(random_.below(at_++, n)); }
  template <class T>
  T of(std::initializer_list<T> list) {
    return list.begin()[(*this)(list.size())];
  }

 private:
  CounterRng random_;
  uint64_t at_ = 0;
};

DenseCase small_case(uint64_t seed) {
  EvaluationDraw pick(2 * seed);
  const Family family = pick.of({Family::kNormal, Family::kPeaked, Family::kOutlier, Family::kAscending,
                                 Family::kFlat, Family::kPositive});
  const int32_t n = 1 + pick(2), m = 1 + pick(16);
  DenseCase c = testkit::make_case(family, n, m, 1 + pick(10), seed, pick.of({ASSAY_BF16, ASSAY_FP16}));
  Problem& p = c.problem;
  p.mask = pick.of({ASSAY_MASK_CAUSAL, ASSAY_MASK_FULL});
  if (pick(4) == 0) p.window_left = pick(12);
  if (pick(3) == 0) p.softcap = 3.0f + static_cast<float>(pick(20));
  p.alibi = pick.of({ASSAY_ALIBI_NONE, ASSAY_ALIBI_NONE, ASSAY_ALIBI_LINEAR, ASSAY_ALIBI_SQRT});
  p.sinks = pick(3) == 0;
  c.slopes = {0.5f, 0.01f};
  c.sinks = {-1.5f, 4.0f};
  double largest = 1;
  if (pick(3) == 0) {
    p.k_format = p.v_format = pick.of({ASSAY_INT8, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2});
    p.k_scale = p.v_scale = ASSAY_SCALE_TENSOR;
    largest = p.k_format == ASSAY_INT8 ? 127 : 200;
    if (pick(2)) p.q_format = p.k_format, p.q_scale = ASSAY_SCALE_TENSOR;
    // A stream of its own: the other draws stay what they were.
    EvaluationDraw channels(2 * seed + 1000003);
    if (channels(3) == 0) p.k_scale = ASSAY_SCALE_CHANNEL;
    if (p.q_scale != ASSAY_SCALE_NONE && channels(3) == 0) p.q_scale = ASSAY_SCALE_CHANNEL;
  }
  if (pick(6) == 0)
    for (double& q : c.q) q *= 0x1p-16;  // subnormal in fp16
  if (pick(6) == 0 && p.q_format != ASSAY_FP16) {
    // Factors of a score whose product is near the end of the normal range or below.
    const int32_t exponent = 18 + pick(8);
    p.softcap = 0x1p104f;
    p.softmax_scale = std::ldexp(p.softmax_scale, -exponent);
    const int32_t larger = exponent - 6 - pick(6);
    for (double& q : c.q) q = std::ldexp(q, larger);
  }
  // Scores whose own rounding may take a weight past fp32, or past fp16 where P is.
  EvaluationDraw extreme(2 * seed + 6000003);
  if (extreme(12) == 0) p.softmax_scale = std::ldexp(p.softmax_scale, 16 + extreme(16));
  return c.rebuilt(largest);
}

assay_arithmetic any_arithmetic(uint64_t seed) {
  EvaluationDraw pick(2 * seed + 1);
  assay_arithmetic a = default_arithmetic();
  const auto unit = [&]() -> assay_accumulator {
    switch (pick(4)) {
      case 0:
        return {ASSAY_ACC_BLOCK, 4 << pick(3), pick.of({13, 24, 25}), pick.of({13, 23})};
      case 1:
        return {ASSAY_ACC_INT32, 32, 0, 0};
      default:
        return {ASSAY_ACC_FMA, 1 << pick(4), 0, 23};
    }
  };
  a.qk = unit(), a.pv = unit();
  a.tile_keys = pick.of({0, 1, 3, 4, 8, 1 << 20});
  a.order_declared = a.tile_keys > 0 && pick(3) > 0;
  a.tile_reverse = pick(2);
  a.promote_pv = pick(2);
  if (a.promote_pv && a.tile_keys > 0 && a.tile_keys < 100) a.promote_every = pick(4);
  a.splits = 1 + pick(2) * pick(4);
  if (a.tile_keys > 0 && a.tile_keys < 100 && pick(4) == 0) a.split_keys = a.tile_keys * (1 + pick(3));
  if (a.split_keys == 0 && a.tile_keys > 0) a.split_interleaved = pick(3) == 0;
  if (a.split_keys == 0 && !a.split_interleaved && a.tile_keys > 0 && pick(2)) {
    a.item_rows = 1 + pick(3);
    if (pick(2)) a.shares = 1 + pick(4), a.share_turns = 1 + pick(2), a.splits = a.shares * a.share_turns;
    if (a.shares > 0 && pick(2)) a.share_tiles = 1 + pick(3);
  }
  a.splits_vary = pick(4) == 0;
  a.partial_roundings = pick(4);
  a.partial_format = pick.of({ASSAY_FP32, ASSAY_BF16, ASSAY_FP16});
  a.partial_lse_format = pick.of({ASSAY_FP32, ASSAY_FP32, ASSAY_BF16});
  a.row_sum_chain = pick(2) * pick(9);
  if (pick(4) == 0) a.row_sum = {ASSAY_ACC_BLOCK, 16, 25, 23};
  if (pick(4) == 0) a.row_sum = {ASSAY_ACC_FMA, 4, 0, 23};
  a.p_format = pick.of(
      {ASSAY_FORMAT_NONE, ASSAY_FP32, ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_INT8});
  a.p_truncated = pick(4) == 0;
  a.p_int8_tile_max = pick(2);
  a.p_roundings = pick(4);
  a.row_sum_from_rounded_p = pick(3) == 0;
  a.dequant_format = pick.of({ASSAY_FORMAT_NONE, ASSAY_FORMAT_NONE, ASSAY_BF16, ASSAY_FP16});
  a.dequant_replayed = pick(2);
  a.rescale_lag_log2 = pick(4) == 0 ? 8 : 0;
  a.p_offset_log2 = pick(4) == 0 ? 8 : 0;
  a.exp_relative_error = pick.of({0x1p-22, 0x1p-13, 0x1p-4});
  if (pick(4) == 0) a.exp_poly_every = 4, a.exp_poly_relative_error = 1e-3;
  a.tanh_relative_error = pick.of({0x1p-22, 0x1p-11});
  if (pick(3) == 0) a.tanh_absolute_error = 0x1p-12;
  if (pick(3) == 0) a.log_absolute_error = 0x1p-18;
  if (pick(3) == 0) a.log_relative_error = 0x1p-16;
  a.bias_form = pick(2);
  if (pick(4) == 0) a.q_rounding = 0x1p-8, a.q_rounding_absolute = 0x1p-12;
  if (pick(6) == 0) a.q_replayed_format = ASSAY_BF16, a.q_replayed_factor = 0.3f;
  a.sink_first = pick(2);
  a.rescale_inexact = EvaluationDraw(2 * seed + 4000003)(4) == 0;
  EvaluationDraw folds(2 * seed + 2000003);
  if (folds(3) > 0) {
    a.q_replayed_format = folds.of({ASSAY_BF16, ASSAY_FP16});
    a.q_replayed_factor = folds.of({1.0, 0.3, 4.0});
    a.q_replayed_scales = 1, a.dequant_format = ASSAY_FORMAT_NONE;
    a.q_rounding_absolute = 0;
  }
  EvaluationDraw relative(2 * seed + 5000003);
  const int32_t format = relative.of({ASSAY_FP32, ASSAY_FP32, ASSAY_BF16, ASSAY_FP16});
  if (relative(4) == 0)
    a.weights_lse_format = format, a.order_declared = a.row_sum_from_rounded_p = 0;
  else if (relative(3) == 0)
    a.merge_lse_format = format;
  return a;
}

TEST(Evaluation, OfTierDInIntervalsAgreesWithTheCode) {
  double lowest = 1e300, highest = 0;
  int64_t cases = 0, elements = 0, infinite = 0;
  int64_t folded = 0, of_lse = 0, by_lse = 0, past = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const DenseCase c = small_case(seed);
    assay_arithmetic a = any_arithmetic(seed);
    // A Q beyond the range of the format that it is rounded to is nobody's.
    if (a.q_replayed_scales != 0 && c.problem.softcap > 100) a.q_replayed_format = ASSAY_BF16;
    const BoundedAttention b = bounded_attention_elementwise(c.problem, c.host(), c.rows(), a);
    double weight = 0;  // what one may be off by, of which the code's doubles hold 1e308
    const auto look = [&](double code, const Interval& truth, bool finite, const std::string& what) {
      ++elements;
      if (std::isinf(code) && weight > 1e300) {
        ++infinite;
        return;
      }
      if (!finite || std::isinf(code)) {
        ++infinite;
        EXPECT_TRUE(std::isinf(code) && truth.low() == 0)
            << what << ": " << code << " where the evaluation has " << truth.low();
        return;
      }
      // Doubles are allowed the rounding of some hundred operations.
      lowest = std::min(lowest, code / truth.low());
      highest = std::max(highest, code / truth.high());
      EXPECT_GE(code, truth.low() * (1 - 1e-9)) << what;
      EXPECT_LE(code, 1.01 * truth.high()) << what;
    };
    ++cases, folded += folds_channels(c.problem, a);
    of_lse += a.weights_lse_format != ASSAY_FORMAT_NONE;
    by_lse += a.merge_lse_format != ASSAY_FORMAT_NONE && a.splits > 1;
    for (int64_t i = 0; i < c.n(); ++i)
      for (int32_t h = 0; h < 2; ++h) {
        const Evaluation truth(c, a, i, h);
        const int64_t slot = 2 * i + h;
        const std::string what = fmt::format("seed {} row {} head {}", seed, i, h);
        if (truth.nothing()) {
          EXPECT_EQ(b.lse_bound[slot], 0) << what;
          continue;
        }
        EXPECT_NEAR(b.value.lse[slot], truth.lse().middle(), 1e-12 * (1 + std::fabs(b.value.lse[slot])));
        bool finite = true;
        past += truth.weights_overflow(), weight = truth.largest().high();
        const Interval lse = truth.lse_bound(finite);
        look(b.lse_bound[slot], lse, finite, what + " LSE");
        for (int32_t d = 0; d < c.problem.head_dim_v && !truth.empty(); ++d) {
          const Interval o = truth.o_bound(d, finite);
          look(b.o_bound[slot * c.problem.head_dim_v + d], o, finite, fmt::format("{} channel {}", what, d));
        }
        if (HasFailure()) return;
      }
  }
  std::printf("  %ld cases, %ld bounds (%ld infinite in both): code / evaluation from %.12f to %.12f\n",
              static_cast<long>(cases), static_cast<long>(elements), static_cast<long>(infinite), lowest,
              highest);
  EXPECT_GT(elements - infinite, 2 * infinite);
  EXPECT_GT(folded, 50);
  EXPECT_GT(of_lse, 200);
  EXPECT_GT(by_lse, 60);
  EXPECT_GT(past, 20);
}

}  // namespace
}  // namespace assay
