// SPDX-License-Identifier: Apache-2.0
// Products of 16 x 16 matrices by the dialect's matrix instruction, for the tests: rows, columns and k are
// found by kernels/dialect/matrix.h alone.
#pragma once

#include "kernels/dialect/matrix.h"

namespace products {

constexpr int kSize = 16 * 16;

struct Data {
  const uint16_t *a, *b;  // [count][row][k] and [count][k][column], codes
  const float* c;         // [count][row][column]
  float* d;               // the same; A B + C
  int count;
};

enum class Format { bf16, fp16 };
gpu::Status multiply(const Data&, Format);
// The same with the registers of lanes 1 and 2 exchanged, of A (0), B (1) or the result (2).
gpu::Status multiply_exchanged(const Data&, Format, int which);

}  // namespace products
