// SPDX-License-Identifier: Apache-2.0
// See samples.hpp.
#include "harness/explain/samples.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/explain/misfit.hpp"
#include "harness/explain/same_number.hpp"

namespace assay {
namespace {

constexpr size_t kBadCells = 36, kGoodCells = 20;

// `count` entries of `from`, spread evenly, first and last included.
std::vector<Cell> spread(const std::vector<Cell>& from, size_t count) {
  if (from.size() <= count) return from;
  std::vector<Cell> chosen;
  for (size_t i = 0; i < count; ++i) chosen.push_back(from[i * (from.size() - 1) / (count - 1)]);
  return chosen;
}

bool same(const Evidence& e, Call a, Call b, const Cell& c) {
  for (int32_t d = -1; d < e.problem.head_dim_v; ++d)
    if (!same_number(e.got(a, c, d), e.got(b, c, d))) return false;
  return true;
}

}  // namespace

bool depends_on_memory(const Evidence& e, const Cell& c) {
  return e.call(Call::kFirst).made && e.call(Call::kLow).made && !same(e, Call::kFirst, Call::kLow, c);
}

std::vector<Judged> judge_cells(const Evidence& e, Call call) {
  std::vector<Judged> cells;
  const Problem& p = e.problem;
  for (size_t n = 0; n < e.bounded.value.rows.size(); ++n)
    for (int32_t h = 0; h < p.heads_q; ++h) {
      Judged j{{e.bounded.value.rows[n].request, e.bounded.value.rows[n].row, h}};
      j.bad = !accepted(e, call, j.cell, -1);
      double sum = 0;
      const int64_t slot = static_cast<int64_t>(n) * p.heads_q + h;
      for (int32_t d = 0; d < p.head_dim_v; ++d) {
        j.bad = j.bad || !accepted(e, call, j.cell, d);
        const int64_t at = slot * p.head_dim_v + d;
        const double sigma = e.bounded.o_sigma.empty() || e.bounded.o_sigma[at] == 0
                                 ? std::max(e.bounded.o_bound[at], 1e-300)
                                 : e.bounded.o_sigma[at];
        const double z = (e.got(call, j.cell, d) - e.bounded.value.o[at]) / sigma;
        sum += std::isfinite(z) ? std::min(z * z, 1e12) : 1e12;
      }
      const double lse = e.got(call, j.cell, -1) - e.bounded.value.lse[slot];
      const double z = lse / std::max(e.bounded.lse_bound[slot], 1e-12);
      j.severity = std::sqrt(sum / p.head_dim_v) + (std::isfinite(z) ? std::min(std::fabs(z), 1e6) : 0);
      cells.push_back(j);
    }
  return cells;
}

std::vector<char> right_dims(const Evidence& e, Call call, const std::vector<Judged>& judged) {
  const int32_t n = e.problem.head_dim_v;
  std::vector<char> right(n, 1);
  int64_t bad = 0;
  for (const Judged& j : judged) {
    bad += j.bad;
    for (int32_t d = 0; d < n && j.bad; ++d)
      if (right[d] && !accepted(e, call, j.cell, d)) right[d] = 0;
  }
  const auto count = std::count(right.begin(), right.end(), char{1});
  if (bad < 3 || count == n || 8 * count < n) return {};
  return right;
}

void choose_samples(const Evidence& e, Call main, Clues& clues) {
  if (!e.call(main).made) return;
  std::vector<Judged> judged = judge_cells(e, main);
  std::vector<Cell> bad, good;
  for (const Judged& j : judged) (j.bad ? bad : good).push_back(j.cell);
  if (bad.empty()) {  // nothing outside its interval: the error is in the statistics of all cells
    bad.swap(good);
  }
  std::set<std::tuple<int32_t, int32_t, int32_t>> taken;
  const auto take = [&](std::vector<Sample>& to, const Cell& c) {
    if (taken.insert({c.request, c.row, c.head}).second) to.push_back({c, main});
  };
  std::stable_sort(judged.begin(), judged.end(),
                   [](const Judged& a, const Judged& b) { return a.severity > b.severity; });
  // A few of the worst, then the breadth of the pattern.
  for (size_t i = 0, worst = 0; i < judged.size() && worst < 6; ++i)
    if (judged[i].bad) take(clues.bad, judged[i].cell), ++worst;
  for (const Cell& c : spread(bad, kBadCells - 6)) take(clues.bad, c);
  // Right cells beside wrong ones tell hypotheses apart best.
  const auto is_good = [&](const Cell& c) { return std::find(good.begin(), good.end(), c) != good.end(); };
  for (size_t i = 0; i < clues.bad.size() && clues.good.size() < kGoodCells / 2; i += 3)
    for (int32_t step : {-1, 1}) {
      Cell c = clues.bad[i].cell;
      c.row += step;
      if (is_good(c)) take(clues.good, c);
      c = clues.bad[i].cell;
      c.head += step;
      if (is_good(c)) take(clues.good, c);
    }
  for (const Cell& c : spread(good, kGoodCells)) {
    if (clues.good.size() >= kGoodCells) break;
    take(clues.good, c);
  }
  // What unused memory holds matters: the same cells again with other contents, NaN always and a few
  // controls.
  if (main == Call::kFirst && e.call(Call::kLow).made) {
    for (std::vector<Sample>* list : {&clues.bad, &clues.good}) {
      std::vector<Sample> more;
      size_t controls = 0;
      for (const Sample& s : *list) {
        bool nan = false;
        for (int32_t d = -1; d < e.problem.head_dim_v; ++d) nan = nan || std::isnan(e.got(main, s.cell, d));
        if (nan || !same(e, main, Call::kLow, s.cell) || controls++ < 3) more.push_back({s.cell, Call::kLow});
      }
      list->insert(list->end(), more.begin(), more.end());
    }
  }
}

}  // namespace assay
