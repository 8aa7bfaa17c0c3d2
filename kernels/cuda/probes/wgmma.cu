// SPDX-License-Identifier: Apache-2.0
// wgmma.mma_async of Hopper (sm_90a): A from registers with the fragments of mma.sync, B from shared memory.
// For dot products (n = 8) B lies without swizzle: core matrices of 8 columns by 16 bytes, the one of the
// next 16 bytes of k 128 bytes further (PTX ISA, "Shared memory matrix layout"); all columns hold the same
// vector. The rate uses n = 128. Compiled for other architectures the kernels do nothing: probes.cpp lists
// them on compute capability 9.0 only, where the code for sm_90a runs.
#include "kernels/cuda/probes/formats.hpp"
#include "kernels/cuda/probes/probes.hpp"

namespace assay_gpu {
namespace {

constexpr int kWords = 8;            // a dot product's operand
constexpr int kColumns = 128;        // of the rate
constexpr int kSums = kColumns / 2;  // registers of a thread for 64 x 128 sums

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#  define ASSAY_WGMMA 1
#endif

// Start, distance of core matrices along k, distance along n (all / 16); no swizzle.
__device__ inline uint64_t descriptor(const void* shared, uint32_t along_k, uint32_t along_n) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  return (at & 0x3ffffu) >> 4 | static_cast<uint64_t>(along_k >> 4) << 16 |
         static_cast<uint64_t>(along_n >> 4) << 32;
}
__device__ inline void open_group() {
#ifdef ASSAY_WGMMA
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void close_group() {
#ifdef ASSAY_WGMMA
  asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}
__device__ inline void publish_shared() {
#ifdef ASSAY_WGMMA
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#ifdef ASSAY_WGMMA
#  define ASSAY_WGMMA_8(shape, types, constraint, tail)                                                      \
    asm volatile("wgmma.mma_async.sync.aligned." shape "." types " {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1" tail \
                 ";"                                                                                         \
                 : "+" constraint(d[0]), "+" constraint(d[1]), "+" constraint(d[2]), "+" constraint(d[3])    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#  define ASSAY_SUMS_4(c, i) "+" c(d[i]), "+" c(d[i + 1]), "+" c(d[i + 2]), "+" c(d[i + 3])
#  define ASSAY_SUMS_16(c, i) \
    ASSAY_SUMS_4(c, i), ASSAY_SUMS_4(c, i + 4), ASSAY_SUMS_4(c, i + 8), ASSAY_SUMS_4(c, i + 12)
#  define ASSAY_WGMMA_128(shape, types, constraint, tail)                            \
    asm volatile("wgmma.mma_async.sync.aligned." shape "." types                     \
                 " {"                                                                \
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"            \
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"  \
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"  \
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}," \
                 " {%64,%65,%66,%67}, %68, 1" tail ";"                               \
                 : ASSAY_SUMS_16(constraint, 0), ASSAY_SUMS_16(constraint, 16),      \
                   ASSAY_SUMS_16(constraint, 32), ASSAY_SUMS_16(constraint, 48)      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#endif

// Scales of A and B are one each; 16-bit B is K-major (the last 0).
template <int kFormat, class S, int kCount>
__device__ inline void wgmma(S (&d)[kCount], const uint32_t (&a)[4], uint64_t b) {
#ifdef ASSAY_WGMMA
  if constexpr (kCount == 4) {
    if constexpr (kFormat == ASSAY_BF16) ASSAY_WGMMA_8("m64n8k16", "f32.bf16.bf16", "f", ",1,1,0");
    if constexpr (kFormat == ASSAY_FP16) ASSAY_WGMMA_8("m64n8k16", "f32.f16.f16", "f", ",1,1,0");
    if constexpr (kFormat == ASSAY_FP8_E4M3) ASSAY_WGMMA_8("m64n8k32", "f32.e4m3.e4m3", "f", ",1,1");
    if constexpr (kFormat == ASSAY_FP8_E5M2) ASSAY_WGMMA_8("m64n8k32", "f32.e5m2.e5m2", "f", ",1,1");
    if constexpr (kFormat == ASSAY_INT8) ASSAY_WGMMA_8("m64n8k32", "s32.s8.s8", "r", "");
  } else {
    if constexpr (kFormat == ASSAY_BF16) ASSAY_WGMMA_128("m64n128k16", "f32.bf16.bf16", "f", ",1,1,0");
    if constexpr (kFormat == ASSAY_FP16) ASSAY_WGMMA_128("m64n128k16", "f32.f16.f16", "f", ",1,1,0");
    if constexpr (kFormat == ASSAY_FP8_E4M3) ASSAY_WGMMA_128("m64n128k32", "f32.e4m3.e4m3", "f", ",1,1");
    if constexpr (kFormat == ASSAY_FP8_E5M2) ASSAY_WGMMA_128("m64n128k32", "f32.e5m2.e5m2", "f", ",1,1");
    if constexpr (kFormat == ASSAY_INT8) ASSAY_WGMMA_128("m64n128k32", "s32.s8.s8", "r", "");
  }
#endif
}

template <int kFormat>
struct Sum {
  using Type = float;
};
template <>
struct Sum<ASSAY_INT8> {
  using Type = int32_t;
};

// A warp group per dot product.
template <int kFormat>
__global__ void products(const uint32_t* a, const uint32_t* b, const float* c, float* out) {
  __shared__ __align__(128) uint32_t columns[2 * 8 * 4];
  const int64_t dot = blockIdx.x;
  if (threadIdx.x < 64)  // word (k half, column, word of 16 bytes)
    columns[threadIdx.x] = b[dot * kWords + threadIdx.x / 32 * 4 + threadIdx.x % 4];
  publish_shared();
  __syncthreads();
  uint32_t fa[4] = {};
  typename Sum<kFormat>::Type d[4] = {};
  if (threadIdx.x < 4) fa[0] = a[dot * kWords + threadIdx.x], fa[2] = a[dot * kWords + 4 + threadIdx.x];
  if (threadIdx.x == 0) d[0] = static_cast<typename Sum<kFormat>::Type>(c[dot]);
  open_group();
  wgmma<kFormat>(d, fa, descriptor(columns, 128, 256));
  close_group();
  if (threadIdx.x == 0) out[dot] = static_cast<float>(d[0]);
}

// Codes near one: zeros would draw less power and run faster than real data.
template <int kFormat>
__device__ inline uint32_t code_words(uint32_t i) {
  if (kFormat == ASSAY_BF16) return 0x3f803f81u + (i & 7);
  if (kFormat == ASSAY_FP16) return 0x3c013c02u + (i & 7);
  if (kFormat == ASSAY_INT8) return 0x03fd02feu + (i & 7);
  return 0x38b93ab8u + (i & 3);
}

// Four instructions in flight per warp group: k steps of one tile, whose B is 128 columns by 128 bytes.
template <int kFormat>
__global__ void __launch_bounds__(256, 2) rate(int64_t rounds, float* sink) {
  __shared__ __align__(1024) uint32_t tile[kColumns * 32];
  for (int i = threadIdx.x; i < kColumns * 32; i += blockDim.x) tile[i] = code_words<kFormat>(i);
  publish_shared();
  __syncthreads();
  uint32_t a[4];
  for (int i = 0; i < 4; ++i) a[i] = code_words<kFormat>(threadIdx.x + i);
  typename Sum<kFormat>::Type d[kSums] = {};
  // Along k the next core matrix is 2048 bytes away (16 groups of 8 columns), along n 128 bytes.
  const uint64_t b = descriptor(tile, 2048, 128);
  for (int64_t n = 0; n < rounds; ++n) {
    open_group();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<kFormat>(d, a, b + static_cast<uint64_t>(k * 4096 >> 4));
    close_group();
  }
  float sum = 0;
  for (int i = 0; i < kSums; ++i) sum += static_cast<float>(d[i]);
  if (sum == 12345.0f) *sink = sum;
}

}  // namespace

gpu::Status launch_wgmma_products(int32_t format, int64_t count, const uint32_t* a, const uint32_t* b,
                                  const float* c, float* d, gpu::Stream stream) {
  return with_format(format, [&](auto f) {
    products<decltype(f)::value><<<static_cast<unsigned>(count), 128, 0, stream>>>(a, b, c, d);
    return GPU_API(GetLastError)();
  });
}

gpu::Status launch_wgmma_rate(int32_t format, int64_t rounds, int32_t blocks, float* sink, double* flops,
                              gpu::Stream stream) {
  const int k = format == ASSAY_BF16 || format == ASSAY_FP16 ? 16 : 32;
  *flops = 2.0 * 64 * kColumns * k * 4 * 2 * blocks * static_cast<double>(rounds);
  return with_format(format, [&](auto f) {
    rate<decltype(f)::value><<<blocks, 256, 0, stream>>>(rounds, sink);
    return GPU_API(GetLastError)();
  });
}

}  // namespace assay_gpu
