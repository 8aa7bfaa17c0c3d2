// SPDX-License-Identifier: Apache-2.0
// Inputs whose answer is known exactly, for every mask, window, chunk, tree, page and ragged shape.
//
// K spells the position of its key in binary (one dimension per bit, +-b) and a query row names some of
// those bits, leaving others open: keys that match all named bits get logit 0, every other key at most
// -200, which is exp() = 0 in float. The open bits are chosen so that the *visible* matching keys are a
// power of two in number while matching keys just outside the mask exist wherever possible. V holds small
// positive even integers, so O (the mean over the matching visible keys) is a short binary fraction and
// LSE = ln(count). Sums are exact in any order, split or tile; O after rounding must agree bit for bit.
//
// Not possible with ALiBi, a soft cap or sinks, where no two keys tie or a term that is no power of two joins
// the sum, nor when the head dimension cannot spell the position; the constructor says which.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/problem/problem.hpp"

namespace assay {

class ExactRecipe {
 public:
  // Throws InputError when the problem admits no such input. `roots` as sharing_roots(); both outlive this.
  ExactRecipe(const Problem&, const std::vector<int>& roots);

  void q(int request, int32_t row, int32_t head, double* out) const;
  void k(int owner, int32_t position, int32_t head, double* out) const;
  void v(int owner, int32_t position, int32_t head, double* out) const;
  // Powers of two: codes and products stay exact, and a neighbour's scale is still off by a factor 2 or 4.
  double q_scale(uint64_t unit, bool alone) const;
  double kv_scale(uint64_t unit, bool alone) const;

  // The visible keys that share the weight; empty when the row sees nothing.
  std::vector<int32_t> matching_keys(int request, int32_t row, int32_t head) const;

 private:
  struct Target {
    uint32_t position = 0;  // of the anchor key
    uint32_t open = 0;      // bits of the position left open
  };
  Target target(int request, int32_t row, int32_t head) const;
  bool sees(int request, int32_t row, int32_t key, const KeyRange&) const;
  std::vector<int32_t> visible_matches(int request, int32_t row, Target, const KeyRange&) const;
  double sign(int root, int32_t head, int32_t dim) const;
  double value(int owner, int32_t position, int32_t head, int32_t dim) const;

  const Problem& p_;
  const std::vector<int>& roots_;
  std::vector<int64_t> tree_first_;
  bool latent_ = false;
  int32_t first_ = 0;    // dimension where the code begins
  int32_t bits_ = 1;     // of a position
  int32_t repeats_ = 1;  // dimensions per bit
  int32_t offsets_ = 0;  // dimensions that carry the constant, behind the bits
  double q_size_ = 1;
};

}  // namespace assay
