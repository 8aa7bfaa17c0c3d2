// SPDX-License-Identifier: Apache-2.0
// From a declared arithmetic to the coefficients of the error bound. Every term of BOUNDS.md is stated
// here, once, as a number that multiplies something measured on the data; the fast and the element-wise
// bound only differ in how they sum. To cover a new kind of rounding, add its coefficient here.
#pragma once

#include <cstdint>

#include "harness/problem/problem.hpp"

namespace assay {

inline constexpr double kUnit = 0x1p-24;         // unit roundoff of fp32
inline constexpr double kTiny = 0x1p-126;        // what flush-to-zero loses at most
inline constexpr double kReciprocal = 0x1p-23;   // hardware reciprocal (with one Newton step on a CPU)
inline constexpr double kLogAbsolute = 0x1p-21;  // fp32 logarithm of the row sum, absolute

// What of one (row, head) the coefficients depend on.
struct RowShape {
  int64_t keys = 0;       // visible
  int64_t span = 0;       // last - first visible key + 1; > keys for tree masks
  int64_t updates = 0;    // running-maximum updates a key's weight can go through
  double top = 0;         // max(|largest score|, |sink|)
  double lse_abs = 0;     // at least |LSE|
  double query_sum = 0;   // softmax_scale * sum_t |q_t|
  double corner = 0;      // softmax_scale * max|q| * max|k|: alignment of subnormals in a tensor core
  double top_weight = 0;  // exp(top score - LSE): weight of P = 1 (before the offset)
};

// E_j = dot * a_j + score * |s_j| + distance * |x_j - m| + fixed, with the soft cap and the position
// bias in between (see log_error): a_j = scale sum|q k|, s_j the scaled dot product, x_j the final score.
struct ErrorTerms {
  double dot = 0, score = 0, distance = 0, fixed = 0;
  double cap_relative = 0;                   // soft cap: on |x|
  double bias_score = 0, bias_relative = 0;  // position bias: on |s|, and on |x| + |b|
  // Rounding of P: h_j = min(p_j, p_relative p_j + p_floor), p_floor in normalised weight.
  double p_relative = 0, p_floor = 0;
  double pv = 0;                        // on sum p|v|: accumulation, rescales, partials, V's own rounding
  double absolute = 0, absolute_v = 0;  // on one and on max|v|: subnormals, flushed products
  double theta = 0;                     // relative error of the row sum
  double quotient = 0;                  // relative error of the final division and scaling
  double growth = 0;                    // accumulated truncation of the longest chain
};

class ErrorModel {
 public:
  ErrorModel(const Problem&, const assay_arithmetic&);
  ErrorTerms terms(const RowShape&) const;

  // Updates of the running maximum: bounded by the tiles, and for a declared order also by the records of
  // the score sequence (an update needs a key above everything before it). `scores` holds -inf or below
  // kInvisible where a key is invisible; two scores closer than `slack` may compare either way.
  static constexpr double kInvisible = -1e200;
  int64_t updates(int64_t span, int64_t keys, const double* scores, int64_t count, double slack,
                  bool sink) const;

  // True when h_j is u_P p_j for every key that matters: the floor is below the fp32 range.
  bool p_is_relative() const { return p_eta_ <= kTiny; }
  bool rounded_row_sum() const { return arithmetic_.row_sum_from_rounded_p != 0; }
  bool needs_dot() const { return dot_ > 0; }
  bool needs_lse() const { return arithmetic_.splits > 1; }  // RowShape::lse_abs matters
  const assay_arithmetic& arithmetic() const { return arithmetic_; }

 private:
  double chain(const assay_accumulator&, int64_t products, int64_t span, int64_t restarts) const;
  // Most tiles that `span` consecutive keys meet within one split.
  int64_t tiles(int64_t span) const;
  // Keys of the longest split. Boundaries are the kernel's affair: equal parts and fixed-size parts both
  // stay below twice the mean.
  int64_t part(int64_t span) const;
  assay_arithmetic arithmetic_;
  int64_t max_kv_len_ = 0;
  double dot_ = 0, dot_corner_ = 0, dot_query_ = 0, score_ = 0;
  double p_relative_ = 0, p_eta_ = 0, v_relative_ = 0, v_eta_ = 0;
  double growth_qk_ = 0;
  bool alibi_ = false;
};

// Bounds on fl() chains: (1+u)^n - 1 and its inverse together.
double gamma_bound(double n_u);

}  // namespace assay
