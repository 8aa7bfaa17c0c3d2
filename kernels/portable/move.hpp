// SPDX-License-Identifier: Apache-2.0
// Ops that move rows (cache_write, cache_gather, quantize_int8) as the plain data that travels to the device
// (move_tiles.cu,
// move.cu). Dense rows are views like a cache whose blocks are rows and hold one token.
#pragma once

#include "kernels/common/data_op_operands.hpp"
#include "kernels/portable/call.hpp"

namespace assay_gpu {

using assay_kernels::KvView;
using assay_kernels::ScaleView;

struct MovedRows {
  KvView view;
  bool whole;              // see whole_chunks()
  unsigned char* written;  // view.data, where this is the side that is written
};

inline constexpr int32_t kPartsMeetAt = 8;  // parts of a row lie in whole chunks

// Rows of `dims` elements of each head of K or of V: codes = round(from / scale) at their slots.
struct StoredPlane {
  MovedRows from, to;
  ScaleView scale;
  float* dynamic;  // where the scale of a row goes, with the strides of `scale`; null: scales are given
  int32_t dims;
  MovedRows rest;  // of a latent row in two parts: dimensions from `split` on
  int32_t split;
  bool codes;          // rows are codes already
  const float* ready;  // their scales, where each row has one
  int64_t ready_stride[2];
  // Of tiles (move_tiles.cu): threads of a row, tiles side by side, tiles turned over.
  int32_t lanes_log2, panels;
  bool turned;
};
struct StoreRows {
  StoredPlane plane[2];
  int32_t planes, heads, page_size;
  int64_t rows;
  const int32_t* live_rows;  // see row_is_live()
  const int64_t* slots;      // [rows], -1: the row goes nowhere; null: row n goes to block n
  int64_t slots_stride;
  int32_t page_shift;  // log2 of the page's size, or -1
};
// move_tiles.cu: by tiles where they fit, else by launch_store_elements() (move.cu), which fits everywhere.
// Lanes, panels, turned and page_shift are filled in there.
gpu::Status launch_store(const StoreRows&, gpu::Stream);
gpu::Status launch_store_elements(const StoreRows&, gpu::Stream);

// Cached tokens, times their scale, to dense rows.
struct GatheredPlane {
  MovedRows from, to;
  ScaleView scale;
  int32_t dims;
  int32_t lanes_log2, panels;  // of tiles
};
struct GatherRows {
  GatheredPlane plane[2];
  int32_t planes;
  const int32_t* live_rows;
  assay_kernels::Operands op;  // p, cu_q and the page table
  const int32_t *seq_starts, *token_to_batch;
  int64_t seq_starts_stride, token_to_batch_stride;
};
gpu::Status launch_gather(const GatherRows&, gpu::Stream);  // as launch_store()
gpu::Status launch_gather_elements(const GatherRows&, gpu::Stream);

}  // namespace assay_gpu
