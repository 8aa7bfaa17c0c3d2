// SPDX-License-Identifier: Apache-2.0
// The matrix instruction of the emulated device: mma.sync.m16n8k16 with 32 lanes, v_mfma_f32_16x16x16
// (bf16_1k and f16) with 64. Registers lie as the manuals say, written down here a second time and in their
// words, so that a mistake in kernels/dialect/matrix.h cannot cancel.
//
// Sums are formed as the devices form them, in exact steps:
//   32 lanes: one step of 16 products and the accumulator, as measured on an H200 (kernels/cuda/probes): all
//     aligned to the largest exponent, cut to 25 fraction bits, added exactly, the sum cut to 23.
//   64 lanes: two steps of 8 products, as Xie et al. found CDNA 3 to do (arXiv 2511.10909): products aligned
//     to the largest of them and cut to 24 bits; then their sum rounded down at 31 bits and the accumulator
//     at 24 below the larger exponent of the two, added, rounded to nearest. (CDNA 2 adds pairs and flushes
//     subnormals; it is not modelled.)
// Products are not normalised: their exponent is the sum of their factors'.
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/emulator/block_sums.hpp"
#include "kernels/emulator/thread_block.hpp"

namespace gpu::emulator {
namespace {

constexpr int kRows = 16, kColumns = kWarp == 32 ? 8 : 16, kDepth = 16;

// What a lane hands over, and in d what it takes back.
struct Registers {
  uint32_t a[kWarp == 32 ? 4 : 2], b[2];
  float d[4];
};
static_assert(sizeof(Registers) <= kSlotBytes);

struct Index {
  int row, column;
};
// PTX ISA, matrix fragments for mma.m16n8k16 with 16-bit types: groupID = lane / 4, threadID_in_group = lane
// % 4. CDNA 3 ISA, v_mfma_f32_16x16x16: row (A) or column (B) lane % 16, k from 4 * (lane / 16) on; D in
// column lane % 16, rows from 4 * (lane / 16) on.
Index place_in_a(int lane, int i) {
  if (kWarp == 64) return {lane % 16, 4 * (lane / 16) + i};
  return {lane / 4 + (i < 2 || (i >= 4 && i < 6) ? 0 : 8), lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
Index place_in_b(int lane, int i) {
  if (kWarp == 64) return {4 * (lane / 16) + i, lane % 16};
  return {lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0), lane / 4};
}
Index place_in_d(int lane, int i) {
  if (kWarp == 64) return {4 * (lane / 16) + i, lane % 16};
  return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)};
}

struct Operands {
  double a[kRows][kDepth], b[kDepth][kColumns], d[kRows][kColumns];
  int a_exponent[kRows][kDepth], b_exponent[kDepth][kColumns], d_exponent[kRows][kColumns];
};

// One row of the result over `count` products from `first` on; `top` is at least the exponents of the terms.
void largest_exponents(const Operands& m, int row, int first, int count, int (&top)[kColumns]) {
  for (int k = first; k < first + count; ++k)
    for (int j = 0; j < kColumns; ++j) {
      const int e = m.a_exponent[row][k] + m.b_exponent[k][j];
      top[j] = e > top[j] ? e : top[j];
    }
}
void add_cut_products(const Operands& m, int row, int first, int count, const double (&scale)[kColumns],
                      double (&sum)[kColumns]) {
  for (int k = first; k < first + count; ++k)
    for (int j = 0; j < kColumns; ++j)
      sum[j] += static_cast<double>(static_cast<int32_t>(m.a[row][k] * m.b[k][j] * scale[j]));
}

void row_of_mma_sync(Operands& m, int row) {
  constexpr int kFraction = 25;
  int top[kColumns];
  double scale[kColumns], sum[kColumns];
  for (int j = 0; j < kColumns; ++j) top[j] = m.d_exponent[row][j];
  largest_exponents(m, row, 0, kDepth, top);
  for (int j = 0; j < kColumns; ++j) {
    if (top[j] <= kNone / 2) top[j] = 0;
    scale[j] = power(kFraction - top[j]);
    sum[j] = std::trunc(m.d[row][j] * scale[j]);
  }
  add_cut_products(m, row, 0, kDepth, scale, sum);
  for (int j = 0; j < kColumns; ++j) m.d[row][j] = cut_to_float(sum[j] * power(top[j] - kFraction));
}

void row_of_mfma(Operands& m, int row) {
  for (int first = 0; first < kDepth; first += 8) {
    int top[kColumns];
    double scale[kColumns], sum[kColumns] = {};
    for (int j = 0; j < kColumns; ++j) top[j] = kNone;
    largest_exponents(m, row, first, 8, top);
    for (int j = 0; j < kColumns; ++j) scale[j] = top[j] <= kNone / 2 ? 0.0 : power(24 - top[j]);
    add_cut_products(m, row, first, 8, scale, sum);
    for (int j = 0; j < kColumns; ++j) {
      const Number before = number(static_cast<float>(m.d[row][j]), -126);
      const int both = top[j] > before.exponent ? top[j] : before.exponent;
      if (both <= kNone / 2) continue;  // zeros
      const double products = top[j] <= kNone / 2 ? 0.0 : sum[j] * power(top[j] - 24);
      m.d[row][j] = static_cast<float>(std::floor(products * power(31 - both)) * power(both - 31) +
                                       std::floor(before.value * power(24 - both)) * power(both - 24));
    }
  }
}

// Infinities and NaNs go the way of ordinary arithmetic, in the elements that they reach and in no other.
float plain_sum(const Operands& m, int row, int column) {
  double sum = m.d[row][column];
  for (int k = 0; k < kDepth; ++k) sum += m.a[row][k] * m.b[k][column];
  return static_cast<float>(sum);
}

// Plain sums: those that infinities or NaNs reach are infinite or NaN (0 x infinity is), and stay so. The
// operands hold zeros in their place afterwards.
void set_aside(Operands& m, double (&special)[kRows][kColumns]) {
  for (int row = 0; row < kRows; ++row)
    for (int j = 0; j < kColumns; ++j) special[row][j] = plain_sum(m, row, j);
  const auto clear = [](double& value, int& exponent) {
    if (!std::isfinite(value)) value = 0, exponent = kNone;
  };
  for (int k = 0; k < kDepth; ++k) {
    for (int row = 0; row < kRows; ++row) clear(m.a[row][k], m.a_exponent[row][k]);
    for (int j = 0; j < kColumns; ++j) clear(m.b[k][j], m.b_exponent[k][j]);
  }
  for (int row = 0; row < kRows; ++row)
    for (int j = 0; j < kColumns; ++j) clear(m.d[row][j], m.d_exponent[row][j]);
}

template <bool kFp16>
void complete(unsigned char* table) {
  Operands m;
  bool finite = true;
  Registers lane[kWarp];
  for (int l = 0; l < kWarp; ++l) {
    std::memcpy(&lane[l], table + l * kSlotBytes, sizeof(Registers));
    const Registers& r = lane[l];
    for (int i = 0; i < kRows * kDepth / kWarp; ++i) {
      const Index at = place_in_a(l, i);
      const Number n = number_of_half(r.a[i / 2] >> (i % 2 * 16), kFp16);
      m.a[at.row][at.column] = n.value, m.a_exponent[at.row][at.column] = n.exponent;
      finite &= std::isfinite(n.value);
    }
    for (int i = 0; i < 4; ++i) {
      const Index at = place_in_b(l, i), to = place_in_d(l, i);
      const Number n = number_of_half(r.b[i / 2] >> (i % 2 * 16), kFp16), d = number(r.d[i], -126);
      m.b[at.row][at.column] = n.value, m.b_exponent[at.row][at.column] = n.exponent;
      m.d[to.row][to.column] = d.value, m.d_exponent[to.row][to.column] = d.exponent;
      finite &= std::isfinite(n.value) && std::isfinite(d.value);
    }
  }
  double special[kRows][kColumns];
  if (!finite) set_aside(m, special);
  for (int row = 0; row < kRows; ++row) {
    if constexpr (kWarp == 32)
      row_of_mma_sync(m, row);
    else
      row_of_mfma(m, row);
    for (int j = 0; !finite && j < kColumns; ++j)
      if (!std::isfinite(special[row][j])) m.d[row][j] = special[row][j];
  }
  for (int l = 0; l < kWarp; ++l) {
    for (int i = 0; i < 4; ++i) {
      const Index from = place_in_d(l, i);
      lane[l].d[i] = static_cast<float>(m.d[from.row][from.column]);
    }
    std::memcpy(table + l * kSlotBytes, &lane[l], sizeof(Registers));
  }
}

}  // namespace

void matrix_step(bool fp16, const uint32_t* a, const uint32_t* b, float* d, Where where) {
  Registers mine;
  std::memcpy(mine.a, a, sizeof mine.a);
  std::memcpy(mine.b, b, sizeof mine.b);
  std::memcpy(mine.d, d, sizeof mine.d);
  running_block()->together(&mine, sizeof mine, fp16 ? complete<true> : complete<false>, where);
  std::memcpy(d, mine.d, sizeof mine.d);
}

}  // namespace gpu::emulator
