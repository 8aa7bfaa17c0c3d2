// SPDX-License-Identifier: Apache-2.0
// Number formats of the serving stacks. Every floating format is one row of a table (fraction bits,
// bias, which codes are special); decoding builds the double's bits and encoding rounds the double's
// 53-bit significand once, both in integer arithmetic, so neither the rounding mode nor a detour
// through float can change a result. A new format is one row here and one in harness/problem/names.cpp.
#include "reference/formats/formats.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "harness/base/error.hpp"

namespace assay {
namespace {

struct Shape {
  int32_t mantissa_bits;
  int32_t bias;
  int32_t bits;
  uint32_t max_code;       // largest finite magnitude
  bool has_infinity;       // code max_code + 1
  bool has_negative_zero;  // false: the code of -0 is the only NaN
  bool always_saturates;   // the fp8 formats: what every serving system's cast does
  constexpr uint32_t sign_bit() const { return 1u << (bits - 1); }
  constexpr int32_t min_exponent() const { return 1 - bias; }
};

constexpr Shape kFp32{23, 127, 32, 0x7f7fffff, true, true, false};
constexpr Shape kBf16{7, 127, 16, 0x7f7f, true, true, false};
constexpr Shape kFp16{10, 15, 16, 0x7bff, true, true, false};
constexpr Shape kE4m3{3, 7, 8, 0x7e, false, true, true};
constexpr Shape kE5m2{2, 15, 8, 0x7b, true, true, true};
constexpr Shape kE4m3Fnuz{3, 8, 8, 0x7f, false, false, true};
constexpr Shape kE5m2Fnuz{2, 16, 8, 0x7f, false, false, true};

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

constexpr double power_of_two(int exponent) { return std::bit_cast<double>(uint64_t(exponent + 1023) << 52); }

template <Shape S>
constexpr bool is_nan(uint32_t code) {
  if constexpr (!S.has_negative_zero) return code == S.sign_bit();
  return (code & (S.sign_bit() - 1)) > S.max_code + (S.has_infinity ? 1 : 0);
}

template <Shape S>
constexpr uint32_t quiet_nan() {
  if constexpr (!S.has_negative_zero) return S.sign_bit();
  if constexpr (!S.has_infinity) return S.max_code + 1;
  return (S.max_code + 1) | 1u << (S.mantissa_bits - 1);
}

// No branches: selects only, so that loops over it vectorise.
template <Shape S>
constexpr double decode_one(uint32_t code) {
  const uint32_t magnitude = code & (S.sign_bit() - 1);
  const uint64_t sign = uint64_t(code & S.sign_bit()) << (64 - S.bits);
  const uint64_t normal = (uint64_t(magnitude) << (52 - S.mantissa_bits)) + (uint64_t(1023 - S.bias) << 52);
  // The signed conversion is exact and has a vector instruction; magnitudes are below 2^31.
  const double subnormal = double(int32_t(magnitude)) * power_of_two(S.min_exponent() - S.mantissa_bits);
  uint64_t bits = magnitude < (1u << S.mantissa_bits) ? std::bit_cast<uint64_t>(subnormal) : normal;
  if (S.has_infinity && magnitude == S.max_code + 1) bits = std::bit_cast<uint64_t>(kInf);
  if (is_nan<S>(code)) bits = std::bit_cast<uint64_t>(kNaN);
  return std::bit_cast<double>(bits | sign);
}

template <Shape S>
inline uint32_t encode_one(double value, bool saturate) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t magnitude = bits & (~uint64_t(0) >> 1);
  // Below min_exponent the spacing stays that of the subnormals: shift out more bits instead. Doubles that
  // are themselves subnormal come out as 0 in any format: their shift is far above 63.
  const int64_t exponent = int64_t(magnitude >> 52) - 1023;
  const int64_t kept_exponent = std::max<int64_t>(exponent, S.min_exponent());
  const uint64_t significand = (magnitude & ((uint64_t(1) << 52) - 1)) | uint64_t(1) << 52;
  const int64_t shift = std::min<int64_t>(52 - S.mantissa_bits + kept_exponent - exponent, 63);
  const uint64_t floor = significand >> shift;
  const uint64_t rest = significand & ((uint64_t(1) << shift) - 1);
  const uint64_t half = uint64_t(1) << (shift - 1);
  const uint64_t up = (rest > half) | ((rest == half) & (floor & 1));
  // The hidden bit of a normal number carries into the exponent field, and so does a round-up to the next
  // binade; a subnormal has neither.
  uint64_t code = (uint64_t(kept_exponent - S.min_exponent()) << S.mantissa_bits) + floor + up;
  const uint64_t overflow = S.has_infinity && !saturate ? S.max_code + 1 : S.max_code;
  code = code > S.max_code ? overflow : code;
  const uint32_t sign = uint32_t(bits >> (64 - S.bits)) & S.sign_bit();
  uint32_t result = uint32_t(code) | sign;
  if (!S.has_negative_zero && code == 0) result = 0;
  if (magnitude > std::bit_cast<uint64_t>(kInf)) result = quiet_nan<S>();
  return result;
}

// Adding 1.5 * 2^52 leaves a number below 2^51 rounded to an integer, half to even, in the low bits: the
// default rounding of doubles.
constexpr double kRounder = 0x1.8p+52;
inline uint64_t nearest_integer(double value) {
  return std::bit_cast<uint64_t>(value + kRounder) - std::bit_cast<uint64_t>(kRounder);
}

// encode_one() in a form that vectorises, without shifts by a variable: the significand is what is left of
// the value in units of the spacing.
template <Shape S>
inline uint32_t encode_in_span(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t magnitude = bits & (~uint64_t(0) >> 1);
  const int64_t exponent = int64_t(magnitude >> 52) - 1023;
  const int64_t kept_exponent = exponent > S.min_exponent() ? exponent : S.min_exponent();
  const double per_spacing = std::bit_cast<double>(uint64_t(1023 + S.mantissa_bits - kept_exponent) << 52);
  const uint64_t significand = nearest_integer(std::bit_cast<double>(magnitude) * per_spacing);
  uint64_t code = (uint64_t(kept_exponent - S.min_exponent()) << S.mantissa_bits) + significand;
  constexpr uint64_t kOverflow = S.has_infinity && !S.always_saturates ? S.max_code + 1 : S.max_code;
  code = code > S.max_code ? kOverflow : code;
  const uint32_t sign = uint32_t(bits >> (64 - S.bits)) & S.sign_bit();
  uint32_t result = uint32_t(code) | sign;
  if (!S.has_negative_zero && code == 0) result = 0;
  return magnitude > std::bit_cast<uint64_t>(kInf) ? quiet_nan<S>() : result;
}

// out[i] = code(values[i]) for codes of type Code; blocks of their own, since `out` has no alignment.
template <class Code, class Encode>
void encode_blocks(const double* values, int64_t count, void* out, const Encode& code) {
  constexpr int64_t kBlock = 256;
  alignas(64) Code block[kBlock];
  for (int64_t start = 0; start < count; start += kBlock) {
    const int64_t n = std::min(kBlock, count - start);
    const double* from = values + start;
    for (int64_t i = 0; i < n; ++i) block[i] = static_cast<Code>(code(from[i]));
    std::memcpy(static_cast<std::byte*>(out) + start * int64_t(sizeof(Code)), block,
                static_cast<size_t>(n) * sizeof(Code));
  }
}

// std::rint would follow the current rounding mode; ties are settled by hand. |value| < 2^31 or integer.
inline int32_t round_half_even(double value) {
  const double down = std::floor(value);
  const double rest = value - down;  // exact
  const double even = down - 2.0 * std::floor(down * 0.5);
  return int32_t(rest > 0.5 || (rest == 0.5 && even != 0.0) ? down + 1.0 : down);
}

inline double clamp_finite(double value, double low, double high) {
  return value != value ? 0.0 : std::min(std::max(value, low), high);
}

inline int8_t encode_int8(double value) { return int8_t(round_half_even(clamp_finite(value, -127, 127))); }

std::array<double, 256> make_table(int32_t format) {
  std::array<double, 256> table{};
  for (uint32_t code = 0; code < 256; ++code) table[code] = decode(format, code);
  return table;
}

const std::array<double, 256>& table_8bit(int32_t format) {
  static const std::array<double, 256> tables[] = {make_table(ASSAY_FP8_E4M3), make_table(ASSAY_FP8_E5M2),
                                                   make_table(ASSAY_FP8_E4M3FNUZ),
                                                   make_table(ASSAY_FP8_E5M2FNUZ)};
  return tables[format - ASSAY_FP8_E4M3];
}

// Calls f with the compile-time shape of a floating format.
template <class F>
decltype(auto) with_shape(int32_t format, F&& f) {
  switch (format) {
    case ASSAY_FP32:
      return f.template operator()<kFp32>();
    case ASSAY_BF16:
      return f.template operator()<kBf16>();
    case ASSAY_FP16:
      return f.template operator()<kFp16>();
    case ASSAY_FP8_E4M3:
      return f.template operator()<kE4m3>();
    case ASSAY_FP8_E5M2:
      return f.template operator()<kE5m2>();
    case ASSAY_FP8_E4M3FNUZ:
      return f.template operator()<kE4m3Fnuz>();
    case ASSAY_FP8_E5M2FNUZ:
      return f.template operator()<kE5m2Fnuz>();
  }
  throw CheckError(fmt::format("format {} is not a floating format", format));
}

template <class T>
T element(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * int64_t(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void set_element(void* data, int64_t index, T value) {
  std::memcpy(static_cast<std::byte*>(data) + index * int64_t(sizeof(T)), &value, sizeof(T));
}

template <Shape S>
constexpr FormatInfo kInfo{S.mantissa_bits, S.min_exponent(), decode_one<S>(S.max_code),
                           power_of_two(-S.mantissa_bits - 1),
                           power_of_two(S.min_exponent() - S.mantissa_bits - 1)};

int64_t encode_int64(double value) {
  // 2^63 itself does not fit; every double of magnitude >= 2^53 is an integer already.
  if (value != value) return 0;
  if (value >= power_of_two(63)) return std::numeric_limits<int64_t>::max();
  if (value <= -power_of_two(63)) return std::numeric_limits<int64_t>::min();
  if (std::fabs(value) >= power_of_two(31)) {
    const double down = std::floor(value), rest = value - down;
    const int64_t whole = int64_t(down);
    return whole + (rest > 0.5 || (rest == 0.5 && (whole & 1)) ? 1 : 0);
  }
  return round_half_even(value);
}

}  // namespace

const FormatInfo& format_info(int32_t format) {
  return with_shape(format, []<Shape S>() -> const FormatInfo& { return kInfo<S>; });
}

double decode(int32_t format, uint32_t code) {
  switch (format) {
    case ASSAY_INT8:
      return int8_t(code);
    case ASSAY_UINT8:
      return uint8_t(code);
    case ASSAY_INT32:
      return int32_t(code);
    default:
      return with_shape(format, [&]<Shape S>() {
        // Bits above the format's width are ignored.
        return decode_one<S>(code & (S.sign_bit() | (S.sign_bit() - 1)));
      });
  }
}

uint32_t encode(int32_t format, double value, Overflow overflow) {
  constexpr double kInt32Min = std::numeric_limits<int32_t>::min();
  constexpr double kInt32Max = std::numeric_limits<int32_t>::max();
  switch (format) {
    case ASSAY_INT8:
      return uint8_t(encode_int8(value));
    case ASSAY_UINT8:
      return uint32_t(round_half_even(clamp_finite(value, 0, 255)));
    case ASSAY_INT32:
      return uint32_t(round_half_even(clamp_finite(value, kInt32Min, kInt32Max)));
    default:
      return with_shape(format, [&]<Shape S>() {
        return encode_one<S>(value, S.always_saturates || overflow == Overflow::kSaturate);
      });
  }
}

double round_to(int32_t format, double value, Overflow overflow) {
  if (format == ASSAY_INT8 || format == ASSAY_UINT8 || format == ASSAY_INT32)
    return decode(format, encode(format, value, overflow));
  return with_shape(format, [&]<Shape S>() {
    return decode_one<S>(encode_one<S>(value, S.always_saturates || overflow == Overflow::kSaturate));
  });
}

double load(int32_t format, const void* data, int64_t index) {
  switch (format) {
    case ASSAY_FP32:
    case ASSAY_INT32:
      return decode(format, element<uint32_t>(data, index));
    case ASSAY_BF16:
    case ASSAY_FP16:
      return decode(format, element<uint16_t>(data, index));
    case ASSAY_INT64:
      return double(element<int64_t>(data, index));
    default:
      return decode(format, element<uint8_t>(data, index));
  }
}

void store(int32_t format, void* data, int64_t index, double value) {
  switch (format) {
    case ASSAY_FP32:
    case ASSAY_INT32:
      return set_element<uint32_t>(data, index, encode(format, value));
    case ASSAY_BF16:
    case ASSAY_FP16:
      return set_element<uint16_t>(data, index, uint16_t(encode(format, value)));
    case ASSAY_INT64:
      return set_element<int64_t>(data, index, encode_int64(value));
    default:
      return set_element<uint8_t>(data, index, uint8_t(encode(format, value)));
  }
}

void decode_span(int32_t format, const void* data, int64_t count, double* out) {
  switch (format) {
    case ASSAY_FP32:
      for (int64_t i = 0; i < count; ++i) out[i] = element<float>(data, i);
      return;
    case ASSAY_BF16:  // the upper half of a float
      for (int64_t i = 0; i < count; ++i)
        out[i] = std::bit_cast<float>(uint32_t(element<uint16_t>(data, i)) << 16);
      return;
    case ASSAY_FP16:
      for (int64_t i = 0; i < count; ++i) out[i] = decode_one<kFp16>(element<uint16_t>(data, i));
      return;
    case ASSAY_INT8:
      for (int64_t i = 0; i < count; ++i) out[i] = element<int8_t>(data, i);
      return;
    case ASSAY_FP8_E4M3:
    case ASSAY_FP8_E5M2:
    case ASSAY_FP8_E4M3FNUZ:
    case ASSAY_FP8_E5M2FNUZ: {
      const double* table = table_8bit(format).data();
      for (int64_t i = 0; i < count; ++i) out[i] = table[element<uint8_t>(data, i)];
      return;
    }
    default:
      for (int64_t i = 0; i < count; ++i) out[i] = load(format, data, i);
  }
}

void encode_span(int32_t format, const double* values, int64_t count, void* out) {
  switch (format) {
    case ASSAY_FP32:
    case ASSAY_BF16:
    case ASSAY_FP16:
    case ASSAY_FP8_E4M3:
    case ASSAY_FP8_E5M2:
    case ASSAY_FP8_E4M3FNUZ:
    case ASSAY_FP8_E5M2FNUZ:
      return with_shape(format, [&]<Shape S>() {
        using Code =
            std::conditional_t<S.bits == 32, uint32_t, std::conditional_t<S.bits == 16, uint16_t, uint8_t>>;
        encode_blocks<Code>(values, count, out, [](double x) { return encode_in_span<S>(x); });
      });
    case ASSAY_INT8:
      return encode_blocks<int8_t>(values, count, out, [](double x) {
        return static_cast<int64_t>(nearest_integer(clamp_finite(x, -127, 127)));
      });
    default:
      for (int64_t i = 0; i < count; ++i) store(format, out, i, values[i]);
  }
}

bool code_is_nan(int32_t format, uint32_t code) {
  if (format == ASSAY_INT8 || format == ASSAY_UINT8 || format == ASSAY_INT32 || format == ASSAY_INT64)
    return false;
  return with_shape(format, [&]<Shape S>() { return is_nan<S>(code & (S.sign_bit() | (S.sign_bit() - 1))); });
}

uint32_t nan_code(int32_t format) {
  if (format == ASSAY_INT8) return uint8_t(-128);
  return with_shape(format, []<Shape S>() { return quiet_nan<S>(); });
}

}  // namespace assay
