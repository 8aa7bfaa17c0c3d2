// SPDX-License-Identifier: Apache-2.0
// First pass of the matrix form: scores in double, and bounds on their errors from norms alone,
// sum |q k| <= ||q|| ||k|| and sum (q k)^2 <= sqrt(sum q^4 sum k^4), which need no product of their own.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "reference/attention/vector_math.hpp"
#include "reference/bounds/bounds_fits.hpp"
#include "reference/bounds/bounds_followed.hpp"
#include "reference/bounds/bounds_group.hpp"
#include "reference/bounds/bounds_products.hpp"
#include "reference/bounds/bounds_shared.hpp"
#include "reference/bounds/bounds_underflow.hpp"

namespace assay::matrix_bounds {
namespace {

// Of the keys of one tile.
struct KeyNorms {
  float norm[kTileKeys];
  double largest_fourth = 0;
};

void measure(const Matrix& k, int64_t count, KeyNorms& n) {
  n.largest_fourth = 0;
  for (int64_t j = 0; j < count; ++j) {
    const auto squares = k.row(j).array().square();
    n.norm[j] = static_cast<float>(std::sqrt(squares.sum()) * (1 + 0x1p-22));
    n.largest_fourth = std::max(n.largest_fourth, squares.square().sum());
  }
  n.largest_fourth = std::sqrt(n.largest_fourth) * (1 + 0x1p-40);
}

// Products of q with the first `count` rows of k.
void multiply_transposed(const Matrix& q, const Matrix& k, int64_t count, RightFactor<double>& of_k,
                         Matrix& products) {
  if (q.rows() < kWorthACopy)
    return dot_products(q.data(), q.rows(), k.data(), count, k.cols(), products.data(), kTileKeys);
  of_k.lay_out_transposed(k.data(), k.cols(), count);
  set_product(q.data(), k.cols(), q.rows(), of_k, 1.0, products.data(), kTileKeys);
}

// Keys of a tile whose products are looked at one by one: which ones does not follow from the data's periods.
constexpr int64_t kLooked = 4, kLookedLater = 1;  // of the first tile, and of others

// How the products of some keys of a tile add up, for all rows at once. `q` is [row, dimension], rows
// together.
void look_at_products(Block& b, const Eigen::ArrayXXd& q, const Matrix& k, int64_t at, int64_t count,
                      int64_t keys) {
  const assay_arithmetic& a = b.model.arithmetic();
  const size_t lane_count = fp32_lanes(&a);
  Eigen::ArrayXXf lanes(q.rows(), static_cast<Eigen::Index>(lane_count));
  Eigen::ArrayXXd products(q.rows(), q.cols());
  Eigen::ArrayXd unit(q.rows()), off(q.rows());
  std::vector<double> q_scales;
  for (const BlockRow& row : b.rows) q_scales.push_back(q_code_scale(b.p, a, b.operands, row.id, row.head));
  for (int64_t n = 0; n < keys; ++n) {
    const auto mixed = static_cast<uint64_t>((at * kLooked + n + 1)) * 0x9e3779b97f4a7c15u;
    const int64_t j = static_cast<int64_t>((mixed >> 32) % static_cast<uint64_t>(count));
    Eigen::ArrayXd dot = Eigen::ArrayXd::Zero(q.rows()), largest = dot, square = dot;
    for (Eigen::Index t = 0; t < q.cols(); ++t) {
      auto product = products.col(t);
      product = q.col(t) * k(j, t);
      dot += product;
      largest = largest.max(dot.abs());
      square += product * product;
    }
    // Keys that nobody sees are zeros here, and have no scale that may be read.
    const double k_scale = k.row(j).isZero(0) ? 1
                                              : k_code_scale(b.p, a, b.operands, b.request,
                                                             static_cast<int32_t>(at + j), b.kv_head);
    std::vector<std::vector<double>> units;  // by row; neighbours mostly have one scale
    size_t most = 0;
    for (size_t i = 0; i < q_scales.size(); ++i) {
      units.push_back(i > 0 && q_scales[i] == q_scales[i - 1] ? units.back()
                                                              : product_units(b.p, &a, q_scales[i], k_scale));
      most = std::max(most, units.back().size());
    }
    off.setZero();
    for (size_t n_unit = 0; n_unit < most; ++n_unit) {
      for (Eigen::Index i = 0; i < q.rows(); ++i) {
        const std::vector<double>& of_row = units[static_cast<size_t>(i)];
        unit(i) = of_row[std::min(n_unit, of_row.size() - 1)];
      }
      lanes.setZero();
      const bool whole = (unit == 1).all();  // mostly, and a division by 1 costs as much as any
      for (Eigen::Index t = 0; t < q.cols(); ++t) {
        auto lane = lanes.col(t % static_cast<Eigen::Index>(lane_count));
        if (whole)
          lane = (lane.cast<double>() + products.col(t)).cast<float>();
        else
          lane = (lane.cast<double>() + products.col(t) / unit).cast<float>();
      }
      off = off.max((lanes.cast<double>().rowwise().sum() * unit - dot).abs());
    }
    for (Eigen::Index i = 0; i < q.rows(); ++i) {
      BlockRow& row = b.rows[static_cast<size_t>(i)];
      if (row.keys.begin <= at + j && at + j < row.keys.end)
        row.order.add(largest(i), dot(i) * dot(i) + 2 * square(i), off(i),
                      static_cast<double>(q.cols()) / static_cast<double>(lane_count));
    }
  }
}

// Which keys of the block share products, of fp32 sums.
class SharedKeys {
 public:
  SharedKeys(const Block& b, int64_t dims)
      : b_(b), places_(SharedProducts::spread(b.keys())), some_(dims), k_(static_cast<size_t>(dims)) {}
  // Of a tile with `count` keys from `at` on, those that are looked at.
  void look(const Matrix& k, int64_t at, int64_t count, const std::vector<uint8_t>& wanted) {
    for (; next_ < places_.size() && b_.begin + places_[next_] < at + count; ++next_) {
      const int64_t j = b_.begin + places_[next_] - at;
      if (j < 0 || !wanted[static_cast<size_t>(j)]) continue;
      const double scale = k_code_scale(b_.p, b_.model.arithmetic(), b_.operands, b_.request,
                                        static_cast<int32_t>(at + j), b_.kv_head);
      for (size_t d = 0; d < k_.size(); ++d) k_[d] = k(j, static_cast<Eigen::Index>(d)) / scale;
      some_.add(k_.data());
    }
  }
  // ProductOrder::together of a row with all its scores.
  double together(const BlockRow& row, const double* q, const double* x) {
    if (row.seen < 2) return 1;
    const auto dims = static_cast<int64_t>(k_.size());
    const bool some_alone = leaves_out(q, dims);
    if (!some_alone && of_all_ < 0) of_all_ = some_.common(nullptr);
    const double common = some_alone ? some_.common(q) : of_all_;
    const double heavy = heavy_keys_together(dims, q, x, b_.keys(), row.top, [&](int64_t place, double* k) {
      key_as_multiplied(b_.p, b_.model.arithmetic(), b_.operands, b_.request, b_.begin + place, b_.kv_head,
                        k);
    });
    return std::max(1 + static_cast<double>(row.seen - 1) * common, heavy);
  }

 private:
  const Block& b_;
  std::vector<int64_t> places_;
  SharedProducts some_;
  std::vector<double> k_;
  size_t next_ = 0;
  double of_all_ = -1;
};

// Products that the unit may cut, for all rows of the block.
class CountedCuts {
 public:
  CountedCuts(Block& b, const Matrix& q)
      : b_(b), dims_(q.cols()), channels_(channels_in_q(b.p, b.model.arithmetic(), b.operands, b.kv_head)) {
    q_.resize(q.rows(), dims_), k_.resize(kTileKeys, dims_);
    for (const double channel : channels_) inverse_.push_back(1 / channel);
    for (Eigen::Index i = 0; i < q.rows(); ++i) {
      const BlockRow& row = b.rows[static_cast<size_t>(i)];
      q_.set(i, dims_, q.row(i).data(), channels_.data(),
             q_code_scale(b.p, b.model.arithmetic(), b.operands, row.id, row.head));
    }
    b.cuts = MatrixF::Zero(q.rows(), b.end - b.begin);
  }
  // Of a tile with `count` keys from `at` on.
  void count(const Matrix& k, const Matrix& products, const KeyNorms& norms, int64_t at, int64_t count,
             const std::vector<uint8_t>& wanted) {
    for (int64_t j = 0; j < count; ++j)
      if (wanted[j])
        k_.set(j, dims_, k.row(j).data(), inverse_.data(),
               k_code_scale(b_.p, b_.model.arithmetic(), b_.operands, b_.request,
                            static_cast<int32_t>(at + j), b_.kv_head));
    for (size_t i = 0; i < b_.rows.size(); ++i) {
      const auto row = static_cast<Eigen::Index>(i);
      float* to = b_.cuts.row(row).data() + (at - b_.begin);
      const double* dots = products.row(row).data();
      const double scale = b_.p.softmax_scale, r2 = b_.rows[i].q_fourth * norms.largest_fourth;
      const double q_norm = b_.rows[i].q_norm;
      alignas(64) double shares[kTileKeys];
#pragma omp simd
      for (int64_t j = 0; j < count; ++j)
        shares[j] = share_of_sums(scale * dots[j] * scale * dots[j] + 2 * r2, q_norm * norms.norm[j]);
      cut_products(b_.model.arithmetic().qk, dims_, q_, row, k_, count, shares, wanted.data(), to);
    }
  }

 private:
  Block& b_;
  const int64_t dims_;
  std::vector<double> channels_, inverse_;
  LastBits q_, k_;
};

// Dot products to final scores and their errors, for one row in one tile.
void finish_scores(const Block& b, BlockRow& row, const ErrorTerms& t, int64_t at, int64_t to,
                   const KeyNorms& norms, const double* dots, double* x, float* e, float* delta,
                   const float* cut) {
  const Problem& p = b.p;
  const double scale = p.softmax_scale;
  const int64_t low = std::clamp(row.keys.begin, at, to) - at, high = std::clamp(row.keys.end, at, to) - at;
  std::fill(x, x + low, ErrorModel::kInvisible);
  std::fill(x + std::max(low, high), x + (to - at), ErrorModel::kInvisible);
  std::fill(e, e + low, 0.0f);
  std::fill(e + std::max(low, high), e + (to - at), 0.0f);
  if (low >= high) return;
  const float dot = static_cast<float>(t.dot * row.q_norm * (1 + 0x1p-22));
  const double score = t.score;
  double largest_s = 0;
  // Errors are stored as floats, one unit up.
  constexpr float kUp = 1 + 0x1p-22f;
  if (p.softcap > 0) {
    const double cap = p.softcap, inverse = 1 / cap;
    const double capped_error = (1 + t.cap_relative) * (1 + t.bias_score);
#pragma omp simd reduction(max : largest_s)
    for (int64_t j = low; j < high; ++j) {
      const double s = dots[j] * scale, size = std::fabs(s);
      largest_s = largest_s < size ? size : largest_s;
      const double error = dot * norms.norm[j] + score * size;
      const double near = std::max(0.0, size - error) * inverse;
      const double slope = vector_math::tanh(near);
      x[j] = cap * vector_math::tanh(s * inverse);
      e[j] = kUp * static_cast<float>(error * (1 - slope * slope) * capped_error +
                                      std::fabs(x[j]) * t.cap_relative + t.cap_absolute * (1 + t.bias_score) +
                                      t.bias_score * size + t.bias_relative * std::fabs(x[j]));
      if (delta != nullptr) delta[j] *= static_cast<float>(1 - slope * slope);
    }
  } else {
    const auto biased_dot = static_cast<float>(dot * (1 + t.bias_score) * (1 + 0x1p-22));
    const float on_score =
        static_cast<float>((score * (1 + t.bias_score) + t.bias_score + t.bias_relative) * (1 + 0x1p-22));
#pragma omp simd reduction(max : largest_s)
    for (int64_t j = low; j < high; ++j) {
      x[j] = dots[j] * scale;
      const double size = std::fabs(x[j]);
      largest_s = largest_s < size ? size : largest_s;
      e[j] = kUp * (biased_dot * norms.norm[j] + on_score * static_cast<float>(size));
    }
  }
  row.largest_s = std::max(row.largest_s, largest_s);
  if (delta != nullptr)
    for (int64_t j = low; j < high; ++j) {
      row.largest_delta = std::max<double>(row.largest_delta, std::fabs(delta[j]));
      row.largest_cut = std::max<double>(row.largest_cut, cut[j]);
    }
  if (p.alibi != ASSAY_ALIBI_NONE) {
    const double slope = b.operands.alibi_slope(row.head);
    const int64_t position = row_offset(p, row.id);
    for (int64_t j = low; j < high; ++j) {
      const double bias = position_bias(p, slope, position - key_offset(p, row.id.request, at + j));
      x[j] += bias;
      // |x + b| <= |x| + |b|: the |x| part is in e already.
      const double size = std::fabs(bias) + std::max(std::fabs(bias), 2 * row.shift);
      e[j] += kUp * static_cast<float>(t.bias_relative * size);
    }
  }
  if (p.mask == ASSAY_MASK_TREE) {
    for (int64_t j = low; j < high; ++j) {
      if (!b.sees(row, at + j)) {
        x[j] = ErrorModel::kInvisible;
        continue;
      }
      row.top = std::max(row.top, x[j]);
      row.slack = std::max(row.slack, 2.0 * e[j]);
      ++row.seen;
      if (row.first < 0) row.first = at + j;
      row.last = at + j;
    }
    return;
  }
  double top = row.top;
  float largest_e = 0;
#pragma omp simd reduction(max : top, largest_e)
  for (int64_t j = low; j < high; ++j) {
    top = top < x[j] ? x[j] : top;
    largest_e = largest_e < e[j] ? e[j] : largest_e;
  }
  row.top = top;
  row.slack = std::max(row.slack, 2.0 * largest_e);
  row.seen += high - low;
  if (row.first < 0) row.first = at + low;
  row.last = at + high - 1;
}

}  // namespace

bool Block::sees(const BlockRow& row, int64_t key) const { return draft_visible(p, operands, row.id, key); }

bool Block::wanted(int64_t from, int64_t to, std::vector<uint8_t>& flags) const {
  flags.assign(to - from, 0);
  for (const BlockRow& row : rows) {
    const int64_t low = std::max(from, row.keys.begin), high = std::min(to, row.keys.end);
    if (p.mask != ASSAY_MASK_TREE) {
      if (low < high) std::fill(flags.begin() + (low - from), flags.begin() + (high - from), 1);
      continue;
    }
    for (int64_t j = low; j < high; ++j) flags[j - from] |= sees(row, j);
  }
  return std::find(flags.begin(), flags.end(), 1) != flags.end();
}

void score_block(Block& b) {
  const auto rows = static_cast<Eigen::Index>(b.rows.size());
  const double scale = std::fabs(static_cast<double>(b.p.softmax_scale));
  const assay_arithmetic& a = b.model.arithmetic();
  const int32_t dequant = replayed_dequant(a);
  Matrix q(rows, b.p.head_dim_qk);
  b.begin = std::numeric_limits<int64_t>::max();
  b.end = 0;
  for (Eigen::Index i = 0; i < rows; ++i) {
    BlockRow& row = b.rows[i];
    b.operands.q(row.id, row.head, q.row(i).data());
    replay_query(b.p, a, b.operands, row.id, row.head, q.row(i).data());
    if (b.p.alibi != ASSAY_ALIBI_NONE)
      row.shift = column_shift(b.p, a, row.id, b.operands.alibi_slope(row.head));
    const auto sizes = q.row(i).array().abs();
    if (b.model.rounds_q()) row.q_repeats = equal_mantissas(q.row(i).data(), b.p.head_dim_qk);
    row.query_sum = scale * sizes.sum();
    row.q_max = sizes.maxCoeff();
    row.q_normal = q_normal(b.model, b.p, b.operands, row.id, row.head);
    if (b.p.q_scale != ASSAY_SCALE_NONE)
      row.q_scale = scale_factor(b.operands.q_scale_size(row.id, row.head));
    row.q_norm = scale * std::sqrt(sizes.square().sum()) * (1 + 0x1p-40);
    row.q_fourth = scale * scale * std::sqrt(sizes.square().square().sum()) * (1 + 0x1p-40);
    if (row.keys.begin >= row.keys.end) continue;
    b.begin = std::min(b.begin, row.keys.begin);
    b.end = std::max(b.end, row.keys.end);
  }
  if (b.begin >= b.end) b.begin = b.end = 0;
  const Eigen::ArrayXXd by_dimension = q.array();  // column-major
  b.x.resize(rows, padded_keys(b.keys()));
  b.e.resize(rows, padded_keys(b.keys()));

  const ErrorTerms plain = b.model.terms(RowShape{});
  const SmallestNormal& normal = b.model.k_normal();
  if (!normal.scaled) b.k_normal = normal.value;
  Matrix k(kTileKeys, b.p.head_dim_qk), products(rows, kTileKeys);
  RightFactor<double> of_k;
  KeyNorms norms;
  std::vector<uint8_t> wanted;
  std::optional<FollowedScores> followed;
  if (b.model.follows_qk()) {
    followed.emplace(b, q);
    b.delta = b.cut = MatrixF::Zero(rows, b.end - b.begin);
  }
  std::optional<CountedCuts> counted;
  if (b.model.counts_cuts()) counted.emplace(b, q);
  std::optional<SharedKeys> shared;
  if (a.qk.kind == ASSAY_ACC_FMA) shared.emplace(b, b.p.head_dim_qk);
  for (int64_t at = b.begin; at < b.end; at += kTileKeys) {
    const int64_t to = std::min(b.end, at + kTileKeys), count = to - at;
    if (!b.wanted(at, to, wanted)) {
      b.x.middleCols(at - b.begin, count).setConstant(ErrorModel::kInvisible);
      b.e.middleCols(at - b.begin, count).setZero();
      continue;
    }
    double smallest_scale = std::numeric_limits<double>::infinity(), largest_scale = 0;
    for (int64_t j = 0; j < count; ++j) {
      if (!wanted[j]) {
        k.row(j).setZero();
        continue;
      }
      b.operands.k(b.request, static_cast<int32_t>(at + j), b.kv_head, k.row(j).data());
      round_all(dequant, b.p.head_dim_qk, k.row(j).data());
      if (b.p.k_scale == ASSAY_SCALE_NONE) continue;
      const double size = b.operands.k_scale_size(b.request, static_cast<int32_t>(at + j), b.kv_head);
      if (normal.scaled) b.k_normal = std::max(b.k_normal, normal.value * size);
      smallest_scale = std::min(smallest_scale, scale_factor(size));
      largest_scale = std::max(largest_scale, scale_factor(size));
    }
    b.k_max = std::max(b.k_max, k.topRows(count).cwiseAbs().maxCoeff());
    measure(k, count, norms);
    const double k_norm = *std::max_element(norms.norm, norms.norm + count);
    b.k_norm = std::max(b.k_norm, k_norm);
    if (b.p.k_scale == ASSAY_SCALE_NONE) smallest_scale = largest_scale = 1;
    if (a.q_rounding_absolute > 0)
      b.key_sum = std::max(b.key_sum, scale * k.topRows(count).cwiseAbs().rowwise().sum().maxCoeff());
    // Rows of all scores lie a multiple of the caches' ways apart, where those of a long request do, and a
    // product goes over its result more than once.
    multiply_transposed(q, k, count, of_k, products);
    if (followed) followed->load(k, at, count, wanted);
    if (counted) counted->count(k, products, norms, at, count, wanted);
    look_at_products(b, by_dimension, k, at, count, at == b.begin ? kLooked : kLookedLater);
    if (shared) shared->look(k, at, count, wanted);
    for (Eigen::Index i = 0; i < rows; ++i) {
      BlockRow& row = b.rows[i];
      const double* dots = products.row(i).data();
      double* x = b.x.row(i).data() + (at - b.begin);
      float* delta = followed ? b.delta.row(i).data() + (at - b.begin) : nullptr;
      float* cut = followed ? b.cut.row(i).data() + (at - b.begin) : nullptr;
      if (followed)
        followed->follow(i, count, dots, std::sqrt(row.q_fourth * norms.largest_fourth), delta, cut);
      finish_scores(b, row, plain, at, to, norms, dots, x, b.e.row(i).data() + (at - b.begin), delta, cut);
      if (row.keys.begin >= to || row.keys.end <= at) continue;
      row.underflow =
          std::max(row.underflow, lost_of_factors(b.p, row.q_scale, smallest_scale) * row.q_norm * k_norm);
      row.gain = std::max(row.gain, gain_of_scales(row.q_scale, largest_scale));
      row.largest_c2 = std::max(row.largest_c2, row.q_fourth * norms.largest_fourth);
    }
  }
  for (Eigen::Index i = 0; i < rows; ++i) {
    BlockRow& row = b.rows[static_cast<size_t>(i)];
    row.largest_c2 = row.largest_s * row.largest_s + 2 * row.largest_c2;
    if (shared) row.order.together = shared->together(row, q.row(i).data(), b.x.row(i).data());
  }
}

}  // namespace assay::matrix_bounds
