// SPDX-License-Identifier: Apache-2.0
// Reference values and error bounds in one pass of matrix products. Where bounds_elementwise.cpp sums over
// |v - o| this takes Cauchy-Schwarz over sum p v^2, and where it sums over h_j and 1 + E_j it takes the
// largest: never smaller, and the tests say how much larger. The magnitudes (|Q||K|, P|V|, P V^2) are
// fp32 products with their own rounding error added; the values themselves stay in double.
#include "reference/bounds.hpp"

// GCC 12 takes the undefined operands of its own AVX-512 intrinsics for uninitialised memory (bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <numeric>

#include "reference/bounds_rows.hpp"
#include "reference/bounds_terms.hpp"
#include "reference/bounds_tiers.hpp"
#include "reference/bounds_weights.hpp"
#include "reference/vector_math.hpp"

namespace assay {
namespace {

using Eigen::Index;
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixF = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr double kInf = std::numeric_limits<double>::infinity();
// Rows of one product and keys per tile: K, V and the scores of a tile stay in a 2 MiB cache at d = 128.
constexpr int64_t kStackedRows = 128;
constexpr int64_t kTileKeys = 256;
// Scores of a block are kept for the second pass; this limits them (in entries of 12 bytes).
constexpr int64_t kMostScores = int64_t{6} << 20;
// Row x key x head products below which waking other threads costs more than it saves.
constexpr double kParallelWork = 3e5;

// fp32 dot products of n non-negative terms are below the exact value by at most this factor.
double inflation(int64_t n) { return 1 + 1.01 * static_cast<double>(n + 6) * 0x1p-24; }

// A power of two that brings `largest` to about 1, so that squares stay inside the fp32 range.
double normalizer(double largest) { return largest > 0 ? std::exp2(-std::ceil(std::log2(largest))) : 1.0; }

struct StackedRow {
  int64_t selected = 0;  // index into the rows asked for
  int32_t head = 0;
};
struct Task {
  int request = 0;
  int32_t kv_head = 0;
  int64_t first = 0, count = 0;  // of its stacked rows
};

class FastBounds {
 public:
  FastBounds(const Problem& p, const HostOperands& host, const std::vector<RowId>& rows,
             const assay_arithmetic& a)
      : p_(p), operands_(p, host), model_(p, a), rows_(rows) {
    out_.value.rows = rows;
    out_.value.heads_q = p.heads_q;
    out_.value.head_dim_v = p.head_dim_v;
    out_.value.o.assign(rows.size() * p.heads_q * p.head_dim_v, 0.0);
    out_.value.lse.assign(rows.size() * p.heads_q, -kInf);
    out_.o_bound.assign(out_.value.o.size(), 0.0);
    out_.lse_bound.assign(out_.value.lse.size(), 0.0);
    for (const RowId id : rows) intervals_.push_back(key_interval(p, id));
  }

  BoundedAttention run() {
    // The blocks are the parallelism. Eigen would otherwise start threads of its own for the products of a
    // small case, and on a busy machine waiting for them costs a hundred times the product.
    Eigen::setNbThreads(1);
    plan();
    std::vector<double> growth(tasks_.size(), 0.0);
    std::exception_ptr failure;
    // Exceptions must not leave a parallel region; the first one is rethrown after it.
#pragma omp parallel for schedule(dynamic) if (work_ > kParallelWork)
    for (size_t i = 0; i < tasks_.size(); ++i) {
      try {
        growth[i] = bound(tasks_[i]);
      } catch (...) {
#pragma omp critical(assay_bounds)
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    for (double g : growth) out_.growth = std::max(out_.growth, g);
    return std::move(out_);
  }

 private:
  // Selected rows by request, all query heads of a KV head together, cut into blocks of bounded size.
  void plan() {
    std::vector<int64_t> order(rows_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return std::pair(rows_[a].request, rows_[a].row) < std::pair(rows_[b].request, rows_[b].row);
    });
    for (size_t from = 0; from < order.size();) {
      const int request = rows_[order[from]].request;
      size_t to = from;
      while (to < order.size() && rows_[order[to]].request == request) ++to;
      const int64_t keys = std::max(1, p_.requests[request].kv_len);
      work_ += static_cast<double>(to - from) * p_.heads_q * static_cast<double>(keys);
      const int64_t block =
          std::clamp<int64_t>(kMostScores / keys, std::min<int64_t>(16, p_.group()), kStackedRows);
      for (int32_t kv_head = 0; kv_head < p_.heads_kv; ++kv_head) {
        const auto first = static_cast<int64_t>(stacked_.size());
        for (size_t i = from; i < to; ++i)
          for (int32_t g = 0; g < p_.group(); ++g) stacked_.push_back({order[i], kv_head * p_.group() + g});
        const auto last = static_cast<int64_t>(stacked_.size());
        for (int64_t at = first; at < last; at += block)
          tasks_.push_back({request, kv_head, at, std::min(block, last - at)});
      }
      from = to;
    }
  }

  // Scores of one row: x with kInvisible where nothing is seen, and their error e before the maximum.
  struct Row {
    RowId id;
    int32_t head = 0;
    KeyInterval keys;
    double query_sum = 0, q_max = 0;
    int64_t seen = 0, first = -1, last = -1;
    double top = -kInf;  // largest visible score
    double slack = 0;
  };

  double bound(const Task& task) {
    const Index rows = task.count;
    const double scale = std::fabs(static_cast<double>(p_.softmax_scale));
    std::vector<Row> info(rows);
    Matrix q(rows, p_.head_dim_qk);
    int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
    for (Index i = 0; i < rows; ++i) {
      Row& row = info[i];
      const StackedRow& stacked = stacked_[task.first + i];
      row.id = rows_[stacked.selected];
      row.head = stacked.head;
      row.keys = intervals_[stacked.selected];
      operands_.q(row.id, row.head, q.row(i).data());
      row.query_sum = scale * q.row(i).cwiseAbs().sum();
      row.q_max = q.row(i).cwiseAbs().maxCoeff();
      if (row.keys.begin >= row.keys.end) continue;
      begin = std::min(begin, row.keys.begin);
      end = std::max(end, row.keys.end);
    }
    const int64_t keys = std::max<int64_t>(0, end - begin);
    if (keys == 0) begin = end = 0;
    Matrix x(rows, keys);
    MatrixF e(rows, keys);
    const double k_max = first_pass(task, info, q, begin, end, x, e);
    return second_pass(task, info, begin, end, k_max, x, e);
  }

  // Which keys of a tile some row sees; the others may be poison and are neither read nor multiplied.
  bool wanted_keys(const std::vector<Row>& info, int64_t begin, int64_t end,
                   std::vector<uint8_t>& wanted) const {
    wanted.assign(end - begin, 0);
    for (const Row& row : info) {
      const int64_t low = std::max(begin, row.keys.begin), high = std::min(end, row.keys.end);
      for (int64_t j = low; j < high; ++j) wanted[j - begin] |= p_.mask != ASSAY_MASK_TREE || sees(row, j);
    }
    return std::find(wanted.begin(), wanted.end(), 1) != wanted.end();
  }
  bool sees(const Row& row, int64_t key) const {
    const int64_t context = p_.requests[row.id.request].context_len();
    return p_.mask != ASSAY_MASK_TREE || key < context ||
           operands_.tree_visible(row.id.request, row.id.row, static_cast<int32_t>(key - context));
  }

  double first_pass(const Task& task, std::vector<Row>& info, const Matrix& q, int64_t begin, int64_t end,
                    Matrix& x, MatrixF& e) const {
    const Index rows = task.count;
    const double scale = p_.softmax_scale, magnitude = std::fabs(scale);
    const ErrorTerms plain = model_.terms(RowShape{});
    const double q_norm = normalizer(q.size() > 0 ? q.cwiseAbs().maxCoeff() : 0.0);
    const MatrixF q_abs = (q.cwiseAbs() * q_norm).cast<float>();
    Matrix k(kTileKeys, p_.head_dim_qk);
    MatrixF k_abs(kTileKeys, p_.head_dim_qk), a(rows, kTileKeys);
    std::vector<uint8_t> wanted;
    double k_max = 0;
    for (int64_t at = begin; at < end; at += kTileKeys) {
      const int64_t to = std::min(end, at + kTileKeys), count = to - at;
      auto tile_x = x.middleCols(at - begin, count);
      auto tile_e = e.middleCols(at - begin, count);
      tile_x.setConstant(ErrorModel::kInvisible);
      tile_e.setZero();
      if (!wanted_keys(info, at, to, wanted)) continue;
      for (int64_t j = 0; j < count; ++j) {
        if (wanted[j])
          operands_.k(task.request, static_cast<int32_t>(at + j), task.kv_head, k.row(j).data());
        else
          k.row(j).setZero();
      }
      const double tile_max = k.topRows(count).cwiseAbs().maxCoeff();
      k_max = std::max(k_max, tile_max);
      tile_x.noalias() = q * k.topRows(count).transpose();
      double to_a = 0;
      if (model_.needs_dot()) {
        const double k_norm = normalizer(tile_max);
        k_abs.topRows(count) = (k.topRows(count).cwiseAbs() * k_norm).cast<float>();
        a.leftCols(count).noalias() = q_abs * k_abs.topRows(count).transpose();
        // The last term covers products that fell below the fp32 range.
        to_a = magnitude / q_norm / k_norm * inflation(p_.head_dim_qk) * (1 + 0x1p-100);
      }
      for (Index i = 0; i < rows; ++i)
        finish_scores(info[i], plain, scale, to_a, at, to, a.row(i).data(), x.row(i).data() + (at - begin),
                      e.row(i).data() + (at - begin));
    }
    return k_max;
  }

  // Dot products to final scores and their errors, for one row in one tile.
  void finish_scores(Row& row, const ErrorTerms& t, double scale, double to_a, int64_t at, int64_t to,
                     const float* a, double* x, float* e) const {
    const int64_t low = std::clamp(row.keys.begin, at, to) - at, high = std::clamp(row.keys.end, at, to) - at;
    std::fill(x, x + low, ErrorModel::kInvisible);
    std::fill(x + std::max(low, high), x + (to - at), ErrorModel::kInvisible);
    if (low >= high) return;
    const double dot = t.dot * to_a, score = t.score;
    // Errors are stored as floats, one unit up.
    constexpr float kUp = 1 + 0x1p-22f;
    if (p_.softcap > 0) {
      const double cap = p_.softcap, inverse = 1 / cap;
      for (int64_t j = low; j < high; ++j) {
        const double s = x[j] * scale;
        const double error = dot * a[j] + score * std::fabs(s);
        const double near = std::max(0.0, std::fabs(s) - error) * inverse;
        const double slope = vector_math::tanh(near);
        x[j] = cap * vector_math::tanh(s * inverse);
        e[j] = kUp * static_cast<float>(error * (1 - slope * slope) + std::fabs(x[j]) * t.cap_relative +
                                        t.bias_score * std::fabs(s) + t.bias_relative * std::fabs(x[j]));
      }
    } else if (to_a > 0) {
      for (int64_t j = low; j < high; ++j) {
        x[j] *= scale;
        e[j] =
            kUp * static_cast<float>(dot * a[j] + (score + t.bias_score + t.bias_relative) * std::fabs(x[j]));
      }
    } else {
      for (int64_t j = low; j < high; ++j) {
        x[j] *= scale;
        e[j] = kUp * static_cast<float>((score + t.bias_score + t.bias_relative) * std::fabs(x[j]));
      }
    }
    if (p_.alibi != ASSAY_ALIBI_NONE) {
      const double slope = operands_.alibi_slope(row.head);
      const int64_t position = row_position(p_, row.id);
      for (int64_t j = low; j < high; ++j) {
        const double bias = position_bias(p_, slope, position - at - j);
        x[j] += bias;
        // |x + b| <= |x| + |b|: the |x| part is in e already.
        e[j] += kUp * static_cast<float>(2 * t.bias_relative * std::fabs(bias));
      }
    }
    if (p_.mask == ASSAY_MASK_TREE)
      for (int64_t j = low; j < high; ++j)
        if (!sees(row, at + j)) x[j] = ErrorModel::kInvisible;
    for (int64_t j = low; j < high; ++j) {
      if (x[j] <= ErrorModel::kInvisible) continue;
      row.top = std::max(row.top, x[j]);
      row.slack = std::max(row.slack, 2.0 * e[j]);
    }
    if (p_.mask != ASSAY_MASK_TREE) {
      row.seen += high - low;
      if (row.first < 0) row.first = at + low;
      row.last = at + high - 1;
      return;
    }
    for (int64_t j = low; j < high; ++j) {
      if (x[j] <= ErrorModel::kInvisible) continue;
      ++row.seen;
      if (row.first < 0) row.first = at + j;
      row.last = at + j;
    }
  }

  double second_pass(const Task& task, const std::vector<Row>& info, int64_t begin, int64_t end, double k_max,
                     const Matrix& x, const MatrixF& e) {
    const Index rows = task.count, dv = p_.head_dim_v;
    std::vector<RowSums> sums(rows);
    double v_max = 0, growth = 0;
    for (Index i = 0; i < rows; ++i) {
      if (info[i].seen == 0 && !p_.sinks) continue;
      start_row(info[i], k_max, x.row(i).data(), x.cols(), sums[i]);
      growth = std::max(growth, sums[i].terms.growth);
    }

    // With P rounded relatively, sum h|v| is u_P sum p|v|; with a floor it needs weights of its own.
    const bool separate = !model_.p_is_relative();
    Matrix v(kTileKeys, dv), weights(rows, kTileKeys), acc = Matrix::Zero(rows, dv),
                                                       magnitude = Matrix::Zero(rows, 2 * dv),
                                                       rounded = Matrix::Zero(separate ? rows : 0, dv);
    MatrixF v_sizes(kTileKeys, 2 * dv), weights_f(rows, kTileKeys), floors(separate ? rows : 0, kTileKeys),
        product(rows, 2 * dv);
    std::vector<uint8_t> wanted;
    for (int64_t at = begin; at < end; at += kTileKeys) {
      const int64_t to = std::min(end, at + kTileKeys), count = to - at;
      if (!wanted_keys(info, at, to, wanted)) continue;
      for (int64_t j = 0; j < count; ++j) {
        if (wanted[j])
          operands_.v(task.request, static_cast<int32_t>(at + j), task.kv_head, v.row(j).data());
        else
          v.row(j).setZero();
      }
      const double tile_max = v.topRows(count).cwiseAbs().maxCoeff(), v_norm = normalizer(tile_max);
      v_max = std::max(v_max, tile_max);
      v_sizes.topLeftCorner(count, dv) = (v.topRows(count).cwiseAbs() * v_norm).cast<float>();
      v_sizes.topRightCorner(count, dv) = v_sizes.topLeftCorner(count, dv).cwiseAbs2();
      for (Index i = 0; i < rows; ++i)
        weigh(sums[i], model_.rounded_row_sum(), x.row(i).data() + (at - begin),
              e.row(i).data() + (at - begin), count, weights.row(i).data(),
              separate ? floors.row(i).data() : nullptr);
      weights_f.leftCols(count) = weights.leftCols(count).cast<float>();
      acc.noalias() += weights.leftCols(count) * v.topRows(count);
      product.noalias() = weights_f.leftCols(count) * v_sizes.topRows(count);
      magnitude.leftCols(dv) += product.leftCols(dv).cast<double>() / v_norm;
      magnitude.rightCols(dv) += product.rightCols(dv).cast<double>() / (v_norm * v_norm);
      if (separate) {
        product.leftCols(dv).noalias() = floors.leftCols(count) * v_sizes.topLeftCorner(count, dv);
        rounded += product.leftCols(dv).cast<double>() / v_norm;
      }
    }
    for (Index i = 0; i < rows; ++i) {
      if (info[i].seen == 0 && !p_.sinks) continue;
      const int64_t slot = stacked_[task.first + i].selected * p_.heads_q + info[i].head;
      finish_row(info[i], sums[i], v_max, acc.row(i).data(), magnitude.row(i).data(),
                 separate ? rounded.row(i).data() : nullptr, slot);
    }
    return growth;
  }

  void start_row(const Row& row, double k_max, const double* x, Index count, RowSums& s) const {
    if (p_.sinks) s.sink = operands_.sink(row.head);
    s.m = row.seen > 0 ? std::max(row.top, s.sink) : s.sink;
    RowShape shape;
    shape.keys = row.seen;
    shape.span = row.seen > 0 ? row.last - row.first + 1 : 0;
    shape.top = std::max(row.seen > 0 ? std::fabs(row.top) : 0.0, p_.sinks ? std::fabs(s.sink) : 0.0);
    if (model_.needs_lse()) {
      double sum = p_.sinks ? std::exp(s.sink - s.m) : 0.0;
      for (Index j = 0; j < count; ++j) sum += vector_math::exp(std::max(x[j] - s.m, -kFar));
      shape.lse_abs = std::fabs(s.m + std::log(sum));
    }
    shape.query_sum = row.query_sum;
    shape.corner = std::fabs(p_.softmax_scale) * row.q_max * k_max;
    shape.top_weight = 1;  // weights here are relative to exp(m); finish_row divides by their sum
    shape.updates = model_.updates(shape.span, row.seen, x, count, row.slack, p_.sinks);
    s.terms = model_.terms(shape);
    s.floor = s.terms.p_floor;
    if (p_.sinks) {
      const double weight = std::exp(s.sink - s.m);
      const double w =
          expm1_above(s.terms.score * std::fabs(s.sink) + s.terms.distance * (s.m - s.sink) + s.terms.fixed);
      s.weight = weight;
      s.error = weight * w;
      s.square = weight * w * w;
    }
  }

  void finish_row(const Row& row, const RowSums& s, double v_max, const double* acc, const double* magnitude,
                  const double* rounded, int64_t slot) {
    const ErrorTerms& t = s.terms;
    const double inverse = 1 / s.weight;
    const double lse = s.m + std::log(s.weight);
    double beta = s.error * inverse;
    const double h_sum = s.rounding * inverse;
    const double top = std::max(row.seen > 0 ? std::fabs(row.top) : 0.0, p_.sinks ? std::fabs(s.sink) : 0.0);
    out_.value.lse[slot] = lse;
    const bool joint = model_.rounded_row_sum();
    out_.lse_bound[slot] = std::log1p(beta) + t.theta + kLogAbsolute + 4 * kUnit * (std::fabs(lse) + top) +
                           (joint ? h_sum : 0.0);
    if (row.seen == 0) return;  // only a sink: O = 0 exactly
    if (joint) beta += h_sum;
    const double remaining = 1 - beta - t.theta;
    const double up = inflation(kTileKeys), square = s.square * inverse;
    for (int32_t d = 0; d < p_.head_dim_v; ++d) {
      const double o = acc[d] * inverse;
      const double mass = magnitude[d] * inverse * up;
      const double second = magnitude[p_.head_dim_v + d] * inverse * up * (1 + 0x1p-22);
      // Variance of v under p. The fp32 sums make it too large, never too small; it is at most `second`.
      const double variance = std::max(0.0, second - o * o);
      const double exponent = std::sqrt(square * variance);
      double rounding = 0;
      if (!joint)
        rounding = (1 + s.largest) * (rounded != nullptr ? rounded[d] * inverse * up : t.p_relative * mass) +
                   (rounded != nullptr ? 0.0 : s.floor * inverse * static_cast<double>(row.seen) * v_max);
      const int64_t at = slot * p_.head_dim_v + d;
      out_.value.o[at] = o;
      out_.o_bound[at] = remaining > 0
                             ? (exponent + rounding + t.pv * mass * (1 + s.largest) +
                                (t.theta + t.quotient) * std::fabs(o) + t.absolute + t.absolute_v * v_max) /
                                   remaining
                             : kInf;
    }
  }

  const Problem& p_;
  const OperandReader operands_;
  const ErrorModel model_;
  const std::vector<RowId>& rows_;
  std::vector<KeyInterval> intervals_;  // of rows_
  std::vector<StackedRow> stacked_;
  std::vector<Task> tasks_;
  BoundedAttention out_;
  double work_ = 0;
};

}  // namespace

BoundedAttention bounded_attention(const Problem& problem, const HostOperands& operands,
                                   const std::vector<RowId>& rows, const assay_arithmetic& arithmetic) {
  BoundedAttention out = FastBounds(problem, operands, rows, arithmetic).run();
  intersect_tiers(out);
  return out;
}

}  // namespace assay
