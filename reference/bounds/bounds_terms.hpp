// SPDX-License-Identifier: Apache-2.0
// From a declared arithmetic to the coefficients of the error bound. Every term of BOUNDS.md is stated
// here, once, as a number that multiplies something measured on the data; the fast and the element-wise
// bound only differ in how they sum. To cover a new kind of rounding, add its coefficient here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "harness/problem/problem.hpp"
#include "reference/attention/operands.hpp"
#include "reference/bounds/bounds_chain.hpp"
#include "reference/bounds/bounds_heavy.hpp"
#include "reference/bounds/bounds_rounding.hpp"
#include "reference/bounds/bounds_steps.hpp"

namespace assay {

inline constexpr double kUnit = 0x1p-24;  // unit roundoff of fp32
// Weights below this the fp32 replay may take for zero or for unrounded; what roundings of P by less leave is
// left out. Tier R allows for that much of every key.
inline constexpr double kUnseenWeight = 0x1p-116;
inline constexpr double kTiny = 0x1p-126;        // what flush-to-zero loses at most
inline constexpr double kReciprocal = 0x1p-23;   // hardware reciprocal (with one Newton step on a CPU)
inline constexpr double kLogAbsolute = 0x1p-21;  // logarithm of the row sum, absolute, where undeclared

// What of one (row, head) the coefficients depend on.
struct RowShape {
  int64_t keys = 0;      // visible
  int64_t span = 0;      // last - first visible key + 1; > keys for tree masks
  int64_t updates = 0;   // running-maximum updates a key's weight can go through
  MergeLevels levels;    // of the row's request
  double top = 0;        // max(|largest score|, |sink|)
  double lse_abs = 0;    // at least |LSE|
  double lse_above = 0;  // LSE - the largest score or the sink, whichever is more
  double query_sum = 0;  // softmax_scale * sum_t |q_t|
  double key_sum = 0;    // softmax_scale * the largest sum_t |k_jt|
  double shift = 0;   // bias of the form slope x column: how large its numbers get; top and lse_abs hold it
  double corner = 0;  // softmax_scale * aligned_subnormal(): of Q and K in a tensor core
  double underflow = 0;   // largest a_j times lost_of_factors() of its key
  double gain = 1;        // largest gain_of_scales()
  double top_weight = 0;  // exp(top score - LSE): weight of P = 1 (before the offset)
  double slack = 0;       // errors of two scores together, so what two of them may be nearer or farther apart
  bool generic =
      true;  // partial sums of the dot products are no larger than products in generic order make them
  bool shared = false;    // errors of fp32 dot products are those of many keys at once (bounds_shared.hpp)
  int64_t q_repeats = 1;  // how often the same mantissa is found in Q: equal numbers round alike
};

// E_j = dot * a_j + score * |s_j| + distance * |x_j - m| + fixed, with the soft cap and the position
// bias in between (see log_error): a_j = scale sum|q k|, s_j the scaled dot product, x_j the final score.
struct ErrorTerms {
  double dot = 0, score = 0, distance = 0, fixed = 0;
  double cap_relative = 0, cap_absolute = 0;  // soft cap: on |x|, and by itself
  double score_fixed = 0;                     // the part of `fixed` that differs between keys
  double bias_score = 0, bias_relative = 0;   // position bias: on |s|, and on |x| + |b|
  // Rounding of P: h_j = min(p_j, p_relative p_j + p_floor), p_floor in normalised weight.
  double p_relative = 0, p_floor = 0;
  double pv = 0;                        // on sum p|v|: accumulation, rescales, partials, V's own rounding
  double absolute = 0, absolute_v = 0;  // on one and on max|v|: subnormals, flushed products
  // Alignment of subnormals: of P, on max|v|, and of V, on its smallest normal number.
  double aligned_p = 0, aligned_v = 0;
  double theta = 0;     // relative error of the row sum
  double quotient = 0;  // relative error of the final division and scaling
  double growth = 0;    // accumulated truncation of the longest chain
  // The parts of pv, for sharper statements about a declared order: the chain over keys, rescales and V's
  // rounding, and partial results.
  double chain = 0, v_relative = 0, rescales = 0, parts = 0;
  double chain_growth = 0, moved = 0;    // c of the chain; of moving what was added up apart to fp32
  double updates = 0, chain_length = 0;  // rescales a weight goes through; additions of the row sum
  // Weights relative to an LSE (BOUNDS.md, L18 and L19). Of P: rounding the LSE once more, relative and
  // absolute. Merges: on every part's share of O, in all levels; the last level's LSE, which all of O shares;
  // and on max|v|, of parts that are far below.
  double lse_relative = 0, lse_absolute = 0;
  double merge_weights = 0, merge_lse = 0, merge_far = 0;
};

// What tiers P and R take for random, and what for systematic (BOUNDS.md). The dot product's errors scale
// with C_j = sqrt(s_j^2 + 2 r_j^2), r_j = scale sqrt(sum (q k)^2): the size of its partial sums in a generic
// order.
struct RandomTerms {
  double dot_systematic = 0, dot_variance = 0;  // on C_j and C_j^2
  // In place of dot_systematic where it is less: on C_j and the products that the unit may cut
  // (ErrorModel::counts_cuts(), bounds_fits.hpp); 0 where nothing is counted.
  double cut_systematic = 0;
  double factor = 0, score_variance = 0;        // on |s_j| (a common factor the shift does not cancel), s_j^2
  double cap_systematic = 0, cap_variance = 0;  // on the capped score and its square
  double cap_fixed = 0;                         // the tanh's absolute error
  double bias_variance = 0;                     // on (|s| + |x| + |b|)^2
  double fixed_systematic = 0, fixed_variance = 0;        // absolute
  double distance_systematic = 0, distance_variance = 0;  // on |x_j - m| and its square
  double aligned_variance = 0;  // PV of few bits: share of the square of what aligning subnormals may cut off
  double top_weight = 1;        // ErrorTerms::aligned_p is of a row whose largest weight is this
  double farther = 0;           // error of a key per unit of distance from the maximum: a long position bias
  double eps = 0;               // the exponential, systematic for the LSE
  double tile_shared = 0;       // per update of the running maximum: rescale factor, rounded maxima
  // Undeclared order, per update: what numerator and row sum share, a factor of which the new maximum alone
  // was rounded, and what each has of its own.
  double update = 0, update_apart = 0;
  double top_rounding = 0;  // of the running maximum once per row: LSE and leaders see it
  double merge = 0;         // weight of a split, from its stored LSE: |LSE_s| <= max(|LSE|, top) + |x_j - m|
  double merge_distance = 0;             // on the distance in that
  double theta_sigma = 0, quotient = 0;  // row sum (standard deviation), quotient
  double theta_systematic = 0;           // row sum by a tensor core: truncation of what is never negative
  double v_relative = 0, partial = 0;    // V's own rounding; of a stored partial result

  double argument = 0;  // hard error of the exponential's argument, on |x_j - m_t| + lag + offset

  // Error of one score: c2 = C_j^2, s and capped (0 without a cap) and biased = |s| + |x| + |b| in magnitude.
  // cuts: how many of its products the unit may cut (negative: any).
  double systematic(double c2, double s, double capped, double slope, double cuts = -1) const {
    const double dot =
        cut_systematic > 0 && cuts >= 0 ? std::min(dot_systematic, cut_systematic * cuts) : dot_systematic;
    return slope * (dot * std::sqrt(c2) + factor * s) + cap_systematic * capped + cap_fixed +
           fixed_systematic;
  }
  double variance(double c2, double s, double capped, double biased, double slope) const {
    return slope * slope * (dot_variance * c2 + score_variance * s * s) + cap_variance * capped * capped +
           bias_variance * biased * biased + fixed_variance;
  }
};

// Error of accumulating one group of keys, on C (the largest partial sum met in it) and M (the largest term
// of an alignment), and on their squares. M = C + half the group's sum p|v|, or that sum itself where the
// group is added up apart, from nothing.
struct GroupTerms {
  double hard_c = 0, hard_m = 0, systematic_c = 0, systematic_m = 0, variance_c = 0, variance_m = 0;
  bool apart = false;
};

// The most that a product with a subnormal operand is aligned at, given the largest operands and the sizes at
// which subnormals of each are aligned (0: there are none).
inline double aligned_subnormal(double a, double a_normal, double b, double b_normal) {
  return std::max(a_normal * std::max(b, b_normal), b_normal * std::max(a, a_normal));
}

// What a tensor core takes for the size of an operand below the normal range of its format: it aligns
// subnormals as if their exponent were that of the smallest normal number (seen on an H200, mma.sync fp16).
struct SmallestNormal {
  double value = 0;     // of the format that is multiplied; 0 where the range below is no smaller than fp32's
  bool scaled = false;  // times the operand's stored scale, which is applied outside the product
  bool by_channel = false;  // of Q: over the smallest scale of K that Q took
};

// How V is stored; in MLA it is the first part of K's vector, under K's scale.
struct StoredV {
  int32_t format, scale;  // enum assay_format, assay_scale
};
StoredV stored_v(const Problem&);

// Whether the scales of V, one for each token, go into P before P is rounded
// (assay_arithmetic::dequant_format).
bool p_takes_scales(const Problem&, const assay_arithmetic&);

class ErrorModel {
 public:
  // followed: matrix units of many bits, too, are run on the data (bounds_steps.hpp). p_factor: the smallest
  // factor that a weight takes before P is rounded (smallest_factor_of_p), to which P's floor is relative.
  ErrorModel(const Problem&, const assay_arithmetic&, bool followed = false, double p_factor = 1);
  ErrorTerms terms(const RowShape&) const;
  RandomTerms random_terms(const RowShape&, const ErrorTerms&) const;
  // Of a group of `keys` visible keys in `tiles` tiles.
  GroupTerms group(int64_t keys, int64_t tiles) const;
  // False where products are dealt to several lanes: partial sums of a lane are not those of the row.
  bool sums_in_order() const { return arithmetic_.pv.kind != ASSAY_ACC_FMA || arithmetic_.pv.block <= 1; }
  // Whether sums by class of V's keys say how large partial sums may be: of an undeclared order, and of lanes
  // that hold every n-th key whatever the order of tiles.
  bool deals(bool declared) const { return !declared || !sums_in_order(); }

  // Updates of the running maximum: bounded by the tiles, and for a declared order also by the records of
  // the score sequence (an update needs a key above everything before it). `scores` holds -inf or below
  // kInvisible where a key is invisible; two scores closer than `slack` may compare either way.
  static constexpr double kInvisible = -1e200;
  int64_t updates(int64_t span, int64_t keys, const double* scores, int64_t count, double slack,
                  bool sink) const;

  // True when h_j is u_P p_j for every key that matters: the floor is below the fp32 range.
  bool p_is_relative() const { return p_eta_ <= kTiny / p_factor_; }
  bool rounded_row_sum() const { return arithmetic_.row_sum_from_rounded_p != 0; }
  const PRounding& p_rounding() const { return p_rounding_; }
  // Of key `index` of its tile (negative: of any): the exponential may alternate between two implementations.
  double eps(int64_t index) const {
    const int32_t every = arithmetic_.exp_poly_every;
    if (every <= 0 || (tiles_known_ && index >= 0 && index % every != every - 1))
      return arithmetic_.exp_relative_error;
    return std::max(arithmetic_.exp_relative_error, arithmetic_.exp_poly_relative_error);
  }
  double largest_eps() const { return eps(-1); }
  // How far below a row's largest score its running maximum may have stayed.
  double lag() const { return std::max(0.0, arithmetic_.rescale_lag_log2) * M_LN2; }
  // Absolute error of the logarithm of a row sum, where LSE and maximum are together at most `size`.
  double log_error(double size) const {
    const bool undeclared = arithmetic_.log_absolute_error == 0 && arithmetic_.log_relative_error == 0;
    const double stale =
        (std::max(0.0, arithmetic_.rescale_lag_log2) + std::fabs(arithmetic_.p_offset_log2)) * M_LN2;
    return (undeclared ? kLogAbsolute : arithmetic_.log_absolute_error) +
           arithmetic_.log_relative_error * (size + stale);
  }
  // P is rounded once, so the rounding can be repeated and its floor is that of the tile's own maximum.
  // Against the LSE of a part it stands anywhere on its grid.
  bool rounds_p_once() const {
    return arithmetic_.p_roundings <= 1 && !(weights_of_lse() && arithmetic_.splits > 1);
  }
  // The largest partial sums of a row: of its dot products, given scale ||q|| and the largest ||k||, and of P
  // V; infinite where values that are dequantised to a format of their own, results of parts or the
  // LSEs of parts (`lse`: RowFacts::stored_lse()) do not fit into theirs.
  double largest_sum(double scaled_q_norm, double k_norm, int64_t keys, double k_max, double v_max,
                     double lse = 0) const;
  // How far exponents of a row may be above 0 before a weight leaves the range of P's format, or the sum of
  // all weights, or of their products with V, that of fp32.
  double room_of_weights(int64_t keys, double v_max) const;
  const SmallestNormal& q_normal() const { return q_normal_; }
  const SmallestNormal& k_normal() const { return k_normal_; }
  const SmallestNormal& v_normal() const { return v_normal_; }
  // Lanes that weights and keys are dealt to, each with a sum of its own: where weights are small beside a
  // sum.
  double row_sum_lanes(int64_t span, int64_t keys) const;
  double pv_lanes() const {
    return arithmetic_.pv.kind == ASSAY_ACC_FMA ? std::max(1, arithmetic_.pv.block) : 1;
  }
  // The last bit that pv keeps of the largest term of a sum.
  double pv_kept() const {
    return arithmetic_.pv.kind == ASSAY_ACC_BLOCK ? std::ldexp(1.0, -arithmetic_.pv.fraction_bits) : 0.0;
  }
  // Whether what an order makes of V is looked at (bounds_blind.hpp), given the updates of a weight.
  bool blind(bool declared, double updates) const {
    return !declared && (arithmetic_.splits > 1 || updates > kFewUpdates);
  }
  // Units whose steps are followed on the data (bounds_steps.hpp).
  bool followed() const { return followed_; }
  bool follows_qk() const { return follows(arithmetic_.qk); }
  bool follows_pv() const { return follows(arithmetic_.pv); }
  // A scale of V that each key has for itself may stand in P when it is rounded: the place of no P on its
  // grid is known, not even that of exp(0). Where an order is declared P is the exponential and its offset
  // alone.
  bool scale_in_p() const { return scale_in_p_; }
  // P is exp(x - LSE) and nothing is divided by a sum: it stands on its grid against the row's LSE.
  bool weights_of_lse() const { return arithmetic_.weights_lse_format != ASSAY_FORMAT_NONE; }
  bool merges_by_lse() const {
    return arithmetic_.splits > 1 && arithmetic_.merge_lse_format != ASSAY_FORMAT_NONE;
  }
  // Whether the products that a unit of many bits may cut are counted: few of those of an 8-bit K, in units
  // that multiply what is known to the bit.
  bool counts_cuts() const {
    return coarse_scores_ && arithmetic_.qk.kind == ASSAY_ACC_BLOCK && !follows_qk() &&
           arithmetic_.q_rounding == 0 && arithmetic_.q_rounding_absolute == 0 && k_rounding_ == 0 &&
           elementwise_ == 0;
  }
  // Whether elements of Q are rounded before they are multiplied, for all keys alike.
  bool rounds_q() const { return arithmetic_.q_rounding > 0 || elementwise_q_ > 0; }
  // Scores that are sums of products of few-bit codes: equal ones are counted (count_alike()).
  bool coarse_scores() const { return coarse_scores_; }
  // Truncations of a chain whose error is at most `growth` of a sum.
  static double truncations(const assay_accumulator& unit, double growth) {
    const double f = std::ldexp(1.0, -unit.fraction_bits), m = std::ldexp(1.0, -unit.mantissa_bits);
    return std::max(1.0, growth / (m + (unit.block + 1) * f) * (unit.block + 1));
  }
  // Most of so many keys that one part holds.
  int64_t longest_part(int64_t keys) const { return part(keys); }
  int64_t estimated_tile() const { return arithmetic_.tile_keys > 0 ? arithmetic_.tile_keys : 64; }
  // Of the longest part of so many keys.
  int64_t estimated_tiles(int64_t span) const {
    return std::max<int64_t>(1, (part(span) + estimated_tile() - 1) / estimated_tile());
  }
  // RowShape::lse_abs and lse_above matter.
  bool needs_lse() const { return arithmetic_.splits > 1 || weights_of_lse(); }
  const assay_arithmetic& arithmetic() const { return arithmetic_; }

 private:
  double chain(const assay_accumulator&, int64_t products, int64_t span, int64_t restarts) const;
  bool follows(const assay_accumulator& unit) const {
    return keeps_few_bits(unit) || (followed_ && unit.kind == ASSAY_ACC_BLOCK);
  }
  // Of merging; `own`: one of RowShape::levels.
  int64_t levels(int64_t own) const { return own > 0 ? own : std::max(1, arithmetic_.partial_roundings); }
  // Most tiles that `span` consecutive keys meet within one split.
  int64_t tiles(int64_t span) const;
  // Keys of the longest split. Boundaries are the kernel's affair: equal parts, fixed-size parts and tiles
  // taken in turn all stay below twice the mean and a tile.
  int64_t part(int64_t span) const;
  assay_arithmetic arithmetic_;
  int64_t max_kv_len_ = 0, longest_part_ = 0;  // longest_part_: in keys, of parts of items
  int32_t head_dim_ = 0;
  double dot_ = 0, dot_corner_ = 0, dot_query_ = 0, score_ = 0;
  double p_relative_ = 0, p_eta_ = 0, p_factor_ = 1, v_relative_ = 0, v_eta_ = 0;
  double growth_qk_ = 0;
  bool alibi_ = false, capped_ = false, tiles_known_ = false, followed_ = false, coarse_scores_ = false,
       short_v_ = true, scale_in_p_ = false;
  double k_rounding_ = 0, elementwise_ = 0, elementwise_q_ = 0, folded_codes_ = 0, softcap_ = 0,
         softmax_scale_ = 0;
  double largest_code_ = 0;  // of a V that takes scales
  PRounding p_rounding_;
  SmallestNormal q_normal_, k_normal_, v_normal_;
};

// The size at which the unit aligns subnormals of a row's Q, in units of what was stored.
double q_normal(const ErrorModel&, const Problem&, const OperandReader&, RowId, int32_t head);

// Tiles after which what a matrix unit added up is moved to fp32 (promote_pv).
inline int64_t promotion_tiles(const assay_arithmetic& a) {
  return a.promote_pv != 0 ? std::max(1, a.promote_every) : 1;
}

// Bounds on fl() chains: (1+u)^n - 1 and its inverse together.
inline double gamma_bound(double n_u) { return n_u * std::exp(std::min(1.0, n_u)); }

}  // namespace assay
