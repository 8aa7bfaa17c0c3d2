// SPDX-License-Identifier: Apache-2.0
// See rank.hpp. A true hypothesis fits every cell, so a handful of cells removes nearly all false ones.
#include "harness/explain/rank.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "harness/explain/compose.hpp"
#include "harness/explain/everywhere.hpp"
#include "harness/explain/misfit.hpp"
#include "harness/explain/narrow.hpp"
#include "harness/explain/other_names.hpp"
#include "harness/explain/pairs.hpp"
#include "harness/explain/plain_names.hpp"
#include "harness/explain/recut.hpp"
#include "harness/explain/samples.hpp"
#include "harness/explain/second_line.hpp"
#include "harness/explain/tester.hpp"

namespace assay {
namespace {

constexpr size_t kProbes = 8;      // samples those worth it are computed on
constexpr size_t kGlances = 3;     // samples they are computed on before
constexpr size_t kGlanced = 2000;  // hypotheses that go on to the probes
constexpr size_t kGlancedByRest = 150;
constexpr size_t kFinalists = 90;        // hypotheses computed on all samples
constexpr double kPartialCost = 1.0;     // of "in the wrong cells only"
constexpr double kScopeCost = 0.35;      // of "in the last request" and the like
constexpr double kLeastGain = 0.005;     // of what a hypothesis must explain
constexpr double kSolvedAlready = 0.04;  // share of the misfit below which nothing further is tried ...
constexpr double kSolvedRest = 0.7;      // ... where no more than this is left either
constexpr double kNoRule = 0.1;          // more misfit than in the wrong cells alone
constexpr size_t kRulesOnAll = 24;       // that seem to explain the case on the first samples
constexpr double kSearched = 0.15;       // more that a fitted alternative costs than a plain cause
constexpr double kAssumedMuch = 0.4;     // cost from which on "nearly all" is asked for
constexpr double kAssumedSome = 0.2;     // ... and a third line
constexpr double kFewFinite = 0.5;       // share of the wrong cells
constexpr double kAllBut = 0.97;         // ... explained, where more is left than legal rounding
constexpr double kPartThere = 0.95;      // of the second line, by a part of the case
constexpr double kNamed = 0.15;          // more misfit than the best, of what may be said on one of the lines
constexpr double kNoBetter = 0.998;      // share of the misfit that a hypothesis must get below

}  // namespace

bool better(const Ranked& a, const Ranked& b) {
  return a.misfit + kCostWeight * a.cost < b.misfit + kCostWeight * b.cost;
}

std::vector<Ranked> equally_good(const Ranking& ranking) {
  std::vector<Ranked> best;
  // What had to be searched for, or is far-fetched, is no alternative to a plain mechanism that explains as
  // much.
  const auto searched = [&](const Ranked& r) {
    const double dearer = r.cost - best.front().cost;
    return !r.same_as_first && dearer > (r.free > best.front().free ? kSearched : kFarFetched);
  };
  for (const Ranked& r : ranking.list)
    if (best.empty() || (r.fact == best.front().fact && r.misfit <= best.front().misfit + kSameMisfit &&
                         r.explained >= kSure && !r.told_apart && !searched(r)))
      best.push_back(r);
  return best;
}

bool sure(const Ranking& ranking) {
  if (ranking.list.empty()) return false;
  const Ranked& first = ranking.list.front();
  if (!first.fact && ranking.explained_there < (first.cost < kAssumedMuch ? kSure : kSureThere)) return false;
  // Which cells are wrong is all that NaN says, and no rule was found for it.
  if (!first.fact && first.in_wrong_cells && ranking.finite < kFewFinite) return false;
  // Keys, tiles or parts that were chosen, in cells that no rule names: there is always such a part of them.
  if (!first.fact && first.in_wrong_cells &&
      (first.in_some_keys || first.text.find(", were it cut") != std::string::npos ||
       first.text.find(", tiles of") != std::string::npos))
    return false;
  if (!first.fact && (first.against_order || first.by_cell || !ranking.unsaid.empty())) return false;
  if (!first.fact && ranking.bad_cells > 0 && first.free >= ranking.bad_cells) return false;
  // That it holds in a part of the case alone is one thing more that is assumed.
  if (!first.fact && first.in_part && ranking.explained_there < kPartThere) return false;
  if (first.fact) return first.explained >= kNearlyAll;
  // A second cause beside a true one is soon found: of two all but nothing is to be left, here and there.
  if (!first.also.empty() && std::min(first.explained, ranking.explained_there) < kAllBut) return false;
  return (first.explained >= kNearlyAll && (first.misfit <= kLegalMisfit || first.explained >= kAllBut)) ||
         (first.explained >= kSure && first.misfit <= kLegalMisfit && first.cost < kAssumedMuch);
}

void plainest_first(Ranking& ranking) {
  if (ranking.list.empty()) return;
  auto plainest = ranking.list.begin();
  for (auto r = ranking.list.begin(); r != ranking.list.end(); ++r)
    if (r->same_as_first && !r->told_apart && r->cost + kSearched < plainest->cost) plainest = r;
  std::rotate(ranking.list.begin(), plainest, plainest + 1);
}

bool assumes_much(const Ranked& r) {
  return !r.fact && (r.free > 0 || r.in_part || r.cost >= kAssumedSome || !r.also.empty());
}

// Whether it changes nothing where all scores and weights are of the usual size.
static bool shows_by_values(const Rules& r) {
  return r.first_maximum > -std::numeric_limits<double>::infinity() || std::isfinite(r.skip_below) ||
         std::isfinite(r.round_clamp) || r.exp_of || r.edit_scores || r.sink_raw;
}

static bool in_parts(const Rules& r) { return r.arithmetic.splits > 1 || r.arithmetic.split_keys > 0; }

// Nothing is left that a second cause could explain.
bool clearly(const Ranking& ranking) { return sure(ranking) && ranking.list.front().misfit <= kLegalMisfit; }

Ranking rank(const Clues& clues, Predictor& low, const std::vector<Family>& families, const Choice& choice) {
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
  name_plainly(clues, all);
  keep_asked(all, choice);
  ranking.tested = static_cast<int64_t>(all.size());
  const std::vector<Judged> judged = judge_cells(clues.evidence, samples.front().call);
  for (const Judged& j : judged) ranking.bad_cells += j.bad;
  int64_t wrong_samples = 0, numbers = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!is_bad[i] || samples[i].call != samples.front().call) continue;
    ++wrong_samples;
    numbers += std::isfinite(clues.evidence.got(samples[i].call, samples[i].cell, 0));
  }
  if (wrong_samples > 0) ranking.finite = static_cast<double>(numbers) / static_cast<double>(wrong_samples);
  const std::vector<Scope> scopes = choice.parts.empty()
                                        ? scopes_of(clues.problem(), judged)
                                        : scopes_named(clues.problem(), judged, choice.parts);
  if (!choice.only.empty()) ranking.around = parts_around(clues.problem(), judged);
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
    const auto form = [&](const std::vector<char>* in, bool dims, double price, int free, int scope = -1) {
      each(Form{tester.mean(of, in, dims ? &Tester::One::dims : &Tester::One::total), price, free, in, dims,
                scope});
    };
    if (choice.parts.empty()) form(nullptr, false, 0, 0);
    if (partial || !choice.parts.empty())
      for (size_t s = 0; s < scopes.size(); ++s)
        form(&in_scope[s], false, kScopeCost + scopes[s].cost, 0, static_cast<int>(s));
    if (!choice.parts.empty()) return;
    if (partial) form(&in_bad, false, kPartialCost, 1);
    if (!tester.by_dims()) return;
    form(nullptr, true, kScopeCost, 0);
    if (partial) form(&in_bad, true, kPartialCost + kScopeCost, 1);
  };
  const auto words = [&](const Form& f) -> std::string {
    if (f.scope >= 0) return ", in " + scopes[f.scope].name.words;
    if (f.dims) return f.in ? ", in the wrong dimensions of the wrong cells" : ", in the wrong dimensions";
    return f.in ? ", in the wrong cells only" : "";
  };
  // A hypothesis of any use helps in the first few samples; those that hardly do are not computed on more.
  const auto glances = [&](size_t from) {
    std::vector<std::pair<double, size_t>> glance, rest;
    for (size_t i = from; i < all.size(); ++i) {
      double best = std::numeric_limits<double>::infinity();
      const std::vector<Tester::One> of = tester.all(all[i].rules, std::min(kGlances, probes));
      forms(of, [&](const Form& f) { best = std::min(best, f.misfit); });
      glance.emplace_back(best + kCostWeight * all[i].cost, i);
      double left = 0;
      for (const Tester::One& one : of) left += one.rest;
      rest.emplace_back(left, i);
    }
    std::stable_sort(glance.begin(), glance.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    if (glance.size() > kGlanced) {
      glance.resize(kGlanced);
      // One of two large mistakes leaves less of the error, and as much of it in units of rounding.
      std::vector<char> taken(all.size(), 0);
      for (const auto& [unused, i] : glance) taken[i] = 1;
      std::stable_sort(rest.begin(), rest.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t i = 0; i < kGlancedByRest; ++i)
        if (!taken[rest[i].second]) glance.push_back(rest[i]);
    }
    return glance;
  };
  std::vector<Tried> tried;
  const auto try_out = [&](size_t i) {
    const std::vector<Tester::One> of = tester.all(all[i].rules, probes);
    Tried t{i, std::numeric_limits<double>::infinity(), 0, 0, 0, 0, 0, false, {}};
    forms(of, [&](const Form& f) {
      const double misfit = f.misfit + kCostWeight * (f.price + all[i].cost);
      t.probe = std::min(t.probe, misfit);
      // What was chosen cell by cell is no rule either.
      if (f.in != &in_bad && all[i].cost < kPartialCost) t.by_rule = std::min(t.by_rule, misfit);
    });
    for (size_t k = 0; k < of.size(); ++k) {
      t.each.push_back(of[k].total);
      t.total += of[k].total, t.o += of[k].o, t.lse += of[k].lse, t.rest += of[k].rest;
      t.changes = t.changes || std::fabs(of[k].total - tester.nothing_at(k)) > 1e-6;
      t.solved += in_bad[k] && of[k].total < 0.5 && tester.nothing_at(k) > 2;
    }
    tried.push_back(t);
  };
  for (const auto& [unused, i] : glances(0)) try_out(i);
  // Where a mechanism fits the wrong cells and no rule says which these are, the rule is looked for. What
  // seems a rule on the first samples is looked at on all.
  std::map<size_t, double> on_all;
  const auto by_rule_on_all = [&](size_t i) {
    const auto [at, fresh] = on_all.try_emplace(i, std::numeric_limits<double>::infinity());
    if (!fresh) return at->second;
    double any = at->second;
    forms(tester.all(all[i].rules, samples.size()), [&](const Form& f) {
      const double misfit = f.misfit + kCostWeight * (f.price + all[i].cost);
      any = std::min(any, misfit);
      if (f.in != &in_bad) at->second = std::min(at->second, misfit);
    });
    // A part of the case that holds a few right cells too many is no rule either.
    if (at->second > any + kNoRule) at->second = std::numeric_limits<double>::infinity();
    return at->second;
  };
  const auto explained_but = [&](double left, double most) {
    std::vector<std::pair<double, size_t>> likely;
    for (const Tried& t : tried)
      if (t.by_rule < left * tester.nothing(probes)) likely.emplace_back(t.by_rule, t.index);
    std::stable_sort(likely.begin(), likely.end());
    if (likely.size() > kRulesOnAll) likely.resize(kRulesOnAll);
    const double enough = std::min(left * tester.nothing(), most);
    return std::any_of(likely.begin(), likely.end(),
                       [&](const auto& l) { return by_rule_on_all(l.second) < enough; });
  };
  const auto solved = [&] { return explained_but(kSolvedAlready, kSolvedRest); };
  if (!choice.further.empty() && (choice.narrow || !solved())) {
    Hypotheses more;
    for (const Family family : choice.further) family(clues, more);
    keep_asked(more, choice);
    ranking.tested += static_cast<int64_t>(more.size());
    const size_t known = all.size();
    for (Hypothesis& h : more) all.push_back(std::move(h));
    for (const auto& [unused, i] : glances(known)) try_out(i);
  }
  if (!choice.cut.empty() && (choice.narrow || !solved())) {
    for (Hypothesis& h : recut(clues, tester, choice, probes)) {
      all.push_back(std::move(h));
      try_out(all.size() - 1);
    }
  }
  // Where none of them does, one that is right about some keys may.
  const bool done = !choice.narrow && explained_but(1 - kNearlyAll, kLegalMisfit);
  if (!done)
    for (Hypothesis& h : narrowed_leaders(clues, tester, all, tried, probes, choice.narrow)) {
      // In some keys alone it may be called otherwise.
      if (choice.excludes(h)) continue;
      all.push_back(std::move(h));
      try_out(all.size() - 1);
    }
  // Equal ones in the order in which they were proposed.
  std::stable_sort(tried.begin(), tried.end(),
                   [](const Tried& a, const Tried& b) { return a.index < b.index; });
  std::vector<Tried> finalists = tried;
  std::stable_sort(finalists.begin(), finalists.end(),
                   [](const Tried& a, const Tried& b) { return a.probe < b.probe; });
  if (finalists.size() > kFinalists) finalists.resize(kFinalists);
  // What another sentence says as well is not known where that one is not.
  std::map<size_t, std::vector<std::string_view>> names;
  const auto names_of = [&](size_t i) -> const std::vector<std::string_view>& {
    const auto [at, fresh] = names.try_emplace(i);
    if (fresh) at->second = other_names(clues, all[i]);
    return at->second;
  };
  if (!choice.without.empty()) {
    std::set<size_t> not_known;
    for (const Tried& t : finalists)
      for (const std::string_view name : names_of(t.index))
        if (std::find(choice.without.begin(), choice.without.end(), name) != choice.without.end())
          not_known.insert(t.index);
    const auto hidden = [&](const Tried& t) { return not_known.contains(t.index); };
    std::erase_if(finalists, hidden);
    std::erase_if(tried, hidden);
  }

  const bool one_go = works_in_one_go(clues.evidence);
  std::map<std::string_view, Offered> best;
  std::map<std::string_view, std::vector<Offered>> forms_of;  // those that explain the samples
  std::vector<std::pair<double, size_t>> reached;             // misfits of all forms
  for (const Tried& t : finalists) {
    const Hypothesis& h = all[t.index];
    forms(tester.all(h.rules, samples.size()), [&](const Form& f) {
      // What predicts nothing but right results explains nothing.
      if (f.misfit > ranking.nothing * kNoBetter || ranking.nothing - f.misfit < kLeastGain) return;
      const double explained = 1 - f.misfit / ranking.nothing;
      // Noise of any size explains some of anything.
      if (h.rules.weight_noise > 0 && explained < kSure) return;
      Ranked r{h.cause, h.text + words(f), f.misfit, explained, h.cost + f.price, false, h.free + f.free};
      r.in_wrong_cells = f.in == &in_bad;
      r.in_part = f.in != nullptr;
      r.in_some_keys = h.in_some_keys;
      r.against_order = one_go && in_parts(h.rules);
      r.by_cell = h.by_cell;
      r.price = f.price;
      if (f.scope >= 0) {
        r.parts = scopes[f.scope].same;
        r.parts.insert(r.parts.begin(), scopes[f.scope].name);
      }
      reached.emplace_back(f.misfit, t.index);
      if (explained >= kSure) forms_of[h.cause].push_back({r, t.index, f});
      const auto at = best.find(h.cause);
      if (at == best.end() || better(r, at->second.ranked)) best[h.cause] = {r, t.index, f};
    });
  }
  std::vector<Offered> offered;
  for (const auto& [cause, o] : best) offered.push_back(o);
  std::stable_sort(offered.begin(), offered.end(),
                   [](const Offered& a, const Offered& b) { return better(a.ranked, b.ranked); });
  for (Offered& o : offered) {
    const Offered& first = offered.front();
    o.ranked.same_as_first = o.ranked.misfit <= first.ranked.misfit + kSameMisfit;
    for (size_t i = 0; i < samples.size() && o.ranked.same_as_first; ++i)
      o.ranked.same_as_first =
          tester.alike(tester.predicted(all[first.index].rules, i, first.form.in, first.form.dims),
                       tester.predicted(all[o.index].rules, i, o.form.in, o.form.dims), i);
    ranking.list.push_back(o.ranked);
  }
  look_everywhere({clues, low, all, judged, scopes, in_bad}, best, forms_of, ranking);
  // Of what may be said.
  for (Ranked& r : ranking.list) {
    if (r.misfit > ranking.list.front().misfit + kNamed || r.explained < kSure) continue;
    r.names = names_of(best[r.cause].index);
    r.by_values = shows_by_values(all[best[r.cause].index].rules);
  }
  plainest_first(ranking);
  if (!clearly(ranking) && ranking.nothing > kLegalMisfit)
    for (bool solved : {false, true}) {
      if (solved && choice.upon.empty()) break;
      const auto two =
          solved ? second_on_first(clues, tester, choice.upon, choice, all, tried, probes, samples.size())
                 : best_pair(clues, tester, all, tried, probes, samples.size());
      if (!two) continue;
      const Hypothesis &a = all[two->first], &b = all[two->second];
      // What both of them say by one sentence, too.
      Hypothesis as_one = a;
      as_one.also_called.assign(1, b.cause);
      std::vector<std::string_view> names_of_two;
      if (compose(clues.predictor.right(), a.rules, b.rules, &as_one.rules))
        names_of_two = other_names(clues, as_one);
      if (std::any_of(names_of_two.begin(), names_of_two.end(), [&](std::string_view n) {
            return std::find(choice.without.begin(), choice.without.end(), n) != choice.without.end();
          }))
        continue;
      std::erase(names_of_two, b.cause);
      // The price of having looked at so many pairs and of their numbers, spread over the wrong cells.
      const double price =
          (2 + a.free + b.free) * std::log(double(all.size())) / static_cast<double>(ranking.bad_cells);
      const double misfit = two->misfit + price;
      const auto in = [](const std::string& scope) { return scope.empty() ? "" : ", in " + scope; };
      if (misfit <= kLegalMisfit && 1 - misfit / ranking.nothing >= kNearlyAll) {
        ranking.alike = {{a.cause, a.text}, {b.cause, b.text}};
        Ranked both{
            a.cause,
            fmt::format("two causes: {}{}; and {}{}", a.text, in(two->first_in), b.text, in(two->second_in)),
            misfit,
            1 - misfit / ranking.nothing,
            a.cost + b.cost + kPartialCost,
            false,
            a.free + b.free,
            b.cause};
        both.against_order = one_go && (in_parts(a.rules) || in_parts(b.rules));
        both.price = both.cost - std::min(a.cost, b.cost);
        both.names = std::move(names_of_two);
        ranking.list.insert(ranking.list.begin(), std::move(both));
        break;
      }
    }
  for (size_t i = 1; i < ranking.list.size(); ++i)
    if (!ranking.list[0].also.empty()) ranking.list[i].same_as_first = false;
  for (const auto& [misfit, index] : reached)
    if (misfit <= ranking.list.front().misfit + kSameMisfit)
      ranking.alike.insert({all[index].cause, all[index].text});
  return ranking;
}

}  // namespace assay
