// SPDX-License-Identifier: Apache-2.0
// See bounds_steps.hpp. The loops run over independent sums, so they vectorise.
#include "reference/bounds/bounds_steps.hpp"

#include <algorithm>
#include <bit>

#include "harness/problem/names.hpp"
#include "reference/bounds/bounds_terms.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr int64_t kMostSums = 512;  // worked on together, in the first cache

template <class Real>
struct Bits;
template <>
struct Bits<float> {
  using Word = uint32_t;
  static constexpr int kMantissa = 23, kMostFraction = 16;  // more would not fit the exact sum of a step
  static constexpr Word kExponent = 0x7f800000u;
};
template <>
struct Bits<double> {
  using Word = uint64_t;
  static constexpr int kMantissa = 52, kMostFraction = 29;  // more would not fit a whole number of 32 bits
  static constexpr Word kExponent = 0x7ff0000000000000u;
};

template <class Real>
Real power_below(Real x) {
  using Word = typename Bits<Real>::Word;
  return std::bit_cast<Real>(std::bit_cast<Word>(x) & Bits<Real>::kExponent);
}

// follow_steps in numbers that hold the exact sum of a step; a unit with more bits than fit is followed as
// one that cuts off more.
template <class Real, bool kCuts>
void follow_in(const assay_accumulator& unit, int64_t terms, const float* a, const float* a_top,
               const float* b, const float* b_top, int64_t stride, int64_t count, float* sums,
               float* squares) {
  using Word = typename Bits<Real>::Word;
  const int32_t fraction = std::min(Bits<Real>::kMostFraction, unit.fraction_bits);
  const int32_t mantissa = std::min(23, unit.mantissa_bits);
  const Real steps = std::ldexp(Real{1}, fraction), step = std::ldexp(Real{1}, -fraction);
  const Word kept = ~Word{0} << (Bits<Real>::kMantissa - mantissa);
  const int64_t block = std::max(1, unit.block);
  const Real last = std::ldexp(Real{1}, -mantissa);
  alignas(64) Real top[kMostSums], inverse[kMostSums], sum[kMostSums], lost[kCuts ? kMostSums : 1];
  for (int64_t at = 0; at < count; at += kMostSums) {
    const int64_t n = std::min(kMostSums, count - at);
    float* c = sums + at;
    for (int64_t from = 0; from < terms; from += block) {
      const int64_t to = std::min(terms, from + block);
      for (int64_t i = 0; i < n; ++i) top[i] = power_below(static_cast<Real>(c[i]));
      for (int64_t k = from; k < to; ++k) {
        const Real size = a_top[k];
        if (size == 0) continue;
        const float* other = b_top + k * stride + at;
        for (int64_t i = 0; i < n; ++i) {
          const Real product = size * static_cast<Real>(other[i]);
          top[i] = product > top[i] ? product : top[i];
        }
      }
      for (int64_t i = 0; i < n; ++i) {
        inverse[i] = top[i] > 0 ? steps / top[i] : Real{0};
        sum[i] = static_cast<Real>(static_cast<int32_t>(static_cast<Real>(c[i]) * inverse[i]));
        if constexpr (kCuts) lost[i] = 1;
      }
      for (int64_t k = from; k < to; ++k) {
        const Real size = a[k];
        if (size == 0) continue;
        const float* other = b + k * stride + at;
        for (int64_t i = 0; i < n; ++i) {
          const Real term = size * static_cast<Real>(other[i]) * inverse[i],
                     whole = static_cast<Real>(static_cast<int32_t>(term));
          sum[i] += whole;
          if constexpr (kCuts) {
            const Real twice = 4 * term * term;
            lost[i] += term == whole ? Real{0} : twice < 1 ? twice : Real{1};
          }
        }
      }
      for (int64_t i = 0; i < n; ++i) {
        const Real result = std::bit_cast<Real>(std::bit_cast<Word>(sum[i] * (top[i] * step)) & kept);
        c[i] = static_cast<float>(result);
        if constexpr (kCuts) {
          const Real grid = top[i] * step, own = power_below(result) * last;
          squares[at + i] += static_cast<float>(lost[i] * grid * grid + own * own);
        }
      }
    }
  }
}

}  // namespace

float StepOperands::aligned_at(float x, float smallest) {
  return x == 0 ? 0.0f : std::max(power_below(std::fabs(x)), smallest);
}

void follow_steps(const assay_accumulator& unit, int64_t terms, const float* a, const float* a_top,
                  const float* b, const float* b_top, int64_t stride, int64_t count, float* sums,
                  float* squares) {
  const auto follow = [&](auto* in) { in(unit, terms, a, a_top, b, b_top, stride, count, sums, squares); };
  // Few bits of a result do for a unit that is followed, but all of its terms' have to fit: terms that are
  // cut lose of either sign, results cut behind the sum of whole terms lose toward zero every time.
  if (unit.fraction_bits <= Bits<float>::kMostFraction)
    squares != nullptr ? follow(&follow_in<float, true>) : follow(&follow_in<float, false>);
  else
    squares != nullptr ? follow(&follow_in<double, true>) : follow(&follow_in<double, false>);
}

StepSums::StepSums(const assay_arithmetic& a, int64_t channels, int64_t most_tiles)
    : unit_(a.pv),
      window_(promotion_tiles(a)),
      sums_(static_cast<size_t>(channels), 0.0f),
      squares_(static_cast<size_t>(channels), 0.0f),
      total_(static_cast<size_t>(channels), 0.0),
      total_squares_(static_cast<size_t>(channels), 0.0) {
  if (a.promote_pv == 0) window_ = most_tiles;
  const bool gap = a.p_format == ASSAY_FP16 || format_is_fp8(a.p_format);
  p_smallest_ = gap ? std::ldexp(1.0f, format_info(a.p_format).min_exponent) : 0.0f;
}

void StepSums::enter(int64_t tile, double to_p) {
  if (tile != tile_) {
    if (window_ > 0 && tiles_ == window_) move();
    tile_ = tile, ++tiles_;
  }
  if (to_p == to_p_) return;
  if (to_p_ > 0) {
    for (float& sum : sums_) sum = static_cast<float>(sum * (to_p / to_p_));
    take_squares();
  }
  to_p_ = to_p;
}

void StepSums::add(int64_t first, int64_t count, const float* p, const float* v, const float* v_top,
                   int64_t stride) {
  tops_.resize(static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k) tops_[k] = StepOperands::aligned_at(p[k], p_smallest_);
  const auto channels = static_cast<int64_t>(sums_.size());
  // Steps begin with the tile.
  const int64_t block = std::max(1, unit_.block), lead = std::min(count, (block - first % block) % block);
  const auto follow = [&](int64_t from, int64_t to) {
    if (from < to)
      follow_steps(unit_, to - from, p + from, &tops_[from], v + from * stride, v_top + from * stride, stride,
                   channels, sums_.data(), squares_.data());
  };
  follow(0, lead);
  follow(lead, count);
}

void StepSums::take_squares() {
  const double from_p = 1 / to_p_;
  for (size_t d = 0; d < squares_.size(); ++d)
    total_squares_[d] += static_cast<double>(squares_[d]) * from_p * from_p;
  std::fill(squares_.begin(), squares_.end(), 0.0f);
}

void StepSums::move() {
  if (to_p_ > 0) take_squares();
  if (to_p_ > 0)
    for (size_t d = 0; d < sums_.size(); ++d) total_[d] += static_cast<double>(sums_[d]) / to_p_;
  std::fill(sums_.begin(), sums_.end(), 0.0f);
  tiles_ = 0;
}

void StepSums::end_part() {
  move();
  tile_ = -1, to_p_ = 0;
}

}  // namespace assay
