// SPDX-License-Identifier: Apache-2.0
// The arithmetics that faults are planted in: an H100-like bf16 kernel with tiles of 64 keys, in one part or
// in four that are merged, with 8-bit units where the fault is about them.
#pragma once

#include "kernels/faulty/model.hpp"

namespace assay_faulty {

inline constexpr Unit kFp8Unit{.qk = kHopperFp8, .pv = kHopperFp8, .promote_pv = true, .p_offset_log2 = 8};

inline constexpr Arithmetic kWhole{};
inline constexpr Arithmetic kSplit{.splits = 4};
inline constexpr Arithmetic kHalves{.splits = 2};
inline constexpr Arithmetic kFp8{.has_fp8 = true, .fp8 = kFp8Unit};
// Maximum allowed to lag: with the offset of 8 the weights nearly fill e4m3's range of 448.
inline constexpr Arithmetic kFp8Lazy{
    .has_fp8 = true, .fp8 = {kHopperFp8, kHopperFp8, true, kOfOperands, 4}, .lag_log2 = 4};
inline constexpr Arithmetic kInt8{.has_int8 = true};

}  // namespace assay_faulty
