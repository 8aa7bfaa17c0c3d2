// SPDX-License-Identifier: Apache-2.0
// The kernels of this backend; backend.cpp lists them. A new kernel is one declaration here, its file,
// and one line in the list.
#pragma once

#include "harness/abi/assay_kernel.h"

namespace assay_cpu {

extern const assay_kernel kPrefillNaive, kPagedNaive, kPrefillOnline, kPagedOnline;
extern const assay_kernel kMergeStates, kCacheWrite, kCacheGather, kQuantizeInt8;

// Arithmetic model of the online kernels at the active instruction set (arithmetic.cpp).
int online_arithmetic(const assay_problem*, assay_arithmetic*);

// Measured limits of the machine, entries of the backend table (limits.cpp).
int measure_bandwidth(int32_t op, int64_t bytes, double* bytes_per_second, char* error, size_t size);
int measure_matrix_rate(int32_t format, double* flops, char* error, size_t size);

}  // namespace assay_cpu
