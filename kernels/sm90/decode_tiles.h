// SPDX-License-Identifier: Apache-2.0
// How the decode kernel (decode_kernel.h) finds and fetches its tiles: instances and what shared memory they
// have, what a request needs, a position in the flat list of tiles, the copies of a tile of 16 keys, codes
// widened.
//
// In shared memory rows of keys are 16 rows of 128 bytes (two such where elements have two), 16-byte chunks
// exchanged by row. In layouts x and shuffled a chunk of V is one dimension of 8 or 16 keys, so a tile of V
// is V^T, and K is [chunk][key][16 bytes], V^T [dimension][16 bytes], of 16-bit elements once per 8 keys
// (layout x: both side by side, exchanged in every other four dimensions).
#pragma once

#include "kernels/sm90/decode.hpp"
#include "kernels/sm90/interval.h"
#include "kernels/sm90/warp.h"

namespace assay_sm90 {
namespace {

using namespace sm90;

// An instance. kHalf: Q and O in fp16, else bf16. kCodes: what K and V are stored in. kPacked: layouts x and
// shuffled, else rows of a key. kBlocks: of 8 columns.
template <bool kHalf_, DecodeCodes kCodes_, bool kPacked_, int kBlocks_>
struct DecodeInstance {
  static constexpr bool kHalf = kHalf_, kPacked = kPacked_;
  static constexpr DecodeCodes kCodes = kCodes_;
  static constexpr int kBlocks = kBlocks_;
  static constexpr bool kBytes = kCodes != DecodeCodes::k16;  // K and V of one byte
  static constexpr bool kInt8 = kCodes == DecodeCodes::kInt8;
  static constexpr bool kKeyScales = kBytes && kCodes != DecodeCodes::kE4m3;  // K and V may have one per key
  // P and V are multiplied in fp16 or in bf16: the latter where a weight takes a key's scale along, which may
  // be of any size.
  static constexpr bool kHalfP = kBytes ? !kKeyScales : kHalf;
  static constexpr int kColumns = 8 * kBlocks;
  // As many bytes in flight as shared memory holds beside the slots; with four blocks Q lies there, too.
  // More than 12 warps have 128 registers a thread, too few with V^T or scales of keys.
  static constexpr int kWarps = kBlocks == 4   ? 4
                                : kBlocks == 2 ? (kKeyScales ? 7 : 8)
                                : !kBytes      ? 8
                                               : (kKeyScales || kPacked ? 12 : 16);
  static constexpr int kStages = kBlocks == 4              ? (kKeyScales ? 3
                                                              : kBytes   ? 4
                                                                         : 2)
                                 : !kBytes && kBlocks == 2 ? 2
                                 : kWarps == 16            ? 2
                                                           : 3;
  static constexpr bool kQueriesShared = kBlocks == 4;
  static constexpr bool kVotes = true;  // whether a maximum rises, before it is looked for across lanes
  static constexpr int kThreads = 32 * kWarps, kBatch = decode_batch(kWarps);
  static constexpr int kRow = kDecodeDim * (kBytes ? 1 : 2);  // bytes of a key
  static constexpr int kTile = kDecodeTile * kRow;
  static constexpr int kScales = kKeyScales ? 2 * kDecodeTile * 4 : 0;          // K's of a tile, then V's
  static constexpr int kStage = 2 * kTile + kScales, kRing = kStages * kStage;  // per warp
  // A warp shares at most its first and its last segment. The last may lie in the stage it was just read
  // from.
  static constexpr int kSlot = kColumns * kDecodeDim * 4;
  static constexpr int kOwnSlots = kSlot <= kStage ? 1 : 2;
  static constexpr int kSlots = 2 * kWarps;
  static constexpr int kQueries = kQueriesShared ? kColumns * kDecodeDim * 2 : 0;  // bytes of a warp's Q
  static constexpr int kInfo = kWarps * (kRing + kOwnSlots * kSlot + kQueries);
  static constexpr int kShared = kInfo + kSlots * (16 + 4 + 8 * kColumns) + 16;
  static_assert(kSlots <= 32 && kShared <= 232448);

  // Which key of a tile is a row of S^T. V^T of bytes has four keys in a register; widened, these are every
  // other one, and the rows of S^T follow, so that weights are operands as they lie in registers.
  static constexpr bool kTurned = kPacked && kBytes;
  __device__ static int key_of(int row) { return kTurned ? row % 8 * 2 + row / 8 : row; }
  // Layouts x and shuffled: 16-byte piece of a chunk of K that a key has; the second eight keys of bytes
  // change places with their neighbours, so that every other key meets other banks.
  __device__ static int place_of(int key) { return kTurned ? key ^ key / 8 : key; }
  // Byte of V^T at which 16 bytes of a dimension lie, `half` of its keys; joined: as in layout x of two
  // bytes, where they follow each other. And how far the n-th next dimension lies, n a multiple of 16.
  __device__ static int place_in_v(int dim, int half, bool joined) {
    return joined && !kBytes ? dim * 32 + ((half ^ dim / 4 % 2) << 4) : half * 2048 + dim * 16;
  }
  __device__ static int v_step(int n, bool joined) { return (joined && !kBytes ? 32 : 16) * n; }
};

// ---- what a request needs
// -----------------------------------------------------------------------------------

struct Request {
  int first_row, rows, keys;
  int begin, end;  // keys that any row sees
  Request() = default;
  __device__ Request(const DecodeCall& p, int r) {
    first_row = __ldg(p.cu_q + r * p.cu_q_stride);
    rows = __ldg(p.cu_q + (r + 1) * p.cu_q_stride) - first_row;
    keys = __ldg(p.kv_len + r * p.kv_len_stride);
    begin = 0, end = keys;
    // Both ends grow with the row, and the rows follow each other without a gap.
    if (!p.all_keys) begin = visible(p, rows, keys, 0).begin, end = visible(p, rows, keys, rows - 1).end;
    if (rows == 0) begin = end = 0;
  }
  __device__ int first_tile() const { return begin / kDecodeTile; }
  __device__ int tiles() const {
    return end > begin ? (end + kDecodeTile - 1) / kDecodeTile - first_tile() : 0;
  }
};

// Position in the flat list; `first` is the flat index of the segment's first tile.
struct Cursor {
  int request, head, tile, tiles, first;
  Request of;
  __device__ void next(const DecodeCall& p) {
    if (++tile < tiles) return;
    tile = 0;
    first += tiles;
    if (++head < p.heads_kv) return;
    head = 0;
    do {
      if (++request >= p.requests) return;
      of = Request(p, request);
    } while ((tiles = of.tiles()) == 0);
  }
};

// ---- a warp's work
// -----------------------------------------------------------------------------------------

template <class I>
struct Loader {
  const DecodeCall& p;
  const int lane;
  const uint32_t ring;
  int pages = 0, ahead = 0, request = -1, base = 0;  // 32 page numbers in the lanes, the next on their way

  __device__ int page_of(int tile) const {
    return p.page_shift >= 0 ? tile * kDecodeTile >> p.page_shift
                             : static_cast<int>(__umulhi(tile, p.page_magic));
  }
  __device__ void page_numbers(const Cursor& at, int page) {
    const int from = page & ~31;
    if (at.request == request && from == base) return;
    const bool forward = at.request == request && from == base + 32;
    const int64_t start = p.indptr != nullptr ? int64_t{__ldg(p.indptr + at.request * p.indptr_stride)}
                                              : at.request * p.table_row;
    const int32_t* const row =
        p.table + start * (p.indptr != nullptr ? p.table_stride : 1) + (from + lane) * p.table_stride;
    const int last = at.of.end - 1,
              end = (p.page_shift >= 0 ? last >> p.page_shift : page_of(last / kDecodeTile)) + 1;
    pages = forward ? ahead : from + lane < end ? __ldg(row) : 0;
    ahead = from + 32 + lane < end ? __ldg(row + 32 * p.table_stride) : 0;
    request = at.request, base = from;
  }

  // Asks for the page numbers of a tile that is to be fetched.
  __device__ void ask_pages(const Cursor& at) { page_numbers(at, page_of(at.of.first_tile() + at.tile)); }

  // Scales of the tile's keys: a lane below 16 one of K, the others one of V.
  __device__ void scales(const Cursor& at, int tile, int page, int slot, int stage) {
    const int key = tile * kDecodeTile + lane % kDecodeTile;
    int64_t block = __shfl_sync(~0u, pages, page & 31);
    int in = slot + lane % kDecodeTile;
    if (p.page < kDecodeTile) {
      const int there = min(key, at.of.end - 1);
      block = __shfl_sync(~0u, pages, (there >> p.page_shift) & 31), in = there & (p.page - 1);
    }
    const bool of_k = lane < kDecodeTile;
    const KeyScales& s = of_k ? p.k_keys : p.v_keys;
    if (s.data != nullptr)
      copy4(ring + stage * I::kStage + 2 * I::kTile + lane * 4,
            s.data + block * s.block + at.head * s.head + in * s.slot);
  }

  // Layouts x and shuffled: what 128 bytes of memory hold becomes 128 bytes of shared memory.
  __device__ void packed(const Cursor& at, int page, int slot, int stage) {
    const int64_t block = __shfl_sync(~0u, pages, page & 31);
    const uint32_t k_to = ring + stage * I::kStage + lane / 16 * 256 + I::place_of(lane % 16) * 16;
    const uint8_t* const k = p.k + block * p.k_block + at.head * p.k_head +
                             int64_t{slot + lane % 16} * p.k_slot + lane / 16 * p.k_chunk;
    constexpr int kHalves = I::kBytes ? 1 : 2, kDims = 32 / kHalves;  // chunks of a dimension
    const bool joined = p.v_joined;
    const int dim = I::kBytes ? lane : joined ? lane / 2 : lane % 16;
    const int half = I::kBytes ? 0 : joined ? lane % 2 : lane / 16;
    const uint32_t v_to = ring + stage * I::kStage + I::kTile + I::place_in_v(dim, half, joined);
    const uint32_t v_step = I::v_step(kDims, joined);
    const uint8_t* const v = p.v + block * p.v_block + at.head * p.v_head + dim * p.v_dim +
                             (slot * kHalves / 16 + half) * p.v_group;
    SM90_UNROLL for (int i = 0; i < I::kRow / 32; ++i) copy16(k_to + i * 512, k + 2 * i * p.k_chunk);
    SM90_UNROLL for (int i = 0; i < kDecodeDim / kDims; ++i)
        copy16(v_to + i * v_step, v + i * kDims * p.v_dim);
  }

  __device__ void tile(const Cursor& at, int stage) {
    constexpr int kChunks = I::kRow / 16, kRows = 32 / kChunks;  // 16-byte chunks of a key; keys of one copy
    const int tile = at.of.first_tile() + at.tile, row = lane / kChunks, chunk = lane % kChunks;
    const int64_t k_at = at.head * p.k_head + chunk * 16, v_at = at.head * p.v_head + chunk * 16;
    const uint32_t to = ring + stage * I::kStage + chunk / 8 * 2048 + row * 128;
    const int page = page_of(tile), slot = tile * kDecodeTile - page * p.page;  // of the tile's first key
    page_numbers(at, page);
    if constexpr (I::kKeyScales) scales(at, tile, page, slot, stage);
    if constexpr (I::kPacked) {
      packed(at, page, slot, stage);
    } else if (p.page >= kDecodeTile) {
      const int64_t block = __shfl_sync(~0u, pages, page & 31);
      const uint8_t* k = p.k + block * p.k_block + k_at + (slot + row) * p.k_slot;
      const uint8_t* v = p.v + block * p.v_block + v_at + (slot + row) * p.v_slot;
      const int k_step = kRows * p.k_slot, v_step = kRows * p.v_slot;
      const uint32_t first = to + ((lane % 8 ^ row) << 4);  // row < kRows, a power of two
      SM90_UNROLL for (int i = 0; i < kDecodeTile; i += kRows, k += k_step, v += v_step) {
        const uint32_t x = (first ^ i % 8 << 4) + i * 128;
        copy16(x, k);
        copy16(x + I::kTile, v);
      }
    } else {
      SM90_LOOP for (int i = 0; i < kDecodeTile; i += kRows) {
        const int key = min(tile * kDecodeTile + row + i, at.of.end - 1);  // behind the end nothing is a page
        const int64_t block = __shfl_sync(~0u, pages, (key >> p.page_shift) & 31);
        const int in = key & (p.page - 1);
        const uint32_t x = to + i * 128 + ((lane % 8 ^ (row + i) % 8) << 4);
        copy16(x, p.k + block * p.k_block + k_at + in * p.k_slot);
        copy16(x + I::kTile, p.v + block * p.v_block + v_at + in * p.v_slot);
      }
    }
  }
};

// Four codes of K to fp16 or bf16, exact: which two registers are, see where Q is read.
template <DecodeCodes kCodes, bool kHalf>
__device__ inline void widen_k(uint32_t x, uint32_t& lower, uint32_t& upper) {
  if constexpr (kCodes == DecodeCodes::kInt8) {
    if constexpr (kHalf)
      int8_to_half(x, lower, upper);
    else
      int8_to_bf16(x, lower, upper);
  } else if constexpr (kCodes == DecodeCodes::kE5m2) {
    if constexpr (kHalf)
      e5m2_to_half(x, lower, upper);
    else
      e5m2_to_bf16(x, lower, upper);
  } else {
    if constexpr (kHalf)
      e4m3_to_half(x, lower, upper);
    else
      e4m3_to_bf16(x, lower, upper);
  }
}
// Four codes of V to the format of P, exact: bytes 0 and 2, bytes 1 and 3.
template <class I>
__device__ inline void widen_v(uint32_t x, uint32_t& even, uint32_t& odd) {
  if constexpr (I::kInt8)
    int8_to_bf16(x, even, odd);
  else if constexpr (I::kCodes == DecodeCodes::kE5m2)
    e5m2_to_bf16(x, even, odd);
  else if constexpr (I::kKeyScales)
    e4m3_to_bf16(x, even, odd);
  else
    e4m3_to_half(__byte_perm(x, 0, 0x3120), even, odd);
}

}  // namespace
}  // namespace assay_sm90
