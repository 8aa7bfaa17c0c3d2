// SPDX-License-Identifier: Apache-2.0
// The kernels for compute capability 9.0 (sm_90a) as entries of the C table, and what those entries share.
#pragma once

#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay_sm90 {

std::vector<const assay_kernel*> sm90_kernels();     // sm90.cpp: all of the below
std::vector<const assay_kernel*> decode_kernels();   // decode.cpp
std::vector<const assay_kernel*> mla_kernels();      // mla.cpp
std::vector<const assay_kernel*> prefill_kernels();  // prefill.cpp

// What `supports` asks first: op, device, groups of heads, no scale or 8-bit format of Q, page table by block
// numbers. ASSAY_OK, or ASSAY_UNSUPPORTED and why.
int common_supports(const assay_kernel*, const assay_problem*, const assay_device*, char* why, size_t size);
// ASSAY_UNSUPPORTED, with "required ..., supported ..., missing ..." in why.
int refuse(char* why, size_t size, const char* required, const char* supported, const char* missing);
// The last axis is packed, the others are multiples of `elements`, and so is the start of the data.
bool rows_of(const assay_tensor&, int32_t element_bytes, int32_t elements);

}  // namespace assay_sm90
