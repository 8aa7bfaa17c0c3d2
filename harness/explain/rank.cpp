// SPDX-License-Identifier: Apache-2.0
// See rank.hpp. A true hypothesis fits every cell, so a handful of cells removes nearly all false ones.
#include "harness/explain/rank.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "harness/explain/misfit.hpp"

namespace assay {
namespace {

constexpr size_t kBadCells = 36, kGoodCells = 20;
constexpr size_t kProbes = 8;      // samples every hypothesis is computed on
constexpr size_t kFinalists = 90;  // hypotheses computed on all samples
constexpr double kCostWeight = 0.03;
constexpr double kPartialCost = 1.0;  // of "in the wrong cells only"
constexpr double kLeastGain = 0.02;   // ... and by how much at least
constexpr double kElsewhere = 0.3;    // of an LSE that another kernel wrote, a sample's misfit
constexpr double kNoBetter = 0.97;    // share of the misfit that a hypothesis must get below

// `count` entries of `from`, spread evenly, first and last included.
std::vector<Cell> spread(const std::vector<Cell>& from, size_t count) {
  if (from.size() <= count) return from;
  std::vector<Cell> chosen;
  for (size_t i = 0; i < count; ++i) chosen.push_back(from[i * (from.size() - 1) / (count - 1)]);
  return chosen;
}

struct Judged {
  Cell cell;
  bool bad = false;
  double severity = 0;  // root mean square error in units of legal noise
};

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

bool same(const Evidence& e, Call a, Call b, const Cell& c) {
  const auto equal = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  for (int32_t d = -1; d < e.problem.head_dim_v; ++d)
    if (!equal(e.got(a, c, d), e.got(b, c, d))) return false;
  return true;
}

// Misfits of a hypothesis, sample by sample.
class Tester {
 public:
  Tester(const Clues& clues, Predictor& low, const std::vector<Sample>& samples, std::vector<char> bad)
      : clues_(clues), low_(low), samples_(samples), bad_(std::move(bad)) {
    const Rules right = clues.predictor.right();
    lse_elsewhere_ = std::all_of(samples.begin(), samples.end(), [&](const Sample& s) {
      return accepted(clues.evidence, s.call, s.cell, -1);
    });
    if (lse_elsewhere_)
      for (size_t i = 0; i < samples.size(); ++i)
        right_lse_.push_back(
            misfit_of(clues.evidence, samples[i], predictor_of(i).predict(right, samples[i].cell)).lse);
    for (size_t i = 0; i < samples.size(); ++i) nothing_.push_back(of(right, i));
  }
  double of(const Rules& rules, size_t i) {
    Predictor& predictor = predictor_of(i);
    const Prediction spread = predictor.predict(rules, samples_[i].cell);
    const double misfit = total(misfit_of(clues_.evidence, samples_[i], spread), i);
    if (!spread.nan_scores) return misfit;
    Rules hiding = rules;
    hiding.nan_hides = true;
    return std::min(
        misfit,
        total(misfit_of(clues_.evidence, samples_[i], predictor.predict(hiding, samples_[i].cell)), i));
  }
  // Mean over samples [0, count): everywhere, and with wrong cells alone changed.
  struct Means {
    double everywhere = 0, in_bad_cells = 0;
  };
  Means mean(const Hypothesis& h, size_t count) {
    Means m;
    for (size_t i = 0; i < count; ++i) {
      const double misfit = of(h.rules, i);
      m.everywhere += misfit;
      m.in_bad_cells += bad_[i] ? misfit : nothing_[i];
    }
    m.everywhere /= static_cast<double>(count);
    m.in_bad_cells /= static_cast<double>(count);
    return m;
  }
  double nothing() const {
    double sum = 0;
    for (double x : nothing_) sum += x;
    return nothing_.empty() ? 0 : sum / static_cast<double>(nothing_.size());
  }

 private:
  Predictor& predictor_of(size_t i) const { return samples_[i].call == Call::kLow ? low_ : clues_.predictor; }
  // An LSE that is right everywhere may come from elsewhere, and then says nothing of a cause.
  double total(const Misfit& m, size_t i) const {
    return m.o + (lse_elsewhere_ ? std::min(m.lse, right_lse_[i] + kElsewhere) : m.lse);
  }
  const Clues& clues_;
  Predictor& low_;
  bool lse_elsewhere_ = false;
  std::vector<double> right_lse_;
  const std::vector<Sample>& samples_;
  std::vector<char> bad_;
  std::vector<double> nothing_;
};

}  // namespace

bool better(const Ranked& a, const Ranked& b) {
  return a.misfit + kCostWeight * a.cost < b.misfit + kCostWeight * b.cost;
}

std::vector<Ranked> equally_good(const Ranking& ranking) {
  std::vector<Ranked> best;
  for (const Ranked& r : ranking.list)
    if (best.empty() || (r.fact == best.front().fact && r.misfit <= best.front().misfit + kSameMisfit &&
                         r.explained >= kSure))
      best.push_back(r);
  return best;
}

bool sure(const Ranking& ranking) {
  if (ranking.list.empty()) return false;
  const Ranked& first = ranking.list.front();
  return first.explained >= kNearlyAll || (first.explained >= kSure && first.misfit <= kLegalMisfit);
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

Ranking rank(const Clues& clues, Predictor& low, const std::vector<Family>& families,
             const std::vector<std::string>& without) {
  Ranking ranking;
  // Interleaved, so that any beginning of the list holds wrong and right cells of several kinds.
  struct Marked {
    Sample sample;
    char bad;
  };
  std::vector<Marked> bad, good;
  for (const Sample& s : clues.bad) bad.push_back({s, 1});
  for (const Sample& s : clues.good) good.push_back({s, 0});
  const auto shuffle = [](std::vector<Marked>& list) {
    std::vector<Marked> mixed;
    for (size_t stride = 7, i = 0; i < list.size(); ++i) {
      while (std::gcd(list.size(), stride) != 1) ++stride;
      mixed.push_back(list[i * stride % list.size()]);
    }
    list.swap(mixed);
  };
  shuffle(bad);
  shuffle(good);
  std::vector<char> is_bad;
  const auto take = [&](const Marked& m) {
    ranking.samples.push_back(m.sample);
    is_bad.push_back(m.bad);
  };
  for (size_t b = 0, g = 0; b < bad.size() || g < good.size();) {
    for (int k = 0; k < 2 && b < bad.size(); ++k) take(bad[b++]);
    if (g < good.size()) take(good[g++]);
  }
  const std::vector<Sample>& samples = ranking.samples;
  if (samples.empty()) return ranking;
  const size_t probes = std::min(kProbes, samples.size());
  // Only where right cells exist can a fault be one of some cells.
  const bool partial = !good.empty();

  Hypotheses all;
  for (const Family family : families) family(clues, all);
  std::erase_if(all, [&](const Hypothesis& h) {
    return std::find(without.begin(), without.end(), h.cause) != without.end();
  });
  ranking.tested = static_cast<int64_t>(all.size());
  Tester tester(clues, low, samples, is_bad);
  ranking.nothing = tester.nothing();

  struct Tried {
    size_t index;
    double probe;
  };
  std::vector<Tried> tried;
  for (size_t i = 0; i < all.size(); ++i) {
    const Tester::Means m = tester.mean(all[i], probes);
    const double best =
        partial ? std::min(m.everywhere, m.in_bad_cells + kCostWeight * kPartialCost) : m.everywhere;
    tried.push_back({i, best + kCostWeight * all[i].cost});
  }
  std::stable_sort(tried.begin(), tried.end(),
                   [](const Tried& a, const Tried& b) { return a.probe < b.probe; });
  if (tried.size() > kFinalists) tried.resize(kFinalists);

  std::map<std::string_view, Ranked> best;
  const auto offer = [&](const Hypothesis& h, double misfit, double cost, std::string text) {
    // What predicts nothing but right results explains nothing.
    if (misfit > ranking.nothing * kNoBetter || ranking.nothing - misfit < kLeastGain) return;
    const Ranked r{h.cause, std::move(text), misfit, 1 - misfit / ranking.nothing, cost, false};
    const auto at = best.find(h.cause);
    if (at == best.end() || better(r, at->second)) best[h.cause] = r;
  };
  for (const Tried& t : tried) {
    const Hypothesis& h = all[t.index];
    const Tester::Means m = tester.mean(h, samples.size());
    offer(h, m.everywhere, h.cost, h.text);
    if (partial) offer(h, m.in_bad_cells, h.cost + kPartialCost, h.text + ", in the wrong cells only");
  }
  for (const auto& [cause, r] : best) ranking.list.push_back(r);
  std::stable_sort(ranking.list.begin(), ranking.list.end(), better);
  return ranking;
}

}  // namespace assay
