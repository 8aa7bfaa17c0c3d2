// SPDX-License-Identifier: Apache-2.0
// Ops that move rows (cache_write, cache_gather, quantize_int8) as the plain data that travels to the device
// (move_tiles.cu, move_columns.cu, move_turned.cu, move_flat.cu, move.cu). Dense rows are views like a cache
// whose blocks are rows and hold one token.
#pragma once

#include "kernels/common/data_op_operands.hpp"
#include "kernels/portable/call.hpp"

namespace assay_gpu {

using assay_kernels::KvView;
using assay_kernels::ScaleView;

// n / by for n < 2^31 without a division: by a product with ceil(2^(31 + shift) / by), by <= 2^shift.
struct Quotient {
  uint32_t by, factor, shift;
};
inline Quotient make_quotient(uint32_t by) {
  uint32_t log2 = 0;
  while (uint64_t{1} << log2 < by) ++log2;
  return {by, static_cast<uint32_t>(((uint64_t{1} << (31 + log2)) + by - 1) / by), 31 + log2};
}
__device__ inline uint32_t quotient(uint32_t n, const Quotient& q) {
  return static_cast<uint32_t>(uint64_t{n} * q.factor >> q.shift);
}

// How move_tiles.cu cuts a plane: threads of a row; tiles of the same rows, and those of a head.
struct Tiles {
  int32_t lanes_log2;
  Quotient by_across, by_panels;
};
// How move_columns.cu does.
struct Columns {
  Quotient by_width, by_chunks;  // columns of a panel; of a head
  int32_t units, panels;         // columns, panels of them
  int32_t at_once, tile;         // rows of a block at a time, in all
  int32_t threads;
};

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
  bool turned;  // tiles turned over
  Tiles tiles;
  Columns columns;
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
// move_columns.cu: fills in `columns` of a plane that tiles would take; false where it is not for columns.
bool cut_columns(StoredPlane&, int64_t rows, int32_t heads);
gpu::Status launch_store_columns(const StoreRows&, gpu::Stream);
// move_turned.cu: both planes, which tiles would take; false where they are not for it.
bool cut_turned(const StoreRows&);
gpu::Status launch_store_turned(const StoreRows&, gpu::Stream);

// Scales of channels from all rows that are there, for heads of `dims` (move.cu).
struct ChannelScales {
  assay_kernels::RowsView from;
  float* scale;  // [heads, dims]; nothing is written where there are no rows
  int64_t stride[2];
  const int32_t* live_rows;
  int64_t rows;
  int32_t heads, dims, format;  // of the codes
};
gpu::Status launch_channel_scales(const ChannelScales&, gpu::Stream);

// What move_flat.cu is for: strides in bytes, slots next to each other.
struct FlatPlane {
  const unsigned char* from;
  unsigned char* to;
  int64_t from_row, from_head, to_block, to_slot, to_head;
};
struct FlatRows {
  FlatPlane plane[2];
  const int64_t* slots;
  int64_t rows;
  int32_t page_shift, planes;
  Quotient by_row, by_head;  // pieces of 16 bytes
};
// False where the rows are not for it; page_shift is filled in.
bool cut_flat(const StoreRows&, FlatRows&);
gpu::Status launch_store_flat(const FlatRows&, gpu::Stream);

// Cached tokens, times their scale, to dense rows.
struct GatheredPlane {
  MovedRows from, to;
  ScaleView scale;
  int32_t dims;
  Tiles tiles;
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
