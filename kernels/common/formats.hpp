// SPDX-License-Identifier: Apache-2.0
// Scalar number formats for the kernels: stored code -> fp32 (always exact) and fp32 -> output
// (round to nearest even). Bit arithmetic only, so every instruction set gives the same value. The
// harness has its own, independent conversions: a mistake here must not cancel in a check.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/common/operands.hpp"

namespace assay_kernels {

ASSAY_INLINE float float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
ASSAY_INLINE uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

ASSAY_INLINE float float_from_bf16(uint16_t code) {
  return float_from_bits(static_cast<uint32_t>(code) << 16);
}

ASSAY_INLINE float float_from_fp16(uint16_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x8000u) << 16;
  const uint32_t magnitude = code & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x0400u) return float_from_bits(sign | ((magnitude << 13) + (112u << 23)));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;  // subnormal: an integer of 2^-24
  return sign != 0 ? -value : value;
}

// One rule for the four 8-bit floats: mantissa bits, exponent bias and which codes are special.
ASSAY_INLINE float float_from_fp8(uint8_t code, int32_t format) {
  const bool fnuz = format == ASSAY_FP8_E4M3FNUZ || format == ASSAY_FP8_E5M2FNUZ;
  const bool e4 = format == ASSAY_FP8_E4M3 || format == ASSAY_FP8_E4M3FNUZ;
  const uint32_t mantissa_bits = e4 ? 3 : 2;
  const uint32_t bias = (e4 ? 7u : 15u) + (fnuz ? 1u : 0u);
  const uint32_t magnitude = code & 0x7fu;
  if (fnuz && code == 0x80u) return float_from_bits(0x7fc00000u);
  if (format == ASSAY_FP8_E4M3 && magnitude == 0x7fu) return float_from_bits(0x7fc00000u);
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  if (format == ASSAY_FP8_E5M2 && magnitude >= 0x7cu)
    return float_from_bits(sign | 0x7f800000u | (magnitude & 3u) << 21);
  const uint32_t exponent = magnitude >> mantissa_bits;
  const uint32_t fraction = magnitude & ((1u << mantissa_bits) - 1u);
  if (exponent != 0)
    return float_from_bits(sign | (exponent + 127u - bias) << 23 | fraction << (23u - mantissa_bits));
  const float unit = float_from_bits((127u + 1u - bias - mantissa_bits) << 23);
  const float value = static_cast<float>(fraction) * unit;
  return sign != 0 ? -value : value;
}

ASSAY_INLINE float float_from_byte(uint8_t code, int32_t format) {
  return format == ASSAY_INT8 ? static_cast<float>(static_cast<int8_t>(code)) : float_from_fp8(code, format);
}

ASSAY_INLINE float load_element(const unsigned char* data, int64_t index, int32_t format) {
  uint16_t half;
  float value;
  switch (format) {
    case ASSAY_FP32:
      memcpy(&value, data + index * 4, 4);
      return value;
    case ASSAY_BF16:
      memcpy(&half, data + index * 2, 2);
      return float_from_bf16(half);
    case ASSAY_FP16:
      memcpy(&half, data + index * 2, 2);
      return float_from_fp16(half);
    case ASSAY_INT8:
      return static_cast<float>(static_cast<int8_t>(data[index]));
    default:
      return float_from_fp8(data[index], format);
  }
}

ASSAY_INLINE uint16_t bf16_from_float(float value) {
  const uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

ASSAY_INLINE uint16_t fp16_from_float(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65520 rounds to inf
  if (magnitude >= 0x38800000u) {                                              // normal: >= 2^-14
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
  }
  if (magnitude <= 0x33000000u) return sign;        // <= 2^-25: half of the smallest subnormal ties to even 0
  const uint32_t shift = 126u - (magnitude >> 23);  // fraction with hidden bit becomes units of 2^-24
  const uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t kept = fraction >> shift, rest = fraction & ((1u << shift) - 1u), half = 1u << (shift - 1u);
  return static_cast<uint16_t>(sign | (kept + (rest > half || (rest == half && (kept & 1u)) ? 1u : 0u)));
}

ASSAY_INLINE void store_element(unsigned char* data, int64_t index, int32_t format, float value) {
  if (format == ASSAY_FP32) {
    memcpy(data + index * 4, &value, 4);
    return;
  }
  const uint16_t code = format == ASSAY_BF16 ? bf16_from_float(value) : fp16_from_float(value);
  memcpy(data + index * 2, &code, 2);
}

// To nearest even, saturated to the largest finite value; NaN stays NaN. Zero has no sign in the FNUZ
// formats.
ASSAY_INLINE uint8_t fp8_from_float(float value, int32_t format) {
  const bool fnuz = format == ASSAY_FP8_E4M3FNUZ || format == ASSAY_FP8_E5M2FNUZ;
  const bool e4 = format == ASSAY_FP8_E4M3 || format == ASSAY_FP8_E4M3FNUZ;
  const uint32_t mantissa_bits = e4 ? 3 : 2;
  const uint32_t bias = (e4 ? 7u : 15u) + (fnuz ? 1u : 0u);
  const uint32_t largest = fnuz ? 0x7fu : e4 ? 0x7eu : 0x7bu;
  const uint32_t bits = bits_of_float(value), magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return fnuz ? 0x80 : 0x7f;
  uint32_t code;
  if (magnitude >= (128u - bias) << 23) {  // normal in the format
    const uint32_t shift = 23u - mantissa_bits;
    const uint32_t rounded = magnitude + ((1u << (shift - 1u)) - 1u) + (magnitude >> shift & 1u);
    code = (rounded >> shift) - ((127u - bias) << mantissa_bits);
  } else {
    // In units of the smallest subnormal, then rounded by the adder: 2^23 has no room for fractions.
    const float units = float_from_bits(magnitude) * float_from_bits((126u + bias + mantissa_bits) << 23);
    code = bits_of_float(units + 0x1p23f) & 0x7fffffu;
  }
  if (code > largest) code = largest;
  const uint32_t sign = bits >> 24 & 0x80u;
  return static_cast<uint8_t>(fnuz && code == 0 ? 0u : sign | code);
}

// To nearest even, saturated to +-127.
ASSAY_INLINE int8_t int8_from_float(float value) {
  const float clamped = value > 127.0f ? 127.0f : value < -127.0f ? -127.0f : value;
  constexpr uint32_t kBase = 0x4b400000u;  // 1.5 * 2^23: the adder rounds to whole numbers of either sign
  return static_cast<int8_t>(static_cast<int32_t>(bits_of_float(clamped + float_from_bits(kBase)) - kBase));
}

// Any operand format; int8 and fp8 saturate.
ASSAY_INLINE void store_code(unsigned char* data, int64_t index, int32_t format, float value) {
  if (format == ASSAY_INT8) {
    data[index] = static_cast<unsigned char>(int8_from_float(value));
  } else if (element_bytes_of(format) == 1) {
    data[index] = fp8_from_float(value, format);
  } else {
    store_element(data, index, format, value);
  }
}

}  // namespace assay_kernels
