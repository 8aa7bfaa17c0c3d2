// SPDX-License-Identifier: Apache-2.0
// The functions of kernels/sm90/halves.h on the emulator, found by include path in its place; their rules
// stand there.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sm90 {

inline uint32_t larger_halves(uint32_t x, uint32_t y) {
  return std::max(x & 0xFFFFu, y & 0xFFFFu) | std::max(x >> 16, y >> 16) << 16;
}
inline uint32_t smaller_halves(uint32_t x, uint32_t y) {
  const auto half = [](uint32_t of, int shift) { return static_cast<int16_t>(of >> shift); };
  const auto bits = [](int16_t of) -> uint32_t { return static_cast<uint16_t>(of); };
  return bits(std::min(half(x, 0), half(y, 0))) | bits(std::min(half(x, 16), half(y, 16))) << 16;
}

}  // namespace sm90
