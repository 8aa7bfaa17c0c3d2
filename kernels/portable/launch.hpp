// SPDX-License-Identifier: Apache-2.0
// Between the C table and the kernels: each file of instances offers these functions, plain C++ on both
// sides, so that only device code needs the GPU compiler.
#pragma once

#include "kernels/portable/call.hpp"

namespace assay_gpu {

gpu::Status launch_simple(const Call&, gpu::Stream);

// Head dimensions are compiled as 64, 128, 256 or kMaxHeadDim, whatever is enough for K and V.
constexpr int portable_dims(int32_t widest) {
  return widest <= 64 ? 64 : widest <= 128 ? 128 : widest <= 256 ? 256 : assay_kernels::kMaxHeadDim;
}

// Few rows, keys cut into parts (split.hpp): packed rows of a block, keys of a tile.
constexpr int split_rows(int dims, bool plain) { return dims <= 256 ? 4 : plain ? 2 : 1; }
constexpr int split_tile(int dims) { return dims <= 256 ? 4096 / dims : 4; }
// Groups of threads that the keys of a tile are dealt to in turn, each with sums of its own.
constexpr int split_groups(int dims) { return dims <= 256 ? 1024 / dims : 4; }
gpu::Status launch_split(const Call&, gpu::Stream);

// Many rows, keys through shared memory (tiled.hpp).
constexpr int tiled_rows(int dims) { return dims <= 256 ? 4096 / dims : 8; }
constexpr int tiled_keys(int dims) { return dims <= 256 ? 32 : 16; }
gpu::Status launch_tiled(const Call&, gpu::Stream);

// Joins states (O, LSE) of the same rows by their LSE; sinks join once. Strides are in elements.
struct Merge {
  int32_t states, heads, dims;
  int64_t rows;
  const int32_t* live_rows;  // in device memory: what lies behind them is left alone
  const unsigned char* o;    // [states, rows, heads, dims], undefined where the LSE is -inf
  int32_t o_format;
  int64_t o_stride[4];
  const float* lse;  // [states, rows, heads], natural logarithm
  int64_t lse_stride[3];
  unsigned char* out;  // [rows, heads, dims]
  int32_t out_format;
  int64_t out_stride[3];
  float* out_lse;  // [rows, heads]
  int64_t out_lse_stride[2];
  const float* sinks;  // [heads] or null
  int64_t sinks_stride;
};
gpu::Status launch_merge(const Merge&, gpu::Stream);
gpu::Status merge_parts(const Call&, gpu::Stream);

// Formats and head dimensions compiled for the matrix kernel; filled by mma_shape() (mma_entry.cpp).
struct MmaShape {
  int32_t format;  // ASSAY_BF16 or ASSAY_FP16: what Q, P and the products are in
  bool bytes;      // K and V are 8-bit
  int32_t dims;    // 64, 128 or 256
  bool plain;      // see attend_mma: aligned rows and none of the rarer features
};
gpu::Status launch_mma_bf16(const Call&, const MmaShape&, gpu::Stream);
gpu::Status launch_mma_fp16(const Call&, const MmaShape&, gpu::Stream);
constexpr int kTileRows = 64;    // packed rows of a block of the matrix kernel
constexpr int kSharedRows = 16;  // requests of at most so many share their keys among the warps of a block

}  // namespace assay_gpu
