// SPDX-License-Identifier: Apache-2.0
// mma.sync.m16n8k16 and how its operands lie in registers (PTX ISA, "Matrix fragments for mma.m16n8k16"):
// with g = lane / 4 and c = lane % 4
//   A a0: row g,   k 2c, 2c+1     a1: row g+8, k 2c, 2c+1     a2, a3: the same with k + 8
//   B b0: column g, k 2c, 2c+1    b1: k + 8
//   D d0, d1: row g, columns 2c, 2c+1    d2, d3: row g+8
// The sum over k may take k in any order as long as A and B agree, which attention_mma.hpp makes use of.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace assay_gpu {

struct Bf16 {
  static constexpr int kFormat = ASSAY_BF16;
};
struct Fp16 {
  static constexpr int kFormat = ASSAY_FP16;
};

template <class T>
__device__ inline void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (T::kFormat == ASSAY_BF16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats rounded to nearest even, the first in the low half.
template <class T>
__device__ inline uint32_t pack(float low, float high) {
  uint32_t out;
  if constexpr (T::kFormat == ASSAY_BF16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

template <class T>
__device__ inline uint16_t code_of(float value) {
  return static_cast<uint16_t>(pack<T>(value, 0.0f) & 0xffffu);
}

}  // namespace assay_gpu
