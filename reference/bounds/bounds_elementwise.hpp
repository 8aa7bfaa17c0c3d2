// SPDX-License-Identifier: Apache-2.0
// One key of a row in the element-wise form, and units of few bits on such keys (bounds_steps.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_finish.hpp"
#include "reference/bounds/bounds_leads.hpp"
#include "reference/bounds/bounds_order.hpp"
#include "reference/bounds/bounds_rows.hpp"
#include "reference/bounds/bounds_steps.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay::elementwise {

// Everything about one visible key.
struct Key {
  int64_t index = 0;  // in the request
  double x = 0, p = 0;
  double hard = 0;                      // E, later expm1(E)
  double systematic = 0, variance = 0;  // random model of the score alone, then of the weight
  double h = 0, h_biased = 0;           // rounding of P, normalised
  double h_random = 0;                  // h, or what is left of it where P is known
  bool known = false;
  double replayed = 0, flip = 0;  // replayed weight, and what a flip adds, normalised
  double eps = 0;                 // of its exponential
  bool heavy = false;             // bounds_heavy.hpp
  double updates = 0;             // undeclared order: of the running maximum, that it may pass through
  double alike = 1;               // how many keys have this score, where chance makes them equal
  double cuts = 0;                // products of its score that the unit may cut (bounds_fits.hpp)
  double delta = 0;               // what a unit of few bits takes off its score
  double cut = 0;                 // cut_variance of that
  // What its score alone may be off by. Another order of the products may lean by twice what was seen.
  ScoreError error() const { return {systematic + kOtherLean * std::fabs(delta), variance}; }
  double rescaled = 0;  // first key of a tile that may raise the running maximum: 1 + what that was behind
  std::vector<double> v;
};
using Keys = std::vector<Key>;

// Those of a span, which are sorted by index.
template <class List>
auto keys_of(List& keys, const KeySpan& s) {
  const auto before = [](const Key& k, int64_t index) { return k.index < index; };
  return std::pair{std::lower_bound(keys.begin(), keys.end(), s.from, before),
                   std::lower_bound(keys.begin(), keys.end(), s.to, before)};
}

// Sets Key::alike.
void count_alike(Keys&);
// Whether errors repeat with the scores: much of the weight on scores that occur more than once; of `coarse`
// ones, which chance makes equal, many to a score.
bool structured(const Keys&, bool coarse);

// Sets Key::heavy (bounds_heavy.hpp), `largest` being the largest score; false where there are too many.
bool find_heavy(Keys&, double largest);
// Sets Key::updates of an undeclared order, of `most` of the running maximum.
void count_updates(Keys&, double slack, double most, bool sink);
// Error of final score i, before anything that depends on the maximum.
double score_error(const Problem&, const ErrorTerms&, const RowScores&, size_t i, double shift);
// What positions and scores have to do with channel d about its o (bounds_blind.hpp): `windows` of `window`
// keys; half of the weight is on scores above `middle`. Sets apart, passed, stretches, windows, by_score and,
// of windows alone, signs.
void look_at_order(const Keys&, const std::vector<KeySpan>&, int64_t window, double middle, int32_t d,
                   double windows, ChannelFacts<double>&);
// The size at which the unit aligns subnormals of the keys that a row sees.
double k_normal(const ErrorModel&, const OperandReader&, int request, int32_t kv_head, const Keys&);

// Sets gain and underflow of the row: what its scales, multiplied among themselves, may lose of a score.
void scale_losses(const Problem&, const OperandReader&, RowId, int32_t head, const Keys&, const RowScores&,
                  RowShape&);

// ChannelFacts::chain.
double stored_in_chain(const Keys&, const Chain&, int32_t d);

class FollowedRow {
 public:
  FollowedRow(const Problem&, const OperandReader&, const ErrorModel&, const KeyOrder&, RowId, int32_t head);
  // Sets delta and cut of each key, before a cap; or, of a unit of many bits, cuts.
  void scores(Keys&, const RowScores&) const;
  // Which keys define running maxima: declared, tile by tile; else one of all.
  void start_leads(const Keys&, const RandomTerms&, double largest_random);
  void begin_part() { leads_.begin_part(); }
  void enter(Keys::const_iterator first, Keys::const_iterator last);
  bool leads(const Key& k) const { return leader_ == &k; }
  void end_part() { leads_.end_part(); }
  // What the score of a key and the maximum that its P stands against may be off by.
  double window(const Key&) const;
  void lead_facts(double row_eps, const RandomTerms&, RowFacts&) const;
  // Before the first span: of how many keys the longest part may be.
  void start(int64_t span);
  // The keys of a span, visited in its order; to_p: P of a normalised weight of 1.
  void add(const KeySpan&, Keys::const_iterator first, Keys::const_iterator last, double to_p);
  // What the unit moves channel d by: through the scores, about o, and as it adds up P V.
  static double score_lean(const Keys&, int32_t d, double o);
  double sum_lean(const Keys&, int32_t d) const;
  // What the cuts of that vary by; infinite where they are not followed.
  double sum_variance(int32_t d) const;

 private:
  void count_cuts(Keys&, const RowScores&) const;
  void tile(int64_t number, int64_t size, Keys::const_iterator first, Keys::const_iterator last, double to_p);
  const Problem& p_;
  const OperandReader& operands_;
  const ErrorModel& model_;
  const KeyOrder& order_;
  RowId id_;
  int32_t head_;
  StepSums sums_;
  Leads leads_;
  const Key* leader_ = nullptr;
  ScoreError any_;
  bool unknown_ = false;  // numbers too large to be followed
  double v_scale_ = 1;
};

}  // namespace assay::elementwise
