// SPDX-License-Identifier: Apache-2.0
// The GPU kernels as entries of the C table, and what those entries share. A portable kernel joins the list
// in kernels.cpp; what needs one vendor's instructions has entries in its own folder and joins the library of
// that vendor (library.hpp).
#pragma once

#include <vector>

#include "harness/abi/assay_kernel.h"
#include "kernels/gpu/call.hpp"

namespace assay_gpu {

std::vector<const assay_kernel*> portable_kernels();  // kernels.cpp; in every library
std::vector<const assay_kernel*> mma_kernels();       // kernels/sm80; 16-bit tensor cores of NVIDIA

// Set once by use_device: what the kernels plan their grids for.
extern int multiprocessors;

// Writes "required ..., supported ..., missing ..." to `why` (may be null); false.
bool refuse(char* why, size_t size, const char* required, const char* supported, const char* missing);
// Operands and device lengths of a call with one split; false and a text when the tensors contradict the
// problem.
bool make_call(const assay_problem*, const assay_tensors*, Call*, char* error, size_t size);
// Status of a launch as an assay_status, with the text of the runtime.
int answer(gpu::Status, const char* what, char* error, size_t size);
// Whether rows of `dims` elements may be read 8 elements at a time.
bool reads_vectors(const assay_kernels::KvView&, int32_t dims);

}  // namespace assay_gpu
