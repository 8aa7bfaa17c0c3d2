// SPDX-License-Identifier: Apache-2.0
// The rows of a data op (see enum assay_op): which token each packed row is, which slot a written one
// goes to, where a gathered chunk begins. Functions of the Problem alone, like everything here. A new block
// that packs its rows otherwise: a case in packed_rows().
#pragma once

#include <cstdint>
#include <vector>

#include "harness/problem/problem.hpp"

namespace assay {

struct PackedRow {
  int32_t request = -1;  // -1: a padded row
  int32_t row = 0;       // 0 <= row < q_len
};

// One entry per row of p.rows(): requests one after the other; the padded rows of a cache_write stand between
// them where the seed says, and the last row is one of them, as in a batch padded for graph replay. Those of
// a step, whose rows are those of Q, stand behind all others.
std::vector<PackedRow> packed_rows(const Problem&);

// One entry per row of p.key_rows(): the rows above, or of cross attention the tokens of each request's
// encoder, `row` counting these, with the padded ones behind all others.
std::vector<PackedRow> new_key_rows(const Problem&);

// The cached token that a row of cache_write or cache_gather is, given first_positions(); -1 for a padded
// row.
int32_t position_of(const std::vector<int32_t>& starts, PackedRow);

// cache_write: block * page_size + slot of each row, -1 for padded ones. No slot occurs twice.
std::vector<int64_t> slot_mapping(const Problem&);

// First cached token of each request's rows, [R]. Where the op is told (seq_starts): drawn from the seed, one
// in three at 0, one in three at the start of a page, else anywhere. Otherwise the rows are the last tokens,
// and those of an encoder all of them.
std::vector<int32_t> first_positions(const Problem&);

}  // namespace assay
