// SPDX-License-Identifier: Apache-2.0
// The LSE of a row: what its row sum and its logarithm may be off by, in tiers D and P and for aggregates
// (BOUNDS.md, sections 3 and 6). What the rounding of P does to a row sum of rounded P, and what may turn
// over in it, is that of O (bounds_finish.cpp).
#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds_finish.hpp"
#include "reference/bounds/bounds_infinity.hpp"

namespace assay {
// No part's row sum moves further than the weight that moves most (L16), whatever it has of the row's.
double RowBounds::moved_by_most() const {
  const double eps = model_.largest_eps();
  if (!(t_.theta < 1 && eps < 1 && row_.beta < kInf)) return kInf;
  return std::log1p(std::max(row_.largest, row_.sink_error)) / (1 - eps) - std::log1p(-t_.theta);
}

double RowBounds::lse_hard() const {
  // The row sum may be too small by all of it at once, and the logarithm falls faster than it rises.
  double moved = remaining_hard_ > 0 ? -std::log1p(-lost_hard_) : kInf;
  // However large errors are, a sum of weights moves no further than the weight that moves most (L16).
  if (!joint_) moved = std::min(moved, moved_by_most());
  return moved + model_.log_error(lse_size()) + 4 * kUnit * lse_size();
}

double RowBounds::lse_factor(double of_row) const {
  if (!of_lse_) return std::expm1(t_.merge_lse);
  // Arguments are rounded as they come out, so by a little more where the LSE is off.
  const double stored = t_.lse_relative * (std::fabs(row_.lse) + row_.shift + of_row) + t_.lse_absolute;
  return std::expm1((of_row + stored) * (1 + 8 * kUnit) + t_.merge_lse);
}

void RowBounds::set_lse_of_parts() {
  const double of_part = moved_by_most() + model_.log_error(lse_size()) + 4 * kUnit * lse_size();
  const double weighed = 1 + row_.largest, a_part = lse_factor(of_part);
  part_lse_ = a_part * weighed;
  // An LSE is further from 0 by as much as its part is below the row; shares p of it: sum p ln(1 / p).
  const assay_arithmetic& a = model_.arithmetic();
  part_far_ = (8 * kUnit + 2 * a.log_relative_error + t_.lse_relative) *
              std::log(static_cast<double>(a.splits)) * (1 + a_part) * weighed;
}

template <class T>
void RowBounds::weighed_by_lse(const T& size, const T& replayed, ElementBounds<T>& b) const {
  const double psi = by_lse_random_;
  b.d = b.d * (1 + by_lse_hard_) + by_lse_hard_ * size;
  b.p = b.p * (1 + psi) + psi * size;
  b.p_rounded = b.p_rounded * (1 + psi) + psi * size;
  b.r = b.r * (1 + psi) + psi * larger(size, replayed);
  // One number for all channels of a row, so all of it may be a lean.
  b.bias = b.bias * (1 + psi) + psi * size;
  b.sigma = b.sigma * (1 + psi) + psi / 3 * size;
  b.replay_sigma = b.replay_sigma * (1 + psi) + psi / 3 * size;
  const auto part = static_cast<size_t>(of_lse_ ? BoundPart::kLogarithm : BoundPart::kMerge);
  b.parts_p[part] += psi * size, b.parts_r[part] += psi * size;
}
template void RowBounds::weighed_by_lse(const double&, const double&, ElementBounds<double>&) const;
template void RowBounds::weighed_by_lse(const Eight&, const Eight&, ElementBounds<Eight>&) const;

double RowBounds::updates_of_the_sum() const {
  return (row_.declared ? z_.tile_shared : one_update() + z_.update_apart) * std::max(row_.updated, 0.0);
}

double RowBounds::lse_systematic() const {
  const double chain = updates_of_the_sum();
  double systematic = row_.systematic + row_.score_lean + row_.eps + chain + z_.top_rounding + z_.merge +
                      merge_distance() + theta_systematic_ + 2 * kUnit * lse_size() +
                      model_.log_error(lse_size());
  if (joint_)
    systematic += row_.rounding_biased + (truncated_ ? 0.5 * row_.rounding : 0) +
                  turned<double>(row_.flips, random_row_sum());
  return systematic;
}

double RowBounds::lse_random() const {
  if (row_.structured) return kInf;
  double variance = row_.variance + square(z_.theta_sigma);
  if (joint_) variance += row_.rounding_square * rounding_share_;
  const double size = (lse_systematic() + kLambda * std::sqrt(variance)) * (1 + second_order_);  // L13
  return size < 0.5 ? -std::log1p(-size) : kInf;
}

BoundPart RowBounds::lse_mostly() const {
  double parts[kBoundParts] = {};
  const auto add = [&](BoundPart part, double size) { parts[static_cast<size_t>(part)] += size; };
  add(BoundPart::kScores, row_.systematic + row_.score_lean + kLambda * std::sqrt(row_.variance));
  add(BoundPart::kExponential, row_.eps + updates_of_the_sum() + z_.top_rounding);
  add(BoundPart::kMerge, z_.merge + merge_distance());
  add(BoundPart::kRowSum, theta_systematic_ + kLambda * z_.theta_sigma);
  add(BoundPart::kLogarithm, 2 * kUnit * lse_size() + model_.log_error(lse_size()));
  if (joint_)
    add(BoundPart::kRoundedP, row_.rounding_biased + (truncated_ ? 0.5 * row_.rounding : 0) +
                                  turned<double>(row_.flips, random_row_sum()) +
                                  kLambda * std::sqrt(row_.rounding_square * rounding_share_));
  return static_cast<BoundPart>(std::max_element(parts, parts + kBoundParts) - parts);
}

double RowBounds::lse_bias() const {
  // What the replayed rounding of P is known to add to a row sum of rounded P.
  const double lean = joint_ && narrow_ ? std::max(std::fabs(row_.replayed_sum - 1), drift_) : 0;
  const double size = (lse_systematic() + lean) * (1 + second_order_);
  return !row_.structured && size < 0.5 ? -std::log1p(-size) : kInf;
}

double RowBounds::lse_sigma() const {
  const double fp32 = kUnit * lse_size();
  const double systematic = row_.systematic + row_.score_lean + row_.eps + z_.merge + z_.top_rounding +
                            (joint_ && truncated_ ? 0.5 * row_.rounding : 0);
  return std::sqrt(row_.variance + square(z_.theta_sigma) + square(fp32) +
                   square(model_.log_error(lse_size()) / 4) / 3 + square(systematic / 3) +
                   (joint_ ? kMeanSquare * row_.rounding_square * rounding_share_ : 0));
}

bool RowBounds::weights_may_overflow() const {
  // One computed dot product stands in weight and maximum; its factors may be rounded apart.
  const double exponent = 2 * t_.score * row_.top + z_.top_rounding + z_.eps;
  return !(exponent <= model_.room_of_weights(row_.count, row_.v_max));
}

bool RowBounds::second_pass_may_overflow(bool hard) const {
  if (!of_lse_ && !(t_.merge_lse > 0)) return false;
  const double by_lse = std::log1p(hard ? by_lse_hard_ : by_lse_random_);
  const double weight =
      hard ? std::log1p(row_.largest) : row_.largest_random + z_.eps + 8 * kUnit * lse_size();
  const double exponent = std::log(row_.heaviest) + by_lse + (of_lse_ ? weight : 0.0);
  return !(exponent <= model_.room_of_weights(row_.count, row_.v_max));
}

}  // namespace assay
