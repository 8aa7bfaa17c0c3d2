// SPDX-License-Identifier: Apache-2.0
// From the sums of the matrix form over the keys of one row to what its bounds need.
#pragma once

#include "reference/bounds/bounds_group.hpp"
#include "reference/bounds/bounds_weights.hpp"

namespace assay::matrix_bounds {

// max(|largest score|, |sink|), and what a bias of the form slope x column adds to both.
double top_of(const Block&, const BlockRow&, const RowSums&);
// Everything but what V says (v_max, v_normal).
RowFacts row_facts(const Block&, const BlockRow&, const RowSums&, bool structured);

// What the scores x of a row may be off by, once s.terms and s.random are known; `top` of its RowShape.
void score_errors(const Block&, const BlockRow&, double top, const double* x, RowSums& s);

// Squares of what is counted of a unit's cuts, of `count` keys from place `at` of row i on.
void add_cuts(const Block&, Eigen::Index i, Eigen::Index at, int64_t count, const double* weights, RowSums&);

// The running maximum enters tile t, `before` being the weight of the part's earlier tiles. What a rise adds
// to the distances left behind.
double enter_tile(const Block&, Eigen::Index i, int64_t t, double before, RowSums& s);

// Then: the sink joins, a key without products.
void sink_errors(RowSums& s);

// How weights of a tile are rounded against its running maximum m_t; eps is the caller's.
TileRounding tile_rounding(const Block&, const RowSums&, double m_t);

// What the fp32 sums of a row went through besides the keys of a span: the spans they were added up of, the
// groups (bounds_partial.hpp) that ended, the keys whose rounding may turn over.
struct Additions {
  int64_t spans = 0, groups = 0, turned = 0;
};

// What the channels of a row share when sums relative to exp(m) become its bounds.
struct RowFinish {
  RowFinish(const Block&, const BlockRow&, const RowSums&, const RowFacts&, const Additions&);
  const BlockRow& row;
  const RowSums& s;
  const RowFacts& f;
  const bool joint;  // ErrorModel::rounded_row_sum()
  // 1 / sum p; with what fp32 sums over spans, over groups and over turned keys may be too small by
  const double inverse, scaled, scaled_groups, scaled_turned;
  const double error_norm, eps_norm, h_norm;  // square roots of sums of p w^2, p eps^2, h^2
  const double biased,
      updated;  // sum of h of weights rounded one way; sqrt(sum p N^2) of an undeclared order
  const double signed_error, sink_far,
      few_bits;  // of fp32 products with signs; sum p (m - x) of the sink; of followed sums
};

}  // namespace assay::matrix_bounds
