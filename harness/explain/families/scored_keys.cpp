// SPDX-License-Identifier: Apache-2.0
// Keys by their scores among all that a row sees: the largest ones alone, those that a random number spares,
// those that join the maximum, and a maximum that is lazily kept while one of the sums is rescaled.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "harness/explain/families/fit.hpp"
#include "harness/explain/misfit.hpp"
#include "harness/explain/rank.hpp"

namespace assay {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Hides all but the `count` largest scores, those that are equal to the last one kept.
void keep_largest(std::vector<double>& scores, size_t count) {
  if (scores.size() <= count || count == 0) return;
  std::vector<double> sorted = scores;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(count) - 1, sorted.end(),
                   std::greater<>());
  const double least = sorted[count - 1];
  for (double& x : scores)
    if (!(x >= least)) x = kNever;
}

// Hides what is left once the largest weights make up so much of all.
void keep_share(std::vector<double>& scores, double share) {
  if (scores.empty()) return;
  std::vector<double> sorted = scores;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  if (!std::isfinite(sorted.front())) return;
  double sum = 0, kept = 0;
  for (const double x : sorted) sum += std::exp(x - sorted.front());
  double least = sorted.front();
  for (const double x : sorted) {
    if (kept >= share * sum) break;
    kept += std::exp(x - sorted.front());
    least = x;
  }
  for (double& x : scores)
    if (!(x >= least)) x = kNever;
}

class Scorer {
 public:
  Scorer(const Clues& clues, Hypotheses& out) : clues_(clues), out_(out), fit_(clues) {}
  void put(std::string_view cause, std::string text, double cost, int32_t free,
           const std::function<void(Rules&)>& set) {
    Hypothesis h = propose(clues_, cause, std::move(text), cost);
    set(h.rules);
    h.free = free;
    out_.push_back(std::move(h));
  }
  bool wants(std::string_view cause) const { return clues_.wants(cause); }
  const Fit& fit() const { return fit_; }
  const Clues& clues() const { return clues_; }

 private:
  const Clues& clues_;
  Hypotheses& out_;
  Fit fit_;
};

// So many keys, or so much of the weight; for both sums or for the output alone.
void largest_alone(Scorer& add) {
  for (const Passes passes : {Passes::kBoth, Passes::kOutput}) {
    const bool both = passes == Passes::kBoth;
    const std::string_view cause = both ? "softmax.small_dropped" : "keys.lanes_v_dropped";
    if (!add.wants(cause)) continue;
    const char* where = both ? "" : ", from the output alone";
    const auto count = [passes](Rules& r, int32_t n) {
      r.edit_scores = [n](const Scene&, std::vector<double>& x) { keep_largest(x, static_cast<size_t>(n)); };
      r.passes = passes;
    };
    if (const auto n = add.fit().whole(1, std::min(add.clues().problem().max_kv_len(), 512), count))
      add.put(cause, fmt::format("all but the {} largest weights are missing{}", *n, where), 0.4, 1,
              [&](Rules& r) { count(r, *n); });
    const auto share = [passes](Rules& r, double of) {
      r.edit_scores = [of](const Scene&, std::vector<double>& x) { keep_share(x, of); };
      r.passes = passes;
    };
    std::vector<double> shares = {0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98};
    for (double left = 0.01; left > 1e-4; left /= 1.5) shares.push_back(1 - left);
    if (const auto x = add.fit().along(shares, true, share))
      add.put(
          cause,
          fmt::format("about {:.3g} of all weight: what is smaller than the largest ones that make it up is "
                      "missing{}",
                      *x, where),
          0.5, 1, [&](Rules& r) { share(r, *x); });
  }
}

// What the maximum is taken of. That some keys are left out shows where their weights overflow.
void maxima(Scorer& add) {
  const std::string_view cause = "softmax.maximum_short";
  if (!add.wants(cause)) return;
  const auto put = [&](const std::string& words, double cost, std::function<bool(const Scene&, int32_t)> in) {
    add.put(cause, "maximum of all keys but " + words + ", larger weights overflow", cost, 0,
            [&](Rules& r) { r.in_maximum = in; });
  };
  for (const int32_t tile : {4, 8, 16, 32, 64, 128})
    for (const int32_t part : {tile / 2, tile / 4, 1}) {
      if (part < 1 || (part == 1 && tile < 8)) continue;
      put(fmt::format("the last {} of every {}", part, tile), 0.3,
          [=](const Scene&, int32_t j) { return j % tile < tile - part; });
      put(fmt::format("the first {} of every {}", part, tile), 0.3,
          [=](const Scene&, int32_t j) { return j % tile >= part; });
    }
  for (const int32_t tile : {16, 32, 64, 128}) {
    put(fmt::format("those of the last tile of {}", tile), 0.3,
        [tile](const Scene& s, int32_t j) { return j / tile < (s.kv_len - 1) / tile; });
    put(fmt::format("those behind the first tile of {}", tile), 0.3,
        [tile](const Scene&, int32_t j) { return j < tile; });
    put(fmt::format("those behind the last whole {}", tile), 0.3,
        [tile](const Scene& s, int32_t j) { return j < s.kv_len / tile * tile; });
  }
  put("the row's own", 0.3, [](const Scene& s, int32_t j) { return j != s.position; });
  put("the last one", 0.3, [](const Scene& s, int32_t j) { return j < s.kv_len - 1; });
  put("the first one", 0.3, [](const Scene&, int32_t j) { return j > 0; });
  put("the new tokens", 0.3,
      [](const Scene& s, int32_t j) { return j < s.problem.requests[s.cell.request].context_len(); });
}

// The maximum stays for small rises, and one of the sums is rescaled as if it had moved.
void lazy_maxima(Scorer& add) {
  const std::string_view cause = "softmax.stale_maximum";
  if (!add.wants(cause)) return;
  std::vector<Layout> tilings = {};
  for (const Layout& l : add.clues().tilings)
    if (l.tile_keys > 0 && tilings.size() < 10) tilings.push_back(l);
  for (const Layout& l : tilings)
    for (const int32_t which : {1, 2, 3}) {
      const auto set = [&, which](Rules& r, double x) {
        l.apply(r);
        r.lazy_below = x;
        r.lazy_sum_rescaled = which & 1, r.lazy_output_rescaled = which & 2;
      };
      const auto x = add.fit().along(grid_of_logs(0.05, 14, 20), true, set);
      if (!x) continue;
      const char* sums[] = {"", "the row sum", "the output", "output and row sum"};
      add.put(cause,
              fmt::format("about {:.3g}: where the maximum rises by less it is kept, and {} rescaled all the "
                          "same{}",
                          *x, sums[which], l.words),
              0.45 + l.cost, 1, [&](Rules& r) { set(r, *x); });
    }
}

// Keys that no rule names, found cell by cell: what the output lacks is a sum of few p v, of many more
// dimensions than keys.
constexpr size_t kTrials = 4;        // wrong cells of which all must be explained
constexpr size_t kMostMissing = 16;  // keys of a cell
constexpr double kShare = 0.25;      // of the dimensions, and of the keys, that may be missing keys

std::vector<int32_t> missing_keys(const Clues& clues, const Sample& sample) {
  const Cell& cell = sample.cell;
  const Predictor::Weights w = clues.predictor.weights(cell);
  const auto dims = static_cast<size_t>(clues.problem().head_dim_v);
  KvStore& store = clues.predictor.store(cell.request, cell.head / clues.problem().group());
  Rules right = clues.predictor.right();
  right.unrounded = true;
  std::vector<double> rest = clues.predictor.predict(right, cell).o;
  for (size_t d = 0; d < dims; ++d) rest[d] -= clues.evidence.got(sample.call, cell, static_cast<int32_t>(d));
  const size_t most = std::min({kMostMissing, static_cast<size_t>(kShare * static_cast<double>(dims)),
                                static_cast<size_t>(kShare * static_cast<double>(w.p.size()))});
  std::vector<int32_t> missing;
  std::vector<char> taken(w.p.size(), 0);
  while (missing.size() < most) {
    double best = 0;
    size_t at = w.p.size();
    for (size_t j = 0; j < w.p.size(); ++j) {
      if (taken[j]) continue;
      const double* v = store.v(w.positions[j]);
      double gain = 0;
      for (size_t d = 0; d < dims; ++d) gain += w.p[j] * v[d] * (2 * rest[d] - w.p[j] * v[d]);
      if (gain > best) best = gain, at = j;
    }
    if (at == w.p.size()) break;
    taken[at] = 1;
    missing.push_back(w.positions[at]);
    const double* v = store.v(w.positions[at]);
    for (size_t d = 0; d < dims; ++d) rest[d] -= w.p[at] * v[d];
    Rules rules = clues.predictor.right();
    rules.edit_terms = [&missing](Scene&, std::vector<Term>& terms) {
      for (Term& t : terms)
        if (std::find(missing.begin(), missing.end(), t.position) != missing.end()) t.in_output = 0;
    };
    if (misfit_at(clues, sample, rules) < kLegalMisfit) return missing;
  }
  return {};
}

void dropped_at_random(Scorer& add) {
  const std::string_view cause = "keys.lanes_v_dropped";
  const Clues& clues = add.clues();
  if (!add.wants(cause) || clues.bad.empty()) return;
  using Key = std::tuple<int32_t, int32_t, int32_t>;
  std::map<Key, std::vector<int32_t>> chosen;
  size_t tried = 0;
  for (const Sample& sample : clues.bad) {
    if (sample.call != clues.bad.front().call || sample.call == Call::kLow) continue;
    std::vector<int32_t> missing = missing_keys(clues, sample);
    if (missing.empty() && ++tried > chosen.size() / kTrials) return;
    if (!missing.empty())
      chosen[{sample.cell.request, sample.cell.row, sample.cell.head}] = std::move(missing);
  }
  if (chosen.size() < kTrials) return;
  // Of cells of one row or head the same keys would be a rule.
  std::map<int32_t, size_t> often;
  for (const auto& [unused, keys] : chosen)
    for (const int32_t key : keys) ++often[key];
  for (const auto& [unused, count] : often)
    if (2 * count > chosen.size()) return;
  add.put(cause, "keys that no rule names are missing from the output, as at random", 1.1, 1, [&](Rules& r) {
    r.edit_terms = [chosen](Scene& s, std::vector<Term>& terms) {
      const auto at = chosen.find({s.cell.request, s.cell.row, s.cell.head});
      if (at == chosen.end()) return;
      for (Term& t : terms)
        if (std::find(at->second.begin(), at->second.end(), t.position) != at->second.end()) t.in_output = 0;
    };
  });
}

}  // namespace

void scored_key_family(const Clues& clues, Hypotheses& out) {
  Scorer add(clues, out);
  maxima(add);
  if (too_large(clues, kLargestCell)) return;
  largest_alone(add);
  lazy_maxima(add);
  dropped_at_random(add);
}

}  // namespace assay
