// SPDX-License-Identifier: Apache-2.0
// The two accumulators, over sixteen columns in registers. The block form works on 32-bit integers where the
// exponents allow it (nearly always) and in double elsewhere; both give the same bits.
// Constants of the hardware: Khattak and Mikaitis, ACM TACO, doi 10.1145/3830409; Xie et al., arXiv
// 2511.10909.
#include "kernels/faulty/accumulate.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/faulty/lanes.hpp"

namespace assay_faulty {
namespace {

constexpr int kMaxLanes = 16;

// Products dealt to `lanes` chains in turn, folded pairwise at the end. One lane: straight onto the sum.
void lanes_of_columns(int lanes, const float* a, const Matrix& b, int count, int column, float* sum) {
  Floats chain[kMaxLanes] = {};
  if (lanes == 1) chain[0] = load<Floats>(sum + column);
  for (int k = 0, lane = 0; k < count; ++k) {
    if (a[k] != 0.0f) chain[lane] += a[k] * load<Floats>(b.value + int64_t{k} * b.stride + column);
    if (++lane == lanes) lane = 0;
  }
  if (lanes == 1) {
    store(sum + column, chain[0]);
    return;
  }
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) chain[lane] = chain[lane] + chain[lane + width];
  store(sum + column, load<Floats>(sum + column) + chain[0]);
}

// Four groups of columns at once: four chains of adds in flight hide the latency of one.
void one_lane_of_four(const float* a, const Matrix& b, int count, int column, float* sum) {
  Floats s0 = load<Floats>(sum + column), s1 = load<Floats>(sum + column + 16);
  Floats s2 = load<Floats>(sum + column + 32), s3 = load<Floats>(sum + column + 48);
  for (int k = 0; k < count; ++k) {
    if (a[k] == 0.0f) continue;
    const float* row = b.value + int64_t{k} * b.stride + column;
    s0 += a[k] * load<Floats>(row), s1 += a[k] * load<Floats>(row + 16);
    s2 += a[k] * load<Floats>(row + 32), s3 += a[k] * load<Floats>(row + 48);
  }
  store(sum + column, s0), store(sum + column + 16, s1);
  store(sum + column + 32, s2), store(sum + column + 48, s3);
}

Ints exponents(Floats value) {
  const Ints raw = ((Ints)value >> 23) & 255;
  return raw == 0 ? Ints{} + int32_t{kZeroExponent} : raw - 127;
}

Doubles power_of_two(Longs exponent) { return (Doubles)((exponent + 1023) << 52); }

Doubles truncated(Doubles x, int bits) { return (Doubles)((Longs)x & ~((int64_t{1} << (52 - bits)) - 1)); }

// One step of one column in double; any exponents.
float step_of_column(const Accumulator& acc, const float* a, const int16_t* ea, const Matrix& b, int count,
                     int column, int32_t top, float before) {
  const double scale = std::ldexp(1.0, acc.fraction_bits - top);
  double total = std::trunc(before * scale);
  for (int k = 0; k < count; ++k)
    if (ea[k] > kZeroExponent)
      total += std::trunc(static_cast<double>(a[k]) * b.value[int64_t{k} * b.stride + column] * scale);
  const double value = std::ldexp(total, top - acc.fraction_bits);
  const auto bits = std::bit_cast<uint64_t>(value) & ~((uint64_t{1} << (52 - acc.mantissa_bits)) - 1);
  return static_cast<float>(std::bit_cast<double>(bits));
}

void block_of_columns(const Accumulator& acc, const float* a, const int16_t* ea, const Matrix& b, int count,
                      int column, float* sum) {
  const Floats before = load<Floats>(sum + column);
  Shorts highest = __builtin_convertvector(exponents(before), Shorts);
  for (int k = 0; k < count; ++k) {
    if (ea[k] <= kZeroExponent) continue;
    const Shorts e = load<Shorts>(b.exponent + int64_t{k} * b.stride + column) + ea[k];
    highest = e > highest ? e : highest;
  }
  Ints top = __builtin_convertvector(highest, Ints);
  // Products below 2^-90 or beyond 2^100 would leave the range of floats on the way; zero columns are fine.
  const Ints zero = top < -900;
  const Ints odd = (top < -90 || top > 100) & ~zero;
  int32_t any = 0;
  for (int c = 0; c < kColumns; ++c) any |= odd[c];
  if (any != 0) {
    for (int c = 0; c < kColumns; ++c)
      sum[column + c] =
          top[c] < -900 ? 0.0f : step_of_column(acc, a, ea, b, count, column + c, top[c], before[c]);
    return;
  }
  top = zero ? Ints{} : top;
  const Floats scale = (Floats)((top * -1 + (acc.fraction_bits + 127)) << 23);
  // A product is below 2^(F + 2) after scaling: eight of them and the accumulator fit 31 bits up to F = 25.
  const int run = acc.fraction_bits > 20 ? 8 : count;
  Doubles low{}, high{};
  Ints partial = __builtin_convertvector(before * scale, Ints);
  for (int k = 0; k < count;) {
    const int until = count - k < run ? count : k + run;
    for (; k < until; ++k) {
      if (ea[k] <= kZeroExponent) continue;
      const Floats product = load<Floats>(b.value + int64_t{k} * b.stride + column) * a[k];
      partial += __builtin_convertvector(product * scale, Ints);
    }
    HalfInts halves[2];
    memcpy(halves, &partial, sizeof halves);
    low += __builtin_convertvector(halves[0], Doubles);
    high += __builtin_convertvector(halves[1], Doubles);
    partial = Ints{};
  }
  HalfInts tops[2];
  memcpy(tops, &top, sizeof tops);
  low *= power_of_two(__builtin_convertvector(tops[0], Longs) - int64_t{acc.fraction_bits});
  high *= power_of_two(__builtin_convertvector(tops[1], Longs) - int64_t{acc.fraction_bits});
  store(sum + column, __builtin_convertvector(truncated(low, acc.mantissa_bits), HalfFloats));
  store(sum + column + 8, __builtin_convertvector(truncated(high, acc.mantissa_bits), HalfFloats));
}

}  // namespace

void accumulate(const Accumulator& acc, const float* a, const int16_t* a_exponent, const Matrix& b, int count,
                int first, int columns, float* sum) {
  const int end = first + columns;
  if (acc.kind != ASSAY_ACC_BLOCK) {
    const int lanes = acc.kind == ASSAY_ACC_FMA ? acc.block : 1;
    int c = first;
    if (lanes == 1)
      for (; c + 64 <= end; c += 64) one_lane_of_four(a, b, count, c, sum);
    for (; c < end; c += kColumns) lanes_of_columns(lanes, a, b, count, c, sum);
    return;
  }
  // All bits of a sum are kept where nothing is added: most weights of inputs with a known answer are zero.
  const bool keeps_all = acc.mantissa_bits >= 23 && acc.fraction_bits >= 23;
  for (int k = 0; k < count; k += acc.block) {
    const int64_t row = int64_t{k} * b.stride;
    const Matrix part{b.value + row, b.exponent + row, b.stride};
    const int steps = count - k < acc.block ? count - k : acc.block;
    if (keeps_all &&
        std::all_of(a_exponent + k, a_exponent + k + steps, [](int16_t e) { return e <= kZeroExponent; })) {
      for (int c = first; c < end; ++c)
        sum[c] = std::fabs(sum[c]) < std::numeric_limits<float>::min() ? 0.0f : sum[c];
      continue;
    }
    for (int c = first; c < end; c += kColumns)
      block_of_columns(acc, a + k, a_exponent + k, part, steps, c, sum);
  }
}

void exponents_of(const float* values, int count, int smallest, int16_t* exponents) {
  for (int i = 0; i < count; ++i) {
    const auto raw = static_cast<int32_t>(std::bit_cast<uint32_t>(values[i]) >> 23 & 255u);
    const bool zero = (std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu) == 0;
    const int32_t e = raw - 127 > smallest ? raw - 127 : smallest;
    exponents[i] = static_cast<int16_t>(zero ? kZeroExponent : e);
  }
}

}  // namespace assay_faulty
