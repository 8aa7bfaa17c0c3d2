// SPDX-License-Identifier: Apache-2.0
// How a kernel rounds the weights P of its second product, branch-free so that rows are replayed in vector
// registers. bounds_elementwise.cpp rounds with formats.cpp instead, and the tests compare the two.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace assay {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline double log2_ceil(int64_t n) { return n <= 1 ? 0.0 : std::ceil(std::log2(static_cast<double>(n))); }

struct PRounding {
  bool narrow = false;  // rounded to less than fp32 at all
  bool integer = false, tile_max = false, truncated = false;
  int32_t mantissa_bits = 23, min_exponent = -126;
  double relative = 0;  // |fl(p) - p| <= max(relative p, eta); twice as much when truncated
  double eta = 0;
  double most = 1;     // |fl(p) - p| <= most p: each rounding at most doubles
  double largest = 0;  // saturation
  // Whether weights that are off by this share together may round otherwise than random ones do: a thirtieth
  // of what separates two places of the grid, or more.
  bool shifted_by(double off) const { return 32 * off > share(); }
  // What one rounding moves a weight by at most, as a share of it (int8: of a weight of 1).
  double share() const { return integer ? 1.0 / 254 : relative; }
};

struct RoundedP {
  double value = 0;
  double spacing = 0;   // of the grid at p
  double distance = 0;  // of p to the nearest value where the rounding changes
};

namespace rounding {

constexpr double kRounder = 0x1.8p+52;  // x + kRounder - kRounder is x rounded to an integer, |x| < 2^51
inline double nearest(double x) { return (x + kRounder) - kRounder; }
inline double below(double x) {
  const double n = nearest(x);
  return n > x ? n - 1 : n;
}

// p >= 0 in units where the grid is `spacing`.
template <bool kTruncated>
RoundedP on_grid(double p, double spacing, double inverse, double largest) {
  const double q = p * inverse;
  // The largest weight is exactly 1 in a kernel; here it may be an ulp of double less.
  const double n = kTruncated ? below(q * (1 + 0x1p-40)) : nearest(q);
  const double off = n > q ? n - q : q - n;
  // To nearest the result changes half way between two codes, toward zero at the codes themselves.
  const double distance = !kTruncated ? 0.5 - off : off < 1 - off ? off : 1 - off;
  const double value = n * spacing;
  return {value < largest ? value : largest, spacing, distance * spacing};
}

// A float format: p >= 0.
template <bool kTruncated>
RoundedP to_float(double p, int64_t min_exponent, int64_t mantissa_bits, double largest) {
  const int64_t bias = 1023;
  // As in on_grid(): a power of two may be an ulp of double less.
  const int64_t exponent = static_cast<int64_t>(std::bit_cast<uint64_t>(p * (1 + 0x1p-46)) >> 52);
  const int64_t lowest = min_exponent + bias;
  const int64_t grid = (exponent > lowest ? exponent : lowest) - mantissa_bits;
  const double spacing = std::bit_cast<double>(static_cast<uint64_t>(grid) << 52);
  const double inverse = std::bit_cast<double>(static_cast<uint64_t>(2 * bias - grid) << 52);
  return on_grid<kTruncated>(p, spacing, inverse, largest);
}
inline RoundedP to_float(const PRounding& r, double p) {
  return r.truncated ? to_float<true>(p, r.min_exponent, r.mantissa_bits, r.largest)
                     : to_float<false>(p, r.min_exponent, r.mantissa_bits, r.largest);
}

// As declared; int8 against the `largest` P.
inline RoundedP round_p(const PRounding& r, double p, double largest) {
  if (!r.integer) return to_float(r, p);
  return r.truncated ? on_grid<true>(p, largest / 127, 127 / largest, largest)
                     : on_grid<false>(p, largest / 127, 127 / largest, largest);
}

// Weight that the rounding of p may move when p itself is off by up to `window`. Near a power of two the grid
// below is finer than the one at p, so wide windows count as on a boundary; and as two roundings of p and of
// what it may be are off by half a step each, of 1 and 1/2 or of 1 and 2 on either side of a power of two, a
// step more may be crossed from 3/4 of one on.
inline double flip(const RoundedP& r, double window) {
  const double distance = window >= 0.2 * r.spacing ? 0.0 : r.distance;
  const double more = window >= 0.75 * r.spacing ? 2.0 : 1.0;
  const double crossed = r.spacing * (more + below((window - distance) / r.spacing));
  return distance > window ? 0.0 : crossed;
}

inline double limited(double x, double limit) {
  const double low = x < -limit ? -limit : x;
  return low > limit ? limit : low;
}

// What the roundings of p against three other maxima are off by: a third of a step of the grid off either
// way, and p larger by sqrt 2; no more than p itself, and no largest number, since another maximum has its
// own largest P.
inline void other_places(const PRounding& r, double p, double largest, double* off) {
  constexpr double kSqrt2 = 1.4142135623730951;
  PRounding unlimited = r;
  if (!r.integer) unlimited.largest = 1e300;
  const double third = round_p(r, p, largest).spacing / 3;
  const double places[] = {p + third, p + 2 * third, p * kSqrt2};
  for (int n = 0; n < 3; ++n) {
    const double limit = r.most * (n < 2 ? p : places[n]);
    off[n] = limited(round_p(unlimited, places[n], largest).value - places[n], limit);
  }
  off[2] /= kSqrt2;
}

}  // namespace rounding
}  // namespace assay
