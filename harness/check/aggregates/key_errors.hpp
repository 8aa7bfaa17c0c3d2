// SPDX-License-Identifier: Apache-2.0
// Errors of one row and head, seen from its keys. Rounding P puts an error on key j that moves all dimensions
// along v_j at once, so the elements of a row are not independent; and a key that was dropped or counted
// twice leaves an error along v_j - o of known size. Both need the operands, which the moments of
// aggregates.cpp do not: used for a few rows only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/attention/operands.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {

// One row and head of a bounded reference; `n` indexes BoundedAttention::value.rows.
struct RowHead {
  int64_t n = 0;
  int32_t head = 0;
  bool operator==(const RowHead&) const = default;
};

// Keys of the request that a row belongs to: what looking at the row costs, at most.
int64_t keys_of(const Problem&, const BoundedAttention&, RowHead);

// Variance of sum_d w_d e_d over what it would be with independent dimensions, for errors that come from
// relative errors of the weights: sum_j p_j^2 (v_j . w)^2 / sum_d w_d^2 sum_j p_j^2 v_jd^2. Reads K and V of
// every visible key.
double design_effect(const Problem&, const OperandReader&, const BoundedAttention&, RowHead,
                     std::span<const double> w);

// The key whose loss or repetition would explain the errors of a row best.
struct KeyMatch {
  int32_t key = -1;      // -1: none stands out
  double statistic = 0;  // standard deviations, all correlations counted
  double amplitude = 0;  // of the error along v_key - o, and what one key too few or too many leaves
  double expected = 0;
  bool dropped() const { return expected < 0; }
};
// `error` and `variance` (of the legal error, per dimension), `noise` (the part of it that is independent
// between dimensions) and `bias` (bound on its mean) hold head_dim_v values. Only keys whose amplitude is
// within kMatchTolerance of a whole key count: legal rounding of P leaves u_P of that at most.
inline constexpr double kMatchTolerance = 0.3;
KeyMatch matched_filter(const Problem&, const OperandReader&, const BoundedAttention&, RowHead,
                        std::span<const double> error, std::span<const double> variance,
                        std::span<const double> noise, std::span<const double> bias, double least_statistic);

}  // namespace assay
