// SPDX-License-Identifier: Apache-2.0
// How much arithmetic a case is, before anything of it has run: what selections by size compare (--largest of
// a run, --cost of mutants). A property of the line, not of a clock, so that every machine selects the same.
#pragma once

#include "harness/problem/problem.hpp"

namespace assay {

// Multiply-adds of attention: (row, key) pairs x query heads x (d_qk + d_v). Pairs are those of
// visible_range(), so drafts under a tree mask count as if each saw the others. Building blocks: 0.
double multiply_adds(const Problem&);

}  // namespace assay
