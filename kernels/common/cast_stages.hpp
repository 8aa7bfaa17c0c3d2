// SPDX-License-Identifier: Apache-2.0
// Stages (of op quantize_int8) that round rows to codes of the cache's format before they are attended.
#pragma once

#include "kernels/common/stages.hpp"

namespace assay_kernels {

bool is_fp8(int32_t format);
bool is_e4m3(int32_t format);  // in either of its two codings

// Stage `stage`: the step's rows [T, heads, dim] as codes of K's format, by scales that are given as `kind`
// says (`host`: ASSAY_SCALE_HOST's).
assay_tensor cast_rows(Calls&, const char* stage, const assay_tensor& rows, int32_t heads, int32_t dim,
                       int32_t kind, float host, const assay_tensor& scale);

// Stage "q_cast": Q by a scale of 1. The step goes on with those codes.
void cast_q(Calls&);

}  // namespace assay_kernels
