// SPDX-License-Identifier: Apache-2.0
// The operands by name, and what a kernel may do with one. A new operand: an enumerator, its row in
// operand.cpp, a line in the description of every op that takes it; the compiler then names the switches that
// must know what stands in it.
#pragma once

#include <cstdint>
#include <string_view>

#include "harness/abi/assay_kernel.h"

namespace assay {

// Every operand of assay_tensors, in its order; the index into Inputs::buffers.
enum class Operand : int {
  kQ,
  kK,
  kV,
  kO,
  kLse,
  kQScale,
  kKScale,
  kVScale,
  kCuQ,
  kCuKv,
  kKvLen,
  kBlockTable,
  kIndptr,
  kIndices,
  kLastPageLen,
  kAlibiSlopes,
  kSinks,
  kTreeMask,
  kTreeIndptr,
  kWorkspace,
  kPartialO,  // of the data ops, from here on
  kPartialLse,
  kDenseK,
  kDenseV,
  kSlotMapping,
  kSeqStarts,
  kTokenToBatch,
  kSource,
  kFirstKey,  // of ops with a mask
  kPositions,
};
inline constexpr int kOperandCount = static_cast<int>(Operand::kPositions) + 1;

std::string_view operand_name(Operand);  // "partial_o", as in the C header; "?" of no operand
assay_tensor& tensor_of(assay_tensors&, Operand);
const assay_tensor& tensor_of(const assay_tensors&, Operand);

// What a kernel may do with an operand: enum assay_role, and the workspace. What is in-out holds bytes that
// count before the run, and those the op does not name must be there after it.
enum class Role : int32_t {
  kNone = ASSAY_ROLE_NONE,     // the op does not take it
  kIn = ASSAY_ROLE_IN,         // read only
  kOut = ASSAY_ROLE_OUT,       // written; what was there is poison
  kInOut = ASSAY_ROLE_IN_OUT,  // written in part
  kWorkspace,                  // undefined before and after
};

}  // namespace assay
