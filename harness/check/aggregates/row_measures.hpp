// SPDX-License-Identifier: Apache-2.0
// One pass over the elements of an output: what those of each row and head add to the statistics, and the
// places of their results. Rows are measured by as many threads as there are; nothing is added up across
// rows, so who measures one changes no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/check/aggregates/aggregates.hpp"
#include "harness/check/aggregates/common_errors.hpp"
#include "harness/check/aggregates/expected.hpp"
#include "harness/check/aggregates/key_errors.hpp"
#include "harness/check/aggregates/places.hpp"
#include "harness/check/aggregates/row_moments.hpp"

namespace assay {

class RowMeasures {
 public:
  // All but the last are kept by reference. `lse`: the LSE is looked at.
  RowMeasures(const BoundedAttention& b, const Problem& p, const OutputView& out,
              const ExpectedErrors& expected, const CommonErrors& common, bool lse)
      : b_(b), p_(p), out_(out), expected_(expected), common_(common), first_(p.cu_q()), lse_(lse) {}

  void measure();
  // By slot: row times heads plus head.
  const std::vector<RowMoments>& moments() const { return moments_; }
  // Where a row's elements are, places_first to places_last.
  const Places& places(int64_t slot) const { return places_[static_cast<size_t>(slot / kSlice)]; }
  // What the output holds.
  double got(RowHead at, int32_t d) const;

 private:
  static constexpr int64_t kSlice = 16;  // slots that one thread measures at a time
  int64_t slot(RowHead at) const { return at.n * p_.heads_q + at.head; }
  int64_t packed_row(int64_t n) const { return first_[b_.value.rows[n].request] + b_.value.rows[n].row; }
  void measure(RowHead at, std::vector<double>& shares);
  void measure_lse(RowHead at, RowMoments& m) const;
  // What the output holds in dimensions d .. d + count - 1.
  void load_results(RowHead at, int32_t d, int32_t count, double* to) const;

  const BoundedAttention& b_;
  const Problem& p_;
  const OutputView& out_;
  const ExpectedErrors& expected_;
  const CommonErrors& common_;
  const std::vector<int32_t> first_;
  const bool lse_;
  std::vector<Places> places_;  // of kSlice slots each
  std::vector<RowMoments> moments_;
};

}  // namespace assay
