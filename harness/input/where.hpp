// SPDX-License-Identifier: Apache-2.0
// A place in the memory of an operand as whoever wrote the kernel counts: which block, slot, head and
// dimension of the cache and which key of which request that is, which row of O, which entry of a table. For
// messages about what was written or read where nobody may.
#pragma once

#include <cstdint>
#include <string>

#include "harness/ops/op.hpp"
#include "harness/problem/problem.hpp"

namespace assay {

// `byte` counts from the start of the payload of the buffer that the operand lies in, which may be shared: of
// a stacked cache a byte of K's buffer can be V's. "k block 7 slot 3 head 0 dim 5 (key 35 of request 1)", "o
// request 0 row 2 head 1 dim 0", "block_table request 1 entry 6 (behind its last page)". What the view leaves
// out is said by what lies before it: "o, the gap behind request 0 row 2 head 3 dim 63".
std::string where_in(const Problem&, Operand, int64_t byte);

}  // namespace assay
