// SPDX-License-Identifier: Apache-2.0
// The data ops that move rows, in any format, layout and stride: cache_write and quantize_int8 (dense rows
// into codes, at their slots or side by side) and cache_gather (cached tokens into dense rows). What serving
// systems mostly ask for is done by move_tiles.cu, to the same bits. Sixteen neighbouring threads per row and
// head, eight dimensions each at a time: one load and one store where the layout keeps eight together.
// Quotients and products are single IEEE operations and codes are rounded once, so every result is known to
// the bit; equal formats without a scale are copied.
#include "kernels/portable/chunk.hpp"
#include "kernels/portable/move.hpp"

namespace assay_gpu {
namespace {

using assay_kernels::KvView;

constexpr int kMoveThreads = 128;
constexpr int kMoveLanes = 16;
static_assert(kPartsMeetAt == kChunk);

// Element e of a chunk; unlike decode_chunk() exact for every code, infinities and NaN included.
__device__ inline float element_of(const Chunk<true>& chunk, int e, int32_t format) {
  const uint32_t half = chunk.word[e / 2] >> (e % 2 * 16) & 0xffffu;
  switch (format) {
    case ASSAY_FP32:
      return assay_kernels::float_from_bits(chunk.word[e]);
    case ASSAY_BF16:
      return assay_kernels::float_from_bf16(static_cast<uint16_t>(half));
    case ASSAY_FP16:
      return assay_kernels::float_from_fp16(static_cast<uint16_t>(half));
    default:
      return assay_kernels::float_from_byte(static_cast<uint8_t>(chunk.word[e / 4] >> (e % 4 * 8)), format);
  }
}

// The code of `value` at element e of an empty chunk.
__device__ inline void put_element(Chunk<true>& chunk, int e, int32_t format, float value) {
  switch (assay_kernels::element_bytes_of(format)) {
    case 4:
      chunk.word[e] = assay_kernels::bits_of_float(value);
      break;
    case 2:
      chunk.word[e / 2] |= static_cast<uint32_t>(format == ASSAY_BF16 ? assay_kernels::bf16_from_float(value)
                                                                      : assay_kernels::fp16_from_float(value))
                           << (e % 2 * 16);
      break;
    default:
      chunk.word[e / 4] |=
          static_cast<uint32_t>(format == ASSAY_INT8
                                    ? static_cast<uint8_t>(assay_kernels::int8_from_float(value))
                                    : assay_kernels::fp8_from_float(value, format))
          << (e % 4 * 8);
  }
}

__device__ Chunk<true> load_row_chunk(const MovedRows& from, int64_t token, int32_t dim, int32_t dims) {
  return load_chunk<false>(from.view, from.whole, token, dim, dims,
                           assay_kernels::dim_offset(from.view, dim));
}

// Eight dimensions of a row that may lie in two parts, which meet at a multiple of eight.
__device__ Chunk<true> load_source(const StoredPlane& plane, int64_t row, int32_t head, int32_t dim) {
  const bool second = dim >= plane.split;
  const MovedRows& from = second ? plane.rest : plane.from;
  const int32_t first = second ? plane.split : 0, end = second ? plane.dims : plane.split;
  const int64_t at = row * from.view.block_stride + head * from.view.head_stride;
  return load_row_chunk(from, at, dim - first, end - first);
}

// What begins before `dims` is written, and not one element more.
__device__ void store_row_chunk(const MovedRows& to, int64_t token, int32_t dim, int32_t dims,
                                const Chunk<true>& chunk) {
  const int32_t bytes = to.view.element_bytes;
  if (to.whole) {
    unsigned char* at = to.written + (token + assay_kernels::dim_offset(to.view, dim)) * bytes;
    if (bytes == 1) {
      *reinterpret_cast<uint2*>(at) = uint2{chunk.word[0], chunk.word[1]};
      return;
    }
    uint4* four = reinterpret_cast<uint4*>(at);
    four[0] = uint4{chunk.word[0], chunk.word[1], chunk.word[2], chunk.word[3]};
    if (bytes == 4) four[1] = uint4{chunk.word[4], chunk.word[5], chunk.word[6], chunk.word[7]};
    return;
  }
#pragma unroll
  for (int e = 0; e < kChunk; ++e) {
    if (dim + e >= dims) break;
    const int64_t at = token + assay_kernels::dim_offset(to.view, dim + e);
    if (bytes == 1)
      to.written[at] = static_cast<uint8_t>(chunk.word[e / 4] >> (e % 4 * 8));
    else if (bytes == 2)
      reinterpret_cast<uint16_t*>(to.written)[at] = static_cast<uint16_t>(chunk.word[e / 2] >> (e % 2 * 16));
    else
      reinterpret_cast<uint32_t*>(to.written)[at] = chunk.word[e];
  }
}

// The row and head of this thread's group, or none: the whole warp stays for the shuffles.
struct Item {
  int64_t row;
  int32_t head, member;
  bool valid;
};
__device__ inline Item item_of(int64_t rows, int32_t heads) {
  const int64_t item =
      static_cast<int64_t>(blockIdx.x) * (kMoveThreads / kMoveLanes) + threadIdx.x / kMoveLanes;
  return {item / heads, static_cast<int32_t>(item % heads), static_cast<int>(threadIdx.x) % kMoveLanes,
          item < rows * heads};
}

// grid = (groups of rows and heads, planes).
__global__ GPU_BOUNDS(kMoveThreads, 4) void store_rows(GPU_PARAMETER StoreRows parameter) {
  const StoreRows& a = GPU_ARGUMENT(parameter);
  const StoredPlane& plane = a.plane[blockIdx.y];
  Item item = item_of(a.rows, a.heads);
  item.valid &= assay_kernels::row_is_live(a.live_rows, item.row);
  KeyPlace at{item.row, 0};
  if (item.valid && a.slots != nullptr) {
    const int64_t slot = a.slots[item.row * a.slots_stride];
    item.valid = slot >= 0;
    at = {slot / a.page_size, static_cast<int32_t>(slot % a.page_size)};
  }
  const int32_t dims = plane.dims, from_format = plane.from.view.format, to_format = plane.to.view.format;

  float scale = 1.0f;
  if (plane.codes) {
    if (item.valid && plane.dynamic != nullptr)
      scale = plane.ready[item.row * plane.ready_stride[0] + item.head * plane.ready_stride[1]];
  } else if (plane.dynamic != nullptr) {
    float largest = 0.0f;
    if (item.valid)
      for (int32_t d = item.member * kChunk; d < dims; d += kMoveLanes * kChunk) {
        const Chunk<true> chunk = load_source(plane, item.row, item.head, d);
#pragma unroll
        for (int e = 0; e < kChunk; ++e) largest = fmaxf(largest, fabsf(element_of(chunk, e, from_format)));
      }
    largest = gpu::warp_reduce(
        largest, [](float s, float t) { return fmaxf(s, t); }, 1, kMoveLanes);
    scale = largest / assay_kernels::largest_code(to_format);
  } else if (item.valid && plane.scale.kind != ASSAY_SCALE_CHANNEL) {
    scale = assay_kernels::kv_scale(plane.scale, 0, at, item.head);
  }
  if (!item.valid) return;
  if (plane.dynamic != nullptr && item.member == 0)
    plane.dynamic[at.block * plane.scale.stride[0] + item.head * plane.scale.stride[1] +
                  at.slot * plane.scale.stride[2]] = scale;
  const int64_t target =
      assay_kernels::token_offset(plane.to.view, at) + item.head * plane.to.view.head_stride;
  const bool copies = plane.codes || (plane.scale.kind == ASSAY_SCALE_NONE && from_format == to_format);
  const bool channels = plane.scale.kind == ASSAY_SCALE_CHANNEL;
  const bool divides = plane.scale.kind != ASSAY_SCALE_NONE && !channels && scale != 0.0f;
  for (int32_t d = item.member * kChunk; d < dims; d += kMoveLanes * kChunk) {
    const Chunk<true> chunk = load_source(plane, item.row, item.head, d);
    if (copies) {
      store_row_chunk(plane.to, target, d, dims, chunk);
      continue;
    }
    Chunk<true> codes{};
#pragma unroll
    for (int e = 0; e < kChunk; ++e) {
      float value = element_of(chunk, e, from_format);
      if (divides) value /= scale;
      if (channels && d + e < dims) value /= assay_kernels::channel_scale(plane.scale, item.head, d + e);
      put_element(codes, e, to_format, value);
    }
    store_row_chunk(plane.to, target, d, dims, codes);
  }
}

__global__ GPU_BOUNDS(kMoveThreads, 4) void gather_rows(GPU_PARAMETER GatherRows parameter) {
  const GatherRows& a = GPU_ARGUMENT(parameter);
  const GatheredPlane& plane = a.plane[blockIdx.y];
  const Item item = item_of(a.op.p.rows, a.op.p.heads_kv);
  if (!item.valid || !assay_kernels::row_is_live(a.live_rows, item.row)) return;
  const int32_t request = a.token_to_batch[item.row * a.token_to_batch_stride];
  const int32_t start = a.seq_starts[request * a.seq_starts_stride];
  const int32_t token = start + static_cast<int32_t>(item.row - a.op.cu_q[request * a.op.cu_q_stride]);
  const KeyPlace at = assay_kernels::place_key(a.op, request, token);
  const int64_t source =
      assay_kernels::token_offset(plane.from.view, at) + item.head * plane.from.view.head_stride;
  const int64_t target = item.row * plane.to.view.block_stride + item.head * plane.to.view.head_stride;
  const int32_t dims = plane.dims, from_format = plane.from.view.format, to_format = plane.to.view.format;
  const bool scaled = plane.scale.kind != ASSAY_SCALE_NONE;
  const float scale = assay_kernels::kv_scale(plane.scale, request, at, item.head);
  for (int32_t d = item.member * kChunk; d < dims; d += kMoveLanes * kChunk) {
    const Chunk<true> chunk = load_row_chunk(plane.from, source, d, dims);
    if (!scaled && from_format == to_format) {
      store_row_chunk(plane.to, target, d, dims, chunk);
      continue;
    }
    Chunk<true> codes{};
#pragma unroll
    for (int e = 0; e < kChunk; ++e) {
      float value = element_of(chunk, e, from_format);
      if (plane.scale.kind == ASSAY_SCALE_CHANNEL) {
        if (d + e < dims) value *= assay_kernels::channel_scale(plane.scale, item.head, d + e);
      } else if (scaled) {
        value *= scale;
      }
      put_element(codes, e, to_format, value);
    }
    store_row_chunk(plane.to, target, d, dims, codes);
  }
}

// Scales of 32 channels of a head, by the largest of each that eight groups of threads come upon, every
// eighth row each.
constexpr int kScaledChannels = 32, kScaleGroups = 8;

__global__ GPU_BOUNDS(kScaledChannels* kScaleGroups,
                      4) void find_channel_scales(GPU_PARAMETER ChannelScales parameter) {
  GPU_SHARED(float, largest, [kScaleGroups][kScaledChannels]);
  const ChannelScales& a = GPU_ARGUMENT(parameter);
  const auto channel = static_cast<int32_t>(threadIdx.x % kScaledChannels),
             group = static_cast<int32_t>(threadIdx.x / kScaledChannels);
  const auto head = static_cast<int32_t>(blockIdx.y),
             dim = static_cast<int32_t>(blockIdx.x) * kScaledChannels + channel;
  int64_t rows = a.rows;
  if (a.live_rows != nullptr && *a.live_rows < rows) rows = *a.live_rows;
  if (rows <= 0) return;
  float found = 0.0f;
  if (dim < a.dims)
    for (int64_t row = group; row < rows; row += kScaleGroups)
      found = fmaxf(
          found, fabsf(assay_kernels::load_element(
                     a.from.data, row * a.from.row + head * a.from.head + dim * a.from.dim, a.from.format)));
  largest[group][channel] = found;
  gpu::block_barrier();
  if (group > 0 || dim >= a.dims) return;
  for (int g = 1; g < kScaleGroups; ++g) found = fmaxf(found, largest[g][channel]);
  a.scale[head * a.stride[0] + dim * a.stride[1]] = assay_kernels::scale_of_channel(found, a.format);
}

dim3 grid_for(int64_t rows, int32_t heads, int planes) {
  constexpr int kPerBlock = kMoveThreads / kMoveLanes;
  return dim3(static_cast<unsigned>((rows * heads + kPerBlock - 1) / kPerBlock),
              static_cast<unsigned>(planes));
}

}  // namespace

gpu::Status launch_store_elements(const StoreRows& call, gpu::Stream stream) {
  return gpu::launch(store_rows, grid_for(call.rows, call.heads, call.planes), kMoveThreads, 0, stream, call);
}

gpu::Status launch_channel_scales(const ChannelScales& call, gpu::Stream stream) {
  const dim3 grid(static_cast<unsigned>((call.dims + kScaledChannels - 1) / kScaledChannels),
                  static_cast<unsigned>(call.heads));
  return gpu::launch(find_channel_scales, grid, kScaledChannels * kScaleGroups, 0, stream, call);
}

gpu::Status launch_gather_elements(const GatherRows& call, gpu::Stream stream) {
  return gpu::launch(gather_rows, grid_for(call.op.p.rows, call.op.p.heads_kv, call.planes), kMoveThreads, 0,
                     stream, call);
}

}  // namespace assay_gpu
