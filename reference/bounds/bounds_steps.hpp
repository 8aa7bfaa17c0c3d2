// SPDX-License-Identifier: Apache-2.0
// Matrix units that keep few bits (13 in fp8 on Hopper), step by step. What such a unit cuts off is no small
// random error that a count of roundings describes well: it depends on signs, sizes and on how many bits the
// operands have. Tiers P and R take what the declared unit does to this row's data for what it leans by.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay {

// Units that are followed: fewer bits than these would drown what is left of an error.
inline bool keeps_few_bits(const assay_accumulator& unit) {
  constexpr int32_t kFew = 16;
  return unit.kind == ASSAY_ACC_BLOCK && (unit.fraction_bits <= kFew || unit.mantissa_bits <= kFew);
}

// Matrix units of many bits are followed on request only (bounded_attention): exactly, and several times
// slower.

// Operands of a product [terms, count], as the unit has them: codes without their scale, with the power of
// two that each is aligned at (0 for 0).
struct StepOperands {
  std::vector<float> value, top;
  void resize(int64_t elements) { value.assign(elements, 0.0f), top.assign(elements, 0.0f); }
  void set(int64_t at, double x, float smallest) {
    value[at] = static_cast<float>(x);
    top[at] = aligned_at(value[at], smallest);
  }
  static float aligned_at(float x, float smallest);
};

// sums[n] becomes what the unit makes of sums[n] + sum_k a[k] b[k * stride + n], n < count, in steps of
// unit.block terms from the first one on. squares: null, or where to add up, for each sum, the squares of the
// steps of the grids of what it lost: of the accumulator and the result of every step, and of terms that do
// not fit; of a term below half a step no more than twice itself.
void follow_steps(const assay_accumulator& unit, int64_t terms, const float* a, const float* a_top,
                  const float* b, const float* b_top, int64_t stride, int64_t count, float* sums,
                  float* squares = nullptr);

// Variance of an error of a score beside what was seen (delta), for the kernel and for the run seen: cuts are
// uniform on a step of their grid. Another order of the products has other partial sums and other cuts: no
// fewer are taken than all of a random order's, s being the score and r the root of the sum of squared
// products. scale: of a sum to the score.
inline double cut_variance(const assay_accumulator& unit, int64_t terms, double squares, double scale,
                           double s, double r) {
  const int32_t bits = std::min(unit.fraction_bits, unit.mantissa_bits), block = std::max(1, unit.block);
  const auto cuts = static_cast<double>((terms + block - 1) / block * (block + 2));
  // Mean square of a partial sum, s^2 / 3 + r^2 / 6, and of the power of two below a number to it.
  const double usual = 0.541 * (s * s / 3 + r * r / 6) * std::ldexp(1.0, -2 * bits);
  return std::max(squares * scale * scale, cuts * usual) / 6;
}
// Such a kernel may lean by that many times what was seen.
inline constexpr double kOtherLean = 2;

// P V of one row as the unit adds it up: every channel, tile by tile, part by part.
class StepSums {
 public:
  StepSums() = default;
  // most_tiles: added up in one part, where the order of keys is not known (0: end_part() says).
  StepSums(const assay_arithmetic&, int64_t channels, int64_t most_tiles);
  // Keys from now on belong to this tile; `to_p`: what one unit of a row's weight is as P against its
  // maximum.
  void enter(int64_t tile, double to_p);
  // Keys first .. first + count - 1 of the tile with rounded weights p; V [count, stride] as in StepOperands.
  void add(int64_t first, int64_t count, const float* p, const float* v, const float* v_top, int64_t stride);
  void end_part();
  // Of channel d, in the row's weights, and the squares of follow_steps.
  double total(int64_t d) const { return total_[static_cast<size_t>(d)]; }
  double squares(int64_t d) const { return total_squares_[static_cast<size_t>(d)]; }

 private:
  void move();  // what was added up apart joins the rest
  void take_squares();
  assay_accumulator unit_ = {};
  int64_t window_ = 0, tile_ = -1, tiles_ = 0;  // window_: tiles added up apart; 0: all
  float p_smallest_ = 0;
  double to_p_ = 0;
  std::vector<float> sums_, tops_, squares_;
  std::vector<double> total_, total_squares_;
};

// Operands beyond this are not followed, so that no product leaves fp32; their scores are off by anything.
inline constexpr double kMostFollowed = 0x1p40, kUnknownDelta = 1e30;

}  // namespace assay
