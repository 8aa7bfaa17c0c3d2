// SPDX-License-Identifier: Apache-2.0
// How the decode kernel takes Q in bf16 beside codes of a byte (kernels/sm90/decode_products.h), for its
// test.
#pragma once

#include <array>
#include <cstdint>

namespace queries {

// Lane 4 g + c of a warp has of row g elements 16 i + 4 c and the next three, i < 8, two a word.
struct Lane {
  std::array<uint32_t, 16> q;   // bf16; then as the products take it
  std::array<float, 2> scales;  // of rows 2 c, 2 c + 1, powers of two
  bool narrow;                  // Q has become fp16
};

// One warp.
void prepare(std::array<Lane, 32>& warp);

}  // namespace queries
