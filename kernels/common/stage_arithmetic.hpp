// SPDX-License-Identifier: Apache-2.0
// What a kernel made of kernels declares about its rounding: the widest of what its stages declare, and the
// partial results that pass between them. Derivation: reference/bounds/BOUNDS.md, "Steps".
#pragma once

#include "harness/abi/assay_kernel.h"

namespace assay_kernels {

class Calls;

bool attends(int32_t op);

// A declaration that holds where either does.
assay_arithmetic widest(assay_arithmetic, assay_arithmetic);

// Of a step.
assay_arithmetic arithmetic_of(Calls&, const assay_problem& step);

}  // namespace assay_kernels
