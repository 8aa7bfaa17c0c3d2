// SPDX-License-Identifier: Apache-2.0
// input=codes holds what it promises, counted in the bytes a kernel reads: over formats and scales.
#include "harness/input/code_kinds.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "harness/input/inputs.hpp"
#include "harness/input/stored_reader.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

constexpr int32_t kStored[] = {ASSAY_FP16,         ASSAY_FP8_E4M3,     ASSAY_FP8_E5M2,
                               ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ, ASSAY_INT8};

Problem problem_of_codes(int32_t format, int32_t scale) {
  Problem p;
  p.seed = 3;
  p.recipe = InputRecipe::kCodes;
  p.heads_q = 4, p.heads_kv = 2;
  p.head_dim_qk = p.head_dim_v = 32;
  p.softmax_scale = 0.1767767f;
  p.requests = {{9, 70}, {1, 60}, {1, 80}, {3, 40}};
  p.q_format = p.k_format = p.v_format = format;
  p.q_scale = p.k_scale = p.v_scale = scale;
  place_pages(p);
  return p;
}

struct Met {
  std::set<double> small;  // below the least normal number, without zero
  int zeros = 0, minus_zeros = 0, largest = 0, least = 0, others = 0;
  void add(int32_t format, double x) {
    ASSERT_TRUE(std::isfinite(x));
    const CodeGrid g = CodeGrid::of(format);
    const double size = std::fabs(x), normal = format == ASSAY_INT8 ? 2 : g.step * std::ldexp(1.0, g.bits);
    if (size == 0)
      ++(std::signbit(x) ? minus_zeros : zeros);
    else if (size < normal)
      small.insert(x);
    else if (size == g.largest)
      ++(x > 0 ? largest : least);
    else
      ++others;
  }
  void expect_all(int32_t format, bool q, bool smallest = true) const {
    const CodeGrid g = CodeGrid::of(format);
    // fp16 has a thousand of them; of Q's channels a quarter has any.
    const size_t known = std::min<size_t>(format == ASSAY_INT8 ? 2 : 2 * ((size_t{1} << g.bits) - 1), 100);
    EXPECT_GE(small.size(), !smallest ? 0 : q ? std::min<size_t>(known, 2) : known);
    EXPECT_GT(others, 0);
    EXPECT_GT(zeros, 0);
    const bool signed_zero =
        format != ASSAY_INT8 && format != ASSAY_FP8_E4M3FNUZ && format != ASSAY_FP8_E5M2FNUZ;
    EXPECT_EQ(minus_zeros > 0, signed_zero);
    if (q && format == ASSAY_FP16) return;  // no scale brings its largest number about
    // A scale takes one of Q's values to the largest code, of either sign.
    EXPECT_GT(q ? largest + least : std::min(largest, least), 0);
  }
};

TEST(CodeKinds, EveryFormatHoldsEveryKindUnderEveryScale) {
  for (const int32_t format : kStored)
    for (const int32_t scale : {ASSAY_SCALE_NONE, ASSAY_SCALE_TENSOR, ASSAY_SCALE_HOST, ASSAY_SCALE_HEAD,
                                ASSAY_SCALE_REQUEST_HEAD, ASSAY_SCALE_TOKEN_HEAD, ASSAY_SCALE_CHANNEL}) {
      if ((format == ASSAY_FP16) != (scale == ASSAY_SCALE_NONE) && format == ASSAY_FP16) continue;
      if (format == ASSAY_INT8 && scale == ASSAY_SCALE_NONE) continue;
      SCOPED_TRACE(fmt::format("{} {}", name_of(format_names(), format), name_of(scale_names(), scale)));
      const Problem p = problem_of_codes(format, scale);
      const Inputs inputs = build_inputs(p);
      StoredReader reader(inputs);
      Met k, v, q;
      for (int r = 0; r < 4; ++r)
        for (int32_t key = 0; key < p.requests[r].kv_len; ++key)
          for (int32_t head = 0; head < p.heads_kv; ++head)
            for (int32_t d = 0; d < p.head_dim_v; ++d) {
              k.add(format, reader.code(false, r, key, head, d));
              v.add(format, reader.code(true, r, key, head, d));
            }
      for (int64_t row = 0; row < p.total_q(); ++row)
        for (int32_t head = 0; head < p.heads_q; ++head)
          for (int32_t d = 0; d < p.head_dim_qk; ++d) q.add(format, reader.at(Operand::kQ, {row, head, d}));
      const bool own = scale == ASSAY_SCALE_REQUEST_HEAD || scale == ASSAY_SCALE_TOKEN_HEAD;
      k.expect_all(format, false);
      v.expect_all(format, false);
      q.expect_all(format, true, !own && scale != ASSAY_SCALE_CHANNEL);
    }
}

// What makes a kind matter: nothing larger stands beside it in its channel.
TEST(CodeKinds, AChannelOfARequestHoldsOneKind) {
  for (const int32_t format : {ASSAY_FP8_E4M3, ASSAY_INT8}) {
    const Problem p = problem_of_codes(format, ASSAY_SCALE_HEAD);
    const Inputs inputs = build_inputs(p);
    StoredReader reader(inputs);
    const CodeGrid g = CodeGrid::of(format);
    int seen[kCodeKinds] = {};
    for (int r = 0; r < 4; ++r)
      for (int32_t head = 0; head < p.heads_kv; ++head)
        for (int32_t d = 0; d < p.head_dim_v; ++d) {
          const CodeKind kind = CodeKinds::of_v(r, head, d);
          ++seen[static_cast<int>(kind)];
          for (int32_t key = 0; key < p.requests[r].kv_len; ++key) {
            const double size = std::fabs(reader.code(true, r, key, head, d));
            // Codes of int8 under a scale that lies a little above what the largest asks for.
            ASSERT_LE(size, kind == CodeKind::kSmallest ? g.small * g.step : g.largest);
            ASSERT_GE(size, kind != CodeKind::kLargest ? 0 : g.bits == 0 ? g.largest - 5 : g.largest / 2);
          }
        }
    for (const int count : seen) EXPECT_GT(count, 30);
  }
}

}  // namespace
}  // namespace assay
