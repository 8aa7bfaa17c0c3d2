// SPDX-License-Identifier: Apache-2.0
// The GPU kernels as entries of the C table, and what those entries share. A portable kernel joins a list
// below; what needs one vendor's instructions has entries in its own folder and joins the library of
// that vendor (library.hpp).
#pragma once

#include <vector>

#include "harness/abi/assay_kernel.h"
#include "kernels/device/status.hpp"
#include "kernels/portable/call.hpp"

namespace assay_gpu {

std::vector<const assay_kernel*> portable_kernels();   // portable.cpp; in every library
std::vector<const assay_kernel*> attention_kernels();  // kernels.cpp
std::vector<const assay_kernel*> matrix_kernels();     // matrix_kernels.cpp
std::vector<const assay_kernel*> block_kernels();      // blocks.cpp

// Operands and device lengths of a call with one split; false and a text when the tensors contradict the
// problem.
bool make_call(const assay_problem*, const assay_tensors*, Call*, char* error, size_t size);
// Eight elements of any key, from a multiple of eight on, are neighbours in memory and start at a multiple of
// their size (16 bytes at most are read at once); chunks of one key lie at even distances
// (attention_split.hpp steps over 64 dimensions or more).
bool whole_chunks(const assay_kernels::KvView&, int32_t dims);

// Parts of equal size, at most 64 of at least least_keys keys each: as many as let the blocks (tile_rows
// packed rows, of which a multiprocessor holds `resident` at a time) finish first.
int32_t even_parts(const assay_problem&, int32_t tile_rows, int32_t resident, int32_t least_keys);

// Bytes of O and LSE of all parts, fp32.
int64_t partial_bytes(const assay_problem&, int32_t parts);

// Points the partial results of call->splits parts into the workspace; false and a text when it is too small.
bool place_parts(const assay_tensors&, Call*, char* error, size_t size);

}  // namespace assay_gpu
