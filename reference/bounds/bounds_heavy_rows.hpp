// SPDX-License-Identifier: Apache-2.0
// Heavy keys (bounds_heavy.hpp) in the matrix form: their sums by row and channel, in weights relative to
// exp(m).
#pragma once

#include <cmath>
#include <vector>

#include "reference/bounds/bounds_alike_rows.hpp"
#include "reference/bounds/bounds_followed.hpp"
#include "reference/bounds/bounds_group.hpp"
#include "reference/bounds/bounds_heavy.hpp"
#include "reference/bounds/bounds_weights.hpp"

namespace assay::matrix_bounds {

struct HeavyRows {
  // Sums of h|v|, h^2 v^2, and of v and v^2 times the variance of the weight; empty where no row has such
  // keys.
  Matrix size, square, first, second;

  void start(const std::vector<RowSums>& rows, Eigen::Index channels) {
    for (const RowSums& s : rows)
      if (!s.heavy.empty() && size.size() == 0)
        size = square = first = second = Matrix::Zero(static_cast<Eigen::Index>(rows.size()), channels);
  }
  // Those of row i among the keys at .. at + count - 1 of the block, whose V and weights these are.
  void add(const Block& b, Eigen::Index i, Eigen::Index at, int64_t count, const Matrix& weights,
           const MatrixF& h_square, const Matrix& v, const AlikeScores& alike, RowSums& s) {
    for (const int64_t key : s.heavy) {
      const Eigen::Index j = key - at;
      if (j < 0 || j >= count) continue;
      const double w = weights(i, j), h = h_square(i, j);
      size.row(i) += std::sqrt(h) * (1 + 0x1p-22) * v.row(j).cwiseAbs();
      square.row(i) += h * (1 - 0x1p-20) * v.row(j).cwiseAbs2();
      if (!b.model.follows_qk()) continue;
      const double variance = w * w * alike.kind(i, key) * score_variance(b, i, key, s);
      first.row(i) += variance * v.row(j), second.row(i) += variance * v.row(j).cwiseAbs2();
      s.heavy_weight += variance;
    }
  }
};

}  // namespace assay::matrix_bounds
