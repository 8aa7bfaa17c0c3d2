// SPDX-License-Identifier: Apache-2.0
// See code_kinds.hpp. Values are exact codes times a unit, which calibration finds again where a row, or
// whoever has a scale in common, has the largest code.
#include "harness/input/code_kinds.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr int32_t kGridBits = 7, kGridExponent = 8;  // of fp32 and bf16: 2^-8 to 2^8
// With a scale the largest code stands for this much at most: times a factor of two (spread_units) fp16 holds
// it, to which a kernel may dequantise.
constexpr double kLargestScaled = 0x1p13;
constexpr double kLogit = 1.5;  // standard deviation, about
constexpr uint64_t kZeroEvery = 8, kLargestEvery = 4;
constexpr uint64_t kLargeCodes = 4;  // codes from the largest on that count as large
constexpr double kNearLargest = 8;   // times what is wanted of Q
constexpr double kFaint = 0.01;
// Score of the largest codes with the largest of one sign; scales of units change it by two to four either
// way, and of much larger ones neither Q in 16 bits nor sums of 13 bits bound anything. More where int8 has a
// scale of Q in common: its smallest codes come to a hundredth of that, those of fp8 to less than any
// rounding.
constexpr double kFullScore = 40, kFullScoreShared = 60, kMostToSmallest = 256;
constexpr double kMostOfWanted = 1.5;  // an element of Q, of which the least is one less
constexpr uint64_t kFullCodes = 2;     // codes from the largest on in a row that agrees with a key

// Any code: of 8 bits each as likely as the other, of more each exponent.
double any_code(const CodeGrid& g, uint64_t drawn) {
  const double sign = drawn & 1 ? -1 : 1;
  if (g.bits == 0) return sign * static_cast<double>((drawn >> 1) % (static_cast<uint64_t>(g.largest) + 1));
  const int low = std::ilogb(g.step) + g.bits, high = std::ilogb(g.largest);
  const int exponent = low + static_cast<int>((drawn >> 1) % static_cast<uint64_t>(high - low + 1));
  const double fraction = std::ldexp(static_cast<double>(drawn >> 32), -32);
  return sign * std::min(g.largest, std::ldexp(1 + fraction, exponent));
}

double large_code(const CodeGrid& g, uint64_t drawn) {
  const auto below = static_cast<double>((drawn >> 1) % kLargeCodes);
  return (drawn & 1 ? -1 : 1) * (g.largest - below * g.ulp_of_largest());
}

double small_code(const CodeGrid& g, uint64_t drawn) {
  const double n = (drawn >> 1) % kZeroEvery == 0
                       ? 0.0
                       : 1 + static_cast<double>((drawn >> 8) % static_cast<uint64_t>(g.small));
  return (drawn & 1 ? -1 : 1) * n * g.step;
}

}  // namespace

double CodeGrid::ulp_of_largest() const {
  return bits == 0 ? step : std::ldexp(1.0, std::ilogb(largest) - bits);
}

CodeGrid CodeGrid::of(int32_t format) {
  if (format == ASSAY_INT8) return {1, 2, 127, 0};
  const FormatInfo& f = format_info(format);
  if (format == ASSAY_FP32 || format == ASSAY_BF16)
    return {std::ldexp(1.0, -kGridExponent - kGridBits), (2 << kGridBits) - 1, std::ldexp(1.0, kGridExponent),
            kGridBits};
  return {2 * f.half_subnormal, (2 << f.mantissa_bits) - 1, f.max_finite, f.mantissa_bits};
}

CodeKinds::Stored CodeKinds::stored(int32_t format, int32_t scale) {
  Stored s{CodeGrid::of(format), 1, {}};
  const CodeGrid& g = s.grid;
  if (scale != ASSAY_SCALE_NONE) s.unit = std::min(1.0, kLargestScaled / g.largest);
  s.size[static_cast<int>(CodeKind::kSmallest)] = 0.5 * g.step * (g.small + 1);
  s.size[static_cast<int>(CodeKind::kLargest)] = 0.9 * g.largest;
  s.size[static_cast<int>(CodeKind::kAny)] = g.bits == 0 ? 0.6 * g.largest : 0.3 * g.largest;
  s.size[static_cast<int>(CodeKind::kOrdinary)] = g.bits == 0 ? g.largest / 8 : 1;
  for (double& size : s.size) size *= s.unit;
  return s;
}

CodeKinds::CodeKinds(const Problem& p)
    : p_(p),
      k_(stored(p.k_format, p.k_scale)),
      v_(stored(p.v_format, p.v_scale)),
      logit_(kLogit / (double{p.softmax_scale} * std::sqrt(double(p.head_dim_qk)))) {
  if (!format_is_quantized(p.q_format)) return;
  if (p.q_scale == ASSAY_SCALE_NONE) {
    largest_q_ = CodeGrid::of(p.q_format).largest;
    return;
  }
  if (!format_is_quantized(p.k_format)) return;
  q_shares_ = p.q_scale != ASSAY_SCALE_REQUEST_HEAD && p.q_scale != ASSAY_SCALE_TOKEN_HEAD;
  const bool near = k_.size[static_cast<int>(CodeKind::kLargest)] <
                    kMostToSmallest * k_.size[static_cast<int>(CodeKind::kSmallest)];
  multiplies_largest_ = near || !q_shares_ || (CounterRng(p.seed, kStreamRecipe).bits(0) >> 32 & 1) != 0;
  full_q_ = (near && q_shares_ ? kFullScoreShared : kFullScore) /
            (double{p.softmax_scale} * p.head_dim_qk * k_.unit * k_.grid.largest);
}

// Largest first, so that one request of one head has them.
CodeKind CodeKinds::of_k(int root, int32_t head) const {
  const CodeKind kind = of_v(root, head, 0);
  if (!multiplies_largest_) return kind;
  return kind == CodeKind::kSmallest  ? CodeKind::kLargest
         : kind == CodeKind::kLargest ? CodeKind::kSmallest
                                      : kind;
}

double CodeKinds::common_sign(int root, int32_t head, int32_t dim) const {
  const uint64_t at = (static_cast<uint64_t>(root) * p_.heads_kv + head) * p_.head_dim_qk + dim;
  return CounterRng(p_.seed, kStreamRecipe).bits(1 + at) & 1 ? -1 : 1;
}

bool CodeKinds::agrees(int root, int32_t row, int32_t head) const {
  return multiplies_largest_ && of_k(root, head / p_.group()) == CodeKind::kLargest &&
         (row + head % p_.group()) % 2 == 0;
}

void CodeKinds::q_like(const double* k, uint64_t first, double* out) const {
  const CounterRng rng(p_.seed, kStreamQ);
  const CodeGrid g = CodeGrid::of(p_.q_format);
  for (int32_t d = 0; d < p_.head_dim_qk; ++d) {
    const auto below = static_cast<double>(rng.bits(first + static_cast<uint64_t>(d)) % kFullCodes);
    out[d] = std::copysign(full_q_ * (1 - below * g.ulp_of_largest() / g.largest), k[d]);
  }
}

CodeKind CodeKinds::of_v(int root, int32_t head, int32_t dim) {
  return static_cast<CodeKind>(
      (static_cast<uint32_t>(root) + static_cast<uint32_t>(head) + static_cast<uint32_t>(dim)) % kCodeKinds);
}

double CodeKinds::value(const Stored& s, CodeKind kind, const CounterRng& rng, uint64_t at) {
  switch (kind) {
    case CodeKind::kSmallest:
      return s.unit * small_code(s.grid, rng.bits(at));
    case CodeKind::kLargest:
      return s.unit * large_code(s.grid, rng.bits(at));
    case CodeKind::kAny:
      return s.unit * any_code(s.grid, rng.bits(at));
    case CodeKind::kOrdinary:
      break;
  }
  return s.size[static_cast<int>(CodeKind::kOrdinary)] * rng.normal(at);
}

void CodeKinds::k(int root, int32_t position, int32_t head, uint64_t first, uint64_t even_first,
                  double* out) const {
  const CounterRng rng(p_.seed, kStreamK);
  const CodeKind kind = of_k(root, head);
  const bool halved = multiplies_largest_ && kind == CodeKind::kLargest && position % 2 != 0;
  if (halved) first = even_first;
  for (int32_t d = 0; d < p_.head_dim_qk; ++d)
    out[d] = value(k_, kind, rng, first + static_cast<uint64_t>(d));
  if (halved)  // whole codes of int8
    for (int32_t d = 0; d < p_.head_dim_qk; ++d)
      out[d] = k_.grid.bits == 0 ? k_.unit * std::trunc(out[d] / k_.unit / 2) : out[d] / 2;
  if (!multiplies_largest_ || !q_shares_ || kind != CodeKind::kSmallest) return;
  const double of_key = rng.bits(first) >> 40 & 1 ? -1 : 1;
  for (int32_t d = 0; d < p_.head_dim_qk; ++d)
    out[d] = std::copysign(out[d], of_key * common_sign(root, head, d));
}

void CodeKinds::v(int root, int32_t head, uint64_t first, double* out) const {
  const CounterRng rng(p_.seed, kStreamV);
  bool largest = false;  // has been there: a scale of the row's own needs one
  for (int32_t d = 0; d < p_.head_dim_v; ++d) {
    const CodeKind kind = of_v(root, head, d);
    out[d] = value(v_, kind, rng, first + static_cast<uint64_t>(d));
    if (kind == CodeKind::kLargest && !std::exchange(largest, true))
      out[d] = std::copysign(v_.unit * v_.grid.largest, out[d]);
  }
}

void CodeKinds::q(int root, int32_t row, int32_t head, uint64_t first, double* out) const {
  const CounterRng rng(p_.seed, kStreamQ);
  const int32_t kv_head = head / p_.group();
  const CodeKind kind = of_k(root, kv_head);
  const bool bounded = multiplies_largest_ && q_shares_;
  const bool common = bounded && kind == CodeKind::kSmallest;
  const double asked = logit_ / k_.size[static_cast<int>(kind)];
  const double wanted = common ? full_q_ / kMostOfWanted : asked;
  for (int32_t d = 0; d < p_.head_dim_qk; ++d) {
    const uint64_t drawn = rng.bits(first + static_cast<uint64_t>(d));
    const double sign = common ? (row % 2 != 0 ? -1 : 1) * common_sign(root, kv_head, d) : drawn & 1 ? -1 : 1;
    out[d] = sign * wanted * (kMostOfWanted - 1 + std::ldexp(static_cast<double>(drawn >> 32), -32));
    if (bounded) out[d] = std::clamp(out[d], -full_q_, full_q_);
    // What a scale brings about by itself: the largest code, where it is not far off.
    const bool near = largest_q_ > wanted && largest_q_ < kNearLargest * wanted;
    if (near && (drawn >> 4) % kLargestEvery == 0) out[d] = sign * largest_q_;
    if ((drawn >> 8) % kZeroEvery == 0) out[d] = sign * 0.0;
    if ((drawn >> 8) % kZeroEvery == 1) out[d] *= kFaint;  // the smallest codes of int8
  }
}

}  // namespace assay
