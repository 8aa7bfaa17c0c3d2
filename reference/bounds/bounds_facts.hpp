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

// How weights of a tile are rounded against its running maximum m_t; eps is the caller's.
TileRounding tile_rounding(const Block&, const RowSums&, double m_t);

}  // namespace assay::matrix_bounds
