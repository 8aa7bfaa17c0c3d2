// SPDX-License-Identifier: Apache-2.0
// The error of a function of one fp32 argument, over every argument that matters: there are few enough to try
// them all, so the largest error is a fact and not an estimate. The reference is the host's double precision
// library (wrong by 2^-52 or so, against errors of 2^-12 to 2^-24).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay {

// Values of the function at the floats whose bit patterns are first, first + 1, ... (as run_function).
using RunFunction = std::function<void(uint32_t first, int64_t count, float* out)>;

struct ArgumentRange {
  float first = 0, last = 0;  // of one sign, |first| <= |last|; both included
  bool relative = true;       // which error counts: log2 near 1 has no useful relative one
};
// Where kernels use them: exp2 to the ends of fp32, tanh from 2^-30 to 64 of both signs, log2 and the
// reciprocal over all normal numbers (its own results normal too).
std::vector<ArgumentRange> arguments_of(int32_t function);

struct FunctionFindings {
  double relative_error = 0, absolute_error = 0;  // largest; infinity where a result is NaN or infinite
  float relative_at = 0, absolute_at = 0;         // arguments; the first where several are as bad
  int64_t arguments = 0;
};
// CheckError for a function that is not one of enum assay_function.
FunctionFindings find_function(int32_t function, const RunFunction&, const std::vector<ArgumentRange>&);

}  // namespace assay
