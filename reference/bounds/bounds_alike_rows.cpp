// SPDX-License-Identifier: Apache-2.0
// See bounds_alike_rows.hpp.
#include "reference/bounds/bounds_alike_rows.hpp"

#include "reference/bounds/bounds_finish.hpp"

namespace assay::matrix_bounds {

AlikeScores::AlikeScores(bool coarse, int64_t rows, int64_t keys)
    : coarse_(coarse),
      keys_(keys),
      counted_(static_cast<size_t>(rows), 0),
      repeated_(static_cast<size_t>(rows)) {
  if (coarse) counts_.resize(rows, keys);
}

void AlikeScores::start(int64_t i, const double* x) {
  if (coarse_)
    counted_[static_cast<size_t>(i)] = count_alike(x, keys_, ErrorModel::kInvisible, counts_.row(i).data());
  else
    repeated_[static_cast<size_t>(i)].look(x, keys_, ErrorModel::kInvisible, scratch_);
}

void AlikeScores::note(int64_t i, int64_t at, int64_t count, const double* weights, RowSums& s) const {
  if (counted_[static_cast<size_t>(i)] == 0) return;
  const float* alike = counts_.row(i).data() + at;
  double most = s.most_alike, largest = s.alike_weight, sum = 0;
#pragma omp simd reduction(max : most, largest) reduction(+ : sum)
  for (int64_t j = 0; j < count; ++j) {
    const double kind = alike[j], together = weights[j] * kind;
    most = most < kind ? kind : most;
    largest = largest < together ? together : largest;
    sum += together;
  }
  s.most_alike = most, s.alike_weight = largest;
  s.alike_sum += sum;
}

void AlikeScores::spread(int64_t i, int64_t at, int64_t count, float* squares, RowSums& s) const {
  if (counted_[static_cast<size_t>(i)] == 0) return;
  const float* alike = counts_.row(i).data() + at;
  double more = 0;
#pragma omp simd reduction(+ : more)
  for (int64_t j = 0; j < count; ++j) {
    more += static_cast<double>((alike[j] - 1) * squares[j]);
    squares[j] *= alike[j];
  }
  s.rounding_square += more * (1 + 0x1p-20);
}

bool AlikeScores::structured(int64_t i, const double* x, const RowSums& s) const {
  const double weight = s.weight - s.sink_weight;
  if (coarse_) return s.alike_sum > kMostAlike * weight;
  return repeated_[static_cast<size_t>(i)].exceed(kRepeatedShare, x, keys_, s.m, weight);
}

}  // namespace assay::matrix_bounds
