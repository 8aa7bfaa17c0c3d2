// SPDX-License-Identifier: Apache-2.0
// Orders in which V has no say (bounds_blind.hpp), for the rows of a block of the matrix form, in weights
// relative to exp(m).
#pragma once

#include <optional>
#include <vector>

#include "reference/bounds/bounds_blind.hpp"
#include "reference/bounds/bounds_facts.hpp"
#include "reference/bounds/bounds_group.hpp"
#include "reference/bounds/bounds_products.hpp"
#include "reference/bounds/bounds_weights.hpp"

namespace assay::matrix_bounds {

class BlindRows {
 public:
  explicit BlindRows(const Block& b)
      : b_(b), window_(window_keys(b.p.requests[b.request].kv_len, b.model.arithmetic().splits)) {}
  // Row `s` with scores x: how often its maximum may rise, where its weight is halved.
  void look(const BlockRow& row, const double* x, RowSums& s) {
    if (row.seen == 0 || !b_.model.blind(b_.order.declared(), s.terms.updates)) return;
    const double lag = b_.model.arithmetic().rescale_lag_log2,
                 slack = moving_slack(s.random, lag, s.slack, s.largest_random);
    s.ranks = rank_sums(x, b_.keys(), s.m, slack, s.terms.updates);
    if (b_.p.sinks || s.terms.updates <= kFewUpdates) s.ranks.first = s.ranks.second = s.ranks.largest = 0;
    on_ = true;
  }
  bool on() const { return on_; }
  void start(const std::vector<RowSums>& rows, Eigen::Index channels) {
    if (!on_) return;
    const auto count = static_cast<Eigen::Index>(rows.size());
    signs_.emplace(channels, window_);
    above_ = MatrixF::Zero(count, kTileKeys), by_score_ = MatrixF::Zero(count, channels);
    stretches_.resize(rows.size()), windows_.resize(rows.size());
    for (size_t i = 0; i < rows.size(); ++i)
      stretches_[i].start(channels, rows[i].weight), windows_[i].start(channels, rows[i].weight);
  }
  // V of the keys from .. from + count - 1.
  void load(int64_t from, int64_t count, const Matrix& v) {
    for (int64_t j = 0; on_ && j < count; ++j) signs_->add(from + j, v.row(j).data());
  }
  // Their weights, which are those of the keys `at` .. of the block; V is `size` times v.
  void add(Eigen::Index at, int64_t count, const MatrixF& weights, const RightFactor<float>& v, float size,
           std::vector<RowSums>& rows) {
    if (!on_) return;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<Eigen::Index>(i);
      const double *x = b_.x.row(row).data() + at, middle = rows[i].ranks.middle;
      const float* weight = weights.row(row).data();
      float* above = above_.row(row).data();
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < count; ++j) {
        above[j] = x[j] > middle ? weight[j] : 0.0f;
        sum += static_cast<double>(above[j]);
      }
      rows[i].above += sum;
    }
    add_product(above_.data(), kTileKeys, above_.rows(), v, size, by_score_.data(), by_score_.cols());
  }
  // `sum`: P V of all keys so far.
  void end_stretch(const KeySpan& span, const Matrix& sum, const std::vector<RowSums>& rows) {
    const bool ends_window = span.to % window_ == 0 || span.to == b_.end;
    for (size_t i = 0; on_ && i < rows.size(); ++i) {
      const double* all = sum.row(static_cast<Eigen::Index>(i)).data();
      stretches_[i].end(all, rows[i].weight);
      if (ends_window) windows_[i].end(all, rows[i].weight);
    }
  }
  void end() {
    if (signs_) signs_->end();
  }
  // Of row i, channel d or the eight from d, once the rest is known; shares of DealtSums. `variance` of v.
  template <class T>
  void channel(Eigen::Index i, int32_t d, const RowFinish& y, const T& variance, const T& norm,
               const T& dealt, const T& lean, ChannelFacts<T>& c) const {
    const RowSums& s = y.s;
    const RowFacts& f = y.f;
    if (f.windows == 0) return;
    const auto row = static_cast<size_t>(i);
    const double all = windows_of(b_.begin, b_.end - 1, window_), seen = static_cast<double>(y.row.seen);
    c.by_score = size_of(from_memory<T>(&by_score_(i, d)) - c.o * s.above) * y.scaled + y.signed_error * norm;
    c.stretches =
        each<T>([&](int32_t k) { return stretches_[row].of(d + k, lane(c.o, k)); }) * square(y.scaled);
    c.windows =
        root(T(f.windows * each<T>([&](int32_t k) { return windows_[row].of(d + k, lane(c.o, k)); }))) *
        y.scaled;
    c.signs = larger(each<T>([&](int32_t k) { return signs_->most(d + k, all) / seen; }), lean) +
              larger(every<T>(0), T(dealt - lean)) + 2 * c.by_score / larger(norm, every<T>(1e-300));
    c.apart = s.alike_weight * y.inverse * variance;
    // Half a step of P is no less than its share of each weight.
    if (b_.model.p_rounding().narrow && f.rounding_relative > 0) {
      const T of_steps =
          (root(c.rounding_variance) + (y.joint ? 0 : y.h_norm) * size_of(c.o)) / f.rounding_relative;
      c.apart =
          smaller(c.apart, T(square(of_steps) + square(c.known - c.o * f.known) + square(f.sink * c.o)));
    }
    c.passed = square(s.terms.updates) * c.apart;
    if (s.ranks.largest > 0)
      c.passed = smaller(c.passed, T(s.ranks.largest * s.most_alike * y.inverse * variance));
  }

 private:
  const Block& b_;
  int64_t window_;
  bool on_ = false;
  MatrixF above_, by_score_;  // weights of large scores, and their sums of v
  std::vector<StretchSquares> stretches_, windows_;
  std::optional<SignWindows> signs_;
};

}  // namespace assay::matrix_bounds
