// SPDX-License-Identifier: Apache-2.0
// The emulator's arithmetic units, bit for bit as a declaration describes them: lanes of fused multiply-adds,
// blocks of a matrix unit that align, cut off and add, exact integers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay::testkit {

// Truncation toward zero to `bits` fraction bits relative to 2^exponent.
inline double chop(double x, int exponent, int bits) {
  return std::ldexp(std::trunc(std::ldexp(x, bits - exponent)), exponent - bits);
}
inline int exponent(double x) { return x == 0 ? -100000 : std::ilogb(x); }

// An exponential with this relative error; nothing where the result would not be a normal number.
inline float off_by(float x, double error) {
  return x < -87.0f ? 0.0f : static_cast<float>(std::exp(static_cast<double>(x)) * (1 + error));
}

// Exponents of the smallest normal numbers of two operands: a unit aligns subnormals there.
struct Least {
  int a, b;
};

// c + sum a b the way the declared unit does it.
inline double block_step(double c, const double* a, const double* b, int count, Least least,
                         const assay_accumulator& acc) {
  int top = exponent(c);
  for (int t = 0; t < count; ++t)
    if (a[t] != 0 && b[t] != 0)
      top = std::max(top, std::max(exponent(a[t]), least.a) + std::max(exponent(b[t]), least.b));
  if (top <= -100000) return 0;
  double sum = chop(c, top, acc.fraction_bits);
  for (int t = 0; t < count; ++t) sum += chop(a[t] * b[t], top, acc.fraction_bits);
  return sum == 0 ? 0 : chop(sum, exponent(sum), acc.mantissa_bits);
}
// Sum of products, `start` included.
inline double dot(double start, const std::vector<double>& a, const std::vector<double>& b, Least least,
                  const assay_accumulator& acc) {
  const int n = static_cast<int>(a.size());
  if (acc.kind == ASSAY_ACC_INT32) {
    double sum = start;
    for (int t = 0; t < n; ++t) sum += a[t] * b[t];
    return sum;
  }
  if (acc.kind == ASSAY_ACC_BLOCK) {
    double c = start;
    for (int t = 0; t < n; t += acc.block)
      c = block_step(c, &a[t], &b[t], std::min(acc.block, n - t), least, acc);
    return c;
  }
  std::vector<float> lanes(std::max(1, acc.block), 0.0f);
  lanes[0] = static_cast<float>(start);
  for (int t = 0; t < n; ++t) {
    float& lane = lanes[t % lanes.size()];
    lane = std::fmaf(static_cast<float>(a[t]), static_cast<float>(b[t]), lane);
  }
  for (size_t width = lanes.size(); width > 1; width = (width + 1) / 2)
    for (size_t i = 0; i < width / 2; ++i) lanes[i] += lanes[width - 1 - i];
  return lanes[0];
}

// What a row has added up in one part.
struct State {
  float m = -std::numeric_limits<float>::infinity();
  std::vector<float> l;           // chains of the row sum
  std::vector<double> o, window;  // window: what the matrix unit holds until it is promoted
  int64_t tiles = 0;
  int rescales = 0;
  bool fixed = false;  // m is the LSE, and stays

  // o_once_not: a mistake, the first rescale forgets O.
  void rescale(float factor, bool o_once_not) {
    if (factor == 1) return;
    for (float& x : l) x *= factor;
    for (double& x : window) x = static_cast<float>(x) * factor;
    if (!o_once_not || rescales > 0)
      for (double& x : o) x = static_cast<float>(x) * factor;
    ++rescales;
  }
  void promote() {
    for (size_t t = 0; t < o.size(); ++t) o[t] = static_cast<float>(o[t]) + static_cast<float>(window[t]);
    std::fill(window.begin(), window.end(), 0.0);
  }
};

}  // namespace assay::testkit
