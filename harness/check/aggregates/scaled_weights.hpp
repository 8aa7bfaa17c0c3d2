// SPDX-License-Identifier: Apache-2.0
// Where V has a scale for each token and nothing is dequantised, that scale goes into P before P is rounded,
// so a weight lies on P's grid where the scale puts it. A row's largest weight is exp(0) whatever the order:
// what is rounded is the scale itself, a stored number, the same for all elements of the row and for every
// row that has its largest weight there, and nothing makes stored numbers lie evenly on a grid. A row of one
// key errs by nothing else; as many rows as there are lean as the scales do. Reads K and V: asked for
// suspects only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "harness/check/aggregates/expected.hpp"
#include "harness/check/aggregates/key_errors.hpp"
#include "reference/bounds/bounds_rounding.hpp"

namespace assay {

// Where the slope of a group may lie by the known roundings alone, and what weights that nobody knows the
// place of made of it in the replay.
struct KnownLean {
  double low = 0, high = 0, unsure = 0;
  // By how much a slope is outside.
  double beyond(double lean) const { return std::max({0.0, lean - high, low - lean}); }
};

class ScaledWeights {
 public:
  ScaledWeights(const Problem&, const OperandReader&, const BoundedAttention&, const assay_arithmetic&);
  bool any() const { return any_; }

  // What roundings move the elements of a row by, head_dim_v values each: all weights against the row's
  // maximum; all but the largest; and the weights that may each be the largest of its tile when it is
  // rounded.
  struct Moves {
    std::vector<double> whole, rest, leaders;
    double most(size_t d) const { return std::max(std::fabs(whole[d]), std::fabs(leaders[d])); }
  };
  // Sum over `rows` of what `of` makes of a row; of many a sample, evenly, that stands for all of them. The
  // second: standard deviation that the sample leaves. Nothing once the budget of keys is spent.
  struct Sum {
    double value = 0, sd = 0;
  };
  using Of = std::function<void(RowHead, const Moves&, std::span<double>)>;
  std::vector<Sum> over(std::span<const RowHead> rows, size_t sums, const Of&);
  // Of slopes; and what squares of errors are larger by on average, each over what it counts in.
  KnownLean lean(std::span<const RowHead> rows, const ExpectedErrors&);
  double more_squares(std::span<const RowHead> rows, const ExpectedErrors&);

 private:
  Moves of(RowHead at) const;
  ExpectedError expected(const ExpectedErrors& e, RowHead at, size_t d) const {
    return e.about_ideal(
        static_cast<size_t>(at.n * p_.heads_q + at.head) * static_cast<size_t>(p_.head_dim_v) + d, false);
  }
  const Problem& p_;
  const OperandReader& operands_;
  const BoundedAttention& b_;
  PRounding rounding_;
  double unit_ = 1;  // of P: 2^offset
  int64_t tile_ = 1, parts_ = 1;
  bool any_ = false;
  int64_t keys_left_;
};

}  // namespace assay
