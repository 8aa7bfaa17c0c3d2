// SPDX-License-Identifier: Apache-2.0
// Scores that repeat, for the rows of a block of the matrix form: counted where operands of few bits make
// them equal by chance, noticed in all others (bounds_alike.hpp).
#pragma once

#include <vector>

#include "reference/bounds/bounds_alike.hpp"
#include "reference/bounds/bounds_group.hpp"
#include "reference/bounds/bounds_weights.hpp"

namespace assay::matrix_bounds {

class AlikeScores {
 public:
  // `coarse`: ErrorModel::coarse_scores().
  AlikeScores(bool coarse, int64_t rows, int64_t keys);
  // Row i with the scores of all keys.
  void start(int64_t i, const double* x);
  // The keys at .. at + count - 1 with their weights.
  void note(int64_t i, int64_t at, int64_t count, const double* weights, RowSums&) const;
  // Squares of errors of these keys become what they add to a variance; RowSums::rounding_square has them.
  void spread(int64_t i, int64_t at, int64_t count, float* squares, RowSums&) const;
  // How many keys have the scores of key j and those behind it; null: none is like another.
  const float* kinds(int64_t i, int64_t j) const {
    return counted_[static_cast<size_t>(i)] ? counts_.row(i).data() + j : nullptr;
  }
  // How many keys have the score of key j.
  float kind(int64_t i, int64_t j) const { return counted_[static_cast<size_t>(i)] ? counts_(i, j) : 1.0f; }
  // Whether the errors of the row repeat with its scores, those of start().
  bool structured(int64_t i, const double* x, const RowSums&) const;

 private:
  bool coarse_;
  int64_t keys_;
  MatrixF counts_;                // of each key, how many have its score
  std::vector<uint8_t> counted_;  // of a row; 0: all are alone
  std::vector<RepeatedScores> repeated_;
  RepeatedScores::Scratch scratch_;
};

}  // namespace assay::matrix_bounds
