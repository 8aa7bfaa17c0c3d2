// SPDX-License-Identifier: Apache-2.0
// One row and head in the element-wise form: what is known of it, and the order in which it is found out
// (bounds_elementwise.cpp: scores, tiles; bounds_elementwise_sums.cpp: sums over the keys).
#pragma once

#include <limits>
#include <vector>

#include "reference/bounds/bounds_elementwise.hpp"
#include "reference/bounds/bounds_weights.hpp"

namespace assay::elementwise {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

class Row {
 public:
  Row(const Problem& p, const OperandReader& operands, const ErrorModel& model, const KeyOrder& order,
      RowId id, int32_t head)
      : p_(p), operands_(operands), model_(model), order_(order), id_(id), head_(head) {}

  // False when there is nothing to bound: no key and no sink.
  bool prepare();

  const RowFacts& facts() const { return row_; }
  const ErrorTerms& terms() const { return t_; }
  const RandomTerms& random() const { return z_; }
  double growth() const { return t_.growth; }
  double largest() const;
  ChannelFacts<double> channel(int32_t d) const;

 private:
  void score_errors();
  // The declared order, or pieces in natural order: running maximum, rounding of P, prefix weights.
  void visit_tiles();
  // What the sums swallow and where near-equal weights round one way, in the pieces of the matrix form.
  void follow_sums();
  // Rounds the weights of one tile as the kernel does, taken against its running maximum m_t.
  void round_tile(std::vector<Key>::iterator first, std::vector<Key>::iterator last, double m_t, double top);
  // The same rounding against other maxima.
  void drift(double p, const RoundedP& r, double unit, double largest);
  void row_sums();
  // Partial sums of one channel in the order of the spans.
  void accumulate(int32_t d, ChannelFacts<double>& c) const;
  int64_t tile() const { return std::max(1, model_.arithmetic().tile_keys); }
  // What P stands against where no order is declared.
  double reference() const { return model_.weights_of_lse() ? row_.lse : m_; }

  const Problem& p_;
  const OperandReader& operands_;
  const ErrorModel& model_;
  const KeyOrder& order_;
  RowId id_;
  int32_t head_;
  RowScores scores_;
  RowShape shape_;
  ErrorTerms t_;
  RandomTerms z_;
  RowFacts row_;
  std::vector<Key> keys_;
  std::vector<KeySpan> spans_;
  LaneSums lanes_;
  DealtSums dealt_{p_.head_dim_v};
  elementwise::FollowedRow followed_{p_, operands_, model_, order_, id_, head_};
  std::vector<double> part_distances_;  // see RowFacts::part_distance
  int64_t window_ = 1;
  double middle_ = 0;  // half of the weight is on scores above
  double drifts_[4] = {}, m_ = 0, top_key_ = -kInf, sink_ = -kInf, slack_ = 0;
  double sink_p_ = 0, sink_hard_ = 0, sink_systematic_ = 0, sink_variance_ = 0;
};

}  // namespace assay::elementwise
