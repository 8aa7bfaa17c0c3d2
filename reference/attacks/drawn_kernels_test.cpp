// SPDX-License-Identifier: Apache-2.0
// Kernels, cases and data that nobody chose: emulated kernels of the classes as they are built, with drawn
// declarations, on structured data (harness/input/patterns.hpp). No tier may be left. Some thousand draws
// here; ASSAY_LONG_TESTS=1 makes it 120,000, and ASSAY_DRAW_SEED starts elsewhere.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "harness/campaign/draws.hpp"
#include "harness/input/patterns.hpp"
#include "reference/attacks/attack.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay::attacks {
namespace {

using campaign::Draws;
using testkit::Class;

constexpr uint64_t kStreamDrawn = 99;
constexpr double kLargestLogit = 4;  // of a sink, standard deviation

struct Drawn {
  std::string what;  // in words, for who looks for the cause
  DenseCase data;
  assay_arithmetic arithmetic;  // declared
  assay_arithmetic kernel;      // done: a matrix unit may keep more bits
  Habits habits;
};

// Q, K and V in the patterns of this seed.
void shape(DenseCase& c, uint64_t seed, int32_t rows, int32_t keys, int32_t d) {
  const Patterns patterns(seed, double{c.problem.softmax_scale} * d);
  const CounterRng q(seed, 1), k(seed, 2), v(seed, 3);
  for (int32_t row = 0; row < rows; ++row)
    for (int32_t head = 0; head < 2; ++head) {
      int32_t like_row = row, like_head = head;
      patterns.q_like(like_row, like_head);
      double* out = &c.q[(size_t{2} * row + head) * d];
      q.normals((uint64_t{2} * like_row + like_head) * d, d, out);
      patterns.q(row, head, d, out);
    }
  for (int32_t key = 0; key < keys; ++key) {
    double *k_out = &c.k[size_t{1} * key * d], *v_out = &c.v[size_t{1} * key * d];
    k.normals(uint64_t{1} * patterns.k_like(key) * d, d, k_out);
    patterns.k(key, d, k_out);
    v.normals(uint64_t{1} * key * d, d, v_out);
    patterns.v(key, d, v_out);
  }
}

// Cap, sinks, bias and window of the case, and what the kernel says of its functions.
void draw_scores(Draws& d, Drawn& a, int32_t keys) {
  Problem& p = a.data.problem;
  if (d.chance(0.35)) {
    p.softcap = static_cast<float>(std::pow(10, d.uniform(-1, 2)));
    if (d.chance(0.7)) a.arithmetic.tanh_relative_error = std::exp2(d.uniform(-24, -11));
    if (d.chance(0.3)) a.arithmetic.tanh_absolute_error = std::exp2(d.uniform(-24, -12));
  }
  if (d.chance(0.25)) {
    const auto sink = [&] { return static_cast<float>(kLargestLogit * (2 * d.uniform() - 1)); };
    p.sinks = true, a.data.sinks = {sink(), sink()};
    a.arithmetic.sink_first = d.chance(0.5);
  }
  if (d.chance(0.2)) p.alibi = ASSAY_ALIBI_LINEAR, a.data.slopes = {0.25f, 0.0625f};
  if (d.chance(0.2)) p.window_left = static_cast<int32_t>(d.below(keys + 1));
  if (d.chance(0.5)) a.arithmetic.exp_relative_error = std::exp2(-23 + d.uniform(0, d.chance(0.3) ? 12 : 5));
}

// Parts, tiles, row sum.
void draw_order(Draws& d, assay_arithmetic& a) {
  if (a.order_declared && a.tile_keys < 1000 && d.chance(0.4)) {
    a.split_keys = 0, a.splits = static_cast<int32_t>(d.log_uniform(1, 6));
    if (a.splits > 1 && d.chance(0.3)) a.split_interleaved = 1;
    if (d.chance(0.3)) a.tile_keys = 16;
    if (a.split_interleaved == 0 && d.chance(0.4)) {
      a.item_rows = static_cast<int32_t>(1 + d.below(5));
      if (d.chance(0.6)) {
        a.shares = static_cast<int32_t>(d.log_uniform(1, 9)), a.share_turns = d.chance(0.4) ? 2 : 1;
        if (d.chance(0.3)) a.share_tiles = static_cast<int32_t>(1 + d.below(4));
        a.splits = a.shares * a.share_turns;
      }
    }
    if (a.splits == 1) a.partial_format = a.partial_lse_format = ASSAY_FORMAT_NONE;
  }
  if (a.p_format != ASSAY_INT8 && d.chance(0.2)) a.row_sum_from_rounded_p = 1;
}

// What the exponential errs by: noise, one sign, a polynomial, or two signs by the argument.
void draw_exponential(Draws& d, Drawn& drawn) {
  const double most = std::max(0.0, drawn.arithmetic.exp_relative_error - kUnit);  // beside its own rounding
  const int64_t kind = d.below(6);
  if (drawn.arithmetic.exp_poly_every != 0) return;
  auto& error = drawn.habits.exp_error;
  if (kind == 1) error = [=](float x) { return cubic_error(x, most); };
  if (kind == 2) error = [=](float x) { return x == 0 ? 0 : most; };
  if (kind == 3) error = [=](float x) { return x == 0 ? 0 : -most; };
  if (kind == 4)
    error = [=](float x) { return std::fmod(std::fabs(x) * M_LOG2E * 16, 1.0) < 0.5 ? most : -most; };
}

Drawn draw(uint64_t seed) {
  Draws d(seed, kStreamDrawn);
  static const std::vector<Class> classes = testkit::classes();
  Class c = d.one_of(std::span(classes));
  const auto dims = d.one_of<int32_t>({1, 2, 4, 8, 16, 32, 40, 64});
  const auto keys = static_cast<int32_t>(d.log_uniform(1, d.chance(0.1) ? 4000 : 500));
  const auto rows = static_cast<int32_t>(1 + d.below(std::min(3, keys)));
  Drawn a{"", make_case(Family::kNormal, rows, keys, dims, seed), c.arithmetic, {}, {}};
  Problem& p = a.data.problem;
  if (d.chance(0.5)) p.mask = ASSAY_MASK_FULL;
  p.softmax_scale =
      static_cast<float>((d.chance(0.2) ? std::pow(10, d.uniform(-3, 1)) : 1) / std::sqrt(dims));
  shape(a.data, seed, rows, keys, dims);
  draw_scores(d, a, keys);
  draw_order(d, a.arithmetic);
  draw_exponential(d, a);
  if (c.operands == ASSAY_BF16 && d.chance(0.2)) c.operands = ASSAY_FP16;
  p.q_format = p.k_format = p.v_format = c.operands;
  p.k_scale = p.v_scale = c.scale;
  p.q_scale = c.scale == ASSAY_SCALE_NONE ? ASSAY_SCALE_NONE : ASSAY_SCALE_TENSOR;
  // Codes up to the largest of the format.
  a.data = a.data.rebuilt(c.operands == ASSAY_INT8 ? 127 : format_info(c.operands).max_finite);
  a.kernel = a.arithmetic;
  if (d.chance(0.2))
    for (assay_accumulator* unit : {&a.kernel.qk, &a.kernel.pv})
      if (unit->kind == ASSAY_ACC_BLOCK && unit->mantissa_bits < 22)
        unit->fraction_bits += static_cast<int32_t>(d.below(3)),
            unit->mantissa_bits += static_cast<int32_t>(d.below(3));
  a.what = fmt::format("{}, {} keys, {} rows, d {}, scale {:.3g}, cap {:.3g}", c.name, keys, rows, dims,
                       p.softmax_scale, p.softcap);
  return a;
}

TEST(DrawnKernels, StayWithinTheirBoundsOnStructuredData) {
  const bool whole = std::getenv("ASSAY_LONG_TESTS") != nullptr;
  const char* from = std::getenv("ASSAY_DRAW_SEED");
  const uint64_t first = from != nullptr ? std::strtoull(from, nullptr, 10) : 0;
  TierRatios worst;
  int64_t looked = 0;
  for (uint64_t seed = first; seed < first + (whole ? 120'000 : 2'000); ++seed) {
    const Drawn a = draw(seed);
    const DenseCase& c = a.data;
    const testkit::Emulation e = testkit::Emulator(c, a.kernel, testkit::Mutant::kNone, seed, a.habits).run();
    const BoundedAttention matrix = bounded_attention(c.problem, c.host(), c.rows(), a.arithmetic);
    // Scores beyond fp32 and chains that nothing is claimed of: untrusted, never judged.
    if (matrix.growth > 1 || !std::all_of(e.o.begin(), e.o.end(), [](double x) { return std::isfinite(x); }))
      continue;
    ++looked;
    TierRatios r = tier_ratios(matrix, e);
    r.add(tier_ratios(bounded_attention_elementwise(c.problem, c.host(), c.rows(), a.arithmetic), e));
    worst.add(r);
    EXPECT_LE(r.largest(), 1) << fmt::format(
        "draw {}: {}; D {:.3f} P {:.3f} R {:.3f} LSE {:.3f} LSE P {:.3f}", seed, a.what, r.d, r.p, r.r, r.lse,
        r.lse_p);
  }
  fmt::print("  {} draws, largest error / bound: D {:.2f} P {:.2f} R {:.2f} LSE {:.2f} LSE P {:.2f}\n",
             looked, worst.d, worst.p, worst.r, worst.lse, worst.lse_p);
  EXPECT_GT(std::min({worst.d, worst.p, worst.r}), 0.3) << "bounds so wide hold for anything";
}

}  // namespace
}  // namespace assay::attacks
