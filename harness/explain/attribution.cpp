// SPDX-License-Identifier: Apache-2.0
// See attribution.hpp. First a few single keys are tried. Else, with prior variance w_k of the change of key
// k, the estimate is W A^T (A W A^T + s I)^-1 e, where column k of A is v_k - o: a system of head_dim_v
// equations, however many keys there are.
#include "harness/explain/attribution.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>

#include "harness/explain/misfit.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr size_t kFewKeys = 8;
constexpr double kLeft = 0.02;  // share of the squared error that may remain for a few keys to be the answer

// Orthogonal matching pursuit: adds the key that fits the rest best until little of the error is left. False
// when it takes more than a few.
bool few_keys(const Eigen::MatrixXd& a, const Eigen::VectorXd& error, double noise,
              std::vector<std::pair<int32_t, double>>& found) {
  std::vector<Eigen::Index> chosen;
  Eigen::VectorXd rest = error, fit;
  const Eigen::VectorXd lengths = a.colwise().norm();
  while (rest.squaredNorm() > std::max(4 * noise, kLeft * error.squaredNorm())) {
    if (chosen.size() == kFewKeys) return false;
    Eigen::VectorXd match = (a.transpose() * rest).cwiseAbs();
    for (Eigen::Index k = 0; k < match.size(); ++k) match[k] = lengths[k] > 0 ? match[k] / lengths[k] : 0;
    for (Eigen::Index k : chosen) match[k] = 0;
    Eigen::Index best = 0;
    if (match.maxCoeff(&best) <= 0) return false;
    chosen.push_back(best);
    Eigen::MatrixXd columns(a.rows(), static_cast<Eigen::Index>(chosen.size()));
    for (size_t i = 0; i < chosen.size(); ++i) columns.col(static_cast<Eigen::Index>(i)) = a.col(chosen[i]);
    fit = (columns.transpose() * columns).ldlt().solve(columns.transpose() * error);
    rest = error - columns * fit;
  }
  for (size_t i = 0; i < chosen.size(); ++i)
    found.emplace_back(static_cast<int32_t>(chosen[i]), fit[static_cast<Eigen::Index>(i)]);
  return !chosen.empty();
}

}  // namespace

Attribution attribute(const Evidence& e, Predictor& predictor, Call call, const Cell& cell) {
  const Problem& p = e.problem;
  const int32_t n = p.requests[cell.request].kv_len, dims = p.head_dim_v;
  Attribution result;
  result.cell = cell;
  const KeyRange range = visible_range(p, cell.request, cell.row);
  result.begin = range.begin;
  result.end = range.end;
  result.change.assign(n, 0.0);
  result.weight.assign(n, 0.0);
  const Predictor::Weights w = predictor.weights(cell);
  for (size_t i = 0; i < w.positions.size(); ++i) result.weight[w.positions[i]] = w.p[i];
  for (int32_t d = -1; d < dims; ++d) result.bad = result.bad || !accepted(e, call, cell, d);

  const Prediction right = predictor.predict(predictor.right(), cell);
  Eigen::VectorXd error(dims);
  double squares = 0, noise = 0;
  for (int32_t d = 0; d < dims; ++d) {
    error[d] = e.got(call, cell, d) - right.o[d];
    const FormatInfo& format = format_info(p.o_format);
    const double rounding = std::max(format.unit_roundoff * std::fabs(right.o[d]), format.half_subnormal);
    const double s = std::hypot(legal_noise(e, cell, d), rounding / std::sqrt(3.0));
    noise += s * s;
    squares += s > 0 ? error[d] * error[d] / (s * s) : 0;
    result.finite = result.finite && std::isfinite(error[d]) && std::fabs(error[d]) < 1e20;
  }
  result.error = std::sqrt(squares / dims);
  if (n == 0 || !result.finite) return result;
  // Masked keys may have joined: they get the mean weight as expected size.
  Eigen::MatrixXd a(dims, n);
  Eigen::VectorXd prior(n);
  KvStore& keys = predictor.store(cell.request, cell.head / p.group());
  const double mean = 1.0 / std::max<size_t>(1, w.positions.size());
  for (int32_t k = 0; k < n; ++k) {
    const double* v = keys.v(k);
    prior[k] = result.weight[k] > 0 ? result.weight[k] : mean;
    for (int32_t d = 0; d < dims; ++d) {
      a(d, k) = v[d] - right.o[d];
      if (!std::isfinite(a(d, k)) || std::fabs(a(d, k)) > 1e20) a(d, k) = 0;
    }
  }
  if (std::vector<std::pair<int32_t, double>> few; few_keys(a, error, noise, few)) {
    for (const auto& [k, change] : few) result.change[k] = change;
    return result;
  }
  const Eigen::VectorXd variance = prior.array().square();
  Eigen::MatrixXd system = a * variance.asDiagonal() * a.transpose();
  const double ridge = std::max(noise / dims, 1e-9 * system.trace() / dims) + 1e-300;
  system.diagonal().array() += ridge;
  const Eigen::VectorXd change = variance.asDiagonal() * (a.transpose() * system.ldlt().solve(error));
  for (int32_t k = 0; k < n; ++k) result.change[k] = change[k];
  return result;
}

std::vector<Cell> picture_cells(const Evidence& e, const Cell& worst) {
  constexpr int32_t kMost = 64;
  std::vector<Cell> cells;
  const int32_t rows = e.problem.requests[worst.request].q_len;
  if (rows > 1) {
    const int32_t first = std::clamp(worst.row - kMost / 2, 0, std::max(0, rows - kMost));
    for (int32_t r = first; r < std::min(rows, first + kMost); ++r)
      if (e.row_of[e.packed_row({worst.request, r, worst.head})] >= 0)
        cells.push_back({worst.request, r, worst.head});
  } else {
    for (int32_t h = 0; h < std::min(e.problem.heads_q, kMost); ++h)
      cells.push_back({worst.request, worst.row, h});
  }
  return cells;
}

}  // namespace assay
