// SPDX-License-Identifier: Apache-2.0
// Numbers of the scores that no list holds: the soft cap and its curve, the distances and slopes of ALiBi,
// the sinks' logits, which the wrong cells give one by one.
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "harness/explain/families/fit.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kMostSinks = 64;    // that one may count for
constexpr double kSameLogit = 2e-3;  // logits of sinks that are one number

void put(const Clues& clues, Hypotheses& out, std::string_view cause, std::string text, double cost,
         int32_t free, const std::function<void(Rules&)>& set) {
  Hypothesis h = propose(clues, cause, std::move(text), cost);
  set(h.rules);
  h.free = free;
  out.push_back(std::move(h));
}

double with_bias(const ScoreParts& s, double unbiased) {
  ScoreParts none = s;
  none.alibi = ASSAY_ALIBI_NONE;
  return unbiased + (standard_score(s) - standard_score(none));
}

void caps(const Clues& clues, const Fit& fit, Hypotheses& out) {
  const double cap = clues.problem().softcap;
  if (!(cap > 0)) return;
  struct Curve {
    const char* name;
    double (*of)(double);
  };
  const Curve curves[] = {
      {"tanh", [](double x) { return std::tanh(x); }},
      {"atan", [](double x) { return std::atan(x); }},
      {"2/pi atan(pi/2 x)",
       [](double x) { return std::atan(x * std::numbers::pi / 2) * 2 / std::numbers::pi; }},
      {"erf", [](double x) { return std::erf(x); }},
      {"x / (1 + |x|)", [](double x) { return x / (1 + std::fabs(x)); }},
      {"x / sqrt(1 + x^2)", [](double x) { return x / std::sqrt(1 + x * x); }},
      {"x cut at 1", [](double x) { return std::clamp(x, -1.0, 1.0); }},
      {"sin", [](double x) { return std::sin(std::clamp(x, -std::numbers::pi / 2, std::numbers::pi / 2)); }},
      {"1 - e^-|x|", [](double x) { return std::copysign(-std::expm1(-std::fabs(x)), x); }},
  };
  const auto rule = [](Rules& r, double (*of)(double), double inner, double outer) {
    r.score = [=](const Scene&, const Term&, const ScoreParts& s) {
      return with_bias(s, outer * of(s.scale * s.dot / inner));
    };
  };
  for (const Curve& c : curves) {
    const bool tanh = std::string_view(c.name) == "tanh";
    if (!tanh)
      put(clues, out, "softcap.ratio", fmt::format("{} in place of tanh", c.name), 0.25, 0,
          [&](Rules& r) { rule(r, c.of, cap, cap); });
    for (int where : {0, 1, 2}) {  // both caps, that in front of the curve, that behind it
      const auto set = [&](Rules& r, double x) {
        rule(r, c.of, where == 2 ? cap : cap * x, where == 1 ? cap : cap * x);
      };
      const auto found = fit.along(grid_of_logs(0.15, 6, 31), false, set);
      const char* words[] = {"", " in front", " behind"};
      if (found)
        put(clues, out, "softcap.ratio",
            fmt::format("{} with a cap times {:.6g}{}", c.name, *found, words[where]),
            kSolvedCost - 0.1 + 0.1 * !tanh + 0.05 * (where > 0), 1, [&](Rules& r) { set(r, *found); });
    }
  }
  // Odd polynomials, cut where they are used.
  for (double most : {kInf, 1.0, 1.5, 2.0, 3.0, 0.0})
    for (size_t terms : {1, 2}) {
      const auto set = [&](Rules& r, const std::vector<double>& c) {
        r.score = [=](const Scene&, const Term&, const ScoreParts& s) {
          const double limit = most == 0 && c[0] < 0 ? std::sqrt(-1 / (3 * c[0])) : most == 0 ? kInf : most;
          const double y = std::clamp(s.scale * s.dot / s.softcap, -limit, limit), z = y * y;
          return with_bias(s, s.softcap * y * (1 + z * (c[0] + (terms > 1 ? c[1] * z : 0))));
        };
      };
      const auto found =
          fit.many(terms > 1 ? std::vector<double>{-0.3, 0.06} : std::vector<double>{-0.27}, 1e-5, set);
      if (!found) continue;
      std::string text = fmt::format("x {:+.5g} x^3", (*found)[0]);
      if (terms > 1) text += fmt::format(" {:+.5g} x^5", (*found)[1]);
      if (std::isfinite(most) && most > 0) text += fmt::format(", to {:g}", most);
      if (most == 0) text += ", to where it turns";
      put(clues, out, "softcap.ratio", text + " in place of tanh", 0.5 + 0.15 * static_cast<double>(terms),
          static_cast<int32_t>(terms), [&](Rules& r) { set(r, *found); });
    }
}

void alibis(const Clues& clues, const Fit& fit, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (p.alibi == ASSAY_ALIBI_NONE) return;
  const auto slope = fit.along(grid_of(-3, 4, 57), false, [](Rules& r, double x) {
    r.slope = [x](const Scene&, double s) { return x * s; };
  });
  if (slope)
    put(clues, out, "alibi.scaled", fmt::format("slopes times {:.6g}", *slope), kSolvedCost, 1,
        [&](Rules& r) { r.slope = [x = *slope](const Scene&, double s) { return x * s; }; });
  using Of = std::function<double(const Scene&, const Term&, double)>;
  const auto distance = [](Rules& r, const Of& of) { r.distance = of; };
  const auto whole = [&](const char* text, int32_t low, int32_t high, const std::function<Of(int32_t)>& of) {
    auto found = fit.whole(low, high, [&](Rules& r, int32_t n) { distance(r, of(n)); });
    if (!found) return;
    const std::string words = fmt::format(fmt::runtime(text), *found);
    put(clues, out, "alibi.shifted", words, kSolvedCost - 0.1, 1, [&](Rules& r) { distance(r, of(*found)); });
  };
  const int32_t most = std::min(p.max_kv_len(), 512);
  whole("distance {:+}", -64, 64,
        [](int32_t n) -> Of { return [n](const Scene&, const Term&, double d) { return d + n; }; });
  whole("distance no larger than {}", 1, most, [](int32_t n) -> Of {
    return [n](const Scene&, const Term&, double d) { return std::min(d, double(n)); };
  });
  whole("distance no smaller than {}", 1, most, [](int32_t n) -> Of {
    return [n](const Scene&, const Term&, double d) { return std::max(d, double(n)); };
  });
  whole("no bias from a distance of {} on", 1, most,
        [](int32_t n) -> Of { return [n](const Scene&, const Term&, double d) { return d < n ? d : 0.0; }; });
  const auto down = [](int32_t x, int32_t n) { return x / n * n; };
  whole("distance from the first key of a run of {}", 2, most, [=](int32_t n) -> Of {
    return [=](const Scene& s, const Term& t, double) { return double(s.position - down(t.position, n)); };
  });
  whole("distance from the last key of a run of {}", 2, most, [=](int32_t n) -> Of {
    return [=](const Scene& s, const Term& t, double) {
      return std::max(0.0, double(s.position - down(t.position, n) - n + 1));
    };
  });
  whole("distance to the first position of a run of {}", 2, most, [=](int32_t n) -> Of {
    return [=](const Scene& s, const Term& t, double) { return double(down(s.position, n) - t.position); };
  });
  whole("distance between the first ones of runs of {}", 2, most, [=](int32_t n) -> Of {
    return [=](const Scene& s, const Term& t, double) {
      return double(down(s.position, n) - down(t.position, n));
    };
  });
  whole("distance in whole runs of {}", 2, most, [=](int32_t n) -> Of {
    return [=](const Scene&, const Term&, double d) { return std::floor(d / n) * n; };
  });
}

double joined(double a, double b) {
  const double top = std::max(a, b);
  return top == -kInf ? top : top + std::log(std::exp(a - top) + std::exp(b - top));
}

// What a head's sink must have been, from the LSE of its wrong cells, or from O where the LSE is right.
std::map<int32_t, double> logits(const Clues& clues) {
  Rules none = clues.predictor.right();
  none.sink = [](const Scene&, double) { return -kInf; };
  std::map<int32_t, std::pair<double, double>> best;  // by head: share of the sink, logit
  const Rules right = clues.predictor.right();
  for (const Sample& s : clues.bad) {
    if (s.call == Call::kLow) continue;
    const Prediction keys = clues.predictor.predict(none, s.cell),
                     whole = clues.predictor.predict(right, s.cell);
    const double got = clues.evidence.got(s.call, s.cell, -1);
    double share = 0;
    if (std::fabs(got - whole.lse) > 1e-4) {
      share = -std::expm1(keys.lse - got);
    } else {
      double both = 0, own = 0;
      for (int32_t d = 0; d < clues.problem().head_dim_v; ++d) {
        const double o = keys.o[static_cast<size_t>(d)];
        both += o * clues.evidence.got(s.call, s.cell, d), own += o * o;
      }
      share = own > 0 ? 1 - both / own : 0;
    }
    if (!(share > 0 && share < 1)) continue;
    const double of = std::min(share, 1 - share), logit = keys.lse + std::log(share / (1 - share));
    auto& at = best[s.cell.head];
    if (of > at.first) at = {of, logit};
  }
  std::map<int32_t, double> found;
  for (const auto& [head, at] : best) found[head] = at.second;
  return found;
}

void sinks(const Clues& clues, const Fit& fit, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (!p.sinks) return;
  const Predictor* predictor = &clues.predictor;
  const auto given = [predictor](const Scene& s) { return predictor->reader().sink(s.cell.head); };
  put(clues, out, "sinks.ignored", "no sink in O, though in the LSE", 0.1, 0, [&](Rules& r) {
    r.sink = [](const Scene&, double) { return -kInf; };
    r.lse = [given](const Scene& s, const LseParts& l) { return joined(l.lse, given(s)); };
  });
  const auto is = [&](std::string_view cause, std::string text, double cost, int32_t free,
                      std::function<double(const Scene&, double)> of) {
    put(clues, out, cause, std::move(text), cost, free, [&](Rules& r) { r.sink = std::move(of); });
  };
  const std::string_view other = "sinks.other_value";
  is(other, "every sink is 0, and so adds 1", 0.15, 0, [](const Scene&, double) { return 0.0; });
  is(other, "its sign is wrong", 0.15, 0, [](const Scene&, double s) { return -s; });
  is(other, "its sign is lost", 0.2, 0, [](const Scene&, double s) { return std::fabs(s); });
  is(other, "a sink below 0 counts as 0", 0.25, 0, [](const Scene&, double s) { return std::max(s, 0.0); });
  for (const int32_t format : {ASSAY_BF16, ASSAY_FP16})
    is(other, fmt::format("sinks in {}", name_of(format_names(), format)), 0.15, 0,
       [format](const Scene&, double s) { return round_to(format, s); });
  is(other, "the sink counts as its exponential", 0.25, 0,
     [](const Scene&, double s) { return std::exp(s); });
  is(other, "the sink counts as its logarithm", 0.3, 0, [](const Scene&, double s) { return std::log(s); });
  const std::map<int32_t, double> found = logits(clues);
  if (!found.empty()) {
    double low = kInf, high = -kInf, sum = 0, shift_low = kInf, shift_high = -kInf, shift = 0;
    for (const auto& [head, logit] : found) {
      low = std::min(low, logit), high = std::max(high, logit), sum += logit;
      const double by = logit - predictor->reader().sink(head);
      shift_low = std::min(shift_low, by), shift_high = std::max(shift_high, by), shift += by;
    }
    const auto n = static_cast<double>(found.size());
    if (high - low < kSameLogit && found.size() > 1)
      is(other, fmt::format("every sink is {:.5g}", sum / n), 0.4, 1,
         [x = sum / n](const Scene&, double) { return x; });
    if (shift_high - shift_low < kSameLogit && found.size() > 1) {
      // By the logarithm of a whole number: so often it counts.
      const double times = std::nearbyint(std::exp(shift / n));
      const bool counted =
          times >= 2 && times <= kMostSinks && std::fabs(std::log(times) - shift / n) < kSameLogit;
      is(counted ? "sinks.per_split" : other,
         counted ? fmt::format("counted {:g} times", times) : fmt::format("sinks off by {:+.5g}", shift / n),
         0.45, 1, [x = counted ? std::log(times) : shift / n](const Scene&, double s) { return s + x; });
    }
    std::string words;
    for (const auto& [head, logit] : found)
      if (words.size() < 40) words += fmt::format(" {:.3f}", logit);
    is(other, "by head" + words, 1.2, static_cast<int32_t>(found.size()),
       [found](const Scene& s, double sink) {
         const auto at = found.find(s.cell.head);
         return at == found.end() ? sink : at->second;
       });
  }
  const auto factor = fit.along(grid_of(-3, 4, 57), false, [](Rules& r, double x) {
    r.sink = [x](const Scene&, double s) { return x * s; };
  });
  if (factor)
    is("sinks.unscaled", fmt::format("times {:.5g}", *factor), kSolvedCost - 0.15, 1,
       [x = *factor](const Scene&, double s) { return x * s; });
  for (bool in_o : {false, true}) {  // right in one of the outputs
    const auto at = fit.along(grid_of(-3, 4, 29), false, [&](Rules& r, double x) {
      r.sink = [=](const Scene&, double s) { return in_o ? s : x; };
      r.lse = [=](const Scene& s, const LseParts& l) { return joined(l.without_sink, in_o ? x : given(s)); };
    });
    if (at)
      put(clues, out, other, fmt::format("every sink is {:.5g} in {} alone", *at, in_o ? "the LSE" : "O"),
          kSolvedCost, 1, [&](Rules& r) {
            r.sink = [=, x = *at](const Scene&, double s) { return in_o ? s : x; };
            r.lse = [=, x = *at](const Scene& s, const LseParts& l) {
              return joined(l.without_sink, in_o ? x : given(s));
            };
          });
  }
}

// Scores cut at a number, or rounded to steps.
void limits(const Clues& clues, const Fit& fit, Hypotheses& out) {
  const auto most = fit.along(grid_of_logs(0.05, 60, 30), false, [](Rules& r, double x) {
    r.score = [x](const Scene&, const Term&, const ScoreParts& s) { return std::min(x, standard_score(s)); };
  });
  if (most)
    put(clues, out, "softmax.scores_cut", fmt::format("scores cut at {:.5g}", *most), kSolvedCost, 1,
        [&](Rules& r) {
          r.score = [x = *most](const Scene&, const Term&, const ScoreParts& s) {
            return std::min(x, standard_score(s));
          };
        });
}

}  // namespace

void solved_score_family(const Clues& clues, Hypotheses& out) {
  if (too_large(clues, kLargestCell)) return;
  const Fit fit(clues);
  if (clues.wants("softcap.ratio")) caps(clues, fit, out);
  if (clues.wants("alibi.scaled") || clues.wants("alibi.shifted")) alibis(clues, fit, out);
  sinks(clues, fit, out);
  limits(clues, fit, out);
}

}  // namespace assay
