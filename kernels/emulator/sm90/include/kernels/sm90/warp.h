// SPDX-License-Identifier: Apache-2.0
// The functions of kernels/sm90/warp.h on the emulator, found by include path in its place; their rules stand
// there. Addresses of shared memory count from the block's window, as on the device.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstring>

#include "kernels/common/formats.hpp"
#include "kernels/emulator/sm90/machine.hpp"

#define SM90_UNROLL
#define SM90_LOOP

namespace sm90 {

using gpu::emulator::Where;
namespace machine = gpu::emulator::machine;

inline unsigned char* dynamic_memory(Where where = Where::current()) {
  return gpu::dynamic_shared<unsigned char>(where);
}
inline uint32_t shared_address(const void* p, Where where = Where::current()) {
  return machine::shared_address(p, where);
}

// ---- copies (cp.async)
inline void copy16(uint32_t to, const void* from, Where where = Where::current()) {
  machine::copy(to, from, 16, true, where);
}
inline void copy4(uint32_t to, const void* from, Where where = Where::current()) {
  machine::copy(to, from, 4, true, where);
}
inline void copy4_or_zero(uint32_t to, const void* from, bool valid, Where where = Where::current()) {
  machine::copy(to, from, 4, valid, where);
}
inline void copy16_or_zero(uint32_t to, const void* from, bool valid, Where where = Where::current()) {
  machine::copy(to, from, 16, valid, where);
}
inline void commit_copies() { machine::commit_copies(); }
template <int kYounger>
void wait_copies() {
  machine::wait_copies(kYounger);
}

// ---- matrices
inline void load_matrix(uint32_t (&r)[4], uint32_t from, Where where = Where::current()) {
  machine::load_matrix(r, from, false, where);
}
inline void load_matrix_transposed(uint32_t (&r)[4], uint32_t from, Where where = Where::current()) {
  machine::load_matrix(r, from, true, where);
}
inline void store_matrix(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                         Where where = Where::current()) {
  const uint32_t r[4] = {a, b, c, d};
  machine::store_matrix(to, r, false, where);
}
inline void store_matrix_transposed(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                                    Where where = Where::current()) {
  const uint32_t r[4] = {a, b, c, d};
  machine::store_matrix(to, r, true, where);
}
inline uint32_t transpose(uint32_t x, Where where = Where::current()) { return machine::transpose(x, where); }
inline void store_shared(uint32_t to, uint32_t x, Where where = Where::current()) {
  machine::store_shared(to, x, where);
}

template <bool kHalf>
void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
         Where where = Where::current()) {
  const uint32_t a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
  gpu::emulator::matrix_step(kHalf, a, b, d, where);
}

// ---- conversions
inline float exp2_fast(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.f : y;
}
inline float tanh_fast(float x) { return tanhf(x); }
template <bool kHalf>
uint32_t pack(float low, float high) {
  if constexpr (kHalf)
    return assay_kernels::fp16_from_float(low) | static_cast<uint32_t>(assay_kernels::fp16_from_float(high))
                                                     << 16;
  else
    return assay_kernels::bf16_from_float(low) | static_cast<uint32_t>(assay_kernels::bf16_from_float(high))
                                                     << 16;
}
inline uint32_t pack_e4m3(float a, float b, float c, float d) {
  const auto code = [](float x) -> uint32_t { return assay_kernels::fp8_from_float(x, ASSAY_FP8_E4M3); };
  return code(a) | code(b) << 8 | code(c) << 16 | code(d) << 24;
}
inline uint32_t half_of_e4m3(uint32_t code) {
  return assay_kernels::fp16_from_float(
      assay_kernels::float_from_fp8(static_cast<uint8_t>(code), ASSAY_FP8_E4M3));
}
inline void e4m3_to_half(uint32_t x, uint32_t& lower, uint32_t& upper) {
  lower = half_of_e4m3(x & 255u) | half_of_e4m3(x >> 8 & 255u) << 16;
  upper = half_of_e4m3(x >> 16 & 255u) | half_of_e4m3(x >> 24) << 16;
}
inline void e4m3_to_bf16(uint32_t x, uint32_t& even, uint32_t& odd) {
  const auto of = [](uint32_t code) -> uint32_t {
    if ((code & 127u) == 127u) return assay_kernels::bf16_from_float(code & 128u ? -480.f : 480.f);
    return assay_kernels::bf16_from_float(
        assay_kernels::float_from_fp8(static_cast<uint8_t>(code), ASSAY_FP8_E4M3));
  };
  even = of(x & 255u) | of(x >> 16 & 255u) << 16;
  odd = of(x >> 8 & 255u) | of(x >> 24) << 16;
}
inline void e5m2_to_half(uint32_t x, uint32_t& lower, uint32_t& upper) {
  lower = (x << 8 & 0xFF00u) | (x << 16 & 0xFF000000u), upper = (x >> 8 & 0xFF00u) | (x & 0xFF000000u);
}
inline void e5m2_to_bf16(uint32_t x, uint32_t& even, uint32_t& odd) {
  const auto of = [](uint32_t code) -> uint32_t {
    const uint32_t exponent = code >> 2 & 31u, fraction = code & 3u;  // by the format's definition
    const float size = exponent == 0
                           ? std::ldexp(static_cast<float>(fraction), -16)
                           : std::ldexp(static_cast<float>(4 + fraction), static_cast<int>(exponent) - 17);
    return assay_kernels::bf16_from_float(code & 128u ? -size : size);
  };
  even = of(x & 255u) | of(x >> 16 & 255u) << 16;
  odd = of(x >> 8 & 255u) | of(x >> 24) << 16;
}
inline void int8_to_half(uint32_t x, uint32_t& lower, uint32_t& upper) {
  const auto of = [&](int i) -> uint32_t {
    return assay_kernels::fp16_from_float(static_cast<float>(static_cast<int8_t>(x >> 8 * i)));
  };
  lower = of(0) | of(1) << 16, upper = of(2) | of(3) << 16;
}
inline void int8_to_bf16(uint32_t x, uint32_t& even, uint32_t& odd) {
  const auto of = [&](int i) -> uint32_t {
    return assay_kernels::bf16_from_float(static_cast<float>(static_cast<int8_t>(x >> 8 * i)));
  };
  even = of(0) | of(2) << 16, odd = of(1) | of(3) << 16;
}

// ---- memory that other blocks read or write during the launch
template <class T>
T load_relaxed(const T* p, Where where = Where::current()) {
  T x;
  machine::load_relaxed(p, &x, sizeof x, where);
  return x;
}
template <class T>
void store_relaxed(T* p, T x, Where where = Where::current()) {
  machine::store_relaxed(p, &x, sizeof x, where);
}
inline void prefetch_l2(const void*) {}

}  // namespace sm90
