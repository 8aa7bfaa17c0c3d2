// SPDX-License-Identifier: Apache-2.0
// mma.sync: m16n8k16 of 16-bit operands, m16n8k32 of 8-bit ones. Fragments (PTX ISA, "Matrix fragments"):
// lane 0 to 3 hold row 0 of A in a0 and a2 (columns 4 bytes at a time, the second half in a2) and column 0 of
// B in b0 and b1; d0 of lane 0 is element (0, 0). A dot product is that element; everything else stays zero.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/cuda/probes/formats.hpp"
#include "kernels/cuda/probes/probes.hpp"

namespace assay_gpu {
namespace {

constexpr int kWords = 8;  // a dot product's operand: 16 x 2 bytes or 32 x 1

// 8-bit floats need sm_89.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
#  define ASSAY_MMA_FP8 1
#endif

#define ASSAY_MMA(shape, types, constraint)                                                             \
  asm volatile("mma.sync.aligned." shape ".row.col." types                                              \
               " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                 \
               : "+" constraint(d[0]), "+" constraint(d[1]), "+" constraint(d[2]), "+" constraint(d[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <int kFormat>
__device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kFormat == ASSAY_BF16) ASSAY_MMA("m16n8k16", "f32.bf16.bf16.f32", "f");
  if constexpr (kFormat == ASSAY_FP16) ASSAY_MMA("m16n8k16", "f32.f16.f16.f32", "f");
#ifdef ASSAY_MMA_FP8
  if constexpr (kFormat == ASSAY_FP8_E4M3) ASSAY_MMA("m16n8k32", "f32.e4m3.e4m3.f32", "f");
  if constexpr (kFormat == ASSAY_FP8_E5M2) ASSAY_MMA("m16n8k32", "f32.e5m2.e5m2.f32", "f");
#endif
}
template <int kFormat>
__device__ inline void mma(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  ASSAY_MMA("m16n8k32", "s32.s8.s8.s32", "r");
}

template <int kFormat>
struct Sum {
  using Type = float;
};
template <>
struct Sum<ASSAY_INT8> {
  using Type = int32_t;
};

template <int kFormat>
__global__ void products(int64_t count, const uint32_t* a, const uint32_t* b, const float* c, float* out) {
  const int64_t dot = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (dot >= count) return;
  const int lane = threadIdx.x % 32;
  uint32_t fa[4] = {}, fb[2] = {};
  typename Sum<kFormat>::Type d[4] = {};
  if (lane < 4) {
    fa[0] = a[dot * kWords + lane], fa[2] = a[dot * kWords + 4 + lane];
    fb[0] = b[dot * kWords + lane], fb[1] = b[dot * kWords + 4 + lane];
  }
  if (lane == 0) d[0] = static_cast<typename Sum<kFormat>::Type>(c[dot]);
  mma<kFormat>(d, fa, fb);
  if (lane == 0) out[dot] = static_cast<float>(d[0]);
}

// Codes near one: zeros would draw less power and run faster than real data.
template <int kFormat>
__device__ inline uint32_t code_words(uint32_t i) {
  if (kFormat == ASSAY_BF16) return 0x3f803f81u + (i & 7);
  if (kFormat == ASSAY_FP16) return 0x3c013c02u + (i & 7);
  if (kFormat == ASSAY_INT8) return 0x03fd02feu + (i & 7);
  return 0x38b93ab8u + (i & 3);
}

template <int kFormat>
__global__ void rate(int64_t rounds, float* sink) {
  uint32_t a[4], b[8][2];
  for (int i = 0; i < 4; ++i) a[i] = code_words<kFormat>(threadIdx.x + i);
  for (int i = 0; i < 8; ++i) b[i][0] = code_words<kFormat>(i), b[i][1] = code_words<kFormat>(i + 3);
  typename Sum<kFormat>::Type d[8][4] = {};
  for (int64_t n = 0; n < rounds; ++n)
#pragma unroll
    for (int i = 0; i < 8; ++i) mma<kFormat>(d[i], a, b[i]);
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += static_cast<float>(d[i][0] + d[i][1] + d[i][2] + d[i][3]);
  if (sum == 12345.0f) *sink = sum;
}

template <int kFormat>
__device__ inline uint32_t code_of(float x) {
  if constexpr (kFormat == ASSAY_BF16) return __bfloat16_as_ushort(__float2bfloat16_rn(x));
  if constexpr (kFormat == ASSAY_FP16) return __half_as_ushort(__float2half_rn(x));
  if constexpr (kFormat == ASSAY_FP8_E4M3) return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  if constexpr (kFormat == ASSAY_FP8_E5M2) return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
  return static_cast<uint32_t>(static_cast<int32_t>(x)) & 255u;
}
template <int kFormat>
__global__ void encode(const float* values, int64_t words, uint32_t* codes) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= words) return;
  constexpr int kEach = kFormat == ASSAY_BF16 || kFormat == ASSAY_FP16 ? 2 : 4;
  uint32_t word = 0;
  for (int e = 0; e < kEach; ++e) word |= code_of<kFormat>(values[i * kEach + e]) << (32 / kEach * e);
  codes[i] = word;
}

unsigned blocks_for(int64_t items, int per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace

gpu::Status launch_mma_products(int32_t format, int64_t count, const uint32_t* a, const uint32_t* b,
                                const float* c, float* d, gpu::Stream stream) {
  return with_format(format, [&](auto f) {
    products<decltype(f)::value><<<blocks_for(count, 4), 128, 0, stream>>>(count, a, b, c, d);
    return GPU_API(GetLastError)();
  });
}

gpu::Status launch_encode(int32_t format, const float* values, int64_t count, uint32_t* codes,
                          gpu::Stream stream) {
  return with_format(format, [&](auto f) {
    constexpr int kFormat = decltype(f)::value;
    const int64_t words = count / (kFormat == ASSAY_BF16 || kFormat == ASSAY_FP16 ? 2 : 4);
    encode<kFormat><<<blocks_for(words, 256), 256, 0, stream>>>(values, words, codes);
    return GPU_API(GetLastError)();
  });
}

gpu::Status launch_mma_rate(int32_t format, int64_t rounds, int32_t blocks, float* sink, double* flops,
                            gpu::Stream stream) {
  const int k = format == ASSAY_BF16 || format == ASSAY_FP16 ? 16 : 32;
  *flops = 2.0 * 16 * 8 * k * 8 * (256 / 32) * blocks * static_cast<double>(rounds);
  return with_format(format, [&](auto f) {
    rate<decltype(f)::value><<<blocks, 256, 0, stream>>>(rounds, sink);
    return GPU_API(GetLastError)();
  });
}

}  // namespace assay_gpu
