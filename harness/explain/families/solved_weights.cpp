// SPDX-License-Identifier: Apache-2.0
// Thresholds and coefficients of the softmax that no list holds: from which weight on keys count, which tiles
// are skipped, how the exponential is approximated, where weights or scores are clamped or rounded.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "harness/explain/families/fit.hpp"

namespace assay {
namespace {

constexpr size_t kTilings = 10;       // ways in tiles that thresholds are looked for in
constexpr size_t kWorst = 6;          // cells that tell whether numbers are enough
constexpr double kNothingLeft = 0.2;  // misfit of such a cell
constexpr double kNear = 0.97;        // of a threshold that was found, its exact value
constexpr double kSameBase = 1e-3;    // relative, of a factor that is the change of a base

using Set = Fit::Set;

class Solver {
 public:
  Solver(const Clues& clues, Hypotheses& out) : clues_(clues), out_(out), fit_(clues) {
    tilings_ = {Layout{}};  // all keys of a request at once
    for (const Layout& l : clues.tilings)
      if (tilings_.size() < (clues.only ? 3 : 1) * kTilings) tilings_.push_back(l);
  }
  const Clues& clues() const { return clues_; }
  const Fit& fit() const { return fit_; }
  const std::vector<Layout>& tilings() const { return tilings_; }
  void put(std::string_view cause, const std::string& text, double cost, int32_t free,
           const std::function<void(Rules&)>& set) {
    Hypothesis h = propose(clues_, cause, text, cost);
    set(h.rules);
    h.free = free;
    out_.push_back(std::move(h));
  }
  // Whether the worst cells are explained: what more numbers would fit is noise.
  bool leaves_nothing(const std::function<void(Rules&)>& set) const {
    Rules rules = clues_.predictor.right();
    set(rules);
    double left = 0;
    for (size_t i = 0; i < std::min(kWorst, clues_.bad.size()); ++i)
      left = std::max(left, misfit_at(clues_, clues_.bad[i], rules));
    return left < kNothingLeft;
  }
  // A number in each way in tiles; `text` has a place for it. `stands`: it takes the place of what is beyond
  // it, so that every digit of it shows, not only on which side others lie.
  void threshold(std::string_view cause, const char* text, double cost, const std::vector<double>& grid,
                 const Set& set, bool whole_too = true, bool stands = false,
                 std::vector<std::string_view> also_called = {}) {
    if (!clues_.wants(cause)) return;
    for (const Layout& l : tilings_) {
      if (!whole_too && l.tile_keys == 0) continue;
      const auto in = [&](Rules& r, double x) {
        l.apply(r);
        set(r, x);
      };
      auto found = fit_.along(grid, true, in);
      if (!found) continue;
      if (stands)
        if (const auto finer = fit_.along(grid_of(kNear * *found, *found / kNear, 9), false, in))
          found = finer;
      put(cause, "about " + fmt::format(fmt::runtime(text), *found) + l.words, cost + l.cost, 1,
          [&](Rules& r) { in(r, *found); });
      out_.back().also_called = also_called;
    }
  }

 private:
  const Clues& clues_;
  Hypotheses& out_;
  Fit fit_;
  std::vector<Layout> tilings_;
};

void cuts(Solver& add) {
  const std::vector<double> small = grid_of_logs(1e-5, 0.7, 22);
  add.threshold("keys.lanes_v_dropped", "{:.3g}: smaller weights are missing from the output", 0.5, small,
                [](Rules& r, double x) { r.p_of = [x](double p) { return p < x ? 0 : p; }; });
  add.threshold("softmax.small_dropped", "{:.3g}: smaller weights are taken as zero", 0.45, small,
                [](Rules& r, double x) {
                  r.p_of = [x](double p) { return p < x ? 0 : p; };
                  r.p_of_in_sum = true;
                });
  add.threshold("softmax.l_missing_key", "{:.3g}: smaller weights are missing from the row sum", 0.6, small,
                [](Rules& r, double x) {
                  r.exp_of = [x](double a) { return std::exp(a) < x ? 0 : std::exp(a); };
                  r.passes = Passes::kSum;
                });
  // Also by an exponential that sums are rescaled and merged with.
  add.threshold("softmax.small_dropped", "{:.3g}: the exponential of less is zero", 0.5, small,
                [](Rules& r, double x) {
                  r.exp_of = [x](double a) { return std::exp(a) < x ? 0 : std::exp(a); };
                  r.exp_everywhere = true;
                });
  for (bool everywhere : {false, true})
    add.threshold("precision.exp",
                  everywhere ? "{:.3g}: the exponential is never less" : "{:.3g}: no weight is smaller", 0.5,
                  small,
                  [everywhere](Rules& r, double x) {
                    r.exp_of = [x](double a) { return std::max(x, std::exp(a)); };
                    r.exp_everywhere = everywhere;
                  },
                  true, true, {"softmax.scores_cut"});
  const std::vector<double> large = grid_of(0.04, 0.98, 24);
  for (bool both : {false, true})
    add.threshold(
        "softmax.p_saturated",
        both ? "{:.3g}: no weight is larger, in the row sum neither"
             : "{:.3g}: no weight of the output is larger",
        0.5, large,
        [both](Rules& r, double x) {
          r.p_of = [x](double p) { return std::min(p, x); };
          r.p_of_in_sum = both;
        },
        true, true);
  add.threshold(
      "keys.tile_dropped", "{:.3g} below the maximum tiles are skipped", 0.45, grid_of_logs(0.03, 30, 24),
      [](Rules& r, double x) { r.skip_below = x; }, false);
  for (bool sums : {false, true})
    add.threshold(
        sums ? "softmax.l_not_rescaled" : "softmax.o_not_rescaled",
        "{:.3g}: not rescaled where the maximum rises by less", 0.5, grid_of_logs(0.02, 12, 20),
        [sums](Rules& r, double x) {
          (sums ? r.l_kept : r.o_kept) = [x](const MaximumMove& m) { return m.by < x; };
        },
        false);
  // Of the first tile of a part: what is larger later counts as much as the maximum.
  for (const Layout& l : add.clues().tilings) {
    if (l.tile_keys <= 0) continue;
    add.put("softmax.stale_maximum",
            "the maximum of the first tile for all, larger scores counted as it" + l.words, 0.3 + l.cost, 0,
            [&](Rules& r) {
              l.apply(r);
              r.maximum_stays = true;
              r.exp_of = [](double a) { return std::exp(std::min(a, 0.0)); };
            });
    add.put("softmax.stale_maximum",
            "weights relative to the maximum before their tile, larger scores counted as it" + l.words,
            0.3 + l.cost, 0, [&](Rules& r) {
              l.apply(r);
              r.stale_maximum = true;
              r.exp_of = [](double a) { return std::exp(std::min(a, 0.0)); };
            });
  }
}

// 2^x as a polynomial of what is behind the whole number, and other smooth departures from exp.
void exponentials(Solver& add) {
  struct Way {
    const char* words;
    bool nearest;  // the whole number is the nearest one, else the one below
  };
  const auto power = [](bool nearest, const std::vector<double>& c) {
    return [nearest, c](double argument) {
      const double x = std::max(argument * std::numbers::log2e, -1000.0);
      const double whole = nearest ? std::nearbyint(x) : std::floor(x), f = x - whole;
      double value = 0;
      for (size_t i = c.size(); i > 0; --i) value = f * (value + c[i - 1]);
      return std::ldexp(1 + value, static_cast<int>(whole));
    };
  };
  const double ln2 = std::numbers::ln2;
  for (const Way way : {Way{"the next lower", false}, Way{"the nearest", true}})
    for (size_t degree : {1, 2, 3}) {
      std::vector<double> start = {ln2, ln2 * ln2 / 2, ln2 * ln2 * ln2 / 6};
      start.resize(degree);
      if (!way.nearest && degree == 1) start = {1};
      if (!way.nearest && degree == 2) start = {0.66, 0.34};
      for (const Layout& l : add.tilings())
        for (bool everywhere : {true, false}) {
          if (!everywhere && (l.tile_keys == 0 || degree != 2)) continue;
          const auto set = [&](Rules& r, const std::vector<double>& c) {
            l.apply(r);
            r.exp_of = power(way.nearest, c);
            r.exp_everywhere = everywhere;
          };
          const auto found = add.fit().many(start, 1e-5, set);
          if (!found) continue;
          std::string words;
          for (double c : *found) words += fmt::format(" {:.5g}", c);
          add.put("precision.exp",
                  fmt::format("weights by a polynomial of what is behind {} power of two, coefficients{}{}{}",
                              way.words, words, everywhere ? "" : ", sums rescaled rightly", l.words),
                  0.4 + 0.15 * static_cast<double>(degree) + l.cost, static_cast<int32_t>(degree),
                  [&](Rules& r) { set(r, *found); });
        }
    }
  // One that spreads its error is not 1 at a power of two. In any order: what depends on the tiles is small.
  for (const Way way : {Way{"the next lower", false}, Way{"the nearest", true}})
    for (size_t degree : {1, 2, 3}) {
      std::vector<double> start = {0, ln2, ln2 * ln2 / 2, ln2 * ln2 * ln2 / 6};
      start.resize(degree + 1);
      if (!way.nearest && degree == 1) start[1] = 1;
      if (!way.nearest && degree == 2) start[1] = 0.66, start[2] = 0.34;
      const auto set = [&](Rules& r, const std::vector<double>& c) {
        const std::vector<double> rest(c.begin() + 1, c.end());
        r.exp_of = [of = power(way.nearest, rest), one = power(way.nearest, {}), c0 = c[0]](double x) {
          return of(x) + c0 * one(x);
        };
        r.exp_everywhere = true;
      };
      const auto found = add.fit().many(start, 1e-5, set);
      if (!found) continue;
      std::string words;
      for (double c : *found) words += fmt::format(" {:.4g}", words.empty() ? 1 + c : c);
      add.put(
          "precision.exp",
          fmt::format("weights by a polynomial of what is behind {} power of two, coefficients{}, the first "
                      "of the power itself",
                      way.words, words),
          0.5 + 0.15 * static_cast<double>(degree), static_cast<int32_t>(degree) + 1,
          [&](Rules& r) { set(r, *found); });
      if (add.leaves_nothing([&](Rules& r) { set(r, *found); })) break;
    }
  for (const Layout& l : add.tilings()) {  // (1 + x / n)^n, wrong bases and the like
    const auto set = [&](Rules& r, const std::vector<double>& c) {
      l.apply(r);
      r.exp_of = [c](double x) { return std::exp(x * (1 + c[0] + x * (c[1] + x * c[2]))); };
      r.exp_everywhere = true;
    };
    const auto found = add.fit().many({0, 0, 0}, 1e-6, set);
    if (!found) continue;
    add.put("precision.exp",
            fmt::format("exponent times 1 {:+.3g} {:+.3g} x {:+.3g} x^2{}", (*found)[0], (*found)[1],
                        (*found)[2], l.words),
            0.9 + l.cost, 3, [&](Rules& r) { set(r, *found); });
  }
  // Tables of powers of two between the whole ones.
  const auto table = [](int32_t n, int how) {
    return [n, how](double argument) {
      const double x = std::max(argument * std::numbers::log2e, -1000.0) * n;
      const double low = std::floor(x), part = x - low;
      if (how == 2) return std::exp2(low / n) * (1 - part) + std::exp2((low + 1) / n) * part;
      return std::exp2((how == 0 ? low : std::nearbyint(x)) / n);
    };
  };
  const char* hows[] = {"the step below", "the nearest step", "lines between steps"};
  for (int how : {0, 1, 2})
    for (const Layout& l : add.tilings()) {
      const auto set = [&](Rules& r, int32_t n) {
        l.apply(r);
        r.exp_of = table(n, how);
        r.exp_everywhere = true;
      };
      const auto found = add.fit().whole(1, how == 2 ? 32 : 256, set);
      if (!found) continue;
      add.put(
          "precision.exp",
          fmt::format("weights from a table of {} steps to a power of two, {}{}", *found, hows[how], l.words),
          kSolvedCost + l.cost, 1, [&](Rules& r) { set(r, *found); });
    }
  const auto base =
      add.fit().along(grid_of(0.5, 2, 31), false, [](Rules& r, double x) { r.exponent_factor = x; });
  if (base)
    add.put("softmax.log2e", fmt::format("exponents times {:.6g}", *base), kSolvedCost, 1,
            [&](Rules& r) { r.exponent_factor = *base; });
}

// Steps of the weights, the scores and the LSE.
void steps(Solver& add) {
  for (const Layout& l : add.tilings())
    for (bool both : {false, true}) {
      const auto set = [&](Rules& r, int32_t n) {
        l.apply(r);
        r.p_step = 1.0 / n;
        r.arithmetic.row_sum_from_rounded_p = both;
      };
      if (const auto found = add.fit().whole(2, 300, set)) {
        add.put("precision.p_coarse",
                fmt::format("P in steps of 1/{}{}{}", *found, both ? ", in the row sum too" : "", l.words),
                kSolvedCost - 0.1 + l.cost, 1, [&](Rules& r) { set(r, *found); });
      }
    }
  std::vector<double> sizes;
  for (int bits = 1; bits <= 14; ++bits) sizes.push_back(std::exp2(-bits));
  for (double tens : {0.1, 0.01, 0.001})
    for (double of : {1.0, 2.0, 5.0}) sizes.push_back(tens * of);
  for (double size : sizes)
    for (bool down : {false, true})
      add.put("precision.lse", fmt::format("LSE in steps of {:.6g}{}", size, down ? ", rounded down" : ""),
              0.3, 0, [=](Rules& r) {
                r.lse = [=](const Scene&, const LseParts& l) {
                  const double n = l.lse / size;
                  return std::isfinite(n) ? size * (down ? std::floor(n) : std::nearbyint(n)) : l.lse;
                };
              });
}

// What is added to the row sum of all keys, and to the LSE.
void sums(Solver& add) {
  for (bool lse : {false, true}) {
    const auto set = [lse](Rules& r, double x) {
      if (lse)
        r.lse = [x](const Scene&, const LseParts& l) { return l.lse * x; };
      else
        r.sum_factor = x;
    };
    const auto found = add.fit().along(lse ? grid_of(0.3, 2, 35) : grid_of_logs(0.2, 5, 31), false, set);
    if (!found) continue;
    const bool base = std::fabs(*found * std::numbers::ln2 - 1) < kSameBase ||
                      std::fabs(*found * std::numbers::ln10 - 1) < kSameBase ||
                      std::fabs(*found - std::numbers::ln2) < kSameBase;
    add.put(lse ? base ? "lse.base2" : "lse.from_scaled" : "softmax.row_sum_scaled",
            fmt::format("{} times {:.6g}", lse ? "LSE" : "row sum", *found), kSolvedCost, 1,
            [&](Rules& r) { set(r, *found); });
  }
}

}  // namespace

void solved_weight_family(const Clues& clues, Hypotheses& out) {
  if (too_large(clues, kLargestCell)) return;
  Solver add(clues, out);
  cuts(add);
  if (clues.wants("precision.exp") || clues.wants("softmax.log2e")) exponentials(add);
  if (clues.wants("precision.p_coarse") || clues.wants("precision.lse")) steps(add);
  sums(add);
}

}  // namespace assay
