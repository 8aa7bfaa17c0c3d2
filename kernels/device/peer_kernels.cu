// SPDX-License-Identifier: Apache-2.0
// See peer_kernels.hpp. What is sent goes in words of 8 bytes, 4 of them data and 4 the number of the
// exchange, which arrive together: whoever waits for a word reads it until it has the number, and no fence
// and no flag is needed (NCCL's "LL" protocol has the idea; NCCL documentation, NCCL_PROTO). A thread sends
// its words to all and then waits for theirs, so a rank waits for no block that has not sent.
//
// A place is written again two exchanges later: a rank begins exchange n + 2 when it has words of n + 1 from
// all, and they send those after they have read all of n. A number comes again after 2^32 exchanges, hours of
// nothing else, in which the word would have to lie untouched.
#include "kernels/device/peer_kernels.hpp"
#include "kernels/dialect/early.h"
#include "kernels/portable/rows.hpp"

#if defined(ASSAY_EMULATOR)
#  include <sched.h>
#endif

namespace assay_gpu {
namespace {

constexpr int kThreads = 256, kMostBlocks = 128;  // all of them fit on a device at once
constexpr int kPairBytes = 16;                    // in a place: two words, of 8 bytes of data

struct Pair {
  uint32_t low, high;
};

// 8 bytes of data with their numbers, each half of the 16 at once.
GPU_INLINE void send_pair(unsigned char* to, Pair data, uint32_t turn) {
#if defined(ASSAY_EMULATOR)
  auto* word = reinterpret_cast<uint64_t*>(to);
  const uint64_t number = static_cast<uint64_t>(turn) << 32;
  __atomic_store_n(word, number | data.low, __ATOMIC_RELAXED);
  __atomic_store_n(word + 1, number | data.high, __ATOMIC_RELAXED);
#else
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(data.low), "r"(turn),
               "r"(data.high), "r"(turn)
               : "memory");
#endif
}
// Two words as they are now.
struct Words {
  Pair data;
  uint32_t first, second;  // numbers
};
GPU_INLINE Words look_at(const unsigned char* from) {
  Words w;
#if defined(ASSAY_EMULATOR)
  const auto* word = reinterpret_cast<const uint64_t*>(from);
  const uint64_t one = __atomic_load_n(word, __ATOMIC_RELAXED),
                 two = __atomic_load_n(word + 1, __ATOMIC_RELAXED);
  w = {{static_cast<uint32_t>(one), static_cast<uint32_t>(two)},
       static_cast<uint32_t>(one >> 32),
       static_cast<uint32_t>(two >> 32)};
#else
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.data.low), "=r"(w.first), "=r"(w.data.high), "=r"(w.second)
               : "l"(from)
               : "memory");
#endif
  return w;
}
// Looks again until both are of exchange `turn`; `seen`: what a look showed, so that several can be under
// way.
GPU_INLINE Pair await_pair(const unsigned char* from, uint32_t turn, Words seen) {
  while (seen.first != turn || seen.second != turn) {
#if defined(ASSAY_EMULATOR)
    sched_yield();  // ranks are processes, and may share a processor
#endif
    seen = look_at(from);
  }
  return seen.data;
}

// 8 bytes at `at` of `bytes`, or what there is of them.
GPU_INLINE Pair read_pair(const unsigned char* from, int64_t at, int64_t bytes) {
  if (at + 8 <= bytes && reinterpret_cast<uintptr_t>(from + at) % 4 == 0) {
    const auto* word = reinterpret_cast<const uint32_t*>(from + at);
    return {word[0], word[1]};
  }
  uint32_t word[2] = {};
  for (int i = 0; i < 8; ++i)
    if (at + i < bytes) word[i / 4] |= static_cast<uint32_t>(from[at + i]) << (i % 4 * 8);
  return {word[0], word[1]};
}
GPU_INLINE void write_pair(unsigned char* to, int64_t at, int64_t bytes, Pair data) {
  if (at + 8 <= bytes && reinterpret_cast<uintptr_t>(to + at) % 4 == 0) {
    auto* word = reinterpret_cast<uint32_t*>(to + at);
    word[0] = data.low, word[1] = data.high;
    return;
  }
  for (int i = 0; i < 8; ++i)
    if (at + i < bytes)
      to[at + i] = static_cast<unsigned char>((i < 4 ? data.low : data.high) >> (i % 4 * 8));
}

GPU_INLINE uint32_t next_turn(uint32_t turns) { return turns == 0xffffffffu ? 2u : turns + 1; }

// Where rank `from` sends to rank `to` in exchange `turn`.
GPU_INLINE unsigned char* place(const Peers& a, int to, int from, uint32_t turn) {
  return a.rooms[to] + ((turn & 1) * a.ranks + from) * kPeerPlaceBytes;
}

// The last block that has seen which exchange this is counts it.
GPU_INLINE void end_turn(const Peers& a, uint32_t turn) {
  gpu::block_barrier();
  if (threadIdx.x != 0 || gpu::atomic_add(a.turn + 1, 1u) != gridDim.x - 1) return;
  a.turn[1] = 0, a.turn[0] = turn;
}

__global__ GPU_BOUNDS(kThreads, 3) void peer_gather(GPU_PARAMETER Peers a, GPU_PARAMETER PeerRows send,
                                                    unsigned char* receive) {
  gpu::after_previous(), gpu::let_next_begin();
  const uint32_t turn = next_turn(a.turn[0]);
  const int64_t bytes = send.heads * send.rows * send.piece_bytes, pairs = (bytes + 7) / 8;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (int64_t i = first; i < pairs; i += step) {
    const int64_t piece = i * 8 / send.piece_bytes;
    const unsigned char* from =
        send.from + piece / send.rows * send.head_stride + piece % send.rows * send.row_stride;
    const Pair own = read_pair(from, i * 8 - piece * send.piece_bytes, send.piece_bytes);
    for (int to = 0; to < a.ranks; ++to)
      if (to != a.rank) send_pair(place(a, to, a.rank, turn) + i * kPairBytes, own, turn);
    write_pair(receive + a.rank * bytes, i * 8, bytes, own);
  }
  gpu::block_barrier();
  for (int64_t i = first; i < pairs; i += step) {
    const auto at = [&](int from) { return place(a, a.rank, from, turn) + i * kPairBytes; };
    Words seen[kMostPeers];
#pragma unroll
    for (int from = 0; from < kMostPeers; ++from)
      if (from < a.ranks && from != a.rank) seen[from] = look_at(at(from));
#pragma unroll
    for (int from = 0; from < kMostPeers; ++from)
      if (from < a.ranks && from != a.rank)
        write_pair(receive + from * bytes, i * 8, bytes, await_pair(at(from), turn, seen[from]));
  }
  end_turn(a, turn);
}

__global__ GPU_BOUNDS(kThreads, 4) void peer_sum(GPU_PARAMETER Peers a, const float* send, float* receive,
                                                 int64_t count) {
  gpu::after_previous(), gpu::let_next_begin();
  const uint32_t turn = next_turn(a.turn[0]);
  const int64_t pairs = (count + 1) / 2, step = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, of_rank = count * 4;
  const auto* bytes = reinterpret_cast<const unsigned char*>(send);
  for (int64_t i = first; i < pairs; i += step)
    for (int to = 0; to < a.ranks; ++to)
      if (to != a.rank)
        send_pair(place(a, to, a.rank, turn) + i * kPairBytes,
                  read_pair(bytes + to * of_rank, i * 8, of_rank), turn);
  gpu::block_barrier();
  for (int64_t i = first; i < pairs; i += step) {
    const auto at = [&](int from) { return place(a, a.rank, from, turn) + i * kPairBytes; };
    Words seen[kMostPeers];
#pragma unroll
    for (int from = 0; from < kMostPeers; ++from)
      if (from < a.ranks && from != a.rank) seen[from] = look_at(at(from));
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int from = 0; from < kMostPeers; ++from) {
      if (from >= a.ranks) continue;
      const Pair part = from == a.rank ? read_pair(bytes + from * of_rank, i * 8, of_rank)
                                       : await_pair(at(from), turn, seen[from]);
      low += __uint_as_float(part.low), high += __uint_as_float(part.high);
    }
    write_pair(reinterpret_cast<unsigned char*>(receive), i * 8, of_rank,
               {__float_as_uint(low), __float_as_uint(high)});
  }
  end_turn(a, turn);
}

// How a message of parts is dealt: pairs of numbers, unit after unit, then LSEs.
struct PartsMessage {
  int64_t of_unit, pairs, lses;  // pairs of a unit, of all; pairs of LSEs
};
// LSEs go first, as many threads want each. What is undefined goes with the rest, and is not used.
GPU_INLINE void send_parts(const Peers& a, const PeerParts& p, const PartsMessage& m, uint32_t turn,
                           int64_t first, int64_t step) {
  const auto* lse = reinterpret_cast<const unsigned char*>(p.lse);
  const auto* part = reinterpret_cast<const unsigned char*>(p.part);
  for (int64_t i = first; i < m.lses; i += step)
    for (int to = 0; to < a.ranks; ++to)
      if (to != a.rank)
        send_pair(place(a, to, a.rank, turn) + (m.pairs + i) * kPairBytes,
                  read_pair(lse + to * p.units * 4, i * 8, p.units * 4), turn);
  for (int64_t i = first; i < m.pairs; i += step)
    for (int to = 0; to < a.ranks; ++to)
      if (to != a.rank)
        send_pair(place(a, to, a.rank, turn) + i * kPairBytes,
                  read_pair(part + to * m.pairs * 8, i * 8, m.pairs * 8), turn);
}

// A block waits for the same block of other ranks, and for earlier ones.
__global__ GPU_BOUNDS(kThreads, 2) void peer_parts(GPU_PARAMETER Peers a, GPU_PARAMETER PeerParts p) {
  gpu::after_previous(), gpu::let_next_begin();
  const uint32_t turn = next_turn(a.turn[0]);
  const PartsMessage m = {p.dims / 2, p.units * (p.dims / 2), (p.units + 1) / 2};
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  send_parts(a, p, m, turn, first, step);
  gpu::block_barrier();
  for (int64_t i = first; i < m.pairs; i += step) {
    const int64_t unit = i / m.of_unit;
    const auto at = [&](int from, int64_t pair) { return place(a, a.rank, from, turn) + pair * kPairBytes; };
    Words seen[kMostPeers], seen_lse[kMostPeers];
#pragma unroll
    for (int from = 0; from < kMostPeers; ++from)
      if (from < a.ranks && from != a.rank)
        seen_lse[from] = look_at(at(from, m.pairs + unit / 2)), seen[from] = look_at(at(from, i));
    const float own = p.lse[a.rank * p.units + unit];
    const auto* part = reinterpret_cast<const unsigned char*>(p.part) + a.rank * m.pairs * 8;
    const Pair own_part = read_pair(part, i * 8, m.pairs * 8);
    float weight[kMostPeers], top = -kInfinity, sum = 0.0f;
#pragma unroll
    for (int from = 0; from < kMostPeers; ++from) {
      weight[from] = from == a.rank ? own : -kInfinity;
      if (from < a.ranks && from != a.rank) {
        const Pair two = await_pair(at(from, m.pairs + unit / 2), turn, seen_lse[from]);
        weight[from] = __uint_as_float(unit % 2 == 0 ? two.low : two.high);
      }
      top = fmaxf(top, weight[from]);
    }
#pragma unroll
    for (int from = 0; from < kMostPeers; ++from) {
      weight[from] = weight[from] == -kInfinity ? 0.0f : exp2f((weight[from] - top) * kLog2E);
      sum += weight[from];
    }
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int from = 0; from < kMostPeers; ++from) {
      if (from >= a.ranks) continue;
      const Pair sent = from == a.rank ? own_part : await_pair(at(from, i), turn, seen[from]);
      if (weight[from] == 0.0f) continue;  // a part of no keys
      low += weight[from] / sum * __uint_as_float(sent.low);
      high += weight[from] / sum * __uint_as_float(sent.high);
    }
    p.out[2 * i] = low, p.out[2 * i + 1] = high;
    if (i % m.of_unit == 0) p.total[unit] = top == -kInfinity ? top : top + logf(sum);
  }
  end_turn(a, turn);
}

unsigned blocks_of(int64_t bytes) {
  const int64_t wanted = ((bytes + 7) / 8 + kThreads - 1) / kThreads;
  return static_cast<unsigned>(wanted < kMostBlocks ? wanted : kMostBlocks);
}

}  // namespace

gpu::Status launch_peer_gather(const Peers& a, const PeerRows& send, void* receive, gpu::Stream stream) {
  if (send.bytes() <= 0) return GPU_API(Success);
  return gpu::launch_early(peer_gather, blocks_of(send.bytes()), kThreads, 0, stream, a, send,
                           static_cast<unsigned char*>(receive));
}

gpu::Status launch_peer_sum(const Peers& a, const float* send, float* receive, int64_t count,
                            gpu::Stream stream) {
  if (count <= 0) return GPU_API(Success);
  return gpu::launch_early(peer_sum, blocks_of(count * 4), kThreads, 0, stream, a, send, receive, count);
}

gpu::Status launch_peer_parts(const Peers& a, const PeerParts& parts, gpu::Stream stream) {
  if (parts.units <= 0 || parts.dims <= 0) return GPU_API(Success);
  return gpu::launch_early(peer_parts, blocks_of(parts.units * parts.dims * 4), kThreads, 0, stream, a,
                           parts);
}

}  // namespace assay_gpu
