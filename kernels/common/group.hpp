// SPDX-License-Identifier: Apache-2.0
// The group of ranks that this process is one of, for kernels that run on several
// (harness/abi/assay_group.h), and its two exchanges as stages of a composed kernel.
#pragma once

#include "harness/abi/assay_group.h"
#include "harness/abi/assay_kernel.h"

namespace assay_kernels {

// Keeps the group for the life of the process: what assay_backend_join() of a library does.
int join_group(const assay_group*, char* error, size_t size);
// Null before that.
const assay_group* joined_group();

// Stages of no op. source (dense, n bytes) of every rank -> o [ranks][n bytes].
extern const assay_kernel kAllGather;
// partial_o [ranks][n], fp32 and dense -> o [n], the sum over ranks of what is this rank's.
extern const assay_kernel kReduceScatter;

}  // namespace assay_kernels
