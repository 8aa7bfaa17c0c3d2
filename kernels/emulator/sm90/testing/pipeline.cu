// SPDX-License-Identifier: Apache-2.0
// See pipeline.hpp. Lines with a fault stand where the right kernel would do something else.
#include "kernels/emulator/sm90/testing/pipeline.hpp"
#include "kernels/sm90/warpgroup.h"

namespace pipeline {
namespace {

using namespace sm90;

constexpr int kTileBytes = kSide * 128;

struct alignas(1024) Shared {
  unsigned char a[kStages][kTileBytes], b[kStages][kTileBytes];
  unsigned char v[kTileBytes], p[kTileBytes], out[kTileBytes];
  float bias[512];
  float note[kStages];  // a word that travels with a tile
  uint64_t full[kStages], empty[kStages], v_full, other;
};

struct Maps {
  CUtensorMap a, b, v, out;
};

__device__ inline void produce(const Maps& maps, Shared& sh, Fault fault) {
  int stage = 0;
  uint32_t phase = 0;
  if (elect()) {
    barrier_expect(shared_address(&sh.v_full), kTileBytes);
    load_box(shared_address(sh.v), &maps.v, shared_address(&sh.v_full), 0, 0, 0, kEvictFirst);
  }
  for (int t = 0; t < kTiles; ++t) {
    const uint32_t full = shared_address(&sh.full[stage]);
    if (fault == Fault::empty_not_awaited && t >= kStages)
      barrier_wait(full, phase ^ 1);  // the boxes before have come, but may still be read
    else
      barrier_wait(shared_address(&sh.empty[stage]),
                   fault == Fault::wrong_parity_of_empty ? phase : phase ^ 1);
    if (elect()) {
      sh.note[stage] = static_cast<float>(t);
      const int less = fault == Fault::expects_too_few_bytes ? kTileBytes : 0,
                more = fault == Fault::expects_too_many_bytes ? 16 : 0;
      if (fault == Fault::expects_nothing && t == 3)
        barrier_arrive(full);
      else
        barrier_expect(full, 2 * kTileBytes - less + more);
      uint32_t to = shared_address(sh.a[stage]);
      if (fault == Fault::box_misaligned) to += 512;
      if (fault == Fault::box_outside) to += sizeof(Shared);
      load_box(to, &maps.a, full, 0, t * kSide, 0, kEvictFirst);
      if (fault == Fault::box_of_other_axes)
        load_box5(shared_address(sh.b[stage]), &maps.b, full, 0, t * kSide, 0, 0, 0, kEvictFirst);
      else
        load_box(shared_address(sh.b[stage]), &maps.b, full, 0, t * kSide, 0, kEvictFirst);
      if (fault == Fault::full_arrived_twice) barrier_arrive(full);
      if (fault == Fault::full_not_awaited && t == kTiles - 1) barrier_arrive(shared_address(&sh.other));
    }
    __syncwarp();
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
}

// 64 x 64 sums to bf16 in 128-byte rows, swizzled.
__device__ inline void put(const float (&s)[32], unsigned char* to) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t line = shared_address(to) + (16 * warp + lane % 16) * 128;
  for (int j = 0; j < 8; j += 2) {
    const float* const y = &s[4 * j];
    store_matrix(line + (((j + lane / 16) ^ (lane % 8)) << 4), pack<false>(y[0], y[1]),
                 pack<false>(y[2], y[3]), pack<false>(y[4], y[5]), pack<false>(y[6], y[7]));
  }
}

__device__ inline void consume(const Maps& maps, const Data& d, Shared& sh, Fault fault) {
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  float s[32], o[32], extra[8];
  uint32_t held[4] = {0, 0, 0, 0};
  float notes = 0;
  // The bias comes meanwhile, in two groups; the second is used.
  for (int group = 0; group < 2; ++group) {
    const int at = 256 * group + 4 * (thread % 64);
    if (thread < 64 && group == 0) copy16(shared_address(&sh.bias[at]), d.bias + at);
    for (int i = 0; thread < 64 && group == 1 && i < 4; ++i)  // words
      copy4(shared_address(&sh.bias[at + i]) + (fault == Fault::word_misaligned && i == 2 ? 2 : 0),
            d.bias + at + i);
    commit_copies();
  }

  for (int i = 0; i < 32; ++i) s[i] = 0;
  if (fault != Fault::no_product_fence) mma_fence();
  int stage = 0;
  uint32_t phase = 0;
  const int tiles = fault == Fault::boxes_not_awaited ? kTiles - 1 : kTiles;
  for (int t = 0; t < tiles; ++t) {
    const bool third = t == 2;
    if (fault == Fault::full_not_awaited && t == kTiles - 1)
      barrier_wait(shared_address(&sh.other), 0);  // the boxes are on their way
    else
      barrier_wait(shared_address(&sh.full[stage]),
                   fault == Fault::wrong_parity_of_full && third ? phase ^ 1 : phase);
    notes += sh.note[stage];
    uint32_t a = operand(shared_address(sh.a[stage]), 16), b = operand(shared_address(sh.b[stage]), 16);
    if (fault == Fault::operand_misaligned) a += 1;
    if (fault == Fault::operand_within_rows) a += 8;
    if (fault == Fault::operand_outside && third)
      b = operand(shared_address(&sh) + sizeof(Shared) - 4096, 16);
    if (fault == Fault::descriptors_differ && lane == 7) b += 2;
    for (int k = 0; k < 4; ++k) {
      if (fault == Fault::warp_skips_product && third && k == 3 && warp == 2) continue;
      Mma<false, 64>::next(s, a + 2 * k, b + 2 * k);
    }
    mma_commit();
    if (fault == Fault::accumulator_read_in_flight && third) notes += s[5];
    if (fault == Fault::accumulator_written_in_flight && third) s[6] = 0;
    if (fault == Fault::released_before_wait) {
      __syncwarp();
      if (lane == 0) barrier_arrive(shared_address(&sh.empty[stage]));
      mma_wait<0>();
    } else {
      mma_wait<0>();
      if (fault != Fault::released_without_syncwarp) __syncwarp();
      if (lane == 0) barrier_arrive(shared_address(&sh.empty[stage]));
    }
    if (++stage == kStages) stage = 0, phase ^= 1;
  }

  // P through shared memory, then O = P V.
  put(s, sh.p);
  if (fault != Fault::no_fence_before_product) fence_async();
  if (fault != Fault::no_barrier_before_product) {
    if (fault == Fault::named_barrier_of_other_size && warp == 3)
      named_sync(1, 96);
    else if (!(fault == Fault::warp_misses_named_barrier && warp == 3))
      named_sync(1, 128);
  }
  barrier_wait(shared_address(&sh.v_full), 0);
  for (int i = 0; i < 32; ++i) o[i] = 0;
  mma_fence();
  for (int k = 0; k < 4; ++k)
    Mma<false, 64>::values(o, operand(shared_address(sh.p), 16) + 2 * k,
                           operand(shared_address(sh.v), 16) + (2048 >> 4) * k);
  mma_commit();
  mma_wait<0>();

  // A product with A in registers that adds nothing: A is zero.
  for (int i = 0; i < 8; ++i) extra[i] = 0;
  if (fault == Fault::no_fence_of_operand_registers) mma_fence();
  for (int i = 0; i < 4; ++i) held[i] = static_cast<uint32_t>(notes < 0);
  if (fault != Fault::no_fence_of_operand_registers) mma_fence();
  Mma<false, 16>::held(extra, held, operand(shared_address(sh.p), 16));
  mma_commit();
  if (fault == Fault::operand_registers_written_in_flight) held[1] = 7;
  if (fault == Fault::products_not_awaited) return;
  mma_wait<0>();

  if (fault == Fault::copies_awaited_too_few)
    wait_copies<1>();
  else if (fault != Fault::copies_not_awaited)
    wait_copies<0>();
  if (fault != Fault::copies_awaited_alone) named_sync(2, 128);
  for (int i = 0; i < 32; ++i)
    o[i] += extra[i % 8] + sh.bias[256 + 8 * (i / 4) + 2 * (lane % 4) + i % 2] + notes - notes;

  for (int round = 0; round < 2; ++round) {  // twice the same, the staging must be free again
    if (fault != Fault::staging_overwritten) store_wait_read();
    named_sync(3, 128);
    if (fault != Fault::store_unwritten) put(o, sh.out);
    if (fault != Fault::no_fence_before_store) fence_async();
    if (fault != Fault::no_barrier_before_store) named_sync(3, 128);
    if (thread == 0) {
      store_box(&maps.out, shared_address(sh.out), 0, 0, 0);
      store_commit();
    }
  }
  store_wait_read();
}

__global__ void pipeline_kernel(const Maps maps, const Data d, Fault fault) {
  auto& sh = *reinterpret_cast<Shared*>(dynamic_memory());
  const int thread = threadIdx.x;
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(shared_address(&sh.full[i]), 1);
      barrier_init(shared_address(&sh.empty[i]), fault == Fault::too_many_arrivals_counted  ? 5
                                                 : fault == Fault::too_few_arrivals_counted ? 3
                                                                                            : 4);
    }
    barrier_init(shared_address(&sh.v_full), 1);
    if (fault == Fault::full_not_awaited) barrier_init(shared_address(&sh.other), 1);
    if (fault == Fault::barrier_initialised_twice) barrier_init(shared_address(&sh.full[0]), 1);
    if (fault != Fault::no_initialisation_fence) barrier_init_fence();
    if (fault == Fault::barrier_not_initialised) barrier_arrive(shared_address(&sh.other));
    if (fault == Fault::barrier_overwritten) sh.empty[1] = 0;
  }
  __syncthreads();
  if (thread >= 128) {
    if (fault == Fault::registers_beyond_the_launch)
      registers_down<136>();  // 2 x 136 + 240 are all of the multiprocessor, the launch took 3 x 168
    else if (fault != Fault::registers_not_given_back &&
             !(fault == Fault::warp_keeps_registers && thread / 32 == 6))
      registers_down<24>();
    if (thread / 32 == 4) produce(maps, sh, fault);
  } else {
    registers_up<240>();
    consume(maps, d, sh, fault);
  }
}

bool make(CUtensorMap* map, const void* data, int rows, bool swizzled = true) {
  const cuuint64_t size[3] = {kSide, static_cast<cuuint64_t>(rows), 1},
                   stride[2] = {128, 128 * static_cast<cuuint64_t>(rows)};
  const cuuint32_t box[3] = {kSide, kSide, 1}, step[3] = {1, 1, 1};
  return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), size,
                                stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                                CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// ---- a cluster: each block brings half of B for both; both add it up, block 1 tells block 0 by a barrier.
struct alignas(1024) ClusterShared {
  unsigned char b[2][kTileBytes];
  uint64_t full, read;
};

__global__ void cluster_kernel(const CUtensorMap map, const Data d, ClusterFault fault) {
  auto& sh = *reinterpret_cast<ClusterShared*>(dynamic_memory());
  const int thread = threadIdx.x, rank = static_cast<int>(cluster_rank());
  if (thread == 0) {
    barrier_init(shared_address(&sh.full), 1);
    barrier_init(shared_address(&sh.read), 2);
    barrier_init_fence();
  }
  cluster_sync();
  for (int round = 0; round < 2; ++round) {
    if (thread == 0) {
      if (round > 0 && fault != ClusterFault::other_blocks_unread)
        barrier_wait(shared_address(&sh.read), 0);  // both have read what is overwritten now
      const int bytes = fault == ClusterFault::half_expected ? kTileBytes : 2 * kTileBytes;
      barrier_expect(shared_address(&sh.full), bytes);
      load_box_for(3, shared_address(sh.b[rank]), &map, shared_address(&sh.full), 0, rank * kSide, 0,
                   kEvictNormal);
    }
    barrier_wait(shared_address(&sh.full), static_cast<uint32_t>(round));
    uint32_t sum = 0;
    for (int i = 0; i < 2; ++i)
      sum += *reinterpret_cast<const uint16_t*>(sh.b[i] + 128 * thread + thread % 8 * 16);
    if (rank == 0 && round == 1) d.out[thread] = static_cast<uint16_t>(sum);
    __syncthreads();
    if (thread == 0)
      for (uint32_t r = 0; r < 2; ++r) barrier_arrive_at(shared_address(&sh.read), r);
  }
  if (fault != ClusterFault::left_early) cluster_sync();
  if (fault == ClusterFault::left_early && rank == 0 && thread == 0) {
    // The other block ends before this: nothing keeps it.
    while (load_relaxed(reinterpret_cast<const float2*>(d.flag)).x == 0) {
    }
    barrier_arrive_at(shared_address(&sh.read), 1);
  }
  if (fault == ClusterFault::left_early && rank == 1 && thread == 0)
    store_relaxed(reinterpret_cast<float2*>(d.flag), make_float2(1, 1));
}

struct SentShared {
  float4 in[32];
  uint64_t full;
};
__global__ void sent_kernel(const Data d, SendFault fault) {
  auto& sh = *reinterpret_cast<SentShared*>(dynamic_memory());
  const int thread = threadIdx.x, rank = static_cast<int>(cluster_rank());
  const uint32_t full = shared_address(&sh.full);
  if (thread == 0) {
    barrier_init(full, 1);
    barrier_init_fence();
    barrier_expect(full, fault == SendFault::too_many_bytes ? 528 : 512);
  }
  cluster_arrive();
  if (fault != SendFault::not_met) cluster_wait();
  const float x = static_cast<float>(32 * rank + thread);
  send(shared_address(&sh.in[thread]), full, static_cast<uint32_t>(rank ^ 1), make_float4(x, x, x, x));
  if (fault != SendFault::not_awaited) barrier_wait(full, 0);
  d.out[32 * rank + thread] = static_cast<uint16_t>(sh.in[thread].w);
  if (fault == SendFault::not_met) cluster_wait();
  cluster_sync();
}

__global__ void first_kernel(const Data d) {
  launch_next();
  d.out[threadIdx.x] = static_cast<uint16_t>(threadIdx.x);
}
__global__ void second_kernel(const Data d, bool waits) {
  if (waits) wait_previous();
  d.out[threadIdx.x] = static_cast<uint16_t>(d.out[threadIdx.x] + 1);
}

__global__ void handed_kernel(const Data d, bool late) {
  GPU_SHARED(float, word, [2]);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {  // twice each word: the barrier of the other direction says that it is free
    if (warp == 0) {
      if (i >= 2) named_sync(6 + i % 2, 64);
      if (lane == 0 && !late) word[i % 2] = static_cast<float>(i);
      named_arrive(4 + i % 2, 64);
      if (lane == 0 && late) word[i % 2] = static_cast<float>(i);
    } else {
      named_sync(4 + i % 2, 64);
      d.out[64 * i + lane] = static_cast<uint16_t>(word[i % 2]);
      if (i < 2) named_arrive(6 + i % 2, 64);
    }
    __syncwarp();
  }
}

__global__ void polling_kernel(const Data d, bool written) {
  float2* const word = reinterpret_cast<float2*>(d.flag);
  if (blockIdx.x == 0) {
    if (written && threadIdx.x == 0) store_relaxed(word, make_float2(3, 4));
    return;
  }
  float2 x;
  do {
    x = load_relaxed(word);
  } while (__any_sync(~0u, x.x == 0));
  d.out[threadIdx.x] = static_cast<uint16_t>(x.x + x.y);
}

struct alignas(1024) ProductShared {
  unsigned char a[2048], b[2048];
};

template <bool kHalf>
__global__ void product_kernel(const Data d) {
  auto& sh = *reinterpret_cast<ProductShared*>(dynamic_memory());
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, g = lane / 4, c = lane % 4;
  auto word = [&](const uint16_t* from, int row, int k) {
    return *reinterpret_cast<const uint32_t*>(from + row * kSide + k);
  };
  auto swizzled = [](unsigned char* to, int row, int byte) {
    return to + row * 128 + ((byte / 16 ^ row % 8) << 4) + byte % 16;
  };
  // A as [k][row], MN-major; B as [column][k], K-major.
  for (int i = thread; i < 64 * 16; i += 128)
    *reinterpret_cast<uint16_t*>(swizzled(sh.a, i / 64, i % 64 * 2)) = d.a[i % 64 * kSide + i / 64];
  for (int i = thread; i < 16 * 8; i += 128)
    *reinterpret_cast<uint32_t*>(swizzled(sh.b, i / 8, i % 8 * 4)) = word(d.b, i / 8, i % 8 * 2);
  fence_async();
  __syncthreads();
  float x[8], y[8];
  auto at = [&](int i) { return (16 * warp + g + i % 4 / 2 * 8) * 16 + i / 4 * 8 + 2 * c + i % 2; };
  for (int i = 0; i < 8; ++i) x[i] = y[i] = d.bias[at(i) % 512];
  mma_fence();
  Mma<kHalf, 16>::turned(x, operand(shared_address(sh.a), 16), operand(shared_address(sh.b), 16));
  mma_commit();
  mma_wait<0>();
  const int row = 16 * warp + g;
  for (int j = 0; j < 2; ++j) {
    float part[4] = {y[4 * j], y[4 * j + 1], y[4 * j + 2], y[4 * j + 3]};
    mma<kHalf>(part, word(d.a, row, 2 * c), word(d.a, row + 8, 2 * c), word(d.a, row, 2 * c + 8),
               word(d.a, row + 8, 2 * c + 8), word(d.b, 8 * j + g, 2 * c), word(d.b, 8 * j + g, 2 * c + 8));
    for (int i = 0; i < 4; ++i) y[4 * j + i] = part[i];
  }
  float* const out = reinterpret_cast<float*>(d.out);
  for (int i = 0; i < 8; ++i) out[at(i)] = x[i], out[1024 + at(i)] = y[i];
}

template <class... P, class... A>
gpu::Status start(void (*kernel)(P...), unsigned blocks, unsigned threads, size_t bytes, unsigned cluster,
                  bool early, A... arguments) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {cluster, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = early;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks), config.blockDim = dim3(threads), config.dynamicSmemBytes = bytes;
  config.attrs = attributes, config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace

gpu::Status run(const Data& d, Fault fault) {
  Maps maps{};
  if (!make(&maps.a, d.a, kTiles * kSide, fault != Fault::other_swizzle) ||
      !make(&maps.b, d.b, kTiles * kSide) || !make(&maps.v, d.v, kSide) || !make(&maps.out, d.out, kSide))
    return emulatorErrorLaunch;
  if (fault == Fault::map_not_encoded) maps.b = {};
  return start(pipeline_kernel, 1, kThreads, sizeof(Shared), 1, false, maps, d, fault);
}

gpu::Status run_sent(const Data& d, SendFault fault) {
  return start(sent_kernel, 2, 32, sizeof(SentShared), 2, false, d, fault);
}
gpu::Status run_cluster(const Data& d, ClusterFault fault) {
  CUtensorMap map{};
  if (!make(&map, d.b, kTiles * kSide)) return emulatorErrorLaunch;
  return start(cluster_kernel, 2, kSide, sizeof(ClusterShared), 2, false, map, d, fault);
}

gpu::Status run_products(const Data& d, bool half) {
  return half ? start(product_kernel<true>, 1, 128, sizeof(ProductShared), 1, false, d)
              : start(product_kernel<false>, 1, 128, sizeof(ProductShared), 1, false, d);
}

gpu::Status run_dependent(const Data& d, bool waits) {
  if (const gpu::Status bad = start(first_kernel, 1, 64, 0, 1, false, d); bad != emulatorSuccess) return bad;
  return start(second_kernel, 1, 64, 0, 1, true, d, waits);
}

gpu::Status run_handed(const Data& d, bool late) { return start(handed_kernel, 1, 64, 0, 1, false, d, late); }

gpu::Status run_polling(const Data& d, bool written) {
  return start(polling_kernel, 2, 32, 0, 1, false, d, written);
}

}  // namespace pipeline
