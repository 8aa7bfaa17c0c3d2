// SPDX-License-Identifier: Apache-2.0
// From the half-widths of the tiers to the one interval a result is accepted in.
#pragma once

#include <algorithm>
#include <vector>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_finish.hpp"

namespace assay {

// Sizes every array: value 0, LSE -inf, bounds 0, tiers P and R off. That is right for rows that see nothing.
void start_tiers(BoundedAttention&, const std::vector<RowId>&, int32_t heads_q, int32_t head_dim_v);

struct RowTiersCounts {
  int64_t p_declined = 0, r_applied = 0;
};

// Writes the tiers of one row and head, then lets the row's self-check decide about tier P.
class RowTiers {
 public:
  RowTiers(BoundedAttention&, int64_t slot, int32_t head_dim_v, const RowBounds&);
  // Channel d, or the eight from d.
  template <class T>
  void element(int32_t d, const ChannelFacts<T>&);
  // Also writes the LSE and the intervals.
  RowTiersCounts finish(const RowFacts&);

 private:
  BoundedAttention& out_;
  int64_t slot_, first_;
  int32_t dim_;
  RowBounds bounds_;
  bool suspicious_ = false;
  std::vector<double> rounded_;  // ElementBounds::p_rounded
  // Sums over the channels, eight at a time: half-widths of the tiers, and their parts.
  struct Sums {
    Eight d = every<Eight>(0), p = d, rounded = d, r = d, parts_p[kBoundParts], parts_r[kBoundParts];
    Sums() { std::fill_n(parts_p, kBoundParts, d), std::fill_n(parts_r, kBoundParts, d); }
  } all_;
  BoundPart o_mostly(bool p_applies) const;
  // Tiers P and R of O and P of the LSE do not apply.
  RowTiersCounts drop_random();
  // Where numbers of the kernel may overflow.
  void leave_open(RowTiersCounts&);
};

// The intervals of bounds that were put together otherwise: o_low .. o_high and lse_low .. lse_high from the
// tiers. Tiers left empty do not apply: their half-widths become infinite, o_replayed the exact value, the
// sigmas 0.
void intersect_tiers(BoundedAttention&);

}  // namespace assay
