// SPDX-License-Identifier: Apache-2.0
// Which arithmetic leaves a known answer no room: every rounding between the inputs and O must fall back on
// the value that all of them aim at.
#include <algorithm>
#include <bit>
#include <cmath>

#include "harness/input/exact_recipe.hpp"
#include "harness/input/inputs.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// What a sum of a known answer is like, P V and row sum alike.
struct AnswerSum {
  bool whole_terms;  // P is rounded back to a power of two before it is added
  bool rescaled;     // a part's sums are multiplied by factors that err
  int32_t digits;    // from the smallest term to the largest sum
  int64_t matches;   // terms that are not zero, at most
  int64_t keys;      // of a run
  int64_t tiles;     // in a run, each of which may begin a step anew
};

int32_t digits_of(int64_t n) { return static_cast<int32_t>(std::bit_width(static_cast<uint64_t>(n))); }

// Share of the sum that a matrix unit cuts off, of one sign at most. Nothing as long as sum and terms fit its
// bits; of a sum that was rescaled by an inexact factor its last bits in every step that adds anything, and
// of terms below the last bit of the sum all (BOUNDS.md, L3).
double cut_off(const assay_accumulator& unit, const AnswerSum& s) {
  if (unit.kind != ASSAY_ACC_BLOCK) return 0;
  const bool fits = s.whole_terms && s.digits <= std::min(unit.fraction_bits, unit.mantissa_bits);
  if (fits && !s.rescaled) return 0;
  const int64_t block = std::max(1, unit.block);
  const auto steps = static_cast<double>(std::min(s.matches, (s.keys + block - 1) / block + s.tiles));
  return steps * (std::exp2(-unit.mantissa_bits) +
                  (fits ? 1.0 : static_cast<double>(block) + 1) * std::exp2(-unit.fraction_bits));
}

}  // namespace

bool answer_binds(const Problem& p, const assay_arithmetic& a) {
  if (!answer_is_known(p.recipe)) return false;
  const auto short_format = [](int32_t f) { return f != ASSAY_FORMAT_NONE && f != ASSAY_FP32; };
  if (a.splits > 1 && (short_format(a.partial_format) || short_format(a.partial_lse_format))) return false;
  // No declaration says that exp(0) is 1 or that a reciprocal is right, so fp32 has no room for any error.
  if (p.o_format == ASSAY_FP32) return false;
  const bool dyadic = p.recipe == InputRecipe::kDyadic;
  const double exp = std::max(a.exp_relative_error, a.exp_poly_every > 0 ? a.exp_poly_relative_error : 0.0);
  // A weight a little off a power of two must round back to it, or is off by a step of P's format. The next
  // smaller number is half a step away.
  if (a.p_format != ASSAY_FP32) {
    const double half_step = a.p_format == ASSAY_INT8 ? 0.5 / 127 : format_info(a.p_format).unit_roundoff / 2;
    if (a.p_truncated ? exp > 0 : exp >= half_step) return false;
  }
  // Sums that stand are multiplied by a little less than 1, which a unit that truncates makes a whole step.
  if (a.rescale_inexact != 0 && exp > 0) return false;
  // Codes of 8 bits that Q is cast to need not hold what it spells.
  if (a.q_replayed_format != ASSAY_FORMAT_NONE && format_is_quantized(a.q_replayed_format)) return false;
  if (a.p_roundings > 1) return false;  // rescaled in between, by factors that err
  // What an LSE loses as a number goes into every weight.
  if (a.weights_lse_format != ASSAY_FORMAT_NONE || short_format(a.merge_lse_format)) return false;
  if (dyadic && (a.p_format == ASSAY_INT8 || a.q_rounding > 0 || a.q_rounding_absolute > 0 ||
                 a.q_replayed_format != ASSAY_FORMAT_NONE))
    return false;
  // Weights off by `exp` against a row sum off by as much; sums of equal numbers, which keep half of what n
  // additions may lose; quotient, scales and merge.
  constexpr double kUnit = 0x1p-24;
  const int32_t matches = std::min(p.max_kv_len(), p.recipe == InputRecipe::kExact ? 64 : 4096);
  const double sums = kUnit * (a.row_sum_chain > 0 ? std::min(a.row_sum_chain, matches) : matches) / 2;
  double worst = 2 * exp + sums + 0x1p-22;
  // Levels, or values of 2 to 8, are so many times the smallest; both sums lose of one sign.
  const int32_t spread = dyadic ? kMostLevels : p.recipe == InputRecipe::kExact ? 2 : 0;
  const int64_t keys = p.max_kv_len(), tile = a.tile_keys > 0 ? std::min<int64_t>(a.tile_keys, keys) : 1;
  const int64_t tiles = tile > 0 ? (keys + tile - 1) / tile : 0;
  AnswerSum sum{.whole_terms = a.p_format != ASSAY_FP32 && a.row_sum_from_rounded_p != 0,
                .rescaled = dyadic && tiles > 1,
                .digits = digits_of(matches - 1) + spread,
                .matches = matches,
                .keys = keys,
                .tiles = tiles};
  const double cut_of_row_sum = cut_off(a.row_sum, sum);
  sum.whole_terms = a.p_format != ASSAY_FP32;
  if (a.promote_pv != 0 && a.tile_keys > 0) {
    sum.tiles = std::min<int64_t>(tiles, std::max(1, a.promote_every));
    sum.keys = std::min(keys, sum.tiles * tile);
  }
  worst += std::max(cut_of_row_sum, cut_off(a.pv, sum));
  if (a.p_format == ASSAY_FP32) worst += kUnit * matches / 2;
  if (a.splits > 1)
    worst += std::max(1, a.partial_roundings) * (a.merge_lse_format != ASSAY_FORMAT_NONE ? 2 : 1) *
             (2 * a.exp_relative_error + 0x1p-19 + 2 * a.log_absolute_error + 20 * a.log_relative_error);
  // Dyadic: the maximum rises by a level at most so many times, and every factor errs anew.
  if (dyadic) worst += 9 * (a.exp_relative_error + 4 * kUnit);
  // From a power of two to where the rounding to the next smaller number begins; half of it for dyadic.
  const double room = format_info(p.o_format).unit_roundoff / 2;
  return worst < (dyadic ? room / 2 : room);
}

}  // namespace assay
