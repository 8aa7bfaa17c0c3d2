// SPDX-License-Identifier: Apache-2.0
// How a library answers into a struct of its caller (assay_arithmetic, assay_device). A program built against
// an older header has a shorter struct and says so in struct_size; what lies behind it is not ours.
#pragma once

#include <algorithm>
#include <cstring>

namespace assay_kernels {

// Writes as much of `answer` as the caller has room for and says in struct_size how much that is. The caller
// sets to->struct_size before the call.
template <class Struct>
void fill_struct(Struct* to, Struct answer) {
  const size_t room = std::min<size_t>(to->struct_size, sizeof answer);
  answer.struct_size = static_cast<decltype(answer.struct_size)>(room);
  std::memcpy(static_cast<void*>(to), &answer, room);
}

}  // namespace assay_kernels
