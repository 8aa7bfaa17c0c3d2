// SPDX-License-Identifier: Apache-2.0
// How the rows of a step read its keys, as its kernel declares: new ones as they came, those of the cache as
// codes or as a gather leaves them. The judge and explain's half of a step that attends share it.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "harness/problem/request_class.hpp"

namespace assay {

// Per request, in the terms of HostOperands::dense_new_keys.
inline std::vector<uint8_t> keys_of_step(const Problem& step, const assay_arithmetic& a) {
  std::vector<uint8_t> read;
  const bool cross = step.mask == ASSAY_MASK_CROSS;  // keys come from the cache alone
  for (const Request& r : step.requests) {
    const auto is = static_cast<int32_t>(request_class(step, r));
    const bool dense = !cross && (a.dense_new_keys & is) != 0;
    const bool gathered = a.dequant_format != ASSAY_FORMAT_NONE && (a.dequant_replayed & is) != 0;
    read.push_back(static_cast<uint8_t>((dense ? 1 : 0) + (gathered ? 2 * a.dequant_format : 0)));
  }
  return read;
}

// That arithmetic over keys that are read so: what a gather rounded is an operand, and no error.
inline assay_arithmetic arithmetic_over_keys(assay_arithmetic a) {
  if (a.dequant_replayed != 0) a.dequant_format = ASSAY_FORMAT_NONE, a.dequant_replayed = 0;
  return a;
}

}  // namespace assay
