// SPDX-License-Identifier: Apache-2.0
// See aggregates.hpp. One pass over the elements leaves a handful of sums per row and head; a group is a
// rectangle of those. A slope that stands out assuming independent dimensions is looked at again with the
// correlation that the values V impose, which costs reading operands and is almost never needed.
#include "harness/check/aggregates/aggregates.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "harness/check/aggregates/correlations.hpp"
#include "harness/check/aggregates/expected.hpp"
#include "harness/check/aggregates/groups.hpp"
#include "harness/check/aggregates/key_errors.hpp"
#include "harness/check/aggregates/places.hpp"
#include "harness/check/aggregates/row_measures.hpp"
#include "harness/check/aggregates/row_moments.hpp"
#include "harness/check/aggregates/scaled_weights.hpp"
#include "reference/bounds/bounds_examined.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// Slopes below this, assuming independent dimensions, need no second look at how dimensions are correlated.
constexpr double kSuspectSd = 3;
// Groups whose slope is examined with correlations.
constexpr size_t kExaminedGroups = 8;
// Rows the matched filter looks at, those with the largest errors first, and keys read at most.
constexpr size_t kFilteredRows = 6;
constexpr int64_t kFilteredKeys = int64_t{1} << 14;
// One flipped rounding of P can move every element of its row; rare flips of single elements are no sum that
// spreads like a normal variable.
constexpr double kSpareRows = 2, kSpareElements = 3;
// Results lie evenly on the grid where what moves them over a place moves them by no more than this times
// what it is itself.
constexpr double kEvenly = 5;
// Standard deviations by which the places of pairs of results may make them vary together.
constexpr double kPlacesSd = 3;
// A group whose replayed rounding of P leans by more than this has no slope to test.
constexpr double kLeaningSd = 3;

bool rounds_p(const assay_arithmetic& a) {
  return a.p_format != ASSAY_FP32 && a.p_format != ASSAY_FORMAT_NONE;
}
// Rounding to nearest leans where weights are not spread evenly between two numbers of a coarse format, by
// its square, and nothing replays the row sum that shows it.
bool leaning_sum(const assay_arithmetic& a) { return a.row_sum_from_rounded_p != 0 && rounds_p(a); }

class Aggregator {
 public:
  Aggregator(const BoundedAttention& b, const Problem& p, const HostOperands& host, const OutputView& out,
             const assay_arithmetic& a, bool examined = false)
      : b_(b),
        p_(p),
        operands_(p, host),
        host_(host),
        out_(out),
        a_(a),
        examined_(examined),
        common_(p, a),
        expected_(b, out.o != nullptr ? out.o->format : int32_t{ASSAY_FP32}, common_, examined),
        measures_(b, p, out, expected_, common_, !leaning_sum(a)),
        correlations_(p, operands_, b, a),
        scaled_(p, operands_, b, a) {
    // Rounded copies of K and V are read by every row: their errors do not average out over rows.
    shared_ = a.dequant_format != ASSAY_FORMAT_NONE && a.dequant_replayed == 0;
    // P against an LSE: where weights are alike they round alike, in all keys of a row, and of rows whose
    // LSEs are alike; no maximum makes one of them 1, and no division takes out what they share.
    shared_p_ = a.weights_lse_format != ASSAY_FORMAT_NONE && rounds_p(a);
    // Nothing replays more roundings than one, nor to the bit the LSE that P stands against.
    leaning_p_ = (a.p_roundings > 1 && rounds_p(a)) || shared_p_;
  }

  AggregateReport run() {
    measure();
    for (const Group& g : groups_) {
      if (!shared_p_) rms(g);
      mismatch(g);
      lse(g);
    }
    if (!leaning_p_) slopes();
    const bool coarse = out_.o != nullptr && out_.o->format != ASSAY_FP32;
    if (!leaning_p_ && stands_out(groups_, measures_.moments(), p_, coarse)) examine();
    if (!shared_p_) matched_keys();
    std::stable_sort(report_.alarms.begin(), report_.alarms.end(),
                     [](auto& a, auto& c) { return a.ratio() > c.ratio(); });
    return std::move(report_);
  }

  // Slopes and sizes of errors, of a reference whose matrix units were followed on the data.
  std::vector<Finding> examined() {
    measure();
    slopes();
    for (const Group& g : groups_) rms(g);
    if (report_.alarms.empty() && !std::isnan(report_.worst_ratio)) return {report_.worst};
    return std::move(report_.alarms);
  }

 private:
  int64_t slot(RowHead at) const { return at.n * p_.heads_q + at.head; }
  const RowMoments& moments(int64_t n, int32_t head) const { return measures_.moments()[slot({n, head})]; }
  double got(RowHead at, int32_t d) const { return measures_.got(at, d); }

  size_t index(RowHead at, int32_t d) const { return static_cast<size_t>(slot(at) * p_.head_dim_v + d); }

  void measure() {
    measures_.measure();
    if (!shared_) twins_ = Twins(b_, out_.o, measures_.moments());
    groups_ = groups_of(b_.value.rows, p_.heads_q);
  }

  template <class Visit>
  void each(const Group& g, const Visit& visit) const {
    for (int64_t n = g.first; n < g.last; ++n)
      for (int32_t h = g.head_first; h < g.head_last; ++h) visit(RowHead{n, h}, moments(n, h));
  }

  // Sum of variances over a group, and of their squares: rows are independent, unless they are twins or share
  // the rounding of K and V.
  template <class Variance>
  double variance(const Group& g, const Variance& of, const std::vector<int64_t>& twin,
                  double* squares = nullptr) const {
    double sum = 0, fourths = 0;
    std::map<std::pair<int64_t, int64_t>, double> clusters;
    each(g, [&](RowHead at, const RowMoments& m) {
      if (shared_)
        clusters[{b_.value.rows[at.n].request, at.head / p_.group()}] += std::sqrt(of(m));
      else
        clusters[{twin[slot(at)], -1}] += std::sqrt(of(m));
    });
    for (const auto& [where, sd] : clusters) sum += sd * sd, fourths += sd * sd * sd * sd;
    if (squares != nullptr) *squares = fourths;
    return sum;
  }

  double of_places(const Group& g, float Places::Element::*sd) const {
    PlaceVariance sum;
    each(g, [&](RowHead at, const RowMoments& m) {
      const Places& places = measures_.places(slot(at));
      for (int64_t i = m.places_first; i < m.places_last; ++i) sum.add(places[i].place, places[i].*sd);
    });
    return sum.value();
  }

  void found(Finding f) {
    if (std::isnan(report_.worst_ratio) || f.ratio() > report_.worst_ratio) {
      report_.worst_ratio = f.ratio();
      report_.worst = f;
    }
    if (f.value > f.threshold) report_.alarms.push_back(f);
  }

  void rms(const Group& g) {
    double z = 0, mean = 0, spare = 0;
    each(g, [&](RowHead, const RowMoments& m) {
      if (!m.used) return;
      z += m.z;
      mean += m.z_mean;
      spare = std::max(spare, m.z_var);
    });
    if (!(mean > 0)) return;
    const double var = variance(
                           g, [](const RowMoments& m) { return m.z_var; }, twins_.of_o) +
                       of_places(g, &Places::Element::second);
    const auto of = [&](double legal) {
      const double more = legal / mean;  // all that spreads is as much larger
      const double beyond = z - legal - more * kSpareRows * std::sqrt(spare) - kSpareElements;
      return Finding{Statistic::kRms,
                     g.request,
                     -1,
                     g.head,
                     -1,
                     std::max(0.0, beyond) / (more * std::sqrt(var)),
                     kAlarmSd,
                     std::sqrt(z / legal)};
    };
    Finding f = of(mean);
    if (f.value > f.threshold && scaled_.any())
      f = of(mean + scaled_.more_squares(rows_of(g).second, expected_));
    found(f);
  }

  void mismatch(const Group& g) {
    double misses = 0, mean = 0, count = 0;
    each(g, [&](RowHead, const RowMoments& m) {
      if (!m.replayed) return;
      misses += m.misses;
      mean += m.misses_mean;
      count += p_.head_dim_v;
    });
    if (!(count > 0)) return;
    const double var = variance(
                           g, [](const RowMoments& m) { return m.misses_var; }, twins_.of_o) +
                       of_places(g, &Places::Element::first);
    // One element at least is spare.
    const double beyond = std::max(0.0, misses - mean - kSpareRows * p_.head_dim_v);
    found({Statistic::kMismatch, g.request, -1, g.head, -1, beyond / std::sqrt(var + 1), kAlarmSd,
           misses / count});
  }

  void lse(const Group& g) {
    double lean = 0, bias = 0, z = 0, count = 0;
    each(g, [&](RowHead, const RowMoments& m) {
      if (!(m.lse_var > 0)) return;
      const double sd = std::sqrt(m.lse_var);
      lean += m.lse_error / sd;
      bias += m.lse_bias / sd;
      const double beyond = std::max(0.0, std::fabs(m.lse_error) - m.lse_bias) / sd;
      z += beyond * beyond;
      count += 1;
    });
    if (!(count > 0)) return;
    const double spread = std::sqrt(variance(
        g, [](const RowMoments& m) { return m.lse_var > 0 ? 1.0 : 0.0; }, twins_.of_lse));
    found({Statistic::kLseMean, g.request, -1, g.head, -1, std::max(0.0, std::fabs(lean) - bias) / spread,
           kLseAlarmSd, lean / count});
    const double var = variance(
        g, [](const RowMoments& m) { return m.lse_var > 0 ? 2.0 : 0.0; }, twins_.of_lse);
    found({Statistic::kLseRms, g.request, -1, g.head, -1, square_sum_sd(z, count, var), kLseAlarmSd,
           std::sqrt(z / count)});
  }

  // Standard deviations by which the errors of a group lean along O.
  Finding slope(const Group& g, const Together& together, const KnownLean& known) const {
    double lean = 0, bias = 0, anywhere = 0, size = 0, rounding = 0, spare = 0, one = 0, unknown = 0,
           most = 0, squares = 0;
    each(g, [&](RowHead, const RowMoments& m) {
      lean += m.lean;
      bias += m.bias, anywhere += m.anywhere;
      size += m.size;
      rounding += m.rounding;
      one = std::max(one, m.one);
      if (!m.replayed) unknown += m.var;
      most += std::sqrt(m.var_most);
    });
    Finding f{Statistic::kSlope, g.request, -1, g.head, -1, 0, kAlarmSd, 0};
    if (!(size > 0)) return f;
    // On average over places of the grid, errors before rounding and after it have one mean and one
    // covariance, where results lie as evenly on it as most do.
    const bool evenly = examined_ && bias <= kEvenly * anywhere;
    const auto of = [&](const RowMoments& m) {
      if (!(m.var > 0)) return 0.0;
      if (!evenly) return std::min(m.var_most, together.dims() * m.var);
      return std::min(m.var_most, together.places * m.var + (together.along - 1) * m.before);
    };
    each(g, [&](RowHead, const RowMoments& m) { spare = std::max(spare, of(m)); });
    double var = variance(g, of, twins_.of_o, &squares) + together.rows * unknown;
    // The places are known, and pairs of dimensions at these vary by more or less than on average.
    if (evenly && together.along > 1) var += kPlacesSd * std::sqrt(2 * squares);
    const double sd = std::min(most, std::sqrt(var));
    if (evenly)
      bias = std::min(bias, anywhere + kLeaningSd * std::sqrt(variance(
                                                        g, [](const RowMoments& m) { return m.here_square; },
                                                        twins_.of_o)));
    // Where the rounding of P leans by itself (flat logits), a kernel of undeclared order may lean as well.
    if (!(sd > 0) || std::max(std::fabs(rounding), known.unsure) > kLeaningSd * sd) return f;
    const double beyond = known.beyond(lean) - bias - std::fabs(rounding) - kSpareRows * std::sqrt(spare) -
                          kSpareElements * one;
    f.value = std::max(0.0, beyond) / sd;
    f.detail = lean / size;
    return f;
  }

  void slopes() {
    std::vector<std::pair<Finding, const Group*>> suspects;
    for (const Group& g : groups_) {
      const Finding f = slope(g, {}, {});
      if (f.value > kSuspectSd)
        suspects.push_back({f, &g});
      else if (f.value > 0)
        found(f);
    }
    std::stable_sort(suspects.begin(), suspects.end(),
                     [](auto& a, auto& c) { return a.first.value > c.first.value; });
    suspects.resize(std::min(suspects.size(), kExaminedGroups));
    for (const auto& [first, group] : suspects) {
      const auto [rows, unknown] = rows_of(*group);
      const Together together =
          correlations_.of(rows, unknown, [this](RowHead at, double* w) { slope_weights(at, w); });
      found(slope(*group, together, scaled_.lean(unknown, expected_)));
    }
  }

  // The bounds take truncations for as large as their signs allow, and what scores err by for as much as its
  // sum of absolute values; both are far more than they can lean by on most data. So the declared units are
  // run on some rows, and slope and rms are asked about these.
  void examine() {
    const std::vector<RowId> some = rows_to_follow(p_, b_.value.rows);
    if (some.empty()) return;
    const BoundedAttention b = followed_attention(p_, host_, some, a_);
    for (const Finding& f : Aggregator(b, p_, host_, out_, a_, true).examined()) found(f);
  }

  // What errors vary along in one row.
  void slope_weights(RowHead at, double* w) const {
    for (int32_t d = 0; d < p_.head_dim_v; ++d)
      w[d] = b_.value.o[index(at, d)] / expected_.exact(index(at, d)).variance;
  }

  // Those of a group that have errors, and of them those that are not replayed.
  std::pair<std::vector<RowHead>, std::vector<RowHead>> rows_of(const Group& g) const {
    std::vector<RowHead> rows, unknown;
    each(g, [&](RowHead at, const RowMoments& m) {
      if (!m.used || !(m.var > 0)) return;
      rows.push_back(at);
      if (!m.replayed) unknown.push_back(at);
    });
    return {rows, unknown};
  }

  void matched_keys() {
    // Rows with larger errors than the declared ones; the filter itself decides.
    std::vector<RowHead> rows;
    each(Group{0, static_cast<int64_t>(b_.value.rows.size()), 0, p_.heads_q},
         [&](RowHead at, const RowMoments& m) {
           if (m.used && m.z > m.z_mean) rows.push_back(at);
         });
    const auto excess = [&](RowHead at) { return moments(at.n, at.head).z - moments(at.n, at.head).z_mean; };
    const size_t kept = std::min(rows.size(), kFilteredRows);
    std::partial_sort(rows.begin(), rows.begin() + static_cast<long>(kept), rows.end(),
                      [&](RowHead a, RowHead c) { return excess(a) > excess(c); });
    rows.resize(kept);
    int64_t budget = kFilteredKeys;
    std::vector<double> error(p_.head_dim_v), variance(p_.head_dim_v), noise(p_.head_dim_v),
        bias(p_.head_dim_v);
    for (const RowHead at : rows) {
      const RowId id = b_.value.rows[at.n];
      if ((budget -= p_.requests[id.request].kv_len) < 0) return;
      for (int32_t d = 0; d < p_.head_dim_v; ++d) {
        const ExactError e = expected_.exact(index(at, d));
        error[d] = got(at, d) - b_.value.o[index(at, d)];
        variance[d] = e.variance;
        noise[d] = e.noise;
        bias[d] = e.bias;
      }
      const KeyMatch match = matched_filter(p_, operands_, b_, at, error, variance, noise, bias, kKeyAlarmSd);
      if (match.key < 0) continue;
      found({Statistic::kMatchedKey, id.request, id.row, at.head, match.key, match.statistic, kKeyAlarmSd,
             match.amplitude});
    }
  }

  const BoundedAttention& b_;
  const Problem& p_;
  const OperandReader operands_;
  const HostOperands& host_;
  const OutputView& out_;
  const assay_arithmetic& a_;
  bool shared_ = false, shared_p_ = false, leaning_p_ = false;
  const bool examined_;
  const CommonErrors common_;
  const ExpectedErrors expected_;
  RowMeasures measures_;
  Correlations correlations_;
  ScaledWeights scaled_;
  Twins twins_;
  std::vector<Group> groups_;
  AggregateReport report_;
};

}  // namespace

AggregateReport aggregates(const BoundedAttention& b, const Problem& p, const HostOperands& host,
                           const OutputView& out, const assay_arithmetic& arithmetic) {
  const auto none = [](const std::vector<double>& bounds) {
    return std::none_of(bounds.begin(), bounds.end(), [](double x) { return std::isfinite(x); });
  };
  if (b.value.rows.empty() || (none(b.o_bound_p) && none(b.lse_bound_p))) return {};
  return Aggregator(b, p, host, out, arithmetic).run();
}

}  // namespace assay
