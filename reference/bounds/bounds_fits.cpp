// SPDX-License-Identifier: Apache-2.0
// See bounds_fits.hpp.
#include "reference/bounds/bounds_fits.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

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
  for (int64_t t = 0; t < elements; ++t) across[static_cast<size_t>(t * stride + at)] = to[t];
}

int32_t bits_of_all(const assay_accumulator& unit) {
  return std::min(unit.fraction_bits, unit.mantissa_bits);
}

double cost_of_a_cut(const assay_accumulator& unit) {
  return std::ldexp(1.0, -unit.fraction_bits) + std::ldexp(1.0, -bits_of_all(unit));
}

namespace {

// The grid of a sum up to `largest`, relative to the powers of two of both norms, as last bits are.
inline int8_t grid_below(double largest, int32_t bits) {
  const double above = largest * (1 + 0x1p-22);
  const auto biased = static_cast<int32_t>(std::bit_cast<uint64_t>(above) >> 52);  // of what is not negative
  // What is no finite number has the largest exponent there is.
  const int32_t exponent = biased >= 0x7ff ? std::numeric_limits<int32_t>::max() : biased - 1023;
  const int32_t power = largest > 0 && exponent > -100 ? exponent : -100;
  return static_cast<int8_t>(std::max(-127, power - bits));
}

inline int64_t products_below(int8_t grid, const int8_t* a, const int8_t* b, int64_t elements) {
  const auto count = [&](int64_t from, int64_t to) {
    uint8_t below = 0;
#pragma omp simd reduction(+ : below)
    for (int64_t t = from; t < to; ++t) below += static_cast<int8_t>(a[t] + b[t]) < grid ? 1 : 0;
    return static_cast<int64_t>(below);
  };
  int64_t all = 0, from = 0;
  for (; from + kCounted <= elements; from += kCounted) all += count(from, from + kCounted);
  return all + count(from, elements);
}

}  // namespace

int64_t cut_products(const assay_accumulator& unit, int64_t elements, const LastBits& q, int64_t i,
                     const LastBits& k, int64_t j, double share) {
  const int8_t grid =
      grid_below(share * q.norm[static_cast<size_t>(i)] * k.norm[static_cast<size_t>(j)], bits_of_all(unit));
  return products_below(grid, &q.of[static_cast<size_t>(i * elements)],
                        &k.of[static_cast<size_t>(j * elements)], elements);
}

namespace {

typedef int8_t Bytes __attribute__((vector_size(32)));
constexpr int64_t kLanes = sizeof(Bytes);

inline Bytes load_bytes(const int8_t* from) {
  Bytes v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// Of kTogether vectors of k from `first` on, side by side, how many of the elements from .. to - 1, no more
// than kCounted, have products with those of `a` below the grids.
void count_together(const int8_t* a, const LastBits& k, int64_t first, int64_t from, int64_t to,
                    const int8_t* grids, int32_t* below) {
  const Bytes low_grid = load_bytes(grids), high_grid = load_bytes(grids + kLanes);
  Bytes low = {}, high = {};  // a comparison that holds is -1
  for (int64_t t = from; t < to; ++t) {
    const int8_t* row = &k.across[static_cast<size_t>(t * k.stride + first)];
    low -= load_bytes(row) + a[t] < low_grid;
    high -= load_bytes(row + kLanes) + a[t] < high_grid;
  }
  for (int64_t j = 0; j < kLanes; ++j) {
    below[j] += static_cast<uint8_t>(low[j]);
    below[j + kLanes] += static_cast<uint8_t>(high[j]);
  }
}

}  // namespace

void cut_products(const assay_accumulator& unit, int64_t elements, const LastBits& q, int64_t i,
                  const LastBits& k, int64_t count, const double* shares, const uint8_t* wanted,
                  float* products) {
  static_assert(LastBits::kTogether == 2 * kLanes);
  const double norm = q.norm[static_cast<size_t>(i)];
  const int32_t bits = bits_of_all(unit);
  const float* norms = k.norm.data();
  const int8_t* a = &q.of[static_cast<size_t>(i * elements)];
  for (int64_t at = 0; at < count; at += LastBits::kTogether) {
    const int64_t here = std::min(LastBits::kTogether, count - at);
    int8_t grids[LastBits::kTogether] = {};
    int32_t below[LastBits::kTogether] = {};
#pragma omp simd
    for (int64_t j = 0; j < here; ++j) grids[j] = grid_below(shares[at + j] * norm * norms[at + j], bits);
    for (int64_t from = 0; from < elements; from += kCounted)
      count_together(a, k, at, from, std::min(elements, from + kCounted), grids, below);
    for (int64_t j = 0; j < here; ++j)
      if (wanted[at + j] != 0) products[at + j] = static_cast<float>(below[j]);
  }
}

}  // namespace assay
