// SPDX-License-Identifier: Apache-2.0
// AMX tile registers: configuration and the peak-rate probe. Palette 1: eight tiles of
// 16 rows of 64 bytes (edges are zero-padded in memory), fewer where decode has fewer query rows.
// TDPBF16PS: fp32 accumulation, round to nearest even, subnormals flushed (Intel SDM vol. 2).
#pragma once

#include "kernels/cpu/online/lane.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
// GCC 12's tile loads do not tell the compiler that they read memory: without this, stores before them may
// be moved behind them or dropped.
ASSAY_INLINE void memory_written() { __asm__ volatile("" ::: "memory"); }

ASSAY_INLINE TileConfig whole_tiles() {
  TileConfig config{};
  config.palette = 1;
  for (int t = 0; t < 8; ++t) config.row_bytes[t] = 64, config.rows[t] = 16;
  return config;
}

// Configures the tiles of this thread for a scope; releasing them lets the processor save less state. The
// compiler's own intrinsic claims to read 8 bytes of the 64.
struct TileScope {
  __attribute__((always_inline)) explicit TileScope(const TileConfig& config) {
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
  }
  __attribute__((always_inline)) ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

double tile_flops(int64_t rounds, float* sink) {
  const TileScope scope(whole_tiles());
  alignas(64) float ones[256];
  for (float& x : ones) x = float_from_bits(0x3f803f80u);  // two bf16 ones
  memory_written();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  for (int64_t n = 0; n < rounds; ++n) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, ones, 64);
  *sink = ones[0];
  return 4.0 * 2 * 16 * 16 * 32 * static_cast<double>(rounds);
}

// One element of one tile product, for calibration: c + sum of 32 products of bf16 codes.
float tile_dot(const uint16_t* a, const uint16_t* b, float c) {
  const TileScope scope(whole_tiles());
  alignas(64) uint16_t left[16 * 32] = {}, right[16 * 32] = {};
  alignas(64) float sum[256] = {};
  sum[0] = c;
  for (int k = 0; k < 32; ++k) left[k] = a[k], right[k / 2 * 32 + k % 2] = b[k];  // pairs of k side by side
  memory_written();
  _tile_loadd(0, sum, 64);
  _tile_loadd(1, left, 64);
  _tile_loadd(2, right, 64);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, sum, 64);
  memory_written();
  return sum[0];
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
