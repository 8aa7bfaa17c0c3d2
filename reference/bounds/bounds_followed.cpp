// SPDX-License-Identifier: Apache-2.0
// See bounds_followed.hpp.
#include "reference/bounds/bounds_followed.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace assay::matrix_bounds {
namespace {

using Eigen::Index;
constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace

FollowedScores::FollowedScores(const Block& b, const Matrix& q) : b_(b), dims_(q.cols()) {
  query_.resize(q.size()), key_.resize(dims_ * kTileKeys);
  q_scale_.resize(b.rows.size());
  channels_ = channels_in_q(b.p, b.model.arithmetic(), b.operands, b.kv_head);
  const auto least = static_cast<float>(b.model.q_normal().value / replayed_unit(b.p, b.model.arithmetic()));
  for (Index i = 0; i < q.rows(); ++i) {
    const BlockRow& row = b.rows[static_cast<size_t>(i)];
    q_scale_[i] = q_code_scale(b.p, b.model.arithmetic(), b.operands, row.id, row.head);
    for (Index t = 0; t < dims_; ++t) {
      const double code = q(i, t) * channels_[t] / q_scale_[i];
      query_.set(i * dims_ + t, code, least);
      largest_q_ = std::max(largest_q_, std::fabs(code));
    }
  }
}

void FollowedScores::load(const Matrix& k, int64_t at, int64_t count, const std::vector<uint8_t>& wanted) {
  largest_k_ = 0;
  const auto least = static_cast<float>(b_.model.k_normal().value);
  for (int64_t j = 0; j < count; ++j) {
    k_scale_[j] = wanted[j] ? k_code_scale(b_.p, b_.model.arithmetic(), b_.operands, b_.request,
                                           static_cast<int32_t>(at + j), b_.kv_head)
                            : 1.0;
    for (Index t = 0; t < dims_; ++t) {
      const double code = k(j, t) / channels_[t] / k_scale_[j];
      key_.set(t * kTileKeys + j, code, least);
      largest_k_ = std::max(largest_k_, std::fabs(code));
    }
  }
}

void FollowedScores::follow(Index i, int64_t count, const double* dots, double r, float* delta,
                            float* cut) const {
  if (std::max(largest_q_, largest_k_) > kMostFollowed) {
    std::fill(delta, delta + count, static_cast<float>(kUnknownDelta));
    std::fill(cut, cut + count, 0.0f);
    return;
  }
  alignas(64) float sums[kTileKeys] = {}, squares[kTileKeys] = {};
  const assay_accumulator& unit = b_.model.arithmetic().qk;
  follow_steps(unit, dims_, &query_.value[i * dims_], &query_.top[i * dims_], key_.value.data(),
               key_.top.data(), kTileKeys, count, sums, squares);
  const double scale = b_.p.softmax_scale;
  for (int64_t j = 0; j < count; ++j) {
    const double own = scale * q_scale_[i] * k_scale_[j];
    delta[j] = static_cast<float>(own * sums[j] - scale * dots[j]);
    cut[j] =
        static_cast<float>(cut_variance(unit, dims_, squares[j], own, scale * dots[j], r) * (1 + 0x1p-22));
  }
}

FollowedValues::FollowedValues(const Block& b, Index channels) : b_(b), dv_(channels) {
  codes_.resize(kTileKeys * dv_);
  for (const BlockRow& row : b.rows) {
    const bool parts_known = b.order.declared() || row.seen == 0;
    sums_.emplace_back(b.model.arithmetic(), dv_,
                       parts_known ? 0 : b.model.estimated_tiles(row.last - row.first + 1));
  }
}

void FollowedValues::load(int64_t at, int64_t count, const Matrix& v, const std::vector<uint8_t>& wanted) {
  const auto some = std::find(wanted.begin(), wanted.end(), 1);
  if (some == wanted.end()) return;
  v_scale_ = v_code_scale(b_.p, b_.model.arithmetic(), b_.operands, b_.request,
                          static_cast<int32_t>(at + (some - wanted.begin())), b_.kv_head);
  const auto least = static_cast<float>(b_.model.v_normal().value);
  for (int64_t j = 0; j < count; ++j)
    for (Index d = 0; d < dv_; ++d) codes_.set(j * dv_ + d, v(j, d) / v_scale_, least);
  unknown_ |= v.topRows(count).cwiseAbs().maxCoeff() / v_scale_ > kMostFollowed;
}

void FollowedValues::add(Index i, int64_t t, int64_t first, int64_t at, int64_t count, double to_p,
                         const double* weights, const float* excess) {
  if (unknown_) return;
  alignas(64) float p[kTileKeys];
  float any = 0;
  for (int64_t j = 0; j < count; ++j) {
    // What was rounded comes out as it was: it has fewer bits than a float.
    p[j] =
        static_cast<float>((weights[j] + (excess != nullptr ? static_cast<double>(excess[j]) : 0.0)) * to_p);
    any = std::max(any, p[j]);
  }
  if (!(any > 0)) return;
  StepSums& sums = sums_[static_cast<size_t>(i)];
  sums.enter(t, to_p);
  sums.add(first, count, p, &codes_.value[at * dv_], &codes_.top[at * dv_], dv_);
}

void FollowedValues::end_part() {
  for (StepSums& sums : sums_) sums.end_part();
}

double FollowedValues::lean(Index i, Index d, double inverse, double whole) const {
  return unknown_ ? kInf : std::fabs(sums_[static_cast<size_t>(i)].total(d) * v_scale_ * inverse - whole);
}

double FollowedValues::variance(Index i, Index d, double inverse) const {
  const double scale = v_scale_ * inverse;
  return unknown_ ? kInf : sums_[static_cast<size_t>(i)].squares(d) / 12 * scale * scale * (1 + 0x1p-18);
}

}  // namespace assay::matrix_bounds
