// SPDX-License-Identifier: Apache-2.0
// A call of the prefill kernel for e4m3 (prefill_fp8_kernel.h) as the plain data that travels to the device,
// and how it is launched.
#pragma once

#include "kernels/sm90/prefill.hpp"

namespace assay_sm90 {

constexpr int kFp8Keys = 128;  // of a tile
constexpr int kFp8ExponentOfP =
    8;  // P is multiplied by 2 to this power before it is rounded: at most 256 of 448

// A number per request and head: data == null means the host's.
struct ScaleRef {
  const float* data;
  int64_t request, head;
  float host;
};

struct Fp8Call : PrefillCall {
  ScaleRef q_scale, k_scale, v_scale;
  int32_t q_scale_group;  // query heads of a number in q_scale
  bool half;              // O in fp16, else bf16
};

// Maps of Q (boxes of 128 elements x 1 head x kPrefillRows tokens), K and V (x kFp8Keys tokens); `o` is
// unused.
cudaError_t launch_prefill_fp8(const PrefillMaps&, const Fp8Call&, bool cap, int32_t grid, cudaStream_t);

}  // namespace assay_sm90
