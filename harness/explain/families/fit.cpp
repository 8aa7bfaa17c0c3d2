// SPDX-License-Identifier: Apache-2.0
// See fit.hpp.
#include "harness/explain/families/fit.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/explain/misfit.hpp"
#include "harness/explain/samples.hpp"

namespace assay {
namespace {

constexpr size_t kCells = 6;       // wrong ones a number is looked for on
constexpr size_t kStepCells = 16;  // ... where it is found by jumps alone
constexpr size_t kFirstCells = 2;  // of these, on which the grid is walked
// Work that one family may spend, in keys times dimensions: large cases get what is left to them.
constexpr double kBudget = 1e9, kSmallBudget = 2e8;
constexpr double kTie = 1e-9;         // of misfits that are the same
constexpr double kFirstHelps = 0.85;  // ... and on the worst cell alone, of a whole number
constexpr double kHelps = 0.93;       // share of the misfit that the best point of a grid must get below
constexpr double kRound = 20, kNearRound = 1e-3;  // a twentieth that fits as well is the number
constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace

std::vector<double> grid_of(double from, double to, int count) {
  std::vector<double> list;
  for (int i = 0; i < count; ++i) list.push_back(from + (to - from) * i / (count - 1));
  return list;
}

std::vector<double> grid_of_logs(double from, double to, int count) {
  std::vector<double> list = grid_of(std::log(from), std::log(to), count);
  for (double& x : list) x = std::exp(x);
  return list;
}

double work_of_a_cell(const Problem& p) {
  return double(p.max_kv_len()) * (p.head_dim_qk + p.head_dim_v) / 2;
}

bool too_large(const Clues& clues, double most) {
  const bool asked = clues.only != nullptr && !clues.only->empty();
  return !asked && work_of_a_cell(clues.problem()) > most;
}

Fit::Fit(const Clues& clues) : clues_(clues), budget_(too_large(clues, kLargeCell) ? kSmallBudget : kBudget) {
  // The worst ones come first; the others show other requests, rows and heads.
  const Evidence& e = clues.evidence;
  std::vector<const Sample*> usable;
  for (const Sample& s : clues.bad) {
    // What a kernel makes of NaN in unused memory is its own: such a cell is looked at under the finite
    // poison.
    const bool by_memory = s.call == Call::kFirst && depends_on_memory(e, s.cell);
    if (by_memory || (s.call == Call::kLow && clues.low == nullptr)) continue;
    if (s.call == Call::kLow && !depends_on_memory(e, s.cell)) continue;
    usable.push_back(&s);
  }
  const size_t n = usable.size();
  const auto take = [&](size_t i) {
    const Sample& s = *usable[i];
    const bool known =
        std::any_of(cells_.begin(), cells_.end(), [&](const Sample& c) { return c.cell == s.cell; });
    if (!known && cells_.size() < kStepCells) cells_.push_back(s);
  };
  for (size_t i = 0; i < n && i < 1; ++i) take(i);
  for (size_t k = 1; k < 2 * kCells && n > 1; ++k) take(k * (n - 1) / (2 * kCells - 1));
  for (size_t i = 0; i < n; ++i) take(i);
  const Rules right = clues.predictor.right();
  for (const Sample& s : cells_) {
    targets_.push_back(target_of(e, s));
    nothing_.push_back(misfit_of(targets_.back(), predict(right, s)).total());
  }
}

Prediction Fit::predict(const Rules& rules, const Sample& s) const {
  budget_ -= work_of_a_cell(clues_.problem());
  return (s.call == Call::kLow ? *clues_.low : clues_.predictor).predict(rules, s.cell);
}

double Fit::misfit(const Rules& rules, size_t cells, double stop) const {
  double sum = 0;
  for (size_t i = 0; i < std::min(cells, cells_.size()) && sum < stop; ++i)
    sum += misfit_of(targets_[i], predict(rules, cells_[i])).total();
  return sum;
}

std::optional<double> Fit::along(const std::vector<double>& grid, bool steps, const Set& set) const {
  if (cells_.empty() || budget_ < 0) return {};
  const auto at = [&](double x, size_t cells, double stop = kInf) {
    Rules rules = clues_.predictor.right();
    set(rules, x);
    return misfit(rules, cells, stop);
  };
  const size_t few = std::min(kFirstCells, cells_.size());
  double least = 0;
  for (size_t i = 0; i < few; ++i) least += kHelps * nothing_[i];
  std::optional<size_t> best;
  size_t last_best = 0;  // of several that are equally good
  for (size_t i = 0; i < grid.size(); ++i) {
    const double m = at(grid[i], few);
    if (m < least - 1e-9) least = m, best = i;
    if (best && m <= least + 1e-9) last_best = i;
  }
  if (!best) return {};
  if (!steps) last_best = *best;
  double low = grid[*best > 0 ? *best - 1 : 0], high = grid[std::min(last_best + 1, grid.size() - 1)];
  if (steps) {
    // Ever finer between the neighbours of the best stretch.
    double first = grid[*best], last = first;
    for (int level = 0; level < 5 && (level == 0 || budget_ > 0); ++level) {
      constexpr int kPoints = 8;
      double most = kInf;
      std::vector<double> points = grid_of(low, high, kPoints), values;
      for (double x : points) {
        values.push_back(at(x, kStepCells, most + 1e-9));
        most = std::min(most, values.back());
      }
      int from = 0;
      while (values[from] > most + 1e-9) ++from;
      int to = from;
      while (to + 1 < kPoints && values[to + 1] <= most + 1e-9) ++to;
      first = points[from], last = points[to];
      low = points[std::max(0, from - 1)], high = points[std::min(kPoints - 1, to + 1)];
      if (to - from > 2) break;
    }
    return (first + last) / 2;
  }
  const double golden = (std::sqrt(5.0) - 1) / 2;
  double a = high - golden * (high - low), b = low + golden * (high - low), fa = at(a, 4), fb = at(b, 4);
  for (int i = 0; i < 34; ++i) {
    if (fa < fb)
      high = b, b = a, fb = fa, a = high - golden * (high - low), fa = at(a, 4);
    else
      low = a, a = b, fa = fb, b = low + golden * (high - low), fb = at(b, 4);
  }
  const double found = (low + high) / 2, round = std::nearbyint(found * kRound) / kRound;
  return std::fabs(found - round) < kNearRound && at(round, 4) <= at(found, 4) + kNearRound ? round : found;
}

std::optional<int32_t> Fit::whole(int32_t low, int32_t high, const SetWhole& set) const {
  double least = 0;
  for (size_t i = 0; i < std::min(kCells, cells_.size()); ++i) least += kHelps * nothing_[i];
  std::optional<int32_t> best;
  double everywhere = -1;  // that of the best on all cells, once it is asked for
  const auto rules_of = [&](int32_t value) {
    Rules rules = clues_.predictor.right();
    set(rules, value);
    return rules;
  };
  for (int32_t value = low; value <= high && budget_ > 0 && !cells_.empty(); ++value) {
    const Rules rules = rules_of(value);
    if (misfit(rules, 1, kInf) > kFirstHelps * nothing_.front()) continue;
    const double m = misfit(rules, kCells, least + kTie);
    if (m < least - (best ? kTie : 0)) {
      least = m, best = value, everywhere = -1;
    } else if (best && m < least + kTie) {
      // Of numbers that these cells do not tell apart, the one that fits the others.
      if (everywhere < 0) everywhere = misfit(rules_of(*best), kStepCells, kInf);
      if (const double all = misfit(rules, kStepCells, everywhere); all < everywhere - kTie)
        least = std::min(least, m), best = value, everywhere = all;
    }
  }
  return best;
}

std::optional<std::vector<double>> Fit::many(std::vector<double> start, double step,
                                             const SetMany& set) const {
  if (cells_.empty() || budget_ < 0) return {};
  const auto n = static_cast<Eigen::Index>(start.size());
  const auto residuals = [&](const std::vector<double>& x) {
    Rules rules = clues_.predictor.right();
    set(rules, x);
    std::vector<double> list;
    for (size_t i = 0; i < std::min(kCells, cells_.size()); ++i) {
      const Prediction p = predict(rules, cells_[i]);
      const Target& t = targets_[i];
      const auto add = [&](double got, double predicted, double noise) {
        const double unit = noise + 1e-6 * std::fabs(got) + 1e-12;
        list.push_back(std::isfinite(got) && std::isfinite(predicted) ? (predicted - got) / unit : 0);
      };
      // An element of a 16-bit output knows no better than its last place.
      const double last = t.o_format == ASSAY_FP32 ? 0 : t.o_format == ASSAY_FP16 ? 0x1p-12 : 0x1p-9;
      for (size_t d = 0; d < p.o.size(); ++d) add(t.o[d], p.o[d], t.o_noise[d] + last * std::fabs(t.o[d]));
      add(t.lse, p.lse, t.lse_noise);
    }
    return list;
  };
  const auto square = [](const std::vector<double>& r) {
    double sum = 0;
    for (double x : r) sum += x * x;
    return sum;
  };
  double nothing = 0;
  for (size_t i = 0; i < std::min(kCells, cells_.size()); ++i) nothing += nothing_[i];
  std::vector<double> now = residuals(start);
  double damping = 1e-6;
  for (int round = 0; round < 12 && budget_ > 0; ++round) {
    const auto m = static_cast<Eigen::Index>(now.size());
    Eigen::MatrixXd slope(m, n);
    for (Eigen::Index k = 0; k < n; ++k) {
      std::vector<double> moved = start;
      moved[static_cast<size_t>(k)] += step;
      const std::vector<double> there = residuals(moved);
      for (Eigen::Index i = 0; i < m; ++i)
        slope(i, k) = (there[static_cast<size_t>(i)] - now[static_cast<size_t>(i)]) / step;
    }
    const Eigen::VectorXd r = Eigen::Map<const Eigen::VectorXd>(now.data(), m);
    Eigen::MatrixXd normal = slope.transpose() * slope;
    normal.diagonal() *= 1 + damping;
    normal.diagonal().array() += 1e-12;
    const Eigen::VectorXd by = normal.ldlt().solve(-slope.transpose() * r);
    std::vector<double> next = start;
    for (Eigen::Index k = 0; k < n; ++k) next[static_cast<size_t>(k)] += by(k);
    if (!by.allFinite()) break;
    std::vector<double> after = residuals(next);
    if (square(after) < square(now)) {
      const bool enough = square(after) > 0.999 * square(now);
      start = std::move(next), now = std::move(after);
      damping = std::max(1e-9, damping / 10);
      if (enough) break;
    } else if ((damping = std::max(1e-3, damping) * 30) > 1e6) {
      break;
    }
  }
  Rules rules = clues_.predictor.right();
  set(rules, start);
  if (misfit(rules, kCells, kInf) >= kHelps * nothing) return {};
  return start;
}

}  // namespace assay
