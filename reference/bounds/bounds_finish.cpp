// SPDX-License-Identifier: Apache-2.0
// O of a row: see bounds_finish.hpp; symbols and derivation in BOUNDS.md. The LSE is in
// bounds_finish_lse.cpp.
#include "reference/bounds/bounds_finish.hpp"

#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds_infinity.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// Share of its own term that the replayed rounding of P may reach before it counts as not random.
constexpr double kSuspicious = 0.75;
constexpr double kMergeRoundings = 24;  // in fp32, of what goes into a merge and of what comes out: 9 each

// A lean is small where all that roundings may do is so many times as much.
constexpr double kSmallLean = 8;

// Weights of a row count as few numbers where P's grid has no more places for most of them.
constexpr double kFewPlaces = 16;

// All roundings of so many equal weights are within lambda standard deviations of independent ones.
constexpr double kFewKeys = 8;

// Root mean square of what is left of a part, of whole ones.
const double kRamp = 1 / std::sqrt(3.0);

// What may round otherwise of all weight, over what it is where weights lie anywhere on the grid.
constexpr double kGenericFlips = 4;

// Variance of one rounding of P over h^2: uniform on -h .. h, or on half of that around its mean.
double rounding_share(const PRounding& r) { return (r.truncated ? 0.25 : 1.0) / 3; }

// More than so many weights, as good as equal once they are rounded.
bool near_equal(const ErrorModel& model, const RowFacts& row, double keys) {
  const PRounding& r = model.p_rounding();
  return r.narrow && row.count > keys && std::sqrt(row.distance_square) < kFewPlaces * r.share();
}

// Near-equal weights about a power of two, where P's grid is twice as coarse as at the places that are tried:
// against a maximum that any key left behind, by a lazy rescale in an order that is not known; or because an
// error that they share takes them above the weight of their maximum.
bool about_a_power(const ErrorModel& model, const RowFacts& row) {
  const bool lags = !row.declared && model.arithmetic().rescale_lag_log2 > 0;
  return (lags || row.shifted) && near_equal(model, row, kFewKeys);
}

}  // namespace

RowBounds::RowBounds(const ErrorModel& model, const ErrorTerms& t, const RandomTerms& z, const RowFacts& row)
    : model_(model),
      t_(t),
      z_(z),
      row_(row),
      joint_(model.rounded_row_sum()),
      narrow_(model.p_rounding().narrow),
      truncated_(model.p_rounding().truncated),
      followed_(model.follows_pv()),
      near_equal_(near_equal(model, row, kFewPlaces)),
      about_a_power_(about_a_power(model, row)),
      rounding_share_(rounding_share(model.p_rounding())),
      theta_systematic_(std::min(t.theta, z.theta_systematic + row.absorbed + row.one_way * t.theta)),
      of_lse_(model.weights_of_lse()) {
  const int64_t tile = model.arithmetic().tile_keys > 0 ? model.arithmetic().tile_keys : 64;
  const int64_t part = model.longest_part(row.count);
  if (model.deals(row.declared)) dealt_ = model.group(part, (part + tile - 1) / tile);
  lost_hard_ = row.beta + t.theta + (joint_ ? row.rounding : 0);
  remaining_hard_ = 1 - lost_hard_;
  theta_random_ = row.structured ? t.theta : std::min(t.theta, kLambda * z.theta_sigma + theta_systematic_);
  // Error of the denominator relative to itself, without what numerator and denominator share.
  row_random_ = row.systematic + row.score_lean + row.eps +
                (row.structured ? row.largest_random : kLambda * std::sqrt(row.variance));
  remaining_random_ = 1 - row_random_ - theta_random_ - updates_of_the_sum() - z.top_rounding - z.merge -
                      merge_distance() - row.largest_random - z.farther * row.distance -
                      (joint_ ? row.rounding : 0);
  // Errors that grow with the distance have no largest: all of it for the second order.
  second_order_ = z.farther > 0 ? 0 : 0.5 * row.largest_random * std::exp(row.largest_random);
  remaining_p_ = remaining_random_ + (z.farther > 0 ? 0 : row.largest_random - second_order_ * row_random_);
  if (of_lse_) {
    apart_hard_ = row.beta, apart_random_ = row_random_ + z.farther * row.distance;
    if (model.arithmetic().splits > 1) set_lse_of_parts();
  }
  if (of_lse_ || t.merge_lse > 0) {
    by_lse_hard_ = lse_factor(lse_hard());
    by_lse_random_ = of_lse_ ? lse_factor(std::min(lse_hard(), lse_random())) : by_lse_hard_;
  }
  prepare_channels();
}

void RowBounds::prepare_channels() {
  // What rounded P and exponents add to a prefix, and what earlier additions add to that.
  weighed_more_ = (1 + row_.rounding_ratio) * (1 + row_.largest) - 1;
  grown_ = (1 + weighed_more_) * (1 + t_.chain) - 1;
  // V's rounding comes first, the rescales in between and the partial results last; each enlarges what is
  // summed.
  enlarged_ = (1 + t_.rescales) * (1 + t_.v_relative) - 1;
  sums_in_order_ = row_.declared && model_.sums_in_order() && !(t_.chain_growth > 1);
  chain_apart_ = model_.arithmetic().promote_pv != 0 || model_.arithmetic().pv.kind == ASSAY_ACC_INT32;
  chain_growth_ = sums_in_order_ ? std::exp(std::min(1.0, chain_apart_ ? t_.moved : t_.chain_growth)) : 1;
  const double v_normal = std::max(row_.v_max, row_.v_normal);
  flushed_ = t_.absolute + t_.absolute_v * v_normal + t_.merge_far * (1 + row_.largest) * row_.v_max;
  absolute_ = flushed_ + t_.aligned_p * v_normal + t_.aligned_v * row_.v_normal;
  // Natural-order prefixes only estimate another order's.
  loose_ = row_.declared ? 1.0 : 2.0;
  // Subnormals meet no weight above the row's largest.
  const double heaviest = row_.heaviest * (1 + row_.largest);
  const double aligned = t_.aligned_p * v_normal * (of_lse_ ? 1 : std::min(1.0, heaviest / z_.top_weight)) +
                         t_.aligned_v * row_.v_normal * std::min(1.0, heaviest);
  absolute_random_ = std::min(absolute_, flushed_ + aligned);
  aligned_variance_ = z_.aligned_variance * square(loose_ * aligned);
  // Weights that were rounded to a few numbers are as good as equal, whatever they were before.
  one_way_pv_ = near_equal_ ? 1.0 : row_.one_way_pv;
  // Followed in the natural order: what sums by lane hold beyond what values of random sign do.
  usual_ = followed_ ? 4 * std::sqrt(18.0 / static_cast<double>(row_.count)) : 0;
  // Row sum and quotient act on the whole result.
  of_row_ = row_.structured ? t_.theta + z_.quotient : theta_systematic_;
  of_row_variance_ = row_.structured ? 0 : square(z_.theta_sigma) + square(z_.quotient) / 3;
  // Of the replayed result: what its denominator errs by.
  denominator_ = joint_ ? row_.flips + row_.sink * ((1 + row_.sink_error) * (1 + row_.largest) - 1)
                        : row_random_ + z_.farther * row_.distance;
  // Weights that may round otherwise do so apart from each other where they are no more than a grid between
  // generic weights makes them: 2 p e of every key.
  const double window = shared_error(z_, row_.largest_random);
  // Which maxima an undeclared order meets is a guess, so what they do counts twice.
  drift_ = row_.drift * (row_.declared ? 1 / kSuspicious : 2);
  flips_apart_ = row_.flips <= kGenericFlips * 2 * window && !row_.structured && !joint_;
}

bool RowBounds::row_sum_leans() const {
  if (!joint_ || !narrow_) return false;
  if (!model_.rounds_p_once()) return true;  // what several roundings lean by is not replayed
  if (about_a_power_) return true;
  const double random = random_row_sum();
  const double known = row_.rounding_biased + (truncated_ ? 0.5 * row_.rounding : 0);
  return std::fabs(row_.replayed_sum - 1) > known + kSuspicious * random || drift_ > known + random;
}

// Accumulation of P V, rescales, V's own rounding and partial results. A declared order bounds every partial
// sum by what the data says it is, plus what rounding of P, exponents and earlier additions can add to it.
template <class T>
T RowBounds::hard_accumulation(const ChannelFacts<T>& c, const T& norm) const {
  // What is added up are computed weights, rounded: p (1 + E) and at most h (1 + E) beside it.
  const T weighed = (1 + row_.largest) * (c.mass + row_.rounding_ratio * norm);
  const T undeclared = t_.pv * weighed;
  if (!sums_in_order_) return undeclared;
  const T rounded_mass = larger(c.mass, norm);
  T chain = every<T>(0);
  if (chain_apart_) {
    const T windows = t_.chain * rounded_mass * (1 + weighed_more_);
    chain = windows + (c.group_hard + t_.moved * (weighed_more_ * rounded_mass + windows)) * chain_growth_;
  } else {
    chain = (c.group_hard + t_.chain * weighed_more_ * rounded_mass) * chain_growth_;
  }
  const T parts = t_.parts * (c.part_size + grown_ * rounded_mass);
  const T declared =
      (chain * (1 + enlarged_) + enlarged_ * (1 + grown_) * rounded_mass) * (1 + t_.parts) + parts;
  return smaller(undeclared, declared);
}

// A leader whose P is known stands still while all others move against it: what scores are off by one way,
// twice, on the weights of the others.
template <class T>
T RowBounds::beside_known(const ChannelFacts<T>& c) const {
  if (!(row_.known > 0) || row_.declared || joint_) return every<T>(kInf);
  const double others = std::max(0.0, 1 - row_.known);
  const T rest = root(others * larger(every<T>(0), T(c.second - square(c.known) / row_.known)));
  return 2 * row_.most_systematic * (rest + others * size_of(c.o)) +
         (z_.distance_systematic * std::sqrt(row_.distance_square) + z_.top_rounding) *
             (root(c.second) + size_of(c.o));
}

// What a matrix unit cuts off one way in any order of the keys: half of the last bit of each sum, and of
// every product no more than the last bit that is kept, or than all of it.
template <class T>
T RowBounds::any_order(const T& norm) const {
  const assay_accumulator& pv = model_.arithmetic().pv;
  if (row_.declared || pv.kind != ASSAY_ACC_BLOCK) return every<T>(kInf);
  const double last = std::ldexp(1.0, -pv.mantissa_bits), kept = std::ldexp(1.0, -pv.fraction_bits);
  return (1 + row_.largest) *
         (t_.chain_growth / (last + (pv.block + 1) * kept) * (0.5 * last + kept) * (norm + rounded(norm)) +
          ((1 + row_.rounding_relative) * row_.small_terms + row_.rounding_floors) * row_.v_max);
}

// What V has in common with positions and scores, which orders may follow. `ramp`: of sums over the windows.
template <class T>
T in_common(const ChannelFacts<T>& c, double ramp = 1) {
  return larger(larger(T(ramp * c.windows), T(2 * c.by_score)), c.dealt_beyond);
}

template <class T>
T RowBounds::cut_blindly(const ChannelFacts<T>& c, const T& norm) const {
  const assay_accumulator& pv = model_.arithmetic().pv;
  if (row_.windows == 0 || pv.kind != ASSAY_ACC_BLOCK) return c.group_systematic;
  // Half of what any order of it may cut off, parts being no longer than they may.
  const T half = 0.5 * t_.chain * (c.mass + rounded(norm)) / loose_;
  const T lean = smaller(every<T>(1), T(c.signs + kLambda / std::sqrt(static_cast<double>(row_.count))));
  return smaller(half, T(c.group_systematic - c.cuts * (pv.block / (pv.block + 0.5)) * (1 - lean)));
}

template <class T>
T RowBounds::updated_blindly(const ChannelFacts<T>& c) const {
  const double each = one_update();
  const T any = std::max(z_.tile_shared, each + z_.update_apart) * (c.updated + c.spread);
  if (row_.windows == 0) return any;
  const T random = kLambda * larger(root(c.passed), T(t_.updates * root(c.stretches)));
  return smaller(any, T(each * (larger(random, T(t_.updates * in_common(c, kRamp))) + c.spread) +
                        z_.update_apart * (row_.updated + 1) * size_of(c.o)));
}

template <class T>
T RowBounds::parts_made_blindly(const ChannelFacts<T>& c) const {
  if (row_.windows == 0) return c.spread;
  const double parts = std::sqrt(static_cast<double>(std::max(1, model_.arithmetic().splits))) + kLambda;
  const T random = parts * root(larger(c.apart, c.stretches));
  return smaller(c.spread, larger(random, T(loose_ * in_common(c))));
}

// Results of known chunks are stored and merged one after the other; parts inside of a chunk in fp32, and so
// are the merges. `inside`: what the latter act on.
template <class T>
T RowBounds::chained(const ChannelFacts<T>& c, const T& inside, const T& second_order) const {
  const assay_arithmetic& a = model_.arithmetic();
  const double levels = std::max(1, a.partial_roundings);
  const bool narrow = a.partial_format != ASSAY_FORMAT_NONE && a.partial_format != ASSAY_FP32;
  const double unit = (narrow ? format_info(a.partial_format).unit_roundoff : kUnit) +
                      kMergeRoundings * kUnit + t_.merge_weights;
  const double grown = std::pow(1 + unit, levels),
               fp32 = (kMergeRoundings + a.splits + 4 * levels) * kUnit + t_.merge_weights;
  return unit * grown * c.chain + fp32 / (1 - fp32) * smaller(c.mass, inside) + z_.partial * second_order;
}

// Wrong weights of parts move O toward or away from a part's own result.
template <class T>
T RowBounds::merged(const ChannelFacts<T>& c, const T& norm) const {
  if (z_.merge == 0) return every<T>(0);
  const T size = size_of(c.o), far = merge_distance() * (row_.v_max + size);
  if (!row_.declared) return z_.merge * (parts_made_blindly(c) + row_.rounding_ratio * norm) + far;
  // The LSE of a known part is at least its largest score.
  const T known = z_.merge_distance * (c.part_far + row_.part_distance * (size + row_.rounding_ratio * norm));
  const T moved = smaller(c.spread, c.part_size + size);
  return z_.merge * moved + smaller(far, known) + z_.merge * row_.rounding_ratio * norm;
}

// A replayed numerator stands on a grid against the largest score of its part, and moves by what that score
// is off by, whatever its keys do. The row sum takes exact P, which follow their own scores; where it takes
// rounded P, it moves along, part by part.
template <class T>
T RowBounds::led(const ChannelFacts<T>& c, const T& norm) const {
  const T size = size_of(c.o);
  const double lag = std::max(0.0, model_.arithmetic().rescale_lag_log2) * M_LN2;
  const double lead = row_.largest_random + z_.farther * lag;
  if (row_.parts <= 1) return joint_ ? every<T>(0) : T(lead * larger(size, size_of(c.replayed)));
  const T sums = joint_ ? smaller(c.spread, c.part_size + size) : c.part_size;
  const T far = c.part_far + row_.part_distance * (size + row_.rounding_ratio * row_.v_max);
  return lead * (sums + row_.rounding_ratio * norm) + z_.farther * far;
}

template <class T>
T RowBounds::led_by_runs(const ChannelFacts<T>& c, const T& norm) const {
  const T from_o = root(larger(every<T>(0), c.second - c.o * c.o)) + size_of(c.o - c.replayed);
  return row_.others * from_o + std::min(row_.others, row_.others_most * row_.rounding_ratio) * norm;
}

double RowBounds::random_row_sum() const {
  return kLambda * std::sqrt(row_.rounding_square * rounding_share_);
}

// Whatever the errors of weights are within what they may be, and whatever they know of the grid, they turn
// over no more than this. Rounded as replayed P leans by kSuspicious of `random` at most.
template <class T>
T RowBounds::turned(T flips, T random) const {
  if (!row_.turns()) return every<T>(0);
  return larger(every<T>(0), flips - (1 - kSuspicious) * random);
}

template <class T>
ElementBounds<T> RowBounds::element(const ChannelFacts<T>& c) const {
  const T size = size_of(c.o), norm = root(c.second);
  const T accumulation = hard_accumulation(c, norm);
  ElementBounds<T> b;
  const T of_parts = part_lse_ > 0 ? T(part_lse_ * c.mass + part_far_ * row_.v_max) : every<T>(0);
  b.d = every<T>(kInf);
  if (const double left = of_lse_ ? 1 : remaining_hard_; left > 0)
    b.d = ((c.exponent + apart_hard_ * size + of_parts + c.rounding + accumulation + absolute_) *
               (1 + t_.quotient) +
           ((of_lse_ ? 0 : t_.theta) + t_.quotient) * size) /
          left;

  // What tiers P and R share: accumulation, V's rounding, partial results, the quotient.
  // Another order may take the heaviest keys first, and every step behind them cuts off a whole result.
  const assay_accumulator& pv = model_.arithmetic().pv;
  const double cuts = followed_ && !row_.declared
                          ? ErrorModel::truncations(pv, t_.chain_growth) / (pv.block + 1) *
                                std::ldexp(0.5, -std::min(pv.fraction_bits, pv.mantissa_bits))
                          : 0;
  // The unit was followed on weights that were rounded once: near-equal ones that are rounded again are other
  // numbers, all of them, and what they lose at every step is another share of it.
  const bool once = model_.rounds_p_once();
  T leaning =
      followed_
          ? T(larger(T((once ? loose_ : 2) * c.sum_lean), T(cuts * size)) + one_way_pv_ * t_.moved * c.mass)
          : larger(smaller(loose_ * cut_blindly(c, norm), any_order(norm)), one_way_pv_ * accumulation);
  if (followed_ && !once && near_equal_) leaning = larger(leaning, accumulation);
  T systematic = (followed_ ? flushed_ : absolute_random_) + z_.v_relative * c.mass +
                 smaller(accumulation, leaning + row_.absorbed_pv * c.swallowed);
  T variance = square(loose_) * c.group_variance * (followed_ ? 2 : 1) + aligned_variance_;
  if (model_.deals(row_.declared)) {
    systematic +=
        (dealt_.systematic_c + dealt_.systematic_m) * larger(every<T>(0), c.dealt_beyond - usual_ * c.mass);
    variance += (dealt_.variance_c + dealt_.variance_m) * square(c.dealt);
  }
  const T second_order = row_.rounding_ratio * norm;
  // What is stored of a known part holds the rounding of P already.
  T partial = every<T>(0), values = z_.v_relative * c.mass;
  if (z_.partial > 0)
    partial = z_.partial * (row_.declared ? T(c.part_size + second_order)
                                          : smaller(c.mass, T(size + parts_made_blindly(c) + second_order)));
  if (row_.chained) partial = smaller(partial, chained(c, T(size + parts_made_blindly(c)), second_order));
  systematic += partial;
  if (row_.structured) {
    systematic = accumulation + absolute_;
    variance = partial = values = every<T>(0);
  }
  const auto shared = [&](double per_update) -> T {
    if (!row_.declared) return updated_blindly(c);
    return per_update * (c.updated + (row_.updated + row_.late_sink) * size + row_.updates * second_order);
  };
  // Tier P, about the exact value.
  const T merging = merged(c, norm);
  // What is known of P does not drift: then it is the others' mean that does.
  // The drift is a share of the whole row; of the keys' own weight it is more where a sink has some.
  const T drifting =
      T((row_.known > 0 ? T(size_of(c.o - c.known)) : size) / std::max(1 - row_.known - row_.sink, 1e-12));
  // A row sum of the same weights leans with them, and a sink beside them does not.
  const double uncancelled = joint_ ? row_.sink : 1;
  // Rounded more than once weights of any row may lean, and no place that is tried shows by how much.
  const bool again = narrow_ && !model_.rounds_p_once();
  T one_way = c.rounding_biased + (truncated_ ? 0.5 : 0.0) * c.rounding;
  if (again) one_way += row_.drift * uncancelled * drifting;
  const T random = kLambda * root(c.rounding_variance * rounding_share_);
  // What the product of maximum and factor is rounded by moves the row sum, and not weights that stand on P's
  // grid whatever happens.
  const T stands = row_.known > 0 && !joint_ ? T(z_.top_rounding * norm) : every<T>(0);
  const T of_scores = smaller(c.systematic, beside_known(c)), over = turned<T>(c.flips, random),
          updates = shared(z_.tile_shared);
  const T systematic_p = systematic + of_scores + c.score_lean + c.exponential + one_way + over + updates +
                         merging + stands + (of_row_ + apart_random_) * size + of_parts;
  const T smooth = variance + c.variance + of_row_variance_ * square(c.o);
  b.p = b.p_rounded = every<T>(kInf);
  if (remaining_p_ > 0 && !row_.structured) {
    const auto within = [&](const T& sure, const T& varies) {
      return T((1 + second_order_) * (sure + kLambda * root(varies)) / remaining_p_);
    };
    b.p = within(systematic_p, smooth + c.rounding_variance * rounding_share_);
    // The rounding of one key or two does less than five of its standard deviations. All of it being there,
    // what turns over is, too; a numerator that is not followed errs as its weights do.
    if (narrow_ && !joint_ && z_.farther == 0) {
      const double grown = std::exp(2 * row_.largest_random);
      const T own = row_.turns() ? T(row_.own * norm) : every<T>(0);
      b.p_rounded = within(systematic_p - one_way - over + grown * rounded(norm) + own, smooth);
      // Or only of keys that have most of the weight, whose roundings grow with the errors of their scores.
      if (row_.heavy) {
        const T grows = square(row_.largest_random / kLambda * c.heavy);
        b.p = smaller(
            b.p, within(systematic_p + c.heavy + own, smooth + grows + c.light_variance * rounding_share_));
      }
    }
  }
  // Of many elements: weights that turn over apart from each other lean by what their errors do, and not by
  // all that may turn over.
  const T leans = flips_apart_ && model_.followed() && row_.turns()
                      ? T(systematic_p - over + smaller(over, T(row_.own * norm)))
                      : systematic_p;
  b.bias = (1 + second_order_) * leans / remaining_p_;
  b.bias = each<T>([&](int32_t k) { return std::isfinite(lane(b.p, k)) ? lane(b.bias, k) : kInf; });
  b.sigma = root(smooth + kMeanSquare * c.rounding_variance * rounding_share_ + square(systematic_p / 3));
  if (narrow_) {
    b.suspicious = any_above(size_of(c.replayed - c.o), one_way + kSuspicious * random);
    // Against another maximum the same roundings may all fall to one side.
    b.suspicious |= uncancelled > 0 && about_a_power_;
    b.suspicious |= !again && any_above(drift_ * uncancelled * drifting, one_way + random);
    // All maxima that were tried lean by no more than a small share of what roundings are: two or three times
    // as much, and the same random errors about it.
    if (remaining_p_ > 0 && !row_.structured && !joint_ && z_.farther == 0 && !again && !about_a_power_) {
      const T lean = larger(size_of(c.replayed - c.o), T(row_.drift * drifting)), all = rounded(norm);
      const T about = (1 + second_order_) *
                      (systematic_p + (row_.declared ? 2 : 3) * lean +
                       kLambda * root(smooth + c.rounding_variance * rounding_share_)) /
                      remaining_p_;
      b.p_rounded = each<T>([&](int32_t k) {
        const bool small = kSmallLean * lane(lean, k) <= lane(all, k);
        return small ? std::min(lane(about, k), lane(b.p_rounded, k)) : lane(b.p_rounded, k);
      });
    }
  }

  std::fill_n(b.parts_p, kBoundParts, every<T>(0));
  const auto set = [](T(&parts)[kBoundParts], BoundPart part, const T& most) {
    parts[static_cast<size_t>(part)] = most;
  };
  set(b.parts_p, BoundPart::kAccumulation, systematic - values - partial + kLambda * root(variance));
  set(b.parts_p, BoundPart::kValues, values);
  set(b.parts_p, BoundPart::kMerge, partial + merging);
  set(b.parts_p, BoundPart::kRowSum,
      (of_row_ + apart_random_ + kLambda * std::sqrt(of_row_variance_)) * size);
  std::copy_n(b.parts_p, kBoundParts, b.parts_r);
  set(b.parts_p, BoundPart::kScores, of_scores + c.score_lean + kLambda * root(c.variance));
  set(b.parts_p, BoundPart::kExponential, c.exponential + updates + stands);
  set(b.parts_p, BoundPart::kRoundedP, one_way + over + random);

  // Tier R, about the replayed value: P's rounding is known but for the weights near a boundary.
  b.r = b.replay_sigma = every<T>(kInf);
  if (row_.replayed && remaining_random_ > 0) {
    const T largest = larger(size, size_of(c.replayed));
    T leads = led(c, norm);
    T maxima = shared(2 * std::max(row_.largest_random, z_.farther)) + leads + denominator_ * largest;
    if (row_.led && !joint_) {
      const T by_runs = led_by_runs(c, norm);
      leads = smaller(leads, by_runs);
      // What the product of maximum and factor is rounded by moves exact weights, and not the rounded ones.
      maxima = smaller(maxima, by_runs + (row_.followers + z_.top_rounding) * largest);
    }
    const T moved = updates + (z_.tile_shared + z_.merge) * size_of(c.o - c.replayed);
    const T by_exponentials = joint_ ? every<T>(0) : smaller(maxima, T(row_.eps * largest));
    set(b.parts_r, BoundPart::kScores, maxima - by_exponentials);
    set(b.parts_r, BoundPart::kExponential, moved + by_exponentials);
    set(b.parts_r, BoundPart::kTurned, c.flips + c.tile_error);
    const T systematic_r = systematic + c.flips + moved + maxima + merging + c.tile_error +
                           of_row_ * largest + kUnseenWeight * static_cast<double>(row_.count) * row_.v_max;
    const T variance_r = variance + of_row_variance_ * square(largest);
    b.r = (systematic_r + kLambda * root(variance_r)) / remaining_random_;
    if (flips_apart_)
      b.replay_sigma = root(variance_r + c.variance + 0.5 * c.flip_square + square((leans + leads) / 3));
  }
  if (by_lse_hard_ > 0) weighed_by_lse(size, size_of(c.replayed), b);
  return b;
}

template double RowBounds::turned(double, double) const;
template ElementBounds<double> RowBounds::element(const ChannelFacts<double>&) const;
template ElementBounds<Eight> RowBounds::element(const ChannelFacts<Eight>&) const;

}  // namespace assay
