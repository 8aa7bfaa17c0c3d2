// SPDX-License-Identifier: Apache-2.0
// Matrix instructions in the dialect: D = A B + D of 16 x 16 matrices, bf16 or fp16 products, fp32 sums.
// NVIDIA computes it as two mma.sync.m16n8k16, AMD (CDNA 2 and later) as one v_mfma_f32_16x16x16, the
// emulator as whichever belongs to its lanes (kernels/emulator/matrix.cpp). A kernel asks this header, not
// the manuals, which element a register holds:
//   a lane is `member` 0-3 of kLines lines of 16 elements; of each it holds elements place(member, 0..3)
//     Operand A   its lines are rows, the elements along k     Operand B   columns, along k
//     Sums D      rows, along the columns
// So D of one product, packed to 16 bits, is the A of the next; that is all a softmax between two products
// needs.
//
// Sources: PTX ISA, "Matrix fragments for mma.m16n8k16"; "AMD Instinct MI300" instruction set architecture,
// matrix multiplication register layouts, and AMD's matrix instruction calculator. On AMD the operands are
// handed over exchanged, for the transposed product: its rows are our columns.
#pragma once

#include "kernels/common/formats.hpp"
#include "kernels/dialect/gpu.h"

namespace gpu {

// The 16-bit formats.
struct Bf16 {};
struct Fp16 {};

constexpr int kLines = kWarp == 32 ? 2 : 1;        // rows (or columns) of which a lane has elements
constexpr int kPlaces = 4;                         // elements of each
constexpr int kMembers = 4;                        // lanes that share a line,
constexpr int kMemberStep = kWarp == 32 ? 1 : 16;  // so far apart

// Which of the 16 rows or columns the i-th of this lane's is.
__host__ __device__ constexpr int line_of(int lane, int i) {
  return kWarp == 32 ? lane / 4 + 8 * i : lane % 16;
}
__host__ __device__ constexpr int member_of(int lane) { return lane / kMemberStep % kMembers; }
// Which of the 16 elements of its lines the p-th of a member's is: 2m, 2m+1, 2m+8, 2m+9 or 4m .. 4m+3.
__host__ __device__ constexpr int place(int member, int p) {
  return kWarp == 32 ? 2 * member + p % 2 + p / 2 * 8 : 4 * member + p;
}

struct Operand {
  uint32_t word[kLines][2];  // elements 0, 1 (the lower half first) and 2, 3 of each line
};
struct Sums {
  float at[kLines][kPlaces];
};

#if defined(ASSAY_EMULATOR) || defined(__CUDACC__) || defined(__HIPCC__)

// One value to 16 bits, to nearest even.
template <class Half>
__device__ inline uint16_t half_of(float value) {
  if constexpr (std::is_same_v<Half, Bf16>) return assay_kernels::bf16_from_float(value);
#  if defined(__HIP_DEVICE_COMPILE__)
  return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
#  else
  return assay_kernels::fp16_from_float(value);
#  endif
}

// Two values to 16 bits, the first in the lower half.
template <class Half>
__device__ inline uint32_t pack(float low, float high) {
#  if defined(__CUDA_ARCH__)
  uint32_t out;
  if constexpr (std::is_same_v<Half, Bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#  else
  return half_of<Half>(low) | static_cast<uint32_t>(half_of<Half>(high)) << 16;
#  endif
}

// The lower (upper) halves of two words.
__device__ inline uint32_t lower_halves(uint32_t a, uint32_t b) {
#  if defined(__CUDA_ARCH__)
  return __byte_perm(a, b, 0x5410);
#  else
  return (a & 0xffffu) | b << 16;
#  endif
}
__device__ inline uint32_t upper_halves(uint32_t a, uint32_t b) {
#  if defined(__CUDA_ARCH__)
  return __byte_perm(a, b, 0x7632);
#  else
  return a >> 16 | (b & 0xffff0000u);
#  endif
}

#  if defined(ASSAY_EMULATOR)
template <class Half>
void multiply(Sums& d, const Operand& a, const Operand& b,
              emulator::Where where = emulator::Where::current()) {
  constexpr bool kFp16 = std::is_same_v<Half, Fp16>;
  if constexpr (kWarp == 32) {
    const uint32_t rows[4] = {a.word[0][0], a.word[1][0], a.word[0][1], a.word[1][1]};
    for (int n = 0; n < 2; ++n) {
      float part[4] = {d.at[0][2 * n], d.at[0][2 * n + 1], d.at[1][2 * n], d.at[1][2 * n + 1]};
      emulator::matrix_step(kFp16, rows, b.word[n], part, where);
      d.at[0][2 * n] = part[0], d.at[0][2 * n + 1] = part[1];
      d.at[1][2 * n] = part[2], d.at[1][2 * n + 1] = part[3];
    }
  } else {
    emulator::matrix_step(kFp16, b.word[0], a.word[0], d.at[0], where);
  }
}
#  elif defined(__HIPCC__)
template <class Half>
__device__ inline void multiply([[maybe_unused]] Sums& d, [[maybe_unused]] const Operand& a,
                                [[maybe_unused]] const Operand& b) {
#    if defined(__HIP_DEVICE_COMPILE__)  // the host's pass knows no such instruction
  using Floats = __attribute__((ext_vector_type(4))) float;
  const auto sum = __builtin_bit_cast(Floats, d);
  if constexpr (std::is_same_v<Half, Bf16>) {
    using Four = __attribute__((ext_vector_type(4))) short;
    d = __builtin_bit_cast(Sums, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
                                     __builtin_bit_cast(Four, b), __builtin_bit_cast(Four, a), sum, 0, 0, 0));
  } else {
    using Four = __attribute__((ext_vector_type(4))) _Float16;
    d = __builtin_bit_cast(Sums, __builtin_amdgcn_mfma_f32_16x16x16f16(
                                     __builtin_bit_cast(Four, b), __builtin_bit_cast(Four, a), sum, 0, 0, 0));
  }
#    endif
}
#  else
template <class Half>
__device__ inline void multiply(Sums& d, const Operand& a, const Operand& b) {
#    define ASSAY_MMA(type, n)                                                                             \
      asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                           \
          ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                     \
          : "+f"(d.at[0][2 * n]), "+f"(d.at[0][2 * n + 1]), "+f"(d.at[1][2 * n]), "+f"(d.at[1][2 * n + 1]) \
          : "r"(a.word[0][0]), "r"(a.word[1][0]), "r"(a.word[0][1]), "r"(a.word[1][1]), "r"(b.word[n][0]), \
            "r"(b.word[n][1]))
  if constexpr (std::is_same_v<Half, Bf16>) {
    ASSAY_MMA("bf16", 0);
    ASSAY_MMA("bf16", 1);
  } else {
    ASSAY_MMA("f16", 0);
    ASSAY_MMA("f16", 1);
  }
#    undef ASSAY_MMA
}
#  endif

#endif
}  // namespace gpu
