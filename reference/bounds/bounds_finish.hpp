// SPDX-License-Identifier: Apache-2.0
// From sums over the keys of one row to its bounds. Both forms (element-wise and matrix) fill the same two
// structures, one with exact sums and the other with upper bounds of them, and share these formulas, which
// are monotone in every field: the matrix form can only be wider. Weights are normalised, sum p = 1.
#pragma once

#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_channels.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay {

// A row counts as structured when more than this share of its weight is on scores that repeat.
inline constexpr double kRepeatedShare = 0.05;

// An even rounding error on a mantissa of unknown size: h is the largest, the mean of its square is 0.54 h^2
// (mantissas distributed as 1/x).
inline constexpr double kMeanSquare = 0.54;

// What a row needs besides its channels.
struct RowFacts {
  bool keys = false;        // anything visible
  int64_t count = 0;        // how many keys
  bool declared = false;    // prefix sums, parts and updates follow the declared order
  bool replayed = false;    // tier R applies (P narrower than fp32, order declared, nothing ambiguous)
  bool structured = false;  // repeated scores: errors repeat as well and do not average out
  double lse = 0, top = 0, v_max = 0;
  double shift = 0;     // see RowShape; part of top
  double v_normal = 0;  // largest value that the unit aligns a subnormal V at
  double heaviest = 1;  // exp(largest score - LSE): no key weighs more
  // Hard: sum p expm1(E), its largest, sum h (1 + E), sqrt(sum h^2 / p) with sum h|v| <= that sqrt(sum p
  // v^2).
  double beta = 0, largest = 0, rounding = 0, rounding_ratio = 0;
  // Of that what no more than a step of the grid allows: sum of h_j beyond u_P p_j, as in `rounding` without
  // E.
  double rounding_relative = 0, rounding_floors = 0;
  // Random model of the scores: sum p S_j, sum p^2 V_j, sum p eps_j, largest S + lambda sqrt(V) of a key.
  // A key's own error is at most largest_random + RandomTerms::farther times its distance; `distance` is the
  // mean of these.
  double systematic = 0, variance = 0, eps = 0, largest_random = 0, distance = 0;
  double most_variance = 0;                         // matrix form: the largest p V_j
  double distance_square = 0;                       // mean of its square
  double rounding_square = 0, rounding_biased = 0;  // sum h^2; sum h of the keys rounded one way
  // Weights below the last bit of their lane's sum: lost, not rounded. In the row sum, and in P V.
  double absorbed = 0, absorbed_pv = 0;
  // Share of the hard error of the row sum, and of P V, by which near-equal weights round the same way.
  double one_way = 0, one_way_pv = 0;
  // Undeclared order, or `shifted`: sum of P's rounding errors against the maxima that were tried.
  double drift = 0;
  bool shifted = false;  // what keys share of their errors moves P by more than it takes to round otherwise
  // Sum over updates of the weight accumulated before, times 1 + the distance of the maximum that is left
  // behind: what a stale maximum was off by grows with it. A sink that comes first is in the part where it
  // makes most of this. Undeclared order: sum p N, N the updates that a key may pass through.
  double updated = 0;
  double updates = 0;
  // Undeclared order of more than a few updates, or of parts (bounds_blind.hpp): windows that the keys are
  // in, and 0 elsewhere.
  double windows = 0;
  int64_t parts = 0;     // that hold keys
  bool chained = false;  // ChannelFacts::chain holds what the stages of a step store (bounds_chain.hpp)
  // Declared order: sqrt(sum over parts of their weight times their distance^2), how far a part's largest
  // score is below the row's.
  double part_distance = 0;
  double flips = 0;            // weight that may round differently than replayed
  double score_lean = 0;       // units of few bits: |sum p delta|, what they take off the scores
  double most_systematic = 0;  // the largest S_j, without what grows with the distance
  double small_terms = 0;      // sum of p_j, each no more than the last bit that pv keeps of the largest term
  double own = 0;              // sqrt(sum p (S_j + eps_j)^2) or more
  bool heavy = false;          // few keys have most of the weight: ChannelFacts::heavy holds them
  // Where the keys that define running maxima are known (bounds_leads.hpp): of all keys outside the run of
  // the largest score sqrt(sum p e^2) and the largest e, and what keys that define no maximum put into a row
  // sum that stands against maxima.
  bool led = false;
  double others = 0, others_most = 0, followers = 0;
  double known = 0;  // weight of keys whose rounded P is known
  // Share of the sink, and its hard error expm1(E): in a row sum of rounded P it alone is not rounded, and
  // stands against a maximum that errs by what a key errs.
  double sink = 0, sink_error = 0;
  // Declared order: a sink that joins behind the keys and may be above them moves the maximum once more, of
  // all that they added up; as one of `updated` for them.
  double late_sink = 0;
  double replayed_sum = 1;  // of the replayed weights

  // How large the LSE of a part that matters may be where it is stored; 0 without keys.
  double stored_lse() const { return keys ? std::max(std::fabs(lse) + shift, top) : 0; }

  // What may turn over is summed: P is replayed, and its errors are small beside its grid.
  bool turns() const { return replayed && !shifted; }

  // `above` the score of the largest key, give or take `slack` and what a lazy rescale left the maximum below
  // it; -infinity where the sink comes before keys.
  void take_sink(double share, double error, double above, double slack) {
    sink = share, sink_error = error;
    if (!keys || !declared || above <= -slack) return;
    late_sink = 1 + std::clamp(above, 0.0, 700.0);
    updated += late_sink * (1 - share), updates += 1;
  }
};

// Tiers P and R: scores are off by `largest_random` at most, so those that are farther apart than two such
// errors and the roundings of maxima do not change places. With a lazy rescale or errors that grow with the
// distance: `slack`, the hard form.
inline double moving_slack(const RandomTerms& z, double lag_log2, double slack, double largest_random) {
  return lag_log2 > 0 || z.farther > 0 ? slack : std::min(slack, 2 * largest_random + 4 * z.top_rounding);
}

// What a key and the largest, which defines the maximum, may be off by together.
inline double shared_error(const RandomTerms& z, double largest_random) {
  return 2 * largest_random + z.top_rounding + z.eps;
}

// What the systematic error of a weight acts on. Where it reaches numerator and row sum alike: |v - o|. P
// that is rounded for the numerator alone follows its row sum only from place to place of its grid, and
// errors that know these places take it over all of one side: |v| + |o|. Where the weights that may turn over
// are summed (RowFacts::turns()) the numerator has been taken care of: |o|.
template <class T>
T moved_by_weights(const ErrorModel& model, const RowFacts& row, const T& from_o, const T& v, const T& o) {
  if (!model.p_rounding().narrow || model.rounded_row_sum()) return from_o;
  return row.turns() ? o : T(v + o);
}

// One channel, or eight (bounds_channels.hpp).
template <class T>
struct ChannelFacts {
  T o = every<T>(0), replayed = every<T>(0);
  T known = every<T>(0);                       // what keys whose rounded P is known have of o
  T mass = every<T>(0), second = every<T>(0);  // sum p|v|, sum p v^2
  T exponent = every<T>(0);                    // sum p expm1(E) |v - o|
  T spread = every<T>(0);                      // sum p |v - o|
  // sum p eps and sum p S_j times moved_by_weights(); sum p^2 V_j (v - o)^2.
  T exponential = every<T>(0), systematic = every<T>(0), variance = every<T>(0);
  // Rounding of P; |v - o| instead of |v| where the row sum takes rounded P.
  T rounding = every<T>(0), rounding_variance = every<T>(0),
    rounding_biased = every<T>(0);                      // sum h(1+E)|v|, sum h^2 v^2, one-way part
  T heavy = every<T>(0), light_variance = every<T>(0);  // sum h|v| of heavy keys, sum h^2 v^2 of the others
  T group_hard = every<T>(0), group_systematic = every<T>(0),
    group_variance = every<T>(0);  // accumulation (GroupTerms)
  T part_size = every<T>(0);       // sum over parts of |A_s|
  T part_far = every<T>(0);        // of |A_s| times the part's distance
  T chain = every<T>(0);           // what is rounded to the partial format: ChainSums
  T updated = every<T>(0);         // as RowFacts::updated, of |sum p v|; undeclared order: of |v - o|
  // With RowFacts::windows: sum p^2 (v - o)^2, the same of p N, and of stretches; the root of that of windows
  // times their number; sum p (v - o) of the keys of large scores.
  // `cuts`: of group_systematic, that of products; `signs`: share of the products that may lean one way.
  T cuts = every<T>(0), signs = every<T>(0);
  T apart = every<T>(0), passed = every<T>(0), stretches = every<T>(0), windows = every<T>(0),
    by_score = every<T>(0);
  T flips = every<T>(0), flip_square = every<T>(0);  // sum flip |v|, sum flip^2 v^2
  T tile_error = every<T>(0);                        // int8 by tile: error of the tile's scale times its sum
  // Units of few bits: what they take off the scores moves O by |sum p delta (v - o)|; what they take off the
  // sum.
  T score_lean = every<T>(0), sum_lean = every<T>(0);
  // Undeclared order: largest sum that lanes or tiles taken in turn may hold, beyond that of the natural
  // order.
  T dealt = every<T>(0), dealt_beyond = every<T>(0);  // the second without what V sums up to in any order
  T swallowed = every<T>(0);  // mean of the values that a sum may swallow: of those with little weight too
};

// Bounds of one element; infinite where a tier does not apply. Tier P's is before the row's self-check.
template <class T>
struct ElementBounds {
  T d, p, r, sigma;
  T p_rounded;     // as p, with all that the rounding of P may do: needs no check of it
  T bias;          // the systematic part of p: the mean of legal errors is at most this
  T replay_sigma;  // as sigma, about the replayed value; infinite where that is not known
  // What p and r are made of, by BoundPart: a variance as five of its standard deviations.
  T parts_p[kBoundParts], parts_r[kBoundParts];
  bool suspicious = false;  // of any channel: the replayed rounding of P is not what a random one would be
};

class RowBounds {
 public:
  RowBounds(const ErrorModel&, const ErrorTerms&, const RandomTerms&, const RowFacts&);
  template <class T>
  ElementBounds<T> element(const ChannelFacts<T>&) const;
  double lse_hard() const;
  double lse_random() const;  // infinite for structured rows
  double lse_sigma() const;
  double lse_bias() const;  // the systematic part of lse_random
  // The largest of what lse_random() adds up, a variance as five of its standard deviations.
  BoundPart lse_mostly() const;
  bool joint() const { return model_.rounded_row_sum(); }
  bool followed() const { return model_.followed(); }
  bool narrow() const { return model_.p_rounding().narrow; }
  // Every tile multiplies by the same error: nothing is random in that, and no replay knows it.
  bool only_hard() const { return model_.arithmetic().rescale_inexact != 0 && t_.updates > 0; }
  // The row sum takes rounded P, and the replayed roundings lean one way.
  bool row_sum_leans() const;
  // Scores so large that their roundings may take a weight, or the sum of all, past what fp32 or P's format
  // holds: then O and LSE may be infinite or NaN, however little the keys weigh beside a sink.
  bool weights_may_overflow() const;
  // The same of weights and parts relative to an LSE, which is there before them: of O alone.
  bool second_pass_may_overflow(bool hard) const;

 private:
  // What everything shares that is weighed relative to an LSE: |ln| of the factor, at its largest and in
  // tier P.
  double lse_factor(double of_row) const;
  void set_lse_of_parts();
  template <class T>
  void weighed_by_lse(const T& size, const T& replayed, ElementBounds<T>&) const;
  template <class T>
  T hard_accumulation(const ChannelFacts<T>&, const T& norm) const;
  double lse_systematic() const;
  double moved_by_most() const;
  double updates_of_the_sum() const;  // what each rise of the running maximum does to the row sum
  // Undeclared order: one update, of a maximum that is as far below the row's as keys are.
  double one_update() const { return z_.update + kUnit * std::sqrt(row_.distance_square); }
  // Sizes of the numbers that make up the LSE; a shift goes in and comes out again.
  double lse_size() const { return std::fabs(row_.lse) + 2 * row_.shift + row_.top; }
  template <class T>
  T merged(const ChannelFacts<T>&, const T& norm) const;
  template <class T>
  T any_order(const T& norm) const;
  // Of an undeclared order: what updates of the maximum move O by, and how large partial results are in all.
  template <class T>
  T updated_blindly(const ChannelFacts<T>&) const;
  template <class T>
  T parts_made_blindly(const ChannelFacts<T>&) const;
  template <class T>
  T chained(const ChannelFacts<T>&, const T& inside, const T& second_order) const;
  // What a matrix unit leans by that cuts products of both signs.
  template <class T>
  T cut_blindly(const ChannelFacts<T>&, const T& norm) const;
  template <class T>
  T beside_known(const ChannelFacts<T>&) const;
  // All that the rounding of P may do: sum h|v|.
  template <class T>
  T rounded(const T& norm) const {
    return smaller(T(row_.rounding_ratio * norm),
                   T(row_.rounding_relative * norm + row_.rounding_floors * row_.v_max));
  }
  template <class T>
  T led(const ChannelFacts<T>&, const T& norm) const;
  // The same in tier R, with all that the maxima of runs are off by: their moves, and row sums.
  template <class T>
  T led_by_runs(const ChannelFacts<T>&, const T& norm) const;
  // What these flips add to the rounding of P, `random`, whose replay leaves some of it free.
  template <class T>
  T turned(T flips, T random) const;
  double random_row_sum() const;  // what the rounding of P may do to a row sum of rounded P
  // A part far below the maximum has a large LSE, and rounds it by as much more: sum p |x - m| of it.
  double merge_distance() const { return z_.merge_distance * row_.distance; }
  const ErrorModel& model_;
  const ErrorTerms& t_;
  const RandomTerms& z_;
  const RowFacts& row_;
  GroupTerms dealt_;  // of the keys of a part, on ChannelFacts::dealt
  double lost_hard_ = 0, remaining_hard_ = 0, remaining_random_ = 0, row_random_ = 0, theta_random_ = 0;
  double second_order_ = 0, remaining_p_ = 0;  // tier P: expm1(e) <= e (1 + second_order_)
  // What the channels of a row share, worked out once as they are many.
  bool joint_, narrow_, truncated_, followed_;
  bool near_equal_;          // weights are as good as equal once they are rounded
  bool about_a_power_;       // near-equal ones that may lie about a power of two
  double rounding_share_;    // variance of one rounding of P over h^2
  double theta_systematic_;  // what the row sum errs by that does not average out; no more than everything
  void prepare_channels();
  bool sums_in_order_ = false, chain_apart_ = false, flips_apart_ = false;
  double weighed_more_ = 0, grown_ = 0, enlarged_ = 0, chain_growth_ = 1;  // of hard_accumulation()
  double flushed_ = 0, absolute_ = 0, absolute_random_ = 0, aligned_variance_ = 0, loose_ = 1, usual_ = 0,
         one_way_pv_ = 0;
  double of_row_ = 0, of_row_variance_ = 0, denominator_ = 0, drift_ = 0;
  bool of_lse_;  // P is relative to the LSE
  // Of O, over itself, from that LSE or a merge's: at its largest, and in tiers P and R. Weights whose errors
  // the LSE does not follow.
  double by_lse_hard_ = 0, by_lse_random_ = 0, apart_hard_ = 0, apart_random_ = 0;
  // Where it is that of a part: on every part's share of O, and on max|v|.
  double part_lse_ = 0, part_far_ = 0;
};

}  // namespace assay
