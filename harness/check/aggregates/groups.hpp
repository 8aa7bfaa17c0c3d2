// SPDX-License-Identifier: Apache-2.0
// Which rows and heads a statistic sums over, which of them err alike, and which are worth a second look that
// costs more than the first.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/check/aggregates/row_moments.hpp"
#include "harness/check/verdict.hpp"

namespace assay {

// A rectangle of rows and heads.
struct Group {
  int64_t first = 0, last = 0;                                     // rows
  int32_t head_first = 0, head_last = 0, request = -1, head = -1;  // the last two as in Finding
};
// The whole case, each head over the batch, each request and head; none of them twice.
std::vector<Group> groups_of(const std::vector<RowId>& rows, int32_t heads);

// Of a slot (row and head): the first one with the same result, or with the same LSE.
// Rows and heads with the same result, as far as the output shows it, have the same weights and values, so
// the same errors: one key that all see, equal queries, heads of a group under a flat softmax. Those of
// equal LSE need not: as many keys of equal score, as by a flat softmax or by a bias alone, have one row
// sum and one logarithm, whatever the values are.
struct Twins {
  std::vector<int64_t> of_o, of_lse;
  Twins() = default;
  // o: null where nothing is asked about it.
  Twins(const BoundedAttention&, const assay_tensor* o, const std::vector<RowMoments>&);
};

// Whether the errors of some group lean along O as far as they themselves tell, what the declaration allows
// them left aside, or (coarse: the output has less than fp32) more results than usual differ from the rounded
// replay.
bool stands_out(const std::vector<Group>&, const std::vector<RowMoments>&, const Problem&, bool coarse);

// Rows of long contexts, evenly among those given, as many as their products allow: followed_attention() runs
// matrix units on them.
std::vector<RowId> rows_to_follow(const Problem&, const std::vector<RowId>& rows);

}  // namespace assay
