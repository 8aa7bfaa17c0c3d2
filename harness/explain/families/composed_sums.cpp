// SPDX-License-Identifier: Apache-2.0
// What the LSE itself says. It is a known function of the row where it alone is wrong: then it is looked for
// among sums of what a kernel has at hand. And what masked keys added to the row sum is its difference, so
// their score follows from how many there are, whichever rows share a tile.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <tuple>

#include "harness/explain/families/fit.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/explain/samples.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr size_t kCells = 12;        // wrong ones that are looked at
constexpr size_t kFewestCells = 4;   // ... at least, with as many equations
constexpr double kFits = 2;          // in units of noise, root mean square of what is left of the LSE
constexpr double kSpread = 0.02;     // of the score that masked keys would have, from cell to cell
constexpr size_t kSentinels = 12;    // of the ways in which they may be counted ...
constexpr size_t kRefined = 60;      // ... where the row sum does not know the score well enough:
constexpr double kSureScore = 2e-3;  // ... to so much
constexpr double kRound = 1e-3;      // a coefficient this near a known one is that

// Of the scores of a row before any cap or bias.
struct ScoresOf {
  double mean = 0, mean_seen = 0;  // of all keys of the request; of those that the row sees
  double most = -kInf;             // of all keys
};
ScoresOf scores_of(Predictor& predictor, const Cell& c) {
  const Problem& p = predictor.problem();
  const int32_t n = p.requests[c.request].kv_len, dim = p.head_dim_qk;
  std::vector<double> q(dim);
  predictor.reader().q({c.request, c.row}, c.head, q.data());
  KvStore& keys = predictor.store(c.request, c.head / p.group());
  ScoresOf of;
  int32_t seen = 0;
  for (int32_t j = 0; j < n; ++j) {
    const double* k = keys.k(j);
    double x = 0;
    for (int32_t d = 0; d < dim; ++d) x += q[d] * k[d];
    x *= p.softmax_scale;
    of.mean += x / n, of.most = std::max(of.most, x);
    if (visible(p, c.request, c.row, j)) of.mean_seen += x, ++seen;
  }
  if (seen > 0) of.mean_seen /= seen;
  return of;
}

struct Row {
  Sample sample;
  double got, noise, lse, maximum, visible, keys;
  ScoresOf scores;
};

std::vector<Row> rows_of(const Clues& clues) {
  std::vector<Row> list;
  const Evidence& e = clues.evidence;
  std::set<std::tuple<int32_t, int32_t>> seen;
  for (size_t pass = 0; pass < 2; ++pass)  // one cell of each row first
    for (const Sample& s : clues.bad) {
      if (s.call == Call::kLow || list.size() >= kCells) continue;
      const bool fresh = seen.insert({s.cell.request, s.cell.row}).second;
      if (fresh != (pass == 0)) continue;
      const double got = e.got(s.call, s.cell, -1);
      if (!std::isfinite(got)) continue;
      const Predictor::Weights w = clues.predictor.weights(s.cell);
      double maximum = clues.problem().sinks ? clues.predictor.reader().sink(s.cell.head) : -kInf;
      for (double x : w.scores) maximum = std::max(maximum, x);
      if (maximum == -kInf) continue;
      const double noise = legal_noise(e, s.cell, -1) + 1e-6 * std::fabs(got) + 1e-9;
      list.push_back({s, got, noise, clues.predictor.predict(clues.predictor.right(), s.cell).lse, maximum,
                      static_cast<double>(w.positions.size()),
                      static_cast<double>(clues.problem().requests[s.cell.request].kv_len),
                      scores_of(clues.predictor, s.cell)});
    }
  return list;
}

// What an LSE may be made of.
struct Made {
  const LseParts& l;
  double keys, visible;
  ScoresOf scores;
};
struct Part {
  const char* words;
  double (*of)(const Made&);
  bool of_scores = false;  // asks for Made::scores, a product with every key
};
constexpr Part kParts[] = {
    {"the LSE", [](const Made& m) { return m.l.lse; }},
    {"the maximum", [](const Made& m) { return m.l.maximum; }},
    {"the logarithm of the row sum", [](const Made& m) { return m.l.lse - m.l.maximum; }},
    {"the row sum", [](const Made& m) { return std::exp(m.l.lse - m.l.maximum); }},
    {"the logarithm of the number of keys", [](const Made& m) { return std::log(m.keys); }},
    {"the logarithm of the number of keys seen", [](const Made& m) { return std::log(m.visible); }},
    {"1", [](const Made&) { return 1.0; }},
    {"the mean score of all keys", [](const Made& m) { return m.scores.mean; }, true},
    {"the mean score of the keys seen", [](const Made& m) { return m.scores.mean_seen; }, true},
    {"the largest score of all keys", [](const Made& m) { return m.scores.most; }, true},
};

double nice(double x) {
  for (double known : {0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, std::log(2.0), -std::log(2.0), 1 / std::log(2.0),
                       -1 / std::log(2.0), 1 / std::log(10.0)})
    if (std::fabs(x - known) < kRound * std::max(1.0, std::fabs(known))) return known;
  return x;
}

std::string_view cause_of(const Part& a, double by_a, const Part& b, double by_b) {
  const std::string_view first = a.words, second = b.words;
  const auto strange = [](std::string_view of) {
    return of.starts_with("the logarithm of the number") || of == "the row sum" ||
           of.starts_with("the mean score") || of.starts_with("the largest score");
  };
  // The logarithm in another base, with or without the maximum, whatever it is put together of.
  const auto share = [&](std::string_view of) {
    return (first == of ? by_a : 0) + (second == of ? by_b : 0);
  };
  const double whole = share("the LSE"), of_log = whole + share("the logarithm of the row sum"),
               of_max = whole + share("the maximum") + share("the largest score of all keys");
  const bool base = std::fabs(of_log - 1 / std::numbers::ln2) < kRound ||
                    std::fabs(of_log - 1 / std::numbers::ln10) < kRound;
  const auto of_lse = [](std::string_view of) {
    return of == "the LSE" || of == "the maximum" || of == "the logarithm of the row sum" ||
           of == "the largest score of all keys";
  };
  const bool no_other = of_lse(first) && (by_b == 0 || of_lse(second));
  if (base && no_other && (std::fabs(of_max - 1) < kRound || std::fabs(of_max - of_log) < kRound))
    return "lse.base2";
  if (strange(first) || (strange(second) && by_b != 0)) return "lse.other_value";
  if (first == "the LSE" && by_b == 0) return by_a == -1 ? "lse.sign" : "lse.from_scaled";
  const bool of_maximum = first == "the maximum" || second == "the maximum";
  const bool of_sum = first == "the logarithm of the row sum" || second == "the logarithm of the row sum";
  if (of_maximum && of_sum && (by_a == -1 || by_b == -1)) return "lse.sign";
  if (first == "the LSE" || second == "the LSE" || of_sum || of_maximum) return "lse.from_scaled";
  return "lse.other_value";
}

// The LSE alone: a combination of one or two of these.
void combinations(const Clues& clues, Hypotheses& out) {
  if (!clues.wants("lse.sign") && !clues.wants("lse.other_value") && !clues.wants("lse.from_scaled") &&
      !clues.wants("lse.base2"))
    return;
  const std::vector<Row> rows = rows_of(clues);
  if (rows.size() < kFewestCells) return;
  const bool wrong = std::any_of(rows.begin(), rows.end(),
                                 [](const Row& r) { return std::fabs(r.got - r.lse) > 4 * r.noise; });
  if (!wrong) return;
  const auto parts = std::size(kParts);
  const auto value = [&](const Part& part, const Row& r) {
    const LseParts l{r.lse, r.maximum, 0, -kInf, r.lse};
    return part.of({l, r.keys, r.visible, r.scores});
  };
  struct Found {
    size_t a, b;
    double by_a, by_b;
  };
  std::vector<Found> found;
  for (size_t a = 0; a < parts; ++a)
    for (size_t b = a; b < parts; ++b) {  // a alone where they are one
      // Least squares by the normal equations, in units of noise.
      double aa = 0, ab = 0, bb = 0, ay = 0, by = 0;
      for (const Row& r : rows) {
        const double u = value(kParts[a], r) / r.noise, v = value(kParts[b], r) / r.noise,
                     y = r.got / r.noise;
        aa += u * u, ab += u * v, bb += v * v, ay += u * y, by += v * y;
      }
      const double size = aa + bb, determinant = aa * bb - ab * ab;
      if (!std::isfinite(size) || !std::isfinite(ay + by) || aa == 0) continue;
      if (a != b && determinant < 1e-7 * size * size) continue;  // on this case they are one
      const double x = nice(a == b ? ay / aa : (ay * bb - by * ab) / determinant),
                   z = a == b ? 0 : nice((by * aa - ay * ab) / determinant);
      double left = 0;
      for (const Row& r : rows) {
        const double predicted = x * value(kParts[a], r) + (a == b ? 0 : z * value(kParts[b], r));
        left += (predicted - r.got) * (predicted - r.got) / (r.noise * r.noise);
      }
      left = std::sqrt(left / static_cast<double>(rows.size()));
      if (!(left < kFits) || (kParts[a].words == std::string_view("the LSE") && x == 1 && z == 0)) continue;
      found.push_back({a, b, x, z});
    }
  const auto plain = [](const Found& f) {
    return (f.a == f.b ? 0 : 2) + (nice(f.by_a) != f.by_a) + (nice(f.by_b) != f.by_b);
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const Found& x, const Found& y) { return plain(x) < plain(y); });
  if (found.size() > 6) found.resize(6);
  for (const Found& f : found) {
    const Part &a = kParts[f.a], &b = kParts[f.b];
    const std::string_view cause = cause_of(a, f.by_a, b, f.by_b);
    if (!clues.wants(cause)) continue;
    std::string words = fmt::format("{:.5g} times {}", f.by_a, a.words);
    if (f.a != f.b) words += fmt::format(" and {:.5g} times {}", f.by_b, b.words);
    Hypothesis h = propose(clues, cause, "LSE is " + words, 0.15 + 0.1 * plain(f));
    h.free = plain(f) > 2 ? 2 : plain(f) % 2;
    h.rules.lse = [&a, &b, f](const Scene& s, const LseParts& l) {
      if (l.lse == -kInf || l.maximum == -kInf) return l.lse;
      double seen = 0;
      for (int32_t j = 0; j < s.kv_len; ++j) seen += visible(s.problem, s.cell.request, s.cell.row, j);
      const double keys = s.problem.requests[s.cell.request].kv_len;
      const bool of_scores = a.of_scores || b.of_scores;
      const Made made{l, keys, seen, of_scores ? scores_of(*s.predictor, s.cell) : ScoresOf{}};
      double sum = f.by_a * a.of(made);
      if (f.a != f.b) sum += f.by_b * b.of(made);
      return sum;
    };
    out.push_back(std::move(h));
  }
}

// Ways in which keys that a row does not see may be counted with it.
struct Counted {
  RowBlock block;      // that are computed together; size 0: all rows of the request
  int32_t grain = 1;   // whole tiles of so many
  bool lanes = false;  // up to the end of the last one, keys or not

  std::string words() const {
    std::string text = block.size == 0 ? "of the request" : "among the keys that " + block.words() + " see";
    if (grain > 1) text += fmt::format(", in whole tiles of {}", grain);
    if (lanes) text += ", lanes without a key too";
    return text;
  }
  std::pair<int32_t, int32_t> range(const Scene& s) const {
    const int32_t length = s.problem.requests[s.cell.request].kv_len;
    int32_t begin = 0, end = length;
    if (block.size > 0) {
      const KeyRange seen = block.keys(s.problem, s.cell);
      begin = static_cast<int32_t>(std::min<int64_t>(seen.begin, length));
      end = static_cast<int32_t>(std::min<int64_t>(seen.end, length));
    }
    if (end <= begin) return {0, 0};
    begin = begin / grain * grain, end = (end + grain - 1) / grain * grain;
    return {begin, lanes ? end : std::min(end, length)};
  }
};

std::vector<Counted> ways_to_count(const Clues& clues) {
  const Problem& p = clues.problem();
  std::vector<Counted> list = {{{0, false}, 1, false}};
  std::set<int32_t> grains(clues.tile_sizes.begin(), clues.tile_sizes.end());
  if (op_of(p).has_cache) grains.insert(p.page_size);
  grains.insert({8, 16, 32, 64, 128});
  grains.erase(1);
  std::vector<RowBlock> blocks = {{1, false}};
  const int32_t rows = p.max_q_len(), g = p.group();
  for (int32_t size = 2; size <= 256; size += size < 32 ? 1 : size)
    for (bool packed : {false, true}) {
      if (packed ? g == 1 || size >= 2 * rows * g : size >= 2 * rows) continue;
      blocks.push_back({size, packed});
    }
  for (const RowBlock& block : blocks) {
    if (block.size > 1) list.push_back({block, 1, false});
    for (const int32_t grain : grains)
      for (bool lanes : {false, true}) list.push_back({block, grain, lanes});
  }
  for (const int32_t grain : grains) list.push_back({{0, false}, grain, true});
  return list;
}

void count_masked(const Counted& how, double score, bool in_output, Scene& s, std::vector<Term>& terms) {
  const auto [begin, end] = how.range(s);
  std::vector<char> seen(static_cast<size_t>(std::max(end, 1)), 0);
  for (const Term& t : terms)
    if (t.position < end) seen[static_cast<size_t>(t.position)] = 1;
  for (int32_t j = begin; j < end; ++j) {
    if (seen[static_cast<size_t>(j)]) continue;
    Term t{j, std::min(j, s.kv_len - 1), std::min(j, s.kv_len - 1)};
    t.zero = j >= s.kv_len;
    t.forced = score;
    if (!in_output) t.in_output = 0;
    terms.push_back(t);
  }
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Term& x, const Term& y) { return x.position < y.position; });
}

void sentinels(const Clues& clues, Hypotheses& out) {
  if (!clues.wants("softmax.finite_sentinel")) return;
  struct Excess {
    Cell cell;
    double total;  // logarithm of what the row sum has too much of
    double unsure;
  };
  std::vector<Excess> excess;
  for (const Row& r : rows_of(clues)) {
    const double more = r.got - r.lse;
    if (more < 2 * r.noise) continue;
    const double share = -std::expm1(-more);
    excess.push_back({r.sample.cell, r.got + std::log(share), r.noise * 3 / share});
  }
  if (excess.size() < 2) return;
  struct Found {
    Counted how;
    double score, spread, unsure;
  };
  std::vector<Found> found;
  for (const Counted& how : ways_to_count(clues)) {
    double low = kInf, high = -kInf, sum = 0, weights = 0;
    bool some = true;
    for (const Excess& x : excess) {
      const Request& request = clues.problem().requests[x.cell.request];
      KvStore& keys = clues.predictor.store(x.cell.request, x.cell.head / clues.problem().group());
      const Scene scene{clues.problem(), x.cell, keys, request.kv_len, 0, 0};
      const auto [begin, end] = how.range(scene);
      int32_t masked = 0;
      for (int32_t j = begin; j < end && some; ++j)
        masked += j >= request.kv_len || !visible(clues.problem(), x.cell.request, x.cell.row, j);
      some = some && masked > 0;
      if (!some) break;
      const double score = x.total - std::log(double(masked)), weight = 1 / (x.unsure * x.unsure + 1e-12);
      low = std::min(low, score + x.unsure), high = std::max(high, score - x.unsure);
      sum += weight * score, weights += weight;
    }
    if (!some || high - low > kSpread) continue;
    double score = sum / weights;
    if (const double round = std::nearbyint(score * 20) / 20; std::fabs(score - round) < kRound)
      score = round;
    found.push_back({how, score, std::max(0.0, high - low), 1 / std::sqrt(weights)});
  }
  const auto order = [](const Found& f) {
    return std::tuple(f.spread > kSpread / 4, f.how.grain > 1, f.how.lanes, f.how.block.size);
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const Found& a, const Found& b) { return order(a) < order(b); });
  const bool unsure = !found.empty() && found.front().unsure > kSureScore;
  if (found.size() > (unsure ? kRefined : kSentinels)) found.resize(unsure ? kRefined : kSentinels);
  const Fit fit(clues);
  for (const Found& f : found)
    for (bool in_output : {true, false}) {
      const auto set = [how = f.how, in_output](Rules& r, double score) {
        r.edit_terms = [=](Scene& s, std::vector<Term>& terms) {
          count_masked(how, score, in_output, s, terms);
        };
      };
      double score = f.score;
      if (f.unsure > kSureScore) {  // the row sum knows it roughly, the output better
        const double wide = std::min(3.0, 4 * f.unsure);
        const auto found_at = fit.along(grid_of(score - wide, score + wide, 13), false, set);
        if (!found_at) continue;
        score = *found_at;
      }
      Hypothesis h = propose(clues, "softmax.finite_sentinel",
                             fmt::format("masked scores {} are {:.4g}{}", f.how.words(), score,
                                         in_output ? "" : ", in the row sum alone"),
                             0.4 + 0.05 * !in_output + 0.05 * (f.how.grain > 1));
      h.free = 1;
      set(h.rules, score);
      out.push_back(std::move(h));
    }
}

}  // namespace

void composed_sum_family(const Clues& clues, Hypotheses& out) {
  combinations(clues, out);
  sentinels(clues, out);
}

}  // namespace assay
