// SPDX-License-Identifier: Apache-2.0
// See bounds_partial.hpp. The loops are over the channels of a row and vectorise.
#include "reference/bounds/bounds_partial.hpp"

#include <algorithm>
#include <cmath>

namespace assay::matrix_bounds {

using Eigen::Index;

void PartialSums::resize(Index rows, Index channels, const Chain& chain) {
  chain_ = chain;
  if (chain) chained_.emplace(Matrix::Zero(rows, channels));
  for (MatrixF* m :
       {&in_group, &hard, &systematic, &cuts, &variance, &updated, &tile_error, &part_size, &part_far})
    m->setZero(rows, channels);
  second.setZero(rows, channels);
  groups.assign(static_cast<size_t>(rows), 0);
  part_start_.setZero(rows, channels);
  before_.setZero(rows, channels);
  for (std::vector<float>* v : {&largest_, &alignment_, &mass_, &began_})
    v->resize(static_cast<size_t>(channels));
}

void PartialSums::begin_part(const Matrix& sum) {
  part_start_ = sum;
  before_.setZero();
}

void PartialSums::end_group(Index i, const Matrix& sum, const GroupTerms& g, float weight, float updates,
                            float among, bool at_start, float scale_error) {
  const auto hard_c = static_cast<float>(g.hard_c), hard_m = static_cast<float>(g.hard_m),
             systematic_c = static_cast<float>(g.systematic_c),
             systematic_m = static_cast<float>(g.systematic_m), variance_c = static_cast<float>(g.variance_c),
             variance_m = static_cast<float>(g.variance_m);
  const Index channels = sum.cols();
  ++groups[static_cast<size_t>(i)];
  const double *now = sum.row(i).data(), *start = part_start_.row(i).data();
  double* before = before_.row(i).data();
  double* all = second.row(i).data();
  float *group = in_group.row(i).data(), *to_hard = hard.row(i).data(), *to_variance = variance.row(i).data();
  float *largest = largest_.data(), *alignment = alignment_.data(), *mass = mass_.data();
  float* began = began_.data();
  if (updates != 0) {
    float* to = updated.row(i).data();
#pragma omp simd
    for (Index d = 0; d < channels; ++d) {
      began[d] = static_cast<float>(std::fabs(before[d]) * (1 + 0x1p-22));
      to[d] += at_start ? updates * began[d] : 0.0f;
    }
  }
  const float of_largest = g.apart ? 0.0f : 1.0f, of_mass = g.apart ? 1.0f : 0.5f;
  // Partial sums lie within half the group's sum p|v| of the middle of its two ends.
#pragma omp simd
  for (Index d = 0; d < channels; ++d) {
    const double end = now[d] - start[d];
    const float ends = static_cast<float>(std::fabs(before[d] + end));
    mass[d] = std::sqrt(weight * group[d]);
    largest[d] = 0.5f * (ends + mass[d]);
    alignment[d] = of_largest * largest[d] + of_mass * mass[d];
    before[d] = end;
    all[d] += group[d];
    group[d] = 0;
    to_hard[d] += hard_c * largest[d] + hard_m * alignment[d];
    to_variance[d] += variance_c * largest[d] * largest[d] + variance_m * alignment[d] * alignment[d];
  }
  if (systematic_c != 0 || systematic_m != 0) {
    float *to = systematic.row(i).data(), *to_cuts = cuts.row(i).data();
#pragma omp simd
    for (Index d = 0; d < channels; ++d) {
      const float cut = systematic_m * alignment[d];
      to[d] += systematic_c * largest[d] + cut;
      to_cuts[d] += cut;
    }
  }
  if (updates != 0 && !at_start) {
    float* to = updated.row(i).data();
#pragma omp simd
    for (Index d = 0; d < channels; ++d)
      to[d] += std::min(updates * largest[d], updates * began[d] + among * mass[d]);
  }
  if (scale_error != 0) {
    float* to = tile_error.row(i).data();
#pragma omp simd
    for (Index d = 0; d < channels; ++d) to[d] += scale_error * mass[d];
  }
}

void PartialSums::add_links(int64_t from, int64_t to, bool seen, const Matrix& weights, const Matrix& v) {
  for (int64_t at = from, next; chained_ && at < to; at = next) {
    const int64_t end = chain_.end(at);
    next = std::min(to, end);
    if (seen)
      chained_->link.noalias() +=
          weights.middleCols(at - from, next - at) * v.middleRows(at - from, next - at);
    if (next == end) chained_->end_link();
  }
}

void PartialSums::end_chain(int64_t end) {
  if (chained_) chained_->end_link(end <= chain_.context);
}

void PartialSums::end_part(Index i, const Matrix& sum, double far) {
  const auto part = (sum.row(i) - part_start_.row(i)).cwiseAbs();
  part_far.row(i) += (part * far).cast<float>();
  part_size.row(i) += part.cast<float>();
}

}  // namespace assay::matrix_bounds
