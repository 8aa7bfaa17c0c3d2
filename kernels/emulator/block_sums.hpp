// SPDX-License-Identifier: Apache-2.0
// What sums of matrix instructions are made of: numbers with the exponent the device aligns by, powers of
// two, the cut of a sum to a float.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/common/formats.hpp"

namespace gpu::emulator {

constexpr int kNone = -4000;  // exponent of zero: below every other, twice over

struct Number {
  double value;
  int exponent;  // not below the format's smallest: subnormals are not normalised
};
inline Number number(float value, int smallest) {
  if (value == 0.0f) return {0.0, kNone};
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(value) >> 23 & 255u) - 127;
  return {value, exponent > smallest ? exponent : smallest};
}
inline Number number_of_half(uint32_t code, bool fp16) {
  const auto half = static_cast<uint16_t>(code);
  return fp16 ? number(assay_kernels::float_from_fp16(half), -14)
              : number(assay_kernels::float_from_bf16(half), -126);
}

// 2^n as a double; n within the normal range, which sums of two exponents of floats and 31 bits are.
inline double power(int n) { return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52); }

// Toward zero to 23 fraction bits, not below the grid of subnormals.
inline float cut_to_float(double x) {
  if (std::abs(x) < 0x1p-126) return static_cast<float>(std::trunc(x * 0x1p149) * 0x1p-149);
  const double cut = std::bit_cast<double>(std::bit_cast<uint64_t>(x) & ~((uint64_t{1} << 29) - 1));
  return static_cast<float>(cut);
}

}  // namespace gpu::emulator
