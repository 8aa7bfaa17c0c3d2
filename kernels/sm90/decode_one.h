// SPDX-License-Identifier: Apache-2.0
// Paged decode attention of one request, or of several short ones, which mostly waits for steps that follow
// each other: the products of decode_kernel.h, found and merged in as few of those as possible. A cluster of
// blocks has a KV head of a request, and of its tiles every warp takes every so-manieth, so which page
// numbers a warp needs does not depend on the length of the request: the length, the first page numbers and Q
// (of several requests: once it is known where their rows begin) are asked for at once, the first tiles as
// soon as length and pages have come. Q and scales are copied to shared memory, Q by all warps together: a
// register that waits for memory is waited for with the others, and the first tiles would wait for Q; what is
// asked for behind the tiles comes behind them. What its warps have of the head a block adds up in its own
// shared memory and sends to the blocks of the cluster, each of which finishes some of the elements. No
// memory outside the blocks is used, nothing is kept between launches, nobody polls.
//
// Barriers: that of the cluster, arrived at when a block starts and waited for before it sends (all blocks
// run by then, their mbarrier is initialised); __syncthreads when Q has come, and between the slots of the
// warps and their sum; the mbarrier `arrived`, one phase, which counts the bytes that blocks send. What each
// decision brought: VARIANTS.md.
#pragma once

#include "kernels/sm90/decode_products.h"
#include "kernels/sm90/launch.h"
#include "kernels/sm90/warpgroup.h"

namespace assay_sm90 {
namespace {

// An instance: bf16, K and V of that or e4m3, in rows. A warp's slot lies in its ring, so there is room for
// more warps than where a warp may have parts of two segments.
// Shared memory: rings, then what is sent, sums and maxima, Q, scales. A quarter of a column (32 elements) is
// a unit; unit u is finished by block u modulo the cluster, which has a place for each of its units and each
// block of the cluster.
template <DecodeCodes kCodes>
struct OneInstance : DecodeInstance<false, kCodes, false, 1> {
  using Base = DecodeInstance<false, kCodes, false, 1>;
  static constexpr int kWarps = decode_one_warps(kCodes), kStages = 3, kThreads = 32 * kWarps;
  static constexpr int kRing = kStages * Base::kStage;
  static constexpr bool kVotes = false;                            // so few tiles that it mostly rises
  static constexpr int kPlaces = 32 + kMostCluster, kPlace = 128;  // bytes
  static constexpr int kSent = kWarps * kRing, kSentMl = kSent + kPlaces * kPlace;
  static constexpr int kSlotMl = kSentMl + kPlaces * 8;
  static constexpr int kQueryWords = 16;  // of a lane
  static constexpr int kQuery = kSlotMl + kWarps * Base::kColumns * 8;
  static constexpr int kScalesAt = kQuery + kQueryWords * 128, kArrived = kScalesAt + 8;
  static constexpr int kShared = kArrived + 8;
  static_assert(!Base::kKeyScales && Base::kSlot <= kRing && kShared <= 232448);
};

// What `parts` parts of 4 x kLanes elements make together, for all lanes; at least one. kLanes lanes have a
// part, each four elements of it, others the next: maxima (in powers of 2) and sums by ml_of(part), elements
// by of(part).
template <int kMost, int kLanes, class MaxAndSum, class Elements>
__device__ inline void join_parts(int parts, int lane, const MaxAndSum& ml_of, const Elements& of, float& m,
                                  float& l, float4& x) {
  constexpr int kGroups = 32 / kLanes, kEach = kMost / kGroups;
  const int from = lane / kLanes;
  float2 ml[kEach];
  float4 y[kEach];
  SM90_UNROLL for (int j = 0; j < kEach; ++j) {
    const int own = kGroups * j + from, part = own < parts ? own : 0;  // past the last the first, of weight 0
    ml[j] = ml_of(part), y[j] = of(part);
  }
  m = -INFINITY, l = 0, x = make_float4(0, 0, 0, 0);
  SM90_UNROLL for (int j = 0; j < kEach; ++j) m = fmaxf(m, ml[j].x);
  SM90_UNROLL for (int d = kLanes; d < 32; d *= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
  SM90_UNROLL for (int j = 0; j < kEach; ++j) {
    const float w = kGroups * j + from < parts && m != -INFINITY ? exp2_fast(ml[j].x - m) : 0.f;
    l = fmaf(ml[j].y, w, l);
    x.x = fmaf(y[j].x, w, x.x), x.y = fmaf(y[j].y, w, x.y);
    x.z = fmaf(y[j].z, w, x.z), x.w = fmaf(y[j].w, w, x.w);
  }
  SM90_UNROLL for (int d = kLanes; d < 32; d *= 2) {
    l += __shfl_xor_sync(~0u, l, d);
    x.x += __shfl_xor_sync(~0u, x.x, d), x.y += __shfl_xor_sync(~0u, x.y, d);
    x.z += __shfl_xor_sync(~0u, x.z, d), x.w += __shfl_xor_sync(~0u, x.w, d);
  }
}

// A small number over the blocks of a cluster, rounded down.
__device__ inline int by_cluster(const DecodeCall& p, int x) {
  return p.cluster == 1 ? x : static_cast<int>(__umulhi(x, p.cluster_magic));
}

// kSeveral: requests; else there is one, and nothing depends on where its rows begin.
template <class I, bool kSeveral>
__global__ void __launch_bounds__(I::kThreads, 1) decode_one(const __grid_constant__ DecodeCall p) {
  constexpr int kWarps = I::kWarps, kColumns = I::kColumns;
  unsigned char* const memory = dynamic_memory();
  const int thread = threadIdx.x, lane = threadIdx.x % 32, warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int cluster = p.cluster, head = by_cluster(p, static_cast<int>(blockIdx.x));
  const int rank = static_cast<int>(blockIdx.x) - head * cluster,
            request = kSeveral ? static_cast<int>(blockIdx.y) : 0;
  // Neighbouring tiles go to neighbouring blocks.
  const int worker = warp * cluster + rank, workers = kWarps * cluster;
  const uint32_t ring = shared_address(memory) + warp * I::kRing;
  const uint32_t arrived = shared_address(memory) + I::kArrived;

  wait_previous();  // launched before that one has ended
  // All that depends on nothing. The table may hold anything behind the pages of the request; such numbers
  // are not used.
  Request of;
  of.first_row = kSeveral ? __ldg(p.cu_q + request * p.cu_q_stride) : 0;
  const int end_row = __ldg(p.cu_q + (request + 1) * p.cu_q_stride);
  of.keys = __ldg(p.kv_len + request * p.kv_len_stride);
  const int64_t start = p.indptr != nullptr ? __ldg(p.indptr + request * p.indptr_stride) * p.table_stride
                                            : request * p.table_row;
  auto page_of = [&](int tile) {
    return p.page_shift >= 0 ? tile * kDecodeTile >> p.page_shift
                             : static_cast<int>(__umulhi(tile, p.page_magic));
  };
  // Where none is wanted, some number that may be read: behind a branch all would be asked for later.
  auto page_number = [&](int tile, bool wanted) {
    const int page = page_of(tile);
    return __ldg(wanted && page < p.table_width ? p.table + start + page * p.table_stride : p.kv_len);
  };
  constexpr int kGuessed = 4;
  const bool guess = p.all_keys && p.indptr == nullptr;
  int pages = page_number(worker + lane * workers, guess && lane < kGuessed);  // of the lane's tile of 32
  // While these are on their way.
  if (thread == 0) {
    barrier_init(arrived, 1);
    barrier_init_fence();
  }
  cluster_arrive();
  of.rows = end_row - of.first_row;
  // Of one request as many rows as it may have: nothing is waited for.
  Products<I> products{p, lane, memory + warp * I::kRing, ring, nullptr};
  if (const int rows = kSeveral ? of.rows : p.most_rows; rows > 0) {
    const uint32_t* const from = products.query_row(0, of.first_row, head, rows * p.group);
    SM90_UNROLL for (int j = 0; j < I::kQueryWords / kWarps; ++j) {
      const int i = warp + j * kWarps;
      copy4(shared_address(memory) + I::kQuery + i * 128 + lane * 4, from + products.query_word(i));
    }
  }
  if (warp == 0) products.copy_scales(shared_address(memory) + I::kScalesAt, request, head);
  commit_copies();

  constexpr int kChunks = I::kRow / 16, kRows = 32 / kChunks;  // 16-byte chunks of a key; keys of one copy
  const int row = lane / kChunks, chunk = lane % kChunks;
  const uint8_t* const k_base = p.k + head * p.k_head + chunk * 16 + row * p.k_slot;
  const uint8_t* const v_base = p.v + head * p.v_head + chunk * 16 + row * p.v_slot;
  const uint32_t to = ring + chunk / 8 * 2048 + row * 128 + ((lane % 8 ^ row) << 4);
  int own = worker;  // the warp's first tile, once it is known where the keys begin that a row sees
  auto ask = [&](int n, int stage) {
    const int tile = own + n * workers;
    const int slot = tile * kDecodeTile - page_of(tile) * p.page;
    const int64_t block = __shfl_sync(~0u, pages, n & 31);
    const uint8_t* k = k_base + block * p.k_block + slot * p.k_slot;
    const uint8_t* v = v_base + block * p.v_block + slot * p.v_slot;
    const int k_step = kRows * p.k_slot, v_step = kRows * p.v_slot;
    const uint32_t at = to + stage * I::kStage;
    SM90_UNROLL for (int i = 0; i < kDecodeTile; i += kRows, k += k_step, v += v_step) {
      const uint32_t x = (at ^ i % 8 << 4) + i * 128;
      copy16(x, k);
      copy16(x + I::kTile, v);
    }
  };

  of.begin = 0, of.end = of.rows > 0 ? of.keys : 0;
  if (!p.all_keys && of.rows > 0) {
    of.begin = visible(p, of.rows, of.keys, 0).begin;
    of.end = visible(p, of.rows, of.keys, of.rows - 1).end;
  }
  const int tiles = of.tiles();
  own += of.first_tile();
  auto count_of_warp = [&] {
    return static_cast<int>(__umulhi(max(0, tiles - worker + workers - 1), p.worker_magic));
  };
  if (!guess) pages = page_number(own + lane * workers, lane < count_of_warp());
  SM90_UNROLL for (int n = 0; n < I::kStages; ++n) {
    if (worker + n * workers < tiles) ask(n, n);
    commit_copies();
  }

  // The first tiles are on their way.
  const int count = count_of_warp();
  if (guess && count > kGuessed && lane >= kGuessed) pages = page_number(own + lane * workers, lane < count);
  wait_copies<I::kStages>();
  __syncthreads();
  const float2 scales = products.take_scales(memory + I::kScalesAt);
  if (count > 0) {
    SM90_UNROLL for (int i = 0; i < I::kQueryWords; ++i) products.q[0][i] =
        *reinterpret_cast<const uint32_t*>(memory + I::kQuery + i * 128 + lane * 4);
    products.begin(of, head, scales);
  }
  int stage = 0;
  SM90_LOOP for (int n = 0; n < count; ++n) {
    wait_copies<I::kStages - 1>();
    __syncwarp();
    products.tile(of, (own + n * workers) * kDecodeTile, stage);
    __syncwarp();
    const int next = n + I::kStages;
    if (next < count) {
      if (next % 32 == 0) pages = page_number(own + (next + lane) * workers, next + lane < count);
      ask(next, stage);
    }
    commit_copies();
    if (++stage == I::kStages) stage = 0;
  }

  // ---- the warps of a block. Warps, and blocks, without a tile come behind those that have some.
  float2* const slot_ml = reinterpret_cast<float2*>(memory + I::kSlotMl);
  cluster_wait();
  if (count > 0)
    products.leave(reinterpret_cast<float*>(memory + warp * I::kRing), slot_ml + warp * kColumns);
  const int columns = of.rows * p.group, blocks = min(cluster, tiles);
  const int slots = min(kWarps, by_cluster(p, max(0, tiles - rank + cluster - 1)));
  const int units = by_cluster(p, 4 * columns - rank + cluster - 1);  // that this block finishes
  if (thread == 0) barrier_expect(arrived, units * blocks * (I::kPlace + 8));
  __syncthreads();
  if (slots > 0) {
    // Half a column each, or a quarter: one for each warp where there are four columns.
    constexpr int kLanes = 128 / kWarps, kShares = kDecodeDim / 4 / kLanes;
    SM90_LOOP for (int share = warp; share < kShares * columns; share += kWarps) {
      const int column = share / kShares, d = (share % kShares * kLanes + lane % kLanes) * 4;
      float m, l;
      float4 x;
      join_parts<kWarps, kLanes>(
          slots, lane, [&](int slot) { return slot_ml[slot * kColumns + column]; },
          [&](int slot) {
            return *reinterpret_cast<const float4*>(reinterpret_cast<const float*>(memory + slot * I::kRing) +
                                                    slot_at(column, d));
          },
          m, l, x);
      const int unit = 4 * column + d / 32, from_unit = by_cluster(p, unit) * cluster;
      const int owner = unit - from_unit, place = from_unit + rank;
      if (lane < kLanes)
        send(shared_address(memory) + I::kSent + place * I::kPlace + lane % 8 * 16, arrived, owner, x);
      if (lane < kLanes && lane % 8 == 0)
        send(shared_address(memory) + I::kSentMl + place * 8, arrived, owner, make_float2(m, l));
    }
  }

  // ---- the blocks of the cluster: a warp has a unit, a lane 4 elements of every fourth block
  if (warp >= units) return;
  barrier_wait(arrived, 0);
  SM90_LOOP for (int i = warp; i < units; i += kWarps) {
    const int unit = i * cluster + rank, column = unit / 4, places = i * cluster;
    float m = -INFINITY, l = 0;
    float4 x = make_float4(0, 0, 0, 0);
    if (blocks > 0)
      join_parts<kMostCluster, 8>(
          blocks, lane,
          [&](int block) {
            return *reinterpret_cast<const float2*>(memory + I::kSentMl + (places + block) * 8);
          },
          [&](int block) {
            return *reinterpret_cast<const float4*>(memory + I::kSent + (places + block) * I::kPlace +
                                                    lane % 8 * 16);
          },
          m, l, x);
    const int token = static_cast<int>(column * p.group_magic >> 16);
    if (lane < 8)
      write_row<I::kHalf>(p, of.first_row + token, head * p.group + column - token * p.group, x, m, l,
                          scales.y, unit % 4 * 8 + lane);
  }
}

template <class I, bool kSeveral>
cudaError_t ready_one() {
  static const cudaError_t ready =
      cudaFuncSetAttribute(decode_one<I, kSeveral>, cudaFuncAttributeMaxDynamicSharedMemorySize, I::kShared);
  return ready;
}

template <class I, bool kSeveral>
cudaError_t launch_one(DecodeCall& p, cudaStream_t stream) {
  if (const cudaError_t bad = ready_one<I, kSeveral>(); bad != cudaSuccess) return bad;
  const auto magic = [](int x) { return static_cast<uint32_t>((uint64_t{1} << 32) / x) + 1; };
  p.cluster_magic = magic(p.cluster), p.worker_magic = magic(p.cluster * I::kWarps);
  p.all_keys = p.window_left < 0 && p.window_right < 0 && p.chunk == 0;
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config = launch_config({.grid = p.heads_kv * p.cluster,
                                             .threads = I::kThreads,
                                             .bytes = I::kShared,
                                             .stream = stream,
                                             .cluster = p.cluster,
                                             .rows = p.requests},
                                            attributes[0]);
  // Begun while the kernel in front of it ends; it waits for that one before it reads anything.
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes, config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, decode_one<I, kSeveral>, p);
}

}  // namespace
}  // namespace assay_sm90
