// SPDX-License-Identifier: Apache-2.0
// Inputs whose answer is known exactly, for every mask, window, chunk, tree, page and ragged shape.
//
// K spells a label of its key in binary (one dimension per bit, +-b) and a query row names some of those
// bits, leaving others open: keys that match all named bits get logit 0 (dyadic: a multiple of ln 2), every
// other key at most -190, which is exp() = 0 in float. The open bits are chosen so that O over the *visible*
// matching keys is a short binary fraction. Sums are exact in any order, split or tile; O after rounding must
// agree bit for bit. What a key holds differs:
//   exact      the label is the position; V holds small even integers; matches lie round the edges of the
//   mask incidence  keys are shuffled within short blocks, so that a group takes one key of each block; V is
//   one-hot,
//              so O counts how often each key of the group was attended
//   dyadic     keys also carry an integer level, each level equally often in each channel of V, so that O is
//              1 / channels whatever the levels are: only an accumulator that is rescaled wrongly can differ
//
// Not possible with ALiBi, a soft cap or sinks, where no two keys tie or a term that is no power of two joins
// the sum, nor when the head dimension cannot spell the position; the constructor says which.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/problem/problem.hpp"

namespace assay {

inline constexpr int32_t kMostLevels = 8;  // dyadic: 2^-8 is still a number of every format P may have

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
  // O of a row and head (head_dim_v values); gives the LSE.
  double answer(int request, int32_t row, int32_t head, double* o) const;

 private:
  struct Target {
    uint32_t label = 0;  // of the anchor key
    uint32_t open = 0;   // bits of the label left open
  };
  struct Match {
    int32_t position = 0;
    int32_t level = 0;
  };

  // What a key holds.
  uint32_t label(int root, int32_t head, int32_t position) const;  // within a block its own inverse
  int32_t level(int root, int32_t head, int32_t position) const;
  int32_t channel(int owner, int32_t head, int32_t position) const;
  double value(int owner, int32_t position, int32_t head, int32_t dim) const;
  double sign(int root, int32_t head, int32_t dim) const;

  // What a row asks for (exact_target.cpp).
  int32_t level_sign(int32_t row, int32_t head) const { return (row + head / p_.group()) & 1 ? -1 : 1; }
  bool sees(int request, int32_t row, int32_t key, const KeyRange&) const;
  std::vector<Match> visible_matches(int request, int32_t row, int32_t head, Target, const KeyRange&) const;
  bool representable(int request, int32_t row, int32_t head, const std::vector<Match>&) const;
  Target edge_target(int request, int32_t row, int32_t head, const KeyRange&) const;
  Target spread_target(int request, int32_t row, int32_t head, const KeyRange&) const;
  Target target(int request, int32_t row, int32_t head) const;

  const Problem& p_;
  const std::vector<int>& roots_;
  std::vector<int64_t> tree_first_;
  std::vector<int32_t> longest_;  // by root: keys of the longest request that shares it
  bool latent_ = false;
  int32_t first_ = 0;      // dimension where the code begins
  int32_t bits_ = 1;       // of a label
  int32_t repeats_ = 1;    // dimensions per bit
  int32_t offsets_ = 0;    // dimensions that carry the constant, behind the bits
  int32_t shuffled_ = 0;   // incidence: low bits of a label that are shuffled
  int32_t slot_bits_ = 0;  // dyadic: 2^slot_bits_ channels and keys per level block
  double q_size_ = 1;
};

}  // namespace assay
