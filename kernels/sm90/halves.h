// SPDX-License-Identifier: Apache-2.0
// Both 16-bit halves of a word in one instruction (PTX ISA 9.0, "Integer Arithmetic Instructions": min, max
// of .u16x2 and .s16x2, sm_90 on); as in warp.h each function is one instruction, and the emulator offers the
// same.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace sm90 {

// Of each half the larger, without signs.
__device__ inline uint32_t larger_halves(uint32_t x, uint32_t y) {
  asm("max.u16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
  return x;
}
// Of each half the smaller, with signs.
__device__ inline uint32_t smaller_halves(uint32_t x, uint32_t y) {
  asm("min.s16x2 %0, %0, %1;" : "+r"(x) : "r"(y));
  return x;
}

}  // namespace sm90
