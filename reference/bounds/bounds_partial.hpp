// SPDX-License-Identifier: Apache-2.0
// What the second pass of the matrix form knows of partial sums of P V, by row and channel: how large they
// are where a kernel rounds them, in groups of keys and in parts, weights relative to exp(m) as in RowSums.
// bounds_values.cpp adds keys up and says where groups and parts end.
#pragma once

#include <optional>
#include <vector>

#include "reference/bounds/bounds_chain.hpp"
#include "reference/bounds/bounds_group.hpp"

namespace assay::matrix_bounds {

class PartialSums {
 public:
  // All zero.
  void resize(Eigen::Index rows, Eigen::Index channels, const Chain&);
  // `sum`: P V of all keys so far.
  void begin_part(const Matrix& sum);
  // Of row i. `weight`: of the group's keys; `updates`: of the maximum among them, each with its distance,
  // or (at_start) before all of them; `among`: the same times the root of the share of the group's weight
  // that came before (L21); `scale_error`: of P scaled by tile.
  void end_group(Eigen::Index i, const Matrix& sum, const GroupTerms&, float weight, float updates,
                 float among, bool at_start, float scale_error);
  // `far`: how far the part is below the row's maximum.
  void end_part(Eigen::Index i, const Matrix& sum, double far);

  // Of a step whose results are stored in a chain (bounds_chain.hpp): the keys [from, to), with the first of
  // `weights` and `v` where some row has `seen` them, then the end of all keys; what has been stored.
  void add_links(int64_t from, int64_t to, bool seen, const Matrix& weights, const Matrix& v);
  void end_chain(int64_t end);
  bool chained() const { return chained_.has_value(); }
  const Matrix& chain() const { return chained_->stored(); }

  MatrixF in_group;                    // sum p v^2 of the group that has not ended
  Matrix second;                       // of all groups that have, which may be thousands
  std::vector<int64_t> groups;         // how many, by row
  MatrixF hard, systematic, variance;  // GroupTerms of all groups
  MatrixF cuts;                        // of `systematic`, that of products
  MatrixF updated, tile_error;         // see ChannelFacts
  MatrixF part_size, part_far;

 private:
  Matrix part_start_, before_;  // P V where the part began, and of the part where the group did
  Chain chain_;
  std::optional<ChainSums<Matrix>> chained_;
  std::vector<float> largest_, alignment_, mass_, began_;
};

}  // namespace assay::matrix_bounds
