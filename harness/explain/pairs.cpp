// SPDX-License-Identifier: Apache-2.0
// See pairs.hpp.
#include "harness/explain/pairs.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "harness/explain/compose.hpp"
#include "harness/explain/narrow.hpp"
#include "harness/explain/samples.hpp"
#include "harness/explain/second_line.hpp"

namespace assay {
namespace {

constexpr size_t kFirstsOfAll = 12;      // first ones that meet every plain partner
constexpr double kPlainPartner = 0.5;    // most that such a partner costs
constexpr double kPlain = 0.25;          // most that a hypothesis without a fitted number costs
constexpr double kWorthTwo = 0.4;        // share of what the first alone leaves in the first samples
constexpr double kWorthSome = 0.6;       // the same of a hypothesis that is kept to some keys
constexpr int32_t kMostFree = 1;         // numbers that a member of a pair may have fitted
constexpr double kSolved = 0.5;          // misfit of a cell that hardly anything is left of
constexpr double kCostOfScope = 0.02;    // in units of misfit, of a part of the case that one has to itself
constexpr size_t kOpenSamples = 3;       // that a first one leaves open, on which it meets a second
constexpr size_t kFirstSamples = 2;      // wrong ones that a pair or some keys are looked at on
constexpr double kPlainMechanism = 0.2;  // most that a mechanism costs which is tried in some keys
constexpr size_t kBases = 3;             // first ones that numbers are solved for on top of
constexpr double kEarned = 0.08;         // share of the whole misfit that each of a pair must take away
constexpr double kAlready = 0.05;        // misfit of a sample that is explained
constexpr size_t kNarrowed = 200;        // hypotheses of some keys that go on

// Not what is fitted to many cells, and not what merely widens the noise.
bool usable(const Hypothesis& h) { return h.free <= kMostFree && h.rules.weight_noise == 0; }

std::vector<size_t> leaders(const Hypotheses& all, const std::vector<Tried>& tried) {
  std::vector<size_t> list;
  const auto take = [&](auto less, size_t count, double dearest = std::numeric_limits<double>::infinity()) {
    std::vector<Tried> sorted = tried;
    std::erase_if(sorted, [&](const Tried& t) {
      return !t.changes || !usable(all[t.index]) || all[t.index].cost > dearest;
    });
    std::stable_sort(sorted.begin(), sorted.end(), less);
    std::map<std::string_view, int> of_cause;
    for (const Tried& t : sorted) {
      if (count == 0) break;
      if (++of_cause[all[t.index].cause] > 3) continue;
      --count;
      if (std::find(list.begin(), list.end(), t.index) == list.end()) list.push_back(t.index);
    }
  };
  take([](const Tried& a, const Tried& b) { return a.total < b.total; }, 4);
  // Alone, a wrong number may fit better than the right one does without its partner: the plain ones too.
  take([](const Tried& a, const Tried& b) { return a.total < b.total; }, 4, kPlain);
  // Of two large ones neither explains much in units of rounding, but the right half of O is there.
  take([](const Tried& a, const Tried& b) { return a.rest < b.rest; }, 4);
  take([](const Tried& a, const Tried& b) { return a.o < b.o; }, 2);
  take([](const Tried& a, const Tried& b) { return a.lse < b.lse; }, 2);
  take([](const Tried& a, const Tried& b) { return a.solved > b.solved; }, 2);
  return list;
}

}  // namespace

std::vector<size_t> first_wrong(const Tester& tester, size_t probes, size_t count) {
  std::vector<size_t> wrong;
  for (size_t i = 0; i < probes && wrong.size() < count; ++i)
    if (tester.bad()[i]) wrong.push_back(i);
  return wrong;
}

Hypotheses narrowed_leaders(const Clues& clues, Tester& tester, const Hypotheses& all,
                            const std::vector<Tried>& tried, size_t probes, bool as_good) {
  const std::vector<size_t> wrong = first_wrong(tester, probes);
  const std::vector<SomeKeys> keys = some_keys(clues);
  struct Worth {
    double left = 0;
    Hypothesis of;
  };
  std::vector<Worth> found;
  // Also what everywhere else would do much harm: plain mechanisms, whatever they explain by themselves.
  std::map<size_t, const Tried*> known;
  for (const Tried& t : tried) known[t.index] = &t;
  const auto first_alone = [&](size_t h, size_t sample) {
    const auto at = known.find(h);
    return at == known.end() ? tester.nothing_at(sample) : at->second->each[sample];
  };
  std::vector<size_t> firsts = leaders(all, tried);
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].cost <= kPlainMechanism && usable(all[i]) &&
        std::find(firsts.begin(), firsts.end(), i) == firsts.end())
      firsts.push_back(i);
  for (size_t first : firsts) {
    for (size_t k = 0; k < keys.size() + 2; ++k) {
      Worth worth;
      const bool some = k < keys.size() ? narrowed(all[first], keys[k], &worth.of)
                                        : in_one_pass(all[first], k == keys.size(), &worth.of);
      if (!some) continue;
      double before = 0;
      bool worthy = true;
      for (size_t w = 0; w < wrong.size() && worthy; ++w) {
        const size_t i = wrong[w];
        before += std::min(tester.nothing_at(i), first_alone(first, i));
        worth.left += tester.of(worth.of.rules, i).total;
        worthy = worth.left <= kWorthSome * before + (as_good ? kAlready : 0);
      }
      if (worthy) found.push_back(std::move(worth));
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Worth& a, const Worth& b) { return a.left < b.left; });
  if (const size_t most = (as_good ? 4 : 1) * kNarrowed; found.size() > most) found.resize(most);
  Hypotheses list;
  for (Worth& w : found) list.push_back(std::move(w.of));
  return list;
}

namespace {

// Misfits of the samples under a pair in a part of the case each, and which parts fit best.
class Scoped {
 public:
  Scoped(const Clues& clues, Tester& tester, size_t samples) : tester_(tester), count_(samples) {
    in_.emplace_back(samples, 1);
    words_.emplace_back();
    for (const Scope& scope : all_scopes()) {
      std::vector<char> in;
      for (size_t i = 0; i < samples; ++i) in.push_back(scope.holds(clues.problem(), tester.sample(i).cell));
      const auto held = std::count(in.begin(), in.end(), 1);
      if (held == 0 || held == static_cast<ptrdiff_t>(samples)) continue;
      in_.push_back(std::move(in));
      words_.push_back(scope.name.words);
    }
  }
  void fit(const Hypotheses& all, const Rules& both, Pair& pair) {
    const auto of = [&](const Rules& rules) {
      std::vector<double> list;
      for (size_t i = 0; i < count_; ++i) list.push_back(tester_.of(rules, i).total);
      return list;
    };
    const std::vector<double> a = of(all[pair.first].rules), b = of(all[pair.second].rules), ab = of(both);
    double best = std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < in_.size(); ++s)
      for (size_t t = 0; t < in_.size(); ++t) {
        double sum = 0;
        for (size_t i = 0; i < count_; ++i)
          sum += in_[s][i] ? (in_[t][i] ? ab[i] : a[i]) : in_[t][i] ? b[i] : tester_.nothing_at(i);
        sum = sum / static_cast<double>(count_) + kCostOfScope * ((s > 0) + (t > 0));
        if (sum < best) best = sum, pair.misfit = sum, pair.first_in = words_[s], pair.second_in = words_[t];
      }
    // What one of them alone leaves, in the part of the case that is best for it.
    const auto alone = [&](const std::vector<double>& of) {
      double least = std::numeric_limits<double>::infinity();
      for (const std::vector<char>& in : in_) {
        double sum = 0;
        for (size_t i = 0; i < count_; ++i) sum += in[i] ? of[i] : tester_.nothing_at(i);
        least = std::min(least, sum / static_cast<double>(count_));
      }
      return least;
    };
    const double one = std::min(alone(a), alone(b));
    pair.earned = one - pair.misfit >= kEarned * tester_.nothing(count_) ||
                  (one > kLegalMisfit && pair.misfit < kLegalMisfit / 2);
  }

 private:
  Tester& tester_;
  size_t count_;
  std::vector<std::vector<char>> in_;  // by scope, everywhere first
  std::vector<std::string> words_;
};

}  // namespace

static bool compose_pair(const Rules& right, const Hypothesis& a, const Hypothesis& b, Rules* both) {
  // Which head a key is read of is asked where it is read.
  const bool late = a.cause.starts_with("heads.");
  return compose(right, late ? b.rules : a.rules, late ? a.rules : b.rules, both);
}

// Two words for one mistake: a decoding and a factor, two shapes of the exponential, two departures of the
// LSE. What is merely observed in the outputs (zeros, NaN) is what another mistake leads to, and joins none.
static bool one_in_two(const Hypothesis& a, const Hypothesis& b) {
  const auto either = [&](const auto& x, const auto& y) {
    return (x(a.cause) && y(b.cause)) || (x(b.cause) && y(a.cause));
  };
  using Cause = std::string_view;
  const auto factor = [](Cause c) {
    return c == "output.scaled" || c == "scale.softmax" || c == "scale.k_factor" || c == "scale.v_factor" ||
           c == "softmax.row_sum_scaled";
  };
  const auto exponential = [](Cause c) { return c == "precision.exp" || c == "softmax.log2e"; };
  const auto decoding = [](Cause c) { return c.starts_with("format."); };
  const auto lse = [](Cause c) {
    return c.starts_with("lse.") || c == "merge.lse_wrong" || c == "precision.lse" ||
           c == "precision.partial_lse";
  };
  const auto symptom = [](Cause c) {
    return c == "output.zeros" || c == "output.nan" || c == "output.unwritten";
  };
  const auto any = [](Cause) { return true; };
  // Which keys are seen is one question.
  const auto slot = [](Cause c) { return c == "memory.unused_slot"; };
  const auto mask = [](Cause c) { return c.starts_with("mask."); };
  // A key that is missing from both sums is missing.
  const auto of_sum = [](Cause c) { return c == "softmax.l_missing_key"; };
  const auto of_output = [](Cause c) { return c == "keys.lanes_v_dropped"; };
  return either(exponential, exponential) || either(decoding, factor) || either(factor, factor) ||
         either(lse, lse) || either(symptom, any) || either(of_sum, of_output) || either(slot, mask);
}

// Where a first one explains the first samples they say nothing of a second: those that it leaves open, the
// worst of them.
static std::vector<size_t> left_open(const Tester& tester, const std::vector<double>& alone) {
  std::vector<size_t> open;
  for (size_t i = 0; i < alone.size(); ++i)
    if (tester.bad()[i] && alone[i] > kSolved) open.push_back(i);
  std::stable_sort(open.begin(), open.end(), [&](size_t a, size_t b) { return alone[a] > alone[b]; });
  if (open.size() > kOpenSamples) open.resize(kOpenSamples);
  return open;
}

std::optional<Pair> best_pair(const Clues& clues, Tester& tester, const Hypotheses& all,
                              std::vector<Tried> tried, size_t probes, size_t samples) {
  const auto cost = [&](const Pair& f) { return all[f.first].cost + all[f.second].cost; };
  std::vector<Pair> pairs;
  const Rules right = clues.predictor.right();
  std::vector<size_t> wrong;
  for (size_t i = 0; i < probes; ++i)
    if (tester.bad()[i]) wrong.push_back(i);
  if (wrong.size() < kFirstSamples) return {};
  const std::vector<size_t> firsts = leaders(all, tried);
  const size_t known = tried.size();
  std::vector<char> seen(all.size(), 0);
  for (const Tried& t : tried) seen[t.index] = 1;
  for (size_t i = 0; i < all.size(); ++i) {
    if (seen[i] || all[i].cost > kPlainPartner) continue;
    Tried t{i, 0, 0, 0, 0, 0, 0, true, {}};
    for (size_t k = 0; k < probes; ++k) t.each.push_back(tester.nothing_at(k));
    tried.push_back(std::move(t));
  }
  for (size_t n = 0; n < firsts.size(); ++n) {
    const size_t first = firsts[n];
    std::vector<double> alone;
    for (size_t i = 0; i < samples; ++i) alone.push_back(tester.of(all[first].rules, i).total);
    const std::vector<size_t> open = left_open(tester, alone);
    std::vector<size_t> looked_at = open;
    for (size_t i : wrong)
      if (std::find(open.begin(), open.end(), i) == open.end()) looked_at.push_back(i);
    for (size_t second = 0; second < (n < kFirstsOfAll ? tried.size() : known); ++second) {
      const Tried& t = tried[second];
      if (!t.changes || t.index == first || all[t.index].cause == all[first].cause || !usable(all[t.index]))
        continue;
      Rules both;
      if (one_in_two(all[first], all[t.index])) continue;
      if (!compose_pair(right, all[first], all[t.index], &both)) continue;
      // Some cells may have the one alone, or the other.
      double sum = 0, of_first = 0, of_second = 0;
      bool worth = true;
      for (size_t k = 0; k < looked_at.size() && worth; ++k) {
        const size_t i = looked_at[k];
        const double second_alone = i < t.each.size() ? t.each[i] : tester.nothing_at(i);
        of_first += alone[i], of_second += second_alone;
        const double one = std::min(alone[i], second_alone);
        const double left = one < kSolved ? one : std::min(one, tester.of(both, i).total);
        sum += left;
        worth = left <= std::max(kSolved, kWorthTwo * one);
      }
      worth = worth && sum <= kWorthTwo * std::min(of_first, of_second);
      if (worth) pairs.push_back({first, t.index, sum, {}, {}});
    }
  }
  if (pairs.empty()) return {};
  const auto better_pair = [&](const Pair& a, const Pair& b) {
    return a.misfit + kCostWeight * cost(a) < b.misfit + kCostWeight * cost(b);
  };
  for (const auto& [count, keep] : {std::pair{probes, size_t{24}}, {samples, size_t{6}}}) {
    std::stable_sort(pairs.begin(), pairs.end(), better_pair);
    if (pairs.size() > keep) pairs.resize(keep);
    Scoped scoped(clues, tester, count);
    for (Pair& f : pairs) {
      Rules both;
      compose_pair(right, all[f.first], all[f.second], &both);
      scoped.fit(all, both, f);
    }
  }
  std::erase_if(pairs, [](const Pair& f) { return !f.earned; });
  if (pairs.empty()) return {};
  return *std::min_element(pairs.begin(), pairs.end(), better_pair);
}

std::optional<Pair> second_on_first(const Clues& clues, Tester& tester, const std::vector<Family>& families,
                                    const Choice& choice, Hypotheses& all, const std::vector<Tried>& tried,
                                    size_t probes, size_t samples) {
  if (first_wrong(tester, probes).size() < kFirstSamples) return {};
  std::vector<size_t> firsts = leaders(all, tried);
  std::set<std::string_view> causes;
  std::erase_if(firsts, [&](size_t i) { return !causes.insert(all[i].cause).second; });
  if (firsts.size() > kBases) firsts.resize(kBases);
  std::optional<Pair> best;
  for (const size_t first : firsts) {
    const Rules base = all[first].rules;
    Hypotheses more;
    clues.predictor.stand_on(&base);
    for (const Family family : families) family(clues, more);
    clues.predictor.stand_on(nullptr);
    keep_asked(more, choice);
    std::vector<double> of_base;
    for (size_t i = 0; i < samples; ++i) of_base.push_back(tester.of(base, i).total);
    std::vector<size_t> wrong = left_open(tester, of_base);
    if (wrong.empty()) wrong = first_wrong(tester, probes);
    double alone = 0;
    for (size_t i : wrong) alone += of_base[i];
    struct Left {
      double misfit;
      size_t at;
    };
    std::vector<Left> left;
    for (size_t k = 0; k < more.size(); ++k) {
      const Hypothesis& h = more[k];
      if (h.cause == all[first].cause || h.rules.weight_noise > 0 || one_in_two(all[first], h)) continue;
      double sum = 0;
      for (size_t i : wrong)
        if (sum <= kWorthTwo * alone) sum += tester.of(h.rules, i).total;
      if (sum <= kWorthTwo * alone) left.push_back({sum + kCostWeight * h.cost, k});
    }
    for (const auto& [count, keep] : {std::pair{probes, size_t{12}}, {samples, size_t{4}}}) {
      std::stable_sort(left.begin(), left.end(),
                       [](const Left& a, const Left& b) { return a.misfit < b.misfit; });
      if (left.size() > keep) left.resize(keep);
      for (Left& l : left) {
        double sum = 0;
        for (size_t i = 0; i < count; ++i) sum += tester.of(more[l.at].rules, i).total;
        l.misfit = sum / static_cast<double>(count) + kCostWeight * more[l.at].cost;
      }
    }
    if (left.empty()) continue;
    const Left& least = *std::min_element(left.begin(), left.end(),
                                          [](const Left& a, const Left& b) { return a.misfit < b.misfit; });
    if (best && least.misfit >= best->misfit) continue;
    double base_leaves = 0;
    for (size_t i = 0; i < samples; ++i) base_leaves += tester.of(base, i).total;
    base_leaves /= static_cast<double>(samples);
    if (base_leaves - least.misfit < kEarned * tester.nothing(samples) &&
        (base_leaves <= kLegalMisfit || least.misfit >= kLegalMisfit / 2))
      continue;
    all.push_back(std::move(more[least.at]));
    best = Pair{first, all.size() - 1, least.misfit, {}, {}};
  }
  return best;
}

}  // namespace assay
