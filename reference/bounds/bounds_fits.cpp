// SPDX-License-Identifier: Apache-2.0
// See bounds_fits.hpp.
#include "reference/bounds/bounds_fits.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace assay {
namespace {

// Exponent of the last bit that is set; of a subnormal float, that of the smallest.
inline int32_t last_bit(float x) {
  const auto word = std::bit_cast<uint32_t>(x);
  const auto exponent = static_cast<int32_t>(word >> 23 & 0xff);
  const auto mantissa = static_cast<int32_t>((word & 0x7fffff) | 0x800000);
  const auto last =
      static_cast<int32_t>(std::bit_cast<uint32_t>(static_cast<float>(mantissa & -mantissa)) >> 23) - 127;
  return exponent == 0 ? -149 : exponent - 150 + last;
}

// Elements counted together: their number fits a byte.
constexpr int64_t kCounted = 128;

}  // namespace

void LastBits::set(int64_t at, int64_t elements, const double* value, const double* of_channel,
                   double scale) {
  int8_t* to = &of[static_cast<size_t>(at * elements)];
  double square = 0;
  for (int64_t t = 0; t < elements; ++t) {
    const double x = value[t] * (of_channel != nullptr ? of_channel[t] : 1) / scale;
    square += x * x;
  }
  const double size = std::sqrt(square) * (1 + 0x1p-40);
  int power = 0;
  const double mantissa = 2 * std::frexp(size, &power);
  norm[static_cast<size_t>(at)] = static_cast<float>(mantissa * (1 + 0x1p-22));
  for (int64_t t = 0; t < elements; ++t) {
    const auto x = static_cast<float>(value[t] * (of_channel != nullptr ? of_channel[t] : 1) / scale);
    const int32_t relative = std::max<int32_t>(kLeast, last_bit(x) - (power - 1));
    to[t] = x == 0 ? kFits : static_cast<int8_t>(std::min<int32_t>(relative, 0));
  }
}

int32_t bits_of_all(const assay_accumulator& unit) {
  return std::min(unit.fraction_bits, unit.mantissa_bits);
}

double cost_of_a_cut(const assay_accumulator& unit) {
  return std::ldexp(1.0, -unit.fraction_bits) + std::ldexp(1.0, -bits_of_all(unit));
}

int64_t cut_products(const assay_accumulator& unit, int64_t elements, const LastBits& q, int64_t i,
                     const LastBits& k, int64_t j, double share) {
  const double largest = share * q.norm[static_cast<size_t>(i)] * k.norm[static_cast<size_t>(j)];
  // Relative to the powers of two of both norms, as last bits are.
  const int32_t power = largest > 0 ? std::max(-100, std::ilogb(largest * (1 + 0x1p-22))) : -100;
  const auto grid = static_cast<int8_t>(std::max(-127, power - bits_of_all(unit)));
  const int8_t *a = &q.of[static_cast<size_t>(i * elements)], *b = &k.of[static_cast<size_t>(j * elements)];
  int64_t all = 0;
  for (int64_t from = 0; from < elements; from += kCounted) {
    const int64_t to = std::min(elements, from + kCounted);
    uint8_t count = 0;
#pragma omp simd reduction(+ : count)
    for (int64_t t = from; t < to; ++t) count += static_cast<int8_t>(a[t] + b[t]) < grid ? 1 : 0;
    all += count;
  }
  return all;
}

}  // namespace assay
