// SPDX-License-Identifier: Apache-2.0
// Attention of many rows: ragged batches of new tokens against contiguous or paged K and V, bf16 or fp16,
// head dimension 64 or 128, every mask that is an interval of keys.
//
// One block per multiprocessor, persistent: 384 threads. Producer warps find tiles of 128 rows of one head by
// a counter and copy Q, K and V (prefill_producers.h); two warpgroups of 64 rows each do products (wgmma) and
// softmax. Shared memory (128 columns): Q 2 x 32 KiB, K and V 2 x 32 each, O 32. Registers: S 64, O 64, P 32
// a thread. Long requests of 64 dimensions: three warpgroups, tiles of 192 rows, 512 threads.
//
// Barriers: found, taken between who finds tiles and who copies; q_full/q_empty per Q buffer, k_full/k_empty
// and v_full/v_empty per stage (consumers arrive once a warp); turn per warpgroup. Per step: issue S(n),
// issue O(n-1), wait for S, maxima (the second row's beside the first row's first exponentials), wait for the
// turn, exponentials, hand the turn on, wait for O, convert P, rescale O. Turns keep the warpgroups apart:
// one has the unit of exponentials while the other's products and sums run. One pipeline across tiles: the
// last O of a tile and the first S of the next are issued together, the work item is read under the one and O
// is stored under the other. Sums of S become the A operand P as they lie. The mask costs nothing in tiles
// whose keys every row sees. Wide heads: one Q buffer, no turns, tiles one by one; 256 columns: O is staged
// where the last V lay, a warpgroup in each buffer, and `stored` says that it has left, so that Q and K of
// the next tile come under the last products and its first S runs before V is needed; O is rescaled between
// the two products of the next step, under its S. What each decision cost or brought: VARIANTS.md.
#pragma once

#include <type_traits>

#include "kernels/sm90/launch.h"
#include "kernels/sm90/prefill_producers.h"
#include "kernels/sm90/prefill_rows.h"
#include "kernels/sm90/softmax.h"

namespace assay_sm90 {
namespace {

using namespace sm90;

// ---- consumers: two warpgroups of 64 query rows
// -------------------------------------------------------------

template <class I, bool kHalf, bool kPaged, bool kCap>
__device__ inline void consume(const CUtensorMap* map_o, const PrefillCall& p, typename I::Shared& sh,
                               int wg) {
  constexpr int kKeys = I::kKeys, kValueDim = I::kValueDim;
  // By a shuffle: what depends on the warp alone then needs no register of each thread.
  const int warp = __shfl_sync(~0u, threadIdx.x % 128 / 32, 0), lane = threadIdx.x % 32;
  float o[kValueDim / 2], s[kKeys / 2];
  uint32_t probability[kKeys / 4];
  float top[2], sum[2], alpha[2];
  Ring<I::kStages> k, v;
  Items<I> items;
  const uint32_t desc_q = operand(shared_address(sh.q[0]) + wg * 64 * 128, 16);
  const uint32_t desc_k = operand(shared_address(sh.k[0]), 16);
  const uint32_t desc_v = operand(shared_address(sh.v[0]), kPaged ? 1024 : I::kHalfTile);
  using Scores = Mma<kHalf, kKeys, kPaged ? I::kPagedGroup : 1024>;
  using Values = Mma<kHalf, kValueDim, kPaged ? I::kPagedValueGroup : 1024>;

  TileRows<kKeys, kPaged> tile;  // paged: rows may be packed
  auto clear_statistics = [&] { top[0] = top[1] = -INFINITY, sum[0] = sum[1] = 0; };
  auto clear_o = [&] { SM90_UNROLL for (int i = 0; i < kValueDim / 2; ++i) o[i] = 0; };
  auto release = [&](uint64_t& bar) {  // each of the 8 warps reports for itself
    if (lane == 0) barrier_arrive(shared_address(&bar));
  };
  // Turns at the exponentials: while one warpgroup has them, the next waits with its maxima known. They end
  // before its last exponentials, since it takes a while until the next one hears of it.
  auto known = [&] {
    if constexpr (I::kTurns) {
      barrier_wait(shared_address(&sh.turn[wg]), (k.stage & 1) ^ 1);
      pin(s);
    }
  };
  auto done = [&](int row, int number, float x) {
    if (row != (I::kTurns ? 1 : 0) || number != I::kHold) return;
    hold_until(x, shared_address(&sh.k_empty[0]));
    if (I::kTurns) release(sh.turn[(wg + 1) % I::kConsumers]);
  };

  auto wait_tile = [&](uint64_t& bar, uint32_t phase) { barrier_wait(shared_address(&bar), phase); };
  auto fence_all = [&] {  // everything that a product will read or write is in its registers
    pin(o);
    pin(probability);
    mma_fence();
  };
  auto start_scores = [&] {  // S = Q K^T
    const uint32_t dk = desc_k + k.stage * (I::kTileBytes >> 4);
    const uint32_t dq = desc_q + items.query() * (I::kQueryBytes >> 4);
    SM90_UNROLL for (int i = 0; i < 4 * I::kHalves; ++i) {
      const uint32_t a = dq + ((i / 4 * (I::kRows * 128) + i % 4 * 32) >> 4);
      const uint32_t b = dk + ((i / 4 * (kPaged ? 1024 : I::kHalfTile) + i % 4 * 32) >> 4);
      if (i == 0)
        Scores::first(s, a, b);
      else
        Scores::next(s, a, b);
    }
    mma_commit();
  };
  auto start_values = [&] {  // O += P V
    const uint32_t dv = desc_v + v.stage * (I::kValueBytes >> 4);
    SM90_UNROLL for (int i = 0; i < kKeys / 16; ++i)
        Values::transposed(o, &probability[4 * i], dv + (i * 2 * (kPaged ? I::kPagedValueGroup : 1024) >> 4));
    mma_commit();
  };
  auto scores_done = [&] {
    pin(s);
    release(sh.k_empty[k.stage]);
    k.next();
  };
  auto values_done = [&] {
    pin(o);
    pin(s);
    release(sh.v_empty[v.stage]);
    v.next();
  };
  auto round_probabilities = [&] {  // the sums of S are, as they lie, the A operand of the second product
    SM90_UNROLL for (int i = 0; i < kKeys / 4; ++i) probability[i] = pack<kHalf>(s[2 * i], s[2 * i + 1]);
  };
  auto rescale = [&] {
    SM90_UNROLL for (int j = 0; j < kValueDim / 8; ++j) {
      o[4 * j] *= alpha[0], o[4 * j + 1] *= alpha[0];
      o[4 * j + 2] *= alpha[1], o[4 * j + 3] *= alpha[1];
    }
  };
  auto cap = [&] {
    if constexpr (kCap) {
      SM90_UNROLL for (int i = 0; i < kKeys / 2; ++i) s[i] = tanh_fast(s[i] * p.into_cap);
    }
  };
  // Each warp writes its 16 rows by itself: stmatrix into its own part of shared memory, then boxes by TMA,
  // or row by row where the request ends within them.
  auto store = [&](const Work& w, const float(&top)[2], const float(&sum)[2]) {
    const int slice = wg * 4 + warp, first = w.row + 16 * slice;
    float factor[2];
    SM90_UNROLL for (int r = 0; r < 2; ++r) {
      const int at = first + lane / 4 + 8 * r, head = w.head + head_of<kPaged>(p, at);
      const float total = quad_sum(sum[r]);
      // What finish_row() does; where it is called instead, ptxas orders the loop worse (2 to 4 %).
      factor[r] = total > 0 ? 1 / total : 0.f;
      float lse = total > 0 ? top[r] * p.scale + logf(total) : -INFINITY;
      if (p.sinks != nullptr) {
        const float sink = __ldg(p.sinks + head * p.sinks_stride);
        const float most = fmaxf(lse, sink), own = __expf(lse - most), all = own + __expf(sink - most);
        factor[r] *= own / all;
        lse = most + logf(all);
      }
      if (lane % 4 == 0 && at < w.rows)
        p.lse[(w.first_row + token_of<kPaged>(p, at)) * p.lse_row + head * p.lse_head] = lse;
    }
    // Staging: of its own or, a warpgroup in each, in the buffers of V; for all columns or 64 at a time.
    constexpr int kHalfStep = I::kStagedInValues ? 64 * 128 : 2048, kAtOnce = I::kStagedHalves;
    const unsigned char* const from =
        I::kStagedInValues ? sh.v[v.stage ^ wg] + warp * 2048 : sh.o + slice * 2048 * kAtOnce;
    const uint32_t to = shared_address(from), line = to + (lane % 16) * 128;
    SM90_UNROLL for (int half = 0; half < I::kValueHalves; half += kAtOnce) {
      if constexpr (!I::kStagedInValues) {
        store_wait_read();  // of what was staged before
        __syncwarp();
      }
      SM90_UNROLL for (int j = 0; j < 8 * kAtOnce; j += 2) {
        const float* x = &o[4 * (8 * half + j)];
        store_matrix(
            line + j / 8 * kHalfStep + (((j % 8 + lane / 16) ^ (lane % 8)) << 4),
            pack<kHalf>(x[0] * factor[0], x[1] * factor[0]), pack<kHalf>(x[2] * factor[1], x[3] * factor[1]),
            pack<kHalf>(x[4] * factor[0], x[5] * factor[0]), pack<kHalf>(x[6] * factor[1], x[7] * factor[1]));
      }
      if (first + kPrefillStoreRows <= w.rows) {
        fence_async();
        __syncwarp();
        if (lane == 0) {
          SM90_UNROLL for (int i = 0; i < kAtOnce; ++i) store_box(
              map_o, to + i * kHalfStep, 64 * (half + i), w.head, w.first_row + token_of<kPaged>(p, first));
          store_commit();
        }
      } else {
        __syncwarp();
        SM90_LOOP for (int r = lane / 8; first + r < w.rows; r += 4) {
          const int at = first + r;
          uint16_t* const out = p.o + (w.first_row + token_of<kPaged>(p, at)) * p.o_row +
                                (w.head + head_of<kPaged>(p, at)) * p.o_head + lane % 8 * 8 + 64 * half;
          SM90_UNROLL for (int i = 0; i < kAtOnce; ++i) * reinterpret_cast<uint4*>(out + 64 * i) =
              *reinterpret_cast<const uint4*>(from + i * kHalfStep + r * 128 + ((lane % 8 ^ r % 8) << 4));
        }
        if constexpr (I::kStagedInValues) fence_async();  // the next V is copied over what was staged
        __syncwarp();
      }
    }
  };

  auto start_both = [&] {
    wait_tile(sh.k_full[k.stage], k.phase);
    fence_all();
    start_scores();
    if constexpr (I::kRescaledLate) {
      rescale();
      fence_all();
    }
    wait_tile(sh.v_full[v.stage], v.phase);
    start_values();
    mma_wait<1>();
    scores_done();
  };
  auto weigh = [&](auto guards) {
    constexpr bool kGuard = decltype(guards)::value;
    if constexpr (I::kAhead > 0)
      softmax_ahead<kGuard, I::kAhead>(s, top, sum, alpha, p.scale_log2, known, done);
    else
      softmax<kGuard>(s, top, sum, alpha, p.scale_log2, known, done);
  };
  // Every step starts the next S and then the O of the S before it, and does the softmax of the former
  // meanwhile.
  auto step = [&](auto is_masked) {
    constexpr bool kMasked = decltype(is_masked)::value;
    start_both();
    cap();
    if (kMasked) tile.mask(p, s, lane);
    weigh(is_masked);
    mma_wait<0>();
    values_done();
    round_probabilities();
    if constexpr (!I::kRescaledLate) rescale();
  };

  auto first_softmax = [&] {  // of a tile
    scores_done();
    cap();
    if (tile.needs_mask()) tile.mask(p, s, lane);
    weigh(std::true_type());
    round_probabilities();
  };
  auto first_step = [&](const Work& w) {  // the first S of a tile, with no O to go with
    tile.begin(p, w, wg, warp, lane);
    clear_statistics();
    clear_o();
    wait_tile(sh.k_full[k.stage], k.phase);
    mma_fence();
    start_scores();
    if constexpr (I::kStagedInValues) {  // O of the tile of rows before; of the first there is none
      store_wait_read();
      barrier_arrive(shared_address(&sh.stored[wg]));  // each lane for itself: racecheck follows that alone
    }
    mma_wait<0>();
    first_softmax();
  };
  auto other_steps = [&] { tile.others([&](auto is_masked) { step(is_masked); }); };
  auto last_values = [&] {
    wait_tile(sh.v_full[v.stage], v.phase);
    if constexpr (I::kRescaledLate) rescale();
    fence_all();
    start_values();
    mma_wait<0>();
  };

  // O may be staged where it is: no warp reads V there any more. Warpgroup 0 takes the buffer of the last V
  // but one, which has long been read, 1 that of the last. Of a single V the other buffer may still hold what
  // warpgroup 1 staged for the tile of rows before.
  auto wait_staging = [&] {
    Ring<I::kStages> at = v;
    if (wg == 1) at.next();
    wait_tile(sh.v_empty[at.stage], at.phase ^ 1);
    if (wg == 0) wait_tile(sh.stored[1], items.count & 1);
  };

  if constexpr (I::kWide) {
    for (;; ++items.count) {
      barrier_wait(shared_address(&sh.q_full[0]), items.phase());
      const int slot = items.slot();
      const Work work = read_work(sh.work[slot], lane);
      if (!work.valid) break;
      first_step(work);  // read once more for the end: no register is free to keep it
      other_steps();
      release(sh.q_empty[0]);  // the next Q comes under what is left
      last_values();
      values_done();
      if constexpr (I::kStagedInValues) wait_staging();
      store(read_work(sh.work[items.slot()], lane), top, sum);
    }
    store_wait_read();
  } else {
    if (I::kTurns && wg == I::kConsumers - 1) release(sh.turn[0]);
    barrier_wait(shared_address(&sh.q_full[0]), 0);
    const Work work = read_work(sh.work[0], lane);
    if (!work.valid) return;
    first_step(work);
    for (;;) {
      other_steps();
      ++items.count;
      barrier_wait(shared_address(&sh.q_full[items.query()]), items.phase());
      if (!__shfl_sync(~0u, lane == 0 ? sh.work[items.slot()].valid : 0, 0)) break;

      // From one tile to the next: the last O of the old one, under which the new one's work is read, and S
      // of the new one, under which the old one is stored. Between the two products ptxas wants no branch.
      wait_tile(sh.v_full[v.stage], v.phase);
      wait_tile(sh.k_full[k.stage], k.phase);
      fence_all();
      start_values();
      start_scores();
      tile.begin(p, read_work(sh.work[items.slot()], lane), wg, warp, lane);
      mma_wait<1>();
      pin(o);
      release(sh.v_empty[v.stage]);
      v.next();
      store(read_work(sh.work[items.slot_before()], lane), top, sum);
      release(sh.q_empty[items.query() ^ 1]);
      clear_statistics();
      clear_o();
      mma_wait<0>();
      first_softmax();
    }
    last_values();
    pin(o);
    store(read_work(sh.work[items.slot_before()], lane), top, sum);
    store_wait_read();
  }
}

// What is handed over. Three consumers share what 512 threads of 128 have.
template <class I>
constexpr int kProducerRegisters = I::kConsumers == 3 ? 32
                                   : I::kDim == 64    ? 40
                                                      : 24;
template <class I>
constexpr int kConsumerRegisters = I::kConsumers == 3 ? 160
                                   : I::kDim == 64    ? 232
                                                      : 240;

template <class I, bool kHalf, bool kPaged, bool kCap>
__global__ void __launch_bounds__(kThreads<I>, 1)
    prefill_wgmma(const __grid_constant__ PrefillMaps maps, const __grid_constant__ PrefillCall p) {
  unsigned char* const memory = dynamic_memory();
  auto& sh = *reinterpret_cast<typename I::Shared*>(memory);
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    prefetch_map(&maps.q);
    prefetch_map(&maps.k);
    prefetch_map(&maps.v);
    prefetch_map(&maps.o);
    init_producers<I, kPaged>(sh);
    for (int i = 0; i < I::kStages; ++i) {
      barrier_init(shared_address(&sh.k_full[i]), 1);
      barrier_init(shared_address(&sh.k_empty[i]), 4 * I::kConsumers);
      barrier_init(shared_address(&sh.v_full[i]), kValueArrivals<I>);
      barrier_init(shared_address(&sh.v_empty[i]), 4 * I::kConsumers);
    }
    if constexpr (I::kTurns)
      for (int i = 0; i < I::kConsumers; ++i) barrier_init(shared_address(&sh.turn[i]), 4);
    barrier_init_fence();
  }
  __syncthreads();
  if (group == 0) {
    registers_down<kProducerRegisters<I>>();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (warp == 0) {
      if constexpr (kPaged)
        copy_key_pages<I>(maps, p, sh);
      else
        copy_tiles<I>(maps, p, sh, [](const Work&, int, int) {});
    } else if (warp == 1) {
      find_work<I, kPaged>(p, sh, [](const Work&, int) {});
    } else if (warp == 2) {
      clear_values<I, kPaged>(sh);
    } else if constexpr (kPaged) {
      copy_value_pages<I>(maps, p, sh);
    }
  } else {
    registers_up<kConsumerRegisters<I>>();
    consume<I, kHalf, kPaged, kCap>(&maps.o, p, sh, group - 1);
  }
}

template <class I, bool kHalf, bool kPaged, bool kCap>
cudaError_t launch_instance(const PrefillMaps& maps, const PrefillCall& call, int32_t grid,
                            cudaStream_t stream) {
  const auto kernel = prefill_wgmma<I, kHalf, kPaged, kCap>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, I::kShared);
  if (ready != cudaSuccess) return ready;
  return launch_kernel(kernel, {.grid = grid, .threads = kThreads<I>, .bytes = I::kShared, .stream = stream},
                       maps, call);
}

template <int kDimQk, int kDimV, int kRows = kPrefillRows>
cudaError_t launch_width(const PrefillMaps& maps, const PrefillCall& call, const PrefillShape& shape,
                         int32_t grid, cudaStream_t stream) {
  using I = PrefillInstance<kDimQk, kDimV, kRows>;
  const auto of = [&](auto half, auto paged) {
    return shape.cap ? launch_instance<I, half.value, paged.value, true>(maps, call, grid, stream)
                     : launch_instance<I, half.value, paged.value, false>(maps, call, grid, stream);
  };
  const auto format = [&](auto half) {
    if constexpr (kDimQk == kDimV && kRows == kPrefillRows) {
      if (shape.paged) return of(half, std::true_type());
    }
    return of(half, std::false_type());
  };
  return shape.half ? format(std::true_type()) : format(std::false_type());
}

}  // namespace
}  // namespace assay_sm90
