// SPDX-License-Identifier: Apache-2.0
// Instructions of one warp that kernels here use: 16-byte copies into shared memory, matrices between shared
// memory and fragments, mma.sync, conversions, loads and stores that other blocks see. Each function is one
// instruction (or says otherwise) and states its rule; section names are those of the PTX ISA manual, version
// 9.0. Kernels hold no inline assembly, so that an emulator can offer the same functions.
//
// Fragments of m16n8k16, lane = 4 g + c: A a0 (row g, k 2c..), a1 (row g + 8), a2, a3 (the same, k + 8); B b0
// (k 2c.., column g), b1 (k + 8); D d0, d1 (row g, columns 2c, 2c + 1), d2, d3 (row g + 8).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#define SM90_UNROLL _Pragma("unroll")
#define SM90_LOOP _Pragma("unroll 1")  // short code: cold code comes from memory, too

namespace sm90 {

// The memory asked for at the launch, a multiple of 1,024 bytes: swizzled boxes begin there.
__device__ inline unsigned char* dynamic_memory() {
  extern __shared__ __align__(1024) unsigned char assay_sm90_memory[];
  return assay_sm90_memory;
}

// Address inside the block's shared memory, as the instructions below take it.
__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ---- copies (cp.async): 16 bytes past the L1 cache, both addresses multiples of 16. A lane's copies are
// complete after wait_copies(n) with at most n younger groups; other lanes see them after __syncwarp().
__device__ inline void copy16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// 4 bytes, through the L1 cache; both addresses multiples of 4.
__device__ inline void copy4(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// `valid` false: zeros, and `from` is not read.
__device__ inline void copy4_or_zero(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0)
               : "memory");
}
__device__ inline void copy16_or_zero(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kYounger>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kYounger) : "memory");
}

// ---- matrices. Four 8 x 8 matrices of 16-bit elements (ldmatrix); lanes 8 i .. 8 i + 7 hold the addresses
// of the rows of matrix i, multiples of 16. Register i then holds of matrix i row g, elements 2c and 2c + 1;
// transposed: column g.
__device__ inline void load_matrix(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
__device__ inline void load_matrix_transposed(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
// The way back (stmatrix).
__device__ inline void store_matrix(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
// Transposed: registers hold column g, elements 2c and 2c + 1.
__device__ inline void store_matrix_transposed(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
// An 8 x 8 matrix in one register of each lane, transposed (movmatrix).
__device__ inline uint32_t transpose(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
__device__ inline void store_shared(uint32_t to, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}

// D += A B, 16 x 8 x 16 (mma.sync), fp16 or bf16 operands, fp32 sums.
template <bool kHalf>
__device__ inline void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                           uint32_t b1) {
#define SM90_MMA_SYNC(type)                                           \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type \
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "                  \
               "{%8,%9}, {%0,%1,%2,%3};"                              \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])       \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
  if constexpr (kHalf)
    SM90_MMA_SYNC("f16");
  else
    SM90_MMA_SYNC("bf16");
#undef SM90_MMA_SYNC
}

// ---- conversions
// 2^x: relative error 2^-22.7 (calibrated), results below 2^-126 are 0, 2^-inf = 0.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// tanh: relative error 2^-10.9 at most by the manual, 2^-16.5 calibrated.
__device__ inline float tanh_fast(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Two numbers rounded to nearest even, `low` in the lower half.
template <bool kHalf>
__device__ inline uint32_t pack(float low, float high) {
  uint32_t r;
  if constexpr (kHalf)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// Four numbers rounded to e4m3, to nearest even, saturated; the first in the lowest byte.
__device__ inline uint32_t pack_e4m3(float a, float b, float c, float d) {
  uint32_t r;
  asm("{\n.reg .b16 l, u;\ncvt.rn.satfinite.e4m3x2.f32 l, %2, %1;\ncvt.rn.satfinite.e4m3x2.f32 u, %4, %3;\n"
      "mov.b32 %0, {l, u};\n}\n"
      : "=r"(r)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return r;
}
// Four e4m3 -> fp16, exact: bytes 0 and 1, bytes 2 and 3.
__device__ inline void e4m3_to_half(uint32_t x, uint32_t& lower, uint32_t& upper) {
  asm("{\n.reg .b16 l, u;\nmov.b32 {l, u}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, u;\n}\n"
      : "=r"(lower), "=r"(upper)
      : "r"(x));
}
// Four e4m3 -> bf16, exact: bytes 0 and 2, bytes 1 and 3. Exponent and mantissa move to their places, a
// product with 2^120 corrects the bias, of subnormals too. Not one instruction but nine; NaN codes become
// +-480.
__device__ inline void e4m3_to_bf16(uint32_t x, uint32_t& even, uint32_t& odd) {
  even = (x << 4 & 0x07F007F0u) | (x << 8 & 0x80008000u);
  odd = (x >> 4 & 0x07F007F0u) | (x & 0x80008000u);
  asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(even) : "r"(0x7B807B80u));
  asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(odd) : "r"(0x7B807B80u));
}
// Four e5m2 -> fp16, of which they are the upper bytes: bytes 0 and 1, bytes 2 and 3.
__device__ inline void e5m2_to_half(uint32_t x, uint32_t& lower, uint32_t& upper) {
  lower = __byte_perm(x, 0, 0x1404), upper = __byte_perm(x, 0, 0x3424);
}
// Four e5m2 -> bf16, exact: bytes 0 and 2, bytes 1 and 3; as above, by 2^112. Infinities and NaN codes become
// numbers from 65536 on.
__device__ inline void e5m2_to_bf16(uint32_t x, uint32_t& even, uint32_t& odd) {
  even = (x << 5 & 0x0FE00FE0u) | (x << 8 & 0x80008000u);
  odd = (x >> 3 & 0x0FE00FE0u) | (x & 0x80008000u);
  asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(even) : "r"(0x77807780u));
  asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(odd) : "r"(0x77807780u));
}
// Four int8 -> fp16, exact: bytes 0 and 1, bytes 2 and 3. The code + 128 in the mantissa of 1024, off which
// 1152 is taken.
__device__ inline void int8_to_half(uint32_t x, uint32_t& lower, uint32_t& upper) {
  x ^= 0x80808080u;
  lower = __byte_perm(x, 0x64646464u, 0x4140), upper = __byte_perm(x, 0x64646464u, 0x4342);
  asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(lower) : "r"(0x64806480u));
  asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(upper) : "r"(0x64806480u));
}
// Four int8 -> bf16, exact: bytes 0 and 2, bytes 1 and 3. The lower seven bits in the mantissa of 128, off
// which 128 is taken, 256 where the sign is set: its bit is the lowest one of the exponent.
__device__ inline void int8_to_bf16(uint32_t x, uint32_t& even, uint32_t& odd) {
  const uint32_t first = x & 0x00FF00FFu | 0x43004300u, second = x >> 8 & 0x00FF00FFu | 0x43004300u;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(even) : "r"(first & 0xFF7FFF7Fu), "r"(first & 0xFF80FF80u));
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(odd) : "r"(second & 0xFF7FFF7Fu), "r"(second & 0xFF80FF80u));
}

// ---- memory that other blocks read or write during the launch: relaxed at device scope, so a value is seen
// whole (8 and 16 bytes: each 4-byte element by itself) and in no order with others.
__device__ inline float2 load_relaxed(const float2* p) {
  float2 x;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "l"(p) : "memory");
  return x;
}
__device__ inline float4 load_relaxed(const float4* p) {
  float4 x;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(p)
               : "memory");
  return x;
}
__device__ inline void store_relaxed(float2* p, float2 x) {
  asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(x.x), "f"(x.y) : "memory");
}
__device__ inline void store_relaxed(float4* p, float4 x) {
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(x.x), "f"(x.y), "f"(x.z),
               "f"(x.w)
               : "memory");
}
// Brings the line of an address into the L2 cache; nothing waits for it.
__device__ inline void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

}  // namespace sm90
