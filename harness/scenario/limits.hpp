// SPDX-License-Identifier: Apache-2.0
// Bounds of scenario values. They catch typing errors (a length with one digit too many) before memory
// runs out, and keep every index within the int32 of the kernel interface.
#pragma once

#include <cstdint>

namespace assay {

inline constexpr int64_t kMaxHeads = 1024;
inline constexpr int64_t kMaxHeadDim = 1024;
inline constexpr int64_t kMaxPageSize = 1 << 16;  // tokens
inline constexpr int64_t kMaxBlocks = 1 << 26;
inline constexpr int64_t kMaxTokens = 0x7fffffff;  // cu_q, cu_kv and slots are int32
inline constexpr int64_t kMaxRequests = 1 << 20;
inline constexpr int64_t kMaxDrafted = 255;                   // draft steps before a step
inline constexpr int64_t kMaxTreeEntries = int64_t{1} << 30;  // bytes of all tree masks
inline constexpr int64_t kMaxLayers = 256;                    // of a cache that holds several
inline constexpr int64_t kMaxStates = 4096;                   // of a merge, parts of a decode
inline constexpr int64_t kMaxCaseGiB = 64;                    // q, k, v, o, scales and tables of one case
// scale= and cap=: both become float, and cap * tanh(s / cap) must not overflow on the way.
inline constexpr double kMinMagnitude = 1e-30;
inline constexpr double kMaxMagnitude = 1e30;

}  // namespace assay
