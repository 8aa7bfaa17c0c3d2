// SPDX-License-Identifier: Apache-2.0
// Pairs of fp32 as codes of bf16, fp16 and e4m3, to nearest even, and fp16 as fp32; e4m3 saturates, NaN stays
// NaN. One instruction where the device has it (bf16 from compute capability 8.0 on, e4m3 from 8.9), bit
// arithmetic of the same values elsewhere. cvt, PTX manual: the first source becomes the upper half.
#pragma once

#include "kernels/common/formats.hpp"
#include "kernels/dialect/gpu.h"

namespace gpu {

// `low` in the lower half.
GPU_INLINE uint32_t bf16_codes(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t codes;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(codes) : "f"(high), "f"(low));
  return codes;
#else
  return assay_kernels::bf16_from_float(low) | static_cast<uint32_t>(assay_kernels::bf16_from_float(high))
                                                   << 16;
#endif
}

GPU_INLINE uint32_t fp16_codes(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t codes;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(codes) : "f"(high), "f"(low));
  return codes;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __builtin_bit_cast(uint16_t, static_cast<_Float16>(low)) |
         static_cast<uint32_t>(__builtin_bit_cast(uint16_t, static_cast<_Float16>(high))) << 16;
#else
  return assay_kernels::fp16_from_float(low) | static_cast<uint32_t>(assay_kernels::fp16_from_float(high))
                                                   << 16;
#endif
}

GPU_INLINE void fp16_pair(uint32_t codes, float& low, float& high) {
#if defined(__CUDA_ARCH__)
  asm("{ .reg .b16 first, second;\n"
      "mov.b32 {first, second}, %2;\n"
      "cvt.f32.f16 %0, first;\n"
      "cvt.f32.f16 %1, second; }"
      : "=f"(low), "=f"(high)
      : "r"(codes));
#elif defined(__HIP_DEVICE_COMPILE__)
  low = static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(codes)));
  high = static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(codes >> 16)));
#else
  low = assay_kernels::float_from_fp16(static_cast<uint16_t>(codes));
  high = assay_kernels::float_from_fp16(static_cast<uint16_t>(codes >> 16));
#endif
}

GPU_INLINE uint16_t e4m3_codes(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
#else
  return static_cast<uint16_t>(assay_kernels::fp8_from_float(low, ASSAY_FP8_E4M3) |
                               assay_kernels::fp8_from_float(high, ASSAY_FP8_E4M3) << 8);
#endif
}

// Of each half of two words of bf16 (or fp16) the larger magnitude, with some sign; NaN gives way, or wins.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 860
#  define GPU_LARGER_PAIRS
template <bool kBf16, bool kNan = false>
GPU_INLINE uint32_t larger(uint32_t a, uint32_t b) {
  uint32_t most;
  if constexpr (kNan && kBf16) {
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
  }
  if constexpr (kNan) {
    asm("max.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
  }
  if constexpr (kBf16)
    asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  else
    asm("max.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
}
#endif

// 1 / x for normal x and 1 / x, to two units in the last place.
GPU_INLINE float reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_rcpf(x);
#else
  return 1.0f / x;
#endif
}

// The last bytes of four words, the first lowest.
GPU_INLINE uint32_t low_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
#else
  return (a & 0xffu) | (b & 0xffu) << 8 | (c & 0xffu) << 16 | d << 24;
#endif
}

// Four words of four bytes, turned over: word i becomes the i-th bytes of all, the first word's lowest.
GPU_INLINE void turn_bytes(uint32_t (&w)[4]) {
#if defined(__CUDA_ARCH__)
  const uint32_t low = __byte_perm(w[0], w[1], 0x5140), high = __byte_perm(w[0], w[1], 0x7362);
  const uint32_t other_low = __byte_perm(w[2], w[3], 0x5140), other_high = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(low, other_low, 0x5410), w[1] = __byte_perm(low, other_low, 0x7632);
  w[2] = __byte_perm(high, other_high, 0x5410), w[3] = __byte_perm(high, other_high, 0x7632);
#else
  uint32_t turned[4];
  for (int i = 0; i < 4; ++i)
    turned[i] = low_bytes(w[0] >> 8 * i, w[1] >> 8 * i, w[2] >> 8 * i, w[3] >> 8 * i);
  for (int i = 0; i < 4; ++i) w[i] = turned[i];
#endif
}

}  // namespace gpu
