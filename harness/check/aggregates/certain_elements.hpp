// SPDX-License-Identifier: Apache-2.0
// Elements that an ideal kernel's rounding to the output settles: the place where it changes is so far away,
// beside all that the element may err by, that every chance of another result is a zero. Most are such
// (fp32 sums beside 16-bit outputs), and they need no more than sums of products; 64 are looked at side by
// side, with the formulas of ExpectedErrors::about_ideal() and GridPlace, bit for bit.
#pragma once

#include <cstdint>

#include "harness/check/aggregates/expected.hpp"
#include "harness/check/aggregates/row_moments.hpp"

namespace assay {

struct CertainElements {
  static constexpr int32_t kMost = 64;
  double result[kMost];    // what the kernel wrote
  int64_t certain[kMost];  // not 0: the others below hold
  double error[kMost];     // from what an ideal kernel writes
  double w[kMost];         // as in ExpectedError

  // Of elements first .. first + count - 1 of a row, whose results are there.
  void look(const ExpectedErrors&, size_t first, int32_t count, bool replayed);
  // What element i adds to its row, but for what the replay says of it.
  void add(int32_t i, RowMoments& m) const {
    m.lean += lean_[i], m.before += before_[i], m.seen += seen_[i];
    m.anywhere += anywhere_[i], m.size += size_[i], m.z += z_[i];
    m.one = m.one < one_[i] ? one_[i] : m.one;
  }

 private:
  template <bool kReplayed>
  void look_at(const ExpectedErrors&, size_t first, int32_t count);

  double lean_[kMost], before_[kMost], seen_[kMost], anywhere_[kMost], size_[kMost], one_[kMost], z_[kMost];
};

}  // namespace assay
