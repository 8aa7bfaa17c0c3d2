// SPDX-License-Identifier: Apache-2.0
// What mla_turned.h does otherwise where the cache is e4m3 (more rows: mla_widened.h): its keys lie in shared
// memory as they came, and are widened on their way into the A registers of the products, once as K for S^T
// and once as V^T for O^T. K goes to the format of Q, V to fp16, both exact; so nothing is written to shared
// memory a second time, and half as many bytes as of bf16 hold twice as many keys on their way.
//
// A column has 64 keys x 128 elements, rows of 128 bytes with 128-byte swizzle; the one beyond V has 64
// elements in use. Four codes of a register become elements of two places of an operand, so the 16 elements
// of a k16 stand in another order, and Q is written in that order (the sum over them does not care). Of V^T,
// ldmatrix turns pairs of elements: rows g and g + 8 of a product are elements 2 g and 2 g + 1.
#pragma once

#include "kernels/sm90/mla_schedule.h"

namespace assay_sm90 {
namespace {

// 16 elements of Q from memory to shared memory, in the order in which codes of K are widened: bytes 4 c, 4 c
// + 1 and 4 c + 2, 4 c + 3 for fp16, 4 c, 4 c + 2 and 4 c + 1, 4 c + 3 for bf16.
template <bool kHalf>
__device__ inline void store_widened_order(const uint16_t* from, uint4* lower, uint4* upper) {
  const uint4 a = __ldg(reinterpret_cast<const uint4*>(from)),
              b = __ldg(reinterpret_cast<const uint4*>(from) + 1);
  if constexpr (kHalf) {
    *lower = make_uint4(a.x, a.z, b.x, b.z), *upper = make_uint4(a.y, a.w, b.y, b.w);
  } else {
    constexpr unsigned kFirst = 0x5410, kSecond = 0x7632;
    *lower = make_uint4(__byte_perm(a.x, a.y, kFirst), __byte_perm(a.z, a.w, kFirst),
                        __byte_perm(b.x, b.y, kFirst), __byte_perm(b.z, b.w, kFirst));
    *upper = make_uint4(__byte_perm(a.x, a.y, kSecond), __byte_perm(a.z, a.w, kSecond),
                        __byte_perm(b.x, b.y, kSecond), __byte_perm(b.z, b.w, kSecond));
  }
}

// S^T += K Q^T over 64 elements: half a column, `chunk` 0 or 4 of its 16-byte chunks; q: descriptor of those
// elements of Q. The registers may be written again once this group of products is done.
template <bool kHalf>
__device__ inline void byte_scores(float (&s)[8], uint32_t (&a)[16], uint32_t column, int chunk, uint32_t q) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
  SM90_UNROLL for (int i = 0; i < 4; i += 2) {
    uint32_t raw[4];
    load_matrix(raw, column + row * 128 + ((chunk + i + lane / 16 ^ row % 8) << 4));
    SM90_UNROLL for (int j = 0; j < 4; ++j) {  // j % 2: rows + 8, j / 2: the next chunk
      uint32_t &lower = a[4 * (i + j / 2) + j % 2], &upper = a[4 * (i + j / 2) + j % 2 + 2];
      if constexpr (kHalf)
        e4m3_to_half(raw[j], lower, upper);
      else
        e4m3_to_bf16(raw[j], lower, upper);
    }
  }
  mma_fence();
  SM90_UNROLL for (int i = 0; i < 4; ++i) Mma<kHalf, 16>::held(s, &a[4 * i], q + (i * 32 >> 4));
  mma_commit();
}

// O^T += V^T P^T of 64 elements of V, 16 a warp: half a column, as above; P: descriptor of P^T in fp16.
__device__ inline void byte_values(float (&o)[8], uint32_t (&a)[16], uint32_t column, int chunk, uint32_t p) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  SM90_UNROLL for (int i = 0; i < 4; i += 2) {
    uint32_t raw[4];
    load_matrix_transposed(raw, column + (16 * i + lane) * 128 + ((chunk + warp ^ lane % 8) << 4));
    SM90_UNROLL for (int j = 0; j < 4; ++j)  // j: the next 8 keys
        e4m3_to_half(__byte_perm(raw[j], 0, 0x3120), a[4 * i + 2 * j], a[4 * i + 2 * j + 1]);
  }
  mma_fence();
  SM90_UNROLL for (int i = 0; i < 4; ++i) Mma<true, 16>::held(o, &a[4 * i], p + (i * 32 >> 4));
  mma_commit();
}

// A scale of the cache, one for all keys of a request.
__device__ inline float mla_scale(const float* data, float host, int64_t at) {
  return data == nullptr ? host : __ldg(data + at);
}

}  // namespace
}  // namespace assay_sm90
