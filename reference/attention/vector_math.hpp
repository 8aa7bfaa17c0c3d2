// SPDX-License-Identifier: Apache-2.0
// exp and tanh in double as branch-free inline functions, so that the compiler vectorises loops over
// them without -ffast-math (glibc's vector functions are reachable only with it, and std::exp costs five
// times the rest of the softmax). Method: Cody-Waite reduction to |r| <= ln2/2 and the Taylor polynomial of
// degree 13, whose remainder there is below 2^-57. Accuracy is measured in vector_math_test.cpp.
#pragma once

#include <bit>
#include <cstdint>

namespace assay {
namespace vector_math {

// exp(x) = scale * (1 + fraction) for -708 <= x <= 709.
struct ExpParts {
  double scale;     // a power of two
  double fraction;  // exp(r) - 1
};

inline ExpParts exp_parts(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  // ln2 in two parts; the upper has 21 trailing zero bits, so n * kLn2Hi is exact for |n| < 2^21.
  constexpr double kLn2Hi = 0x1.62e42fee00000p-1;
  constexpr double kLn2Lo = 0x1.a39ef35793c76p-33;
  // Adding 1.5 * 2^52 leaves round(x * log2 e) in the low bits.
  constexpr double kRounder = 0x1.8p+52;
  const double shifted = x * kLog2E + kRounder;
  const double n = shifted - kRounder;
  const double r = (x - n * kLn2Hi) - n * kLn2Lo;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  // r + r^2 p keeps the last addition's operands far apart: the error stays below one unit.
  const double fraction = r + r * r * p;
  const double scale = std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
  return {scale, fraction};
}

// exp(x) for x <= 709; 0 below -708 (smaller than any weight that could matter beside a maximum of 1).
inline double exp(double x) {
  const ExpParts e = exp_parts(x < -708.0 ? -708.0 : x);
  const double value = e.scale + e.scale * e.fraction;
  return x < -708.0 ? 0.0 : value;
}

// tanh(x), from expm1(-2|x|) so that small arguments keep their relative accuracy.
inline double tanh(double x) {
  const double a = x < 0 ? -x : x;
  const double t = -2.0 * (a > 20.0 ? 20.0 : a);  // 1 - tanh(20) < 2^-56
  const ExpParts e = exp_parts(t);
  const double expm1 = e.scale * e.fraction + (e.scale - 1.0);
  const double value = -expm1 / (2.0 + expm1);
  return x < 0 ? -value : value;
}

}  // namespace vector_math
}  // namespace assay
