// SPDX-License-Identifier: Apache-2.0
// Units of few bits (bounds_steps.hpp) in the matrix form: a block of rows against the keys of a tile.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/bounds/bounds_group.hpp"
#include "reference/bounds/bounds_steps.hpp"
#include "reference/bounds/bounds_weights.hpp"

namespace assay::matrix_bounds {

// Q and K as codes, and what the unit makes of their products.
class FollowedScores {
 public:
  FollowedScores(const Block&, const Matrix& q);
  // K of the keys at .. at + count - 1; those nobody wants are zeros.
  void load(const Matrix& k, int64_t at, int64_t count, const std::vector<uint8_t>& wanted);
  // delta and cut of these keys for row i, given the products in full and a bound of the root of their sums
  // of squared products, times the softmax scale.
  void follow(Eigen::Index i, int64_t count, const double* dots, double r, float* delta, float* cut) const;

 private:
  const Block& b_;
  Eigen::Index dims_;
  StepOperands query_, key_;
  std::vector<double> q_scale_, channels_;
  double k_scale_[kTileKeys] = {}, largest_q_ = 0, largest_k_ = 0;
};

// Row i begins: its scores are x.
void start_leads(const Block&, const BlockRow&, const double* x, RowSums&);
// It enters a tile of the keys from .. to - 1 of the block with a largest score.
void enter_leads(const Block&, Eigen::Index i, Eigen::Index from, Eigen::Index to, RowSums&);
// Sums over the keys at .. at + count - 1 and their weights; kinds: how many are alike (null: none).
void add_leads(const Block&, Eigen::Index i, Eigen::Index at, int64_t count, const double* weights,
               const float* kinds, RowSums&);
// Variance of the score of one of them.
double score_variance(const Block&, Eigen::Index i, Eigen::Index at, const RowSums&);
// For the same keys what each one's score and its maximum may be off by, in t.eps, which moves to `room`,
// instead of the most of all keys in t.window.
void key_windows(const Block&, Eigen::Index i, Eigen::Index at, int64_t count, const RowSums&,
                 TileRounding& t, float* room);
// Then: whether a leader's P is known, of weight `weight` and `key` of the tile's windows; takes its square
// out.
bool release_leader(const TileRounding&, int64_t key, double weight, float excess, float& h_square, RowSums&);
// What this makes of the row's facts.
void lead_facts(const Block&, const BlockRow&, const RowSums&, RowFacts&);

// V as codes, and what the unit makes of each row's P V.
class FollowedValues {
 public:
  FollowedValues(const Block&, Eigen::Index channels);
  void load(int64_t at, int64_t count, const Matrix& v, const std::vector<uint8_t>& wanted);
  // Of row i the keys [at, at + count) of those loaded, which begin with key `first` of tile t; weights and
  // what their rounding adds (null: nothing).
  void add(Eigen::Index i, int64_t t, int64_t first, int64_t at, int64_t count, double to_p,
           const double* weights, const float* excess);
  void end_part();
  // How far channel d of row i is from `whole`; `inverse` of the row's weight.
  double lean(Eigen::Index i, Eigen::Index d, double inverse, double whole) const;
  // What its cuts vary by (StepSums::squares over 12).
  double variance(Eigen::Index i, Eigen::Index d, double inverse) const;

 private:
  const Block& b_;
  Eigen::Index dv_;
  StepOperands codes_;
  std::vector<StepSums> sums_;
  bool unknown_ = false;  // numbers too large to be followed
  double v_scale_ = 1;
};

// Rows that are followed: what an error of the factor scale log2(e), which all keys share, moves O by. Such
// an error moves scores along their distance from the maximum.
class DistanceLean {
 public:
  DistanceLean(Eigen::Index rows, Eigen::Index channels)
      : sums_(Eigen::MatrixXd::Zero(rows, channels)), weights_(rows, 0.0) {}
  // Scores x and weights of some keys of row i with maximum m; V is `size` times v.
  template <class Scores, class Weights>
  void add(Eigen::Index i, double m, const Scores& x, const Weights& weights, const MatrixF& v, float size) {
    const Eigen::RowVectorXf p =
        (m - x.array()).min(kFar).template cast<float>() * weights.head(x.size()).array();
    weights_[static_cast<size_t>(i)] += p.cast<double>().sum();
    sums_.row(i) += ((p * v.topRows(x.size())) * size).template cast<double>();
  }
  // |sum p (m - x) (v - o)|, a sink's sum p (m - x) being `sink`.
  double lean(Eigen::Index i, Eigen::Index d, double o, double sink) const {
    return std::fabs(sums_(i, d) - o * (weights_[static_cast<size_t>(i)] + sink));
  }

 private:
  Eigen::MatrixXd sums_;
  std::vector<double> weights_;
};

}  // namespace assay::matrix_bounds
