// SPDX-License-Identifier: Apache-2.0
// The kernels of this backend; backend.cpp lists them. A new kernel is one declaration here, its file,
// and one line in the list.
#pragma once

#include <vector>

#include "harness/abi/assay_kernel.h"
#include "kernels/cpu/isa.hpp"

namespace assay_kernels {
struct Kit;
}

namespace assay_cpu {

extern const assay_kernel kPrefillNaive, kPagedNaive, kPrefillOnline, kPagedOnline;
extern const assay_kernel kMergeStates, kCacheWrite, kCacheGather, kQuantizeInt8, kDecodeSplit;
extern const assay_kernel kPersistentPrefill, kPersistentPaged, kReduce;
extern const assay_kernel kLseCorrect;  // a stage of no op, of steps on several ranks
extern const assay_kernel kJoinHeads;   // another, of latent steps
inline constexpr int kMetadataKernels = 11;
extern const assay_kernel kMetadata[kMetadataKernels];
assay_kernels::Kit step_kit();                    // what steps are made of
std::vector<const assay_kernel*> step_kernels();  // made of those above

// Arithmetic model of the online kernels at the active instruction set (arithmetic.cpp).
int online_arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic*);

// Measured limits of the machine, entries of the backend table (limits.cpp).
int measure_bandwidth(int32_t op, int64_t bytes, double* bytes_per_second, char* error, size_t size);
int measure_matrix_rate(int32_t format, double* flops, char* error, size_t size);

// calibration.cpp; see assay_backend. The names are what online_arithmetic declares.
const char* exp2_instruction(Isa);
const char* tanh_instruction(Isa);
inline constexpr const char* kTileInstruction = "tdpbf16ps";
int instructions(const assay_instruction* const** list, int32_t* count, char* error, size_t size);
int run_products(const assay_instruction*, int64_t count, const float* a, const float* b, const float* c,
                 float* d, char* error, size_t size);
int run_function(const assay_instruction*, uint32_t first, int64_t count, float* out, char* error,
                 size_t size);
int measure_rate(const assay_instruction*, double* flops, char* error, size_t size);

}  // namespace assay_cpu
