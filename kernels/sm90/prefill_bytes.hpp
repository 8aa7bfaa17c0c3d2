// SPDX-License-Identifier: Apache-2.0
// A call of the prefill kernels for codes of a byte (prefill_bytes_kernel.h) as the plain data that travels
// to the device, and how they are launched.
#pragma once

#include "kernels/sm90/prefill.hpp"

namespace assay_sm90 {

constexpr int kByteKeys = 128;  // of a tile
// P is multiplied by 2 to this power before it is rounded: at most 256 of 448
constexpr int kByteExponentOfP = 8;

// A number per request and head: data == null means the host's.
struct ScaleRef {
  const float* data;
  int64_t request, head;
  float host;
};
// A number per token and head, from which ScaleRef's are multiplied; data == null: none.
struct TokenScales {
  const float* data;
  int64_t token, head;
};

struct ByteCall : PrefillCall {
  ScaleRef q_scale, k_scale, v_scale;
  int32_t q_scale_group;           // query heads of a number in q_scale
  bool half;                       // O in fp16, else bf16
  TokenScales q_tokens, k_tokens;  // int8 only
};

// Q and K in e4m3 or in int8, V in e4m3. Maps of Q (boxes of 128 elements x 1 head x 128 tokens), K
// and V (x kByteKeys tokens); `o` is unused.
cudaError_t launch_prefill_fp8(const PrefillMaps&, const ByteCall&, bool cap, int32_t grid, cudaStream_t);
cudaError_t launch_prefill_int8(const PrefillMaps&, const ByteCall&, bool cap, int32_t grid, cudaStream_t);

}  // namespace assay_sm90
