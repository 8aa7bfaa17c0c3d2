// SPDX-License-Identifier: Apache-2.0
// The operands by name, where they have holes, and what a kernel may do with one. A new one:
// operand_list.hpp.
#pragma once

#include <cstdint>
#include <string_view>

#include "harness/abi/assay_kernel.h"
#include "harness/ops/operand_list.hpp"

namespace assay {

// Every operand of assay_tensors, in its order; the index into Inputs::buffers.
enum class Operand : int {
#define ASSAY_ENUMERATOR(enumerator, member, holes) enumerator,
  ASSAY_OPERANDS(ASSAY_ENUMERATOR)
#undef ASSAY_ENUMERATOR
};
#define ASSAY_COUNT(enumerator, member, holes) +1
inline constexpr int kOperandCount = ASSAY_OPERANDS(ASSAY_COUNT);
#undef ASSAY_COUNT

// Bytes of an operand that is read, which lie between its values: no kernel may use them, so they are
// poisoned.
enum class Holes : int8_t {
  kNone,
  kRows,    // padding of strided rows
  kCache,   // with a paged cache the unused slots and pages, else padding of rows
  kStates,  // padding, and O of parts without a key
  kTable,   // entries of a page table behind the request's last
};
Holes holes_of(Operand);

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
