// SPDX-License-Identifier: Apache-2.0
// The faults of data_op_faults.cpp by name, and the kernels that have a file of their own.
#pragma once

#include "kernels/common/operands.hpp"

namespace data_op_faults {

enum Fault {
  kNone,
  // merge_states
  kBase2,         // exp2 of natural logarithms
  kNaNEmpty,      // exp(-inf - -inf) where every state is empty
  kReadsEmpty,    // multiplies O of empty states by 0
  kNoMaximum,     // exp of the LSE itself
  kSinkTwice,     // the sink joins once per state
  kNoSink,        // never
  kLastState,     // one state too few
  kMeanOfStates,  // equal weights
  kLargestLse,    // LSE of the heaviest state
  kOtherHead,     // weights of the next head
  kEmptyRows,     // rows without states are not written
  kVague,         // declares an exponential that may be off by nearly half
  kSignOfZero,    // right: the zeros of a row without states have the sign of what nobody may look at
  kPeeksEmpty,    // last bit of the LSE follows O of an empty state
  // cache_write
  kWritesPadding,  // slot -1 taken for the slot before 0 of block 0
  kScaleOfHead,    // scale of the next head
  kKScaleForV,
  kHalfAway,  // ties away from zero
  kTruncates,
  kMinus128,    // clamps to -128
  kWraps,       // does not saturate
  kDynamic128,  // scale = max / 128
  kScaleUnwritten,
  kSlotOfBlock,  // slot within the page off by one row of pages: block and slot exchanged
  kWideStore,    // one element more than the row has
  kSkipsLast,    // last row of the batch
  kForgetsV,
  kQuantisesCodes,  // divides codes by a scale once more
  kOwnScale,        // finds a scale in codes that came with one
  kScaleOfRows,     // ignores the strides of the scales that came
  kRopeFirst,       // rope part before the latent one
  kForgetsRope,     // zeros behind the latent part
  kScaleOfLatent,   // scale of a row from its latent part alone
  kScaleOfInt8,     // 127 for the largest code of fp8
  // cache_gather
  kNoStart,       // chunks begin at token 0
  kFirstTable,    // page table of request 0
  kScaleOfToken,  // scale of the slot before
  kAsRows,        // T: a shuffled cache as if the rows of its tokens lay one behind the other
  kTruncatesOut,
  kRoundsTwice,  // through bf16
  // quantize_int8 (and the roundings above)
  kDenseScales,    // ignores the strides of the scales
  kMaxOfPositive,  // max x instead of max |x|
  kSlots16Bits,    // slots and blocks in 16 bits
  kLastOnPageEnd,  // not the batch's last row where it fills its page
  kEvenDims,       // not the last of an odd number of dimensions
  kCasts,          // takes a scale of 1
  kAllButLast,     // scales of channels from all rows but the last
  // decode_splitkv
  kNextKey,       // every part ends one key late
  kDropsKey,      // and one early
  kWholeContext,  // every part is the whole
  kPartOfTokens,  // even parts cut between any two tokens instead of pages
  kEmptyZero,     // LSE 0 of a part without keys
  kEmptyHeld,     // not written
  kUnnormalised,  // O not divided by the sum
  kMaximumOnly,   // the maximum for the LSE
  kPartBase2,     // LSE with base 2
  kPartPosition,  // positions counted from the start of the part
  kNextState,     // results to the next part's place
  kSumOfHeads,    // normalised by the sum of the next head
};

// decode_splitkv with its fault, in doubles (part_faults.cpp).
void attend_parts(const assay_kernels::Operands&, Fault);

}  // namespace data_op_faults
