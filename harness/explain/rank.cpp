// SPDX-License-Identifier: Apache-2.0
// See rank.hpp. A true hypothesis fits every cell, so a handful of cells removes nearly all false ones.
#include "harness/explain/rank.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "harness/explain/compose.hpp"
#include "harness/explain/misfit.hpp"
#include "harness/explain/samples.hpp"

namespace assay {
namespace {

constexpr size_t kProbes = 8;      // samples those worth it are computed on
constexpr size_t kGlances = 3;     // samples they are computed on before
constexpr size_t kGlanced = 2000;  // hypotheses that go on to the probes
constexpr size_t kFinalists = 90;  // hypotheses computed on all samples
constexpr double kCostWeight = 0.03;
constexpr double kPartialCost = 1.0;  // of "in the wrong cells only"
constexpr double kScopeCost = 0.35;   // of "in the last request" and the like
constexpr double kLeastGain = 0.02;   // ... and by how much at least
constexpr double kElsewhere = 0.3;    // of an LSE that another kernel wrote, a sample's misfit
constexpr double kNoBetter = 0.97;    // share of the misfit that a hypothesis must get below

// Misfits of a hypothesis, sample by sample.
class Tester {
 public:
  Tester(const Clues& clues, Predictor& low, const std::vector<Sample>& samples, std::vector<char> bad,
         std::vector<char> right_dims)
      : clues_(clues),
        low_(low),
        samples_(samples),
        bad_(std::move(bad)),
        right_dims_(std::move(right_dims)) {
    const Rules right = clues.predictor.right();
    lse_elsewhere_ = std::all_of(samples.begin(), samples.end(), [&](const Sample& s) {
      return accepted(clues.evidence, s.call, s.cell, -1);
    });
    for (size_t i = 0; i < samples.size(); ++i) {
      right_.push_back(predictor_of(i).predict(right, samples[i].cell));
      right_lse_.push_back(misfit_of(clues.evidence, samples[i], right_.back()).lse);
      nothing_.push_back(total(misfit_of(clues.evidence, samples[i], right_.back()), i));
    }
  }
  struct One {
    double total = 0, o = 0, lse = 0;
    double dims = 0;  // with the right dimensions of O as they should be
  };
  One of(const Rules& rules, size_t i) {
    Predictor& predictor = predictor_of(i);
    const auto measure = [&](Prediction&& p) {
      const Misfit m = misfit_of(clues_.evidence, samples_[i], p);
      One one{total(m, i), m.o, m.lse, 0};
      if (!right_dims_.empty()) {
        for (size_t d = 0; d < right_dims_.size(); ++d)
          if (right_dims_[d]) p.o[d] = right_[i].o[d];
        if (lse_elsewhere_) p.lse = right_[i].lse;
        one.dims = total(misfit_of(clues_.evidence, samples_[i], p), i);
      }
      return one;
    };
    Prediction spread = predictor.predict(rules, samples_[i].cell);
    const bool nan = spread.nan_scores;
    const One one = measure(std::move(spread));
    if (!nan) return one;
    Rules hiding = rules;
    hiding.nan_hides = true;
    const One other = measure(predictor.predict(hiding, samples_[i].cell));
    return other.total < one.total ? other : one;
  }
  std::vector<One> all(const Rules& rules, size_t count) {
    std::vector<One> list;
    for (size_t i = 0; i < count; ++i) list.push_back(of(rules, i));
    return list;
  }
  // Mean with the samples outside `in` left as they are. Null: everywhere.
  double mean(const std::vector<One>& of, const std::vector<char>* in, double One::*what) const {
    double sum = 0;
    for (size_t i = 0; i < of.size(); ++i) sum += in == nullptr || (*in)[i] ? of[i].*what : nothing_[i];
    return of.empty() ? 0 : sum / static_cast<double>(of.size());
  }
  double nothing() const { return nothing(nothing_.size()); }
  double nothing(size_t count) const {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += nothing_[i];
    return count == 0 ? 0 : sum / static_cast<double>(count);
  }
  double nothing_at(size_t i) const { return nothing_[i]; }
  const std::vector<char>& bad() const { return bad_; }
  bool by_dims() const { return !right_dims_.empty(); }

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
  std::vector<Prediction> right_;
  const std::vector<Sample>& samples_;
  std::vector<char> bad_, right_dims_;
  std::vector<double> nothing_;
};

// What was found of a hypothesis on the first samples.
struct Tried {
  size_t index = 0;
  double probe = 0;  // the best of its forms, with its price
  double total = 0, o = 0, lse = 0;
  int solved = 0;        // wrong samples of which hardly anything is left
  bool changes = false;  // something
};

// Two mistakes at once: a few first ones that explain something alone, each with every other.
class Pairs {
 public:
  Pairs(const Clues& clues, Tester& tester, const Hypotheses& all, const std::vector<Tried>& tried,
        size_t probes)
      : clues_(clues), tester_(tester), all_(all), tried_(tried), probes_(probes) {}

  // The best pair on all samples, with what it leaves; nothing where none is worth it.
  struct Found {
    size_t first = 0, second = 0;
    double misfit = 0;
  };
  std::optional<Found> best(size_t samples) {
    std::vector<Found> pairs;
    const Rules right = clues_.predictor.right();
    std::vector<size_t> wrong;  // samples to begin with
    for (size_t i = 0; i < probes_ && wrong.size() < 2; ++i)
      if (tester_.bad()[i]) wrong.push_back(i);
    if (wrong.size() < 2) return {};
    for (size_t first : firsts()) {
      std::vector<double> alone;
      for (size_t i : wrong) alone.push_back(tester_.of(all_[first].rules, i).total);
      for (const Tried& t : tried_) {
        if (!t.changes || t.index == first || all_[t.index].cause == all_[first].cause || !usable(t.index))
          continue;
        Rules both;
        if (!compose(right, all_[first].rules, all_[t.index].rules, &both)) continue;
        double sum = 0, of_alone = 0;
        bool worth = true;
        for (size_t i = 0; i < wrong.size() && worth; ++i) {
          sum += tester_.of(both, wrong[i]).total;
          of_alone += alone[i];
          worth = sum <= kWorthTwo * of_alone || (i == 0 && alone[i] < 0.5);
        }
        if (worth && sum <= kWorthTwo * of_alone) pairs.push_back({first, t.index, sum});
      }
    }
    if (pairs.empty()) return {};
    const auto better_pair = [&](const Found& a, const Found& b) {
      return a.misfit + kCostWeight * cost(a) < b.misfit + kCostWeight * cost(b);
    };
    for (const auto& [count, keep] : {std::pair{probes_, size_t{24}}, {samples, size_t{6}}}) {
      std::stable_sort(pairs.begin(), pairs.end(), better_pair);
      if (pairs.size() > keep) pairs.resize(keep);
      for (Found& f : pairs) {
        Rules both;
        compose(right, all_[f.first].rules, all_[f.second].rules, &both);
        f.misfit = tester_.mean(tester_.all(both, count), nullptr, &Tester::One::total);
      }
    }
    return *std::min_element(pairs.begin(), pairs.end(), better_pair);
  }

 private:
  static constexpr double kInf = std::numeric_limits<double>::infinity();
  static constexpr double kPlain = 0.25;    // most that a hypothesis without a fitted number costs
  static constexpr double kWorthTwo = 0.4;  // share of what the first alone leaves in the first samples
  double cost(const Found& f) const { return all_[f.first].cost + all_[f.second].cost; }
  // Not what is fitted to single cells, and not what merely widens the noise.
  bool usable(size_t i) const { return all_[i].free == 0 && all_[i].rules.weight_noise == 0; }
  std::vector<size_t> firsts() const {
    std::vector<size_t> list;
    const auto take = [&](auto less, size_t count, double dearest = kInf) {
      std::vector<Tried> sorted = tried_;
      std::erase_if(sorted, [&](const Tried& t) {
        return !t.changes || !usable(t.index) || all_[t.index].cost > dearest;
      });
      std::stable_sort(sorted.begin(), sorted.end(), less);
      std::map<std::string_view, int> of_cause;
      for (const Tried& t : sorted) {
        if (count == 0) break;
        if (++of_cause[all_[t.index].cause] > 3) continue;
        --count;
        if (std::find(list.begin(), list.end(), t.index) == list.end()) list.push_back(t.index);
      }
    };
    take([](const Tried& a, const Tried& b) { return a.total < b.total; }, 5);
    // Alone, a wrong number may fit better than the right one does without its partner: the plain ones too.
    take([](const Tried& a, const Tried& b) { return a.total < b.total; }, 5, kPlain);
    take([](const Tried& a, const Tried& b) { return a.o < b.o; }, 3);
    take([](const Tried& a, const Tried& b) { return a.lse < b.lse; }, 3);
    take([](const Tried& a, const Tried& b) { return a.solved > b.solved; }, 2);
    return list;
  }
  const Clues& clues_;
  Tester& tester_;
  const Hypotheses& all_;
  const std::vector<Tried>& tried_;
  size_t probes_;
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
  if (!first.fact && ranking.bad_cells > 0 && first.free >= ranking.bad_cells) return false;
  return first.explained >= kNearlyAll || (first.explained >= kSure && first.misfit <= kLegalMisfit);
}

// Nothing is left that a second cause could explain.
bool clearly(const Ranking& ranking) { return sure(ranking) && ranking.list.front().misfit <= kLegalMisfit; }

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
  const std::vector<Judged> judged = judge_cells(clues.evidence, samples.front().call);
  for (const Judged& j : judged) ranking.bad_cells += j.bad;
  const std::vector<Scope> scopes = scopes_of(clues.problem(), judged);
  Tester tester(clues, low, samples, is_bad, right_dims(clues.evidence, samples.front().call, judged));
  ranking.nothing = tester.nothing();

  const std::vector<char>& in_bad = tester.bad();
  std::vector<std::vector<char>> in_scope;
  for (const Scope& scope : scopes) {
    std::vector<char>& in = in_scope.emplace_back();
    for (const Sample& s : samples) in.push_back(scope.holds(clues.problem(), s.cell));
  }
  // Every form a hypothesis may take: everywhere, in a part of the case, in the wrong cells, in the wrong
  // dimensions.
  const auto forms = [&](const std::vector<Tester::One>& of, const auto& each) {
    each(tester.mean(of, nullptr, &Tester::One::total), 0.0, std::string(), 0);
    if (!partial) return;
    for (size_t s = 0; s < scopes.size(); ++s)
      each(tester.mean(of, &in_scope[s], &Tester::One::total), kScopeCost, ", in " + scopes[s].words, 0);
    each(tester.mean(of, &in_bad, &Tester::One::total), kPartialCost, ", in the wrong cells only", 1);
  };
  const auto forms_by_dims = [&](const std::vector<Tester::One>& of, const auto& each) {
    if (!tester.by_dims()) return;
    each(tester.mean(of, nullptr, &Tester::One::dims), kScopeCost, ", in the wrong dimensions", 0);
    if (partial)
      each(tester.mean(of, &in_bad, &Tester::One::dims), kPartialCost + kScopeCost,
           ", in the wrong dimensions of the wrong cells", 1);
  };
  // A hypothesis of any use helps in the first few samples; those that hardly do are not computed on more.
  std::vector<std::pair<double, size_t>> glance;
  for (size_t i = 0; i < all.size(); ++i) {
    double best = std::numeric_limits<double>::infinity();
    const std::vector<Tester::One> of = tester.all(all[i].rules, std::min(kGlances, probes));
    const auto look = [&](double misfit, double, const std::string&, int) { best = std::min(best, misfit); };
    forms(of, look);
    forms_by_dims(of, look);
    glance.emplace_back(best + kCostWeight * all[i].cost, i);
  }
  std::stable_sort(glance.begin(), glance.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (glance.size() > kGlanced) glance.resize(kGlanced);
  std::vector<Tried> tried;
  for (const auto& [unused, i] : glance) {
    const std::vector<Tester::One> of = tester.all(all[i].rules, probes);
    Tried t{i, std::numeric_limits<double>::infinity(), 0, 0, 0, 0, false};
    const auto look = [&](double misfit, double price, const std::string&, int) {
      t.probe = std::min(t.probe, misfit + kCostWeight * (price + all[i].cost));
    };
    forms(of, look);
    forms_by_dims(of, look);
    for (size_t k = 0; k < of.size(); ++k) {
      t.total += of[k].total, t.o += of[k].o, t.lse += of[k].lse;
      t.changes = t.changes || std::fabs(of[k].total - tester.nothing_at(k)) > 1e-6;
      t.solved += in_bad[k] && of[k].total < 0.5 && tester.nothing_at(k) > 2;
    }
    tried.push_back(t);
  }
  // Equal ones in the order in which they were proposed.
  std::stable_sort(tried.begin(), tried.end(),
                   [](const Tried& a, const Tried& b) { return a.index < b.index; });
  std::vector<Tried> finalists = tried;
  std::stable_sort(finalists.begin(), finalists.end(),
                   [](const Tried& a, const Tried& b) { return a.probe < b.probe; });
  if (finalists.size() > kFinalists) finalists.resize(kFinalists);

  std::map<std::string_view, Ranked> best;
  for (const Tried& t : finalists) {
    const Hypothesis& h = all[t.index];
    const auto offer = [&](double misfit, double price, const std::string& where, int free) {
      // What predicts nothing but right results explains nothing.
      if (misfit > ranking.nothing * kNoBetter || ranking.nothing - misfit < kLeastGain) return;
      const double explained = 1 - misfit / ranking.nothing;
      // Noise of any size explains some of anything.
      if (h.rules.weight_noise > 0 && explained < kSure) return;
      const Ranked r{h.cause, h.text + where, misfit, explained, h.cost + price, false, h.free + free};
      const auto at = best.find(h.cause);
      if (at == best.end() || better(r, at->second)) best[h.cause] = r;
    };
    const std::vector<Tester::One> of = tester.all(h.rules, samples.size());
    forms(of, offer);
    forms_by_dims(of, offer);
  }
  for (const auto& [cause, r] : best) ranking.list.push_back(r);
  std::stable_sort(ranking.list.begin(), ranking.list.end(), better);
  if (!clearly(ranking) && ranking.nothing > kLegalMisfit)
    if (const auto two = Pairs(clues, tester, all, tried, probes).best(samples.size())) {
      // The price of having looked at so many pairs, spread over the wrong cells.
      const double price = 2 * std::log(double(all.size())) / static_cast<double>(ranking.bad_cells);
      const Hypothesis &a = all[two->first], &b = all[two->second];
      const double misfit = two->misfit + price;
      if (misfit <= kLegalMisfit && 1 - misfit / ranking.nothing >= kNearlyAll)
        ranking.list.insert(
            ranking.list.begin(),
            {a.cause, fmt::format("two causes: {}; and {}", a.text, b.text), misfit,
             1 - misfit / ranking.nothing, a.cost + b.cost + kPartialCost, false, 0, b.cause});
    }
  return ranking;
}

}  // namespace assay
