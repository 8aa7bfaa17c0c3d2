// SPDX-License-Identifier: Apache-2.0
// The three poisons as codes of every format, and as page table entries.
#pragma once

#include <vector>

#include "harness/input/inputs.hpp"

namespace assay {

// NaN (int8: -128, which no encoder makes), or a finite value far outside the data whose product with any
// datum still fits fp32: -2^100 and 2^100 for fp32 and bf16, half the range for narrower formats.
uint32_t poison_code(int32_t format, Poison);

// The same for outputs, before a run: other NaNs and other numbers wherever a format has them, so that what
// is read in unused memory and copied to an output is not taken for an output that was never written.
uint32_t unwritten_code(int32_t format, Poison);

// Parts of repoison(), for the data ops too: the whole buffer of an operand; the spare heads behind
// each row of a head slice; unused places of a cache and its per-token scales; tails of the page table.
void poison_all(Inputs&, Operand, Poison);
void poison_row_padding(Inputs&, Operand, Poison);
void poison_cache(Inputs&, Poison);
void poison_table(Inputs&, Poison);

// The slots of new keys that a step has yet to write, and no others; false where it writes none.
bool poison_new_keys(Inputs&, Poison);

// A cache that is read and of whose blocks few are used lies in sparse memory from this size on: only the
// blocks of requests, the block before and behind each, the first and the last one and one that nobody owns
// hold anything (poison, where no key is); all others are zeros.
inline constexpr int64_t kMostWholeBytes = int64_t{256} << 20;
bool is_far_apart(const Problem&);
std::vector<int32_t> kept_blocks(const Problem&);  // ascending; all of them unless far apart
// Their bytes in the buffer of K or V.
std::vector<ByteRange> bytes_of_blocks(const Problem&, Operand, const std::vector<int32_t>& blocks);

// About the memory that all operands take, as build_inputs() lays them out.
double laid_out_bytes(const Problem&);

// A block id no cache has. Positive, so that a test for -1 does not skip it by accident.
inline constexpr int32_t kAbsurdBlock = 0x3fffffff;

}  // namespace assay
