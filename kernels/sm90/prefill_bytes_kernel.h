// SPDX-License-Identifier: Apache-2.0
// Attention of many rows with V and P in e4m3, Q and K in e4m3 or int8, head dimension 128: the prefill
// kernel (prefill_kernel.h) with what these formats ask for. Contiguous K and V, scales per tensor, head,
// request and head; of int8 also per row of Q and per key, so blocks of any size can have one.
//
// V must lie K-major for the second product (there is no other order in 8 bits), so two producer warps turn
// each tile in shared memory: ldmatrix.trans gives a lane keys 2c, 2c + 1 and 8 + 2c, 9 + 2c of two
// dimensions, byte permutes part these, stmatrix writes them. The keys of a group of 16 then lie in just the
// order in which a thread has its sums of S, so P becomes the A operand without a move, and even dimensions
// precede odd ones, so a thread ends with four neighbours of O, which it stores from registers.
//
// Sums of these products keep 13 bits, so each tile of O is added up apart and joins O in fp32 (O = O alpha +
// tile: the multiplication of the rescaling does it). Registers: S 64, O 64, P 16 and, one after the other,
// the exponents of the weights and the tile of O 64 a thread. Shared memory: Q 2 x 16 KiB, K, V and turned V
// 4 x 16 each.
//
// int8: S is exact in int32. Without a cap and scales of keys (kRaw) its maxima are looked for as whole
// numbers, three in an instruction, where no mask hides one; then it becomes fp32, exactly, in the same
// registers, while the products with V still run, and is multiplied by the factor of its row on the way to
// the exponents. Otherwise it becomes fp32 when it is waited for, times the scale of the key, which warp 0
// copies beside its tile of K (512 bytes a tile, cp.async of each lane, counted on k_full), and the scale of
// the row.
//
// A step: wait for S, its maxima (of e4m3 by the bits of scores, once no maximum is below zero), wait for the
// tile of O of the step before (its products ran meanwhile) and join it, read S into exponents, start the
// next S, which runs under the exponentials, round P, start its products with V. One pipeline across tiles of
// rows.
//
// Barriers: as in prefill_kernel.h, without turns; v_full/v_empty between copy and turning,
// turned_full/turned_empty between turning (ordinary writes: fence_async) and products.
#pragma once

#include "kernels/sm90/launch.h"
#include "kernels/sm90/prefill_bytes.hpp"
#include "kernels/sm90/prefill_producers.h"
#include "kernels/sm90/prefill_rows.h"
#include "kernels/sm90/softmax.h"

namespace assay_sm90 {
namespace {

using namespace sm90;

constexpr float kLn2 = 0.693147180559945f;
constexpr int kTurners = 2;  // warps that turn V

// Of a tile of rows, found with it: asked for by the consumers when they begin one they cost 0.6 us a tile.
struct ItemScales {
  float scores, values;  // of Q K^T, without those of rows and keys; of V
};

template <bool kWhole, bool kPlain>  // Q and K in int8; without scales of keys and cap
struct ByteInstance {
  static constexpr bool kInt8 = kWhole, kRaw = kWhole && kPlain;
  static constexpr bool kKeyScales = kInt8 && !kRaw;
  static constexpr int kDim = 128, kRows = 128, kConsumers = 2, kKeys = kByteKeys;
  static constexpr int kAtOnce = kInt8 ? 2 : 1;        // loads of V that a turning warp has under way
  static constexpr int kHalves = 1, kValueHalves = 1;  // 128 elements fill 128 bytes
  static constexpr int kStages = 4, kQueries = 2;
  static constexpr int kHalfTile = kKeys * 128, kTileBytes = kHalfTile, kQueryBytes = kRows * 128;
  static constexpr int kTokenBytes = 2 * kDim;
  static constexpr bool kTurned = true, kWide = false;
  static constexpr bool kStagedInValues = false;  // O goes out from registers
  struct alignas(1024) Shared {
    unsigned char q[kQueries][kQueryBytes];
    unsigned char k[kStages][kTileBytes];
    unsigned char v[kStages][kTileBytes];
    unsigned char turned[kStages][kDim * 128];
    float key_scale[kKeyScales ? kStages : 1][kKeyScales ? kKeys : 1];
    Work work[kWorkSlots];
    ItemScales scales[kWorkSlots];
    uint64_t found, taken;
    uint64_t q_full[kQueries], q_empty[kQueries];
    uint64_t k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
    uint64_t turned_full[kStages], turned_empty[kStages];
  };
  static constexpr int kShared = sizeof(Shared);
  static_assert(kShared <= 232448);
  using Sum = std::conditional_t<kInt8, int32_t, float>;  // of S
  using Scores = std::conditional_t<kInt8, MmaInt8<kKeys>, Mma8<kKeys>>;
};

// Copies the scales of a tile's keys, of those behind the end zeros, and arrives 32 times when they have
// come.
template <class I>
__device__ inline void copy_key_scales(const ByteCall& p, const Work& w, int tile, const float* to,
                                       uint32_t bar) {
  const int lane = threadIdx.x % 32;
  const float* const from = p.k_tokens.data + w.head / p.group * p.k_tokens.head;
  SM90_UNROLL for (int i = lane; i < I::kKeys; i += 32) {
    const int key = tile * I::kKeys + i;
    copy4_or_zero(shared_address(to + i), from + (w.first_key + key) * p.k_tokens.token, key < w.keys);
  }
  arrive_when_copied(bar);
}

__device__ inline float scale_of(const ScaleRef& s, int request, int head) {
  return s.data == nullptr ? s.host : __ldg(s.data + request * s.request + head * s.head);
}

// Warp `part` of those that turn V: every other group of 16 keys. Keys that no row sees may be anything
// (NaN); they become zeros first.
template <class I>
__device__ inline void turn_values(typename I::Shared& sh, int part) {
  const int lane = threadIdx.x % 32;
  Ring<I::kStages> ring;
  for (Items<I> items;; ++items.count) {
    barrier_wait_asleep(shared_address(&sh.q_full[items.query()]), items.phase());
    const Work work = read_work(sh.work[items.slot()], lane);
    if (lane == 0) barrier_arrive(shared_address(&sh.q_empty[items.query()]));
    if (!work.valid) break;
    for (int n = work.top_tile; n >= work.bottom_tile; --n) {
      barrier_wait_asleep(shared_address(&sh.v_full[ring.stage]), ring.phase);
      barrier_wait_asleep(shared_address(&sh.turned_empty[ring.stage]), ring.phase ^ 1);
      const int begin = work.begin - n * I::kKeys, end = work.end - n * I::kKeys;
      if (begin > 0 || end < I::kKeys) {
        SM90_LOOP for (int key = lane / 8; key < I::kKeys;
                       key += 4) if (key / 16 % kTurners == part && (key < begin || key >= end)) {
          *reinterpret_cast<uint4*>(sh.v[ring.stage] + key * 128 + lane % 8 * 16) = make_uint4(0, 0, 0, 0);
        }
        fence_async();  // before the next copy into this buffer
        __syncwarp();
      }
      // Swizzled addresses of groups and of dimensions are one pattern of bits apart, so two serve all: with
      // 24 registers there are no more.
      const uint32_t from =
          shared_address(sh.v[ring.stage]) + part * 2048 + lane % 16 * 128 + ((lane / 16 ^ lane % 8) << 4);
      const uint32_t turned = shared_address(sh.turned[ring.stage]) + lane * 128;
      const uint32_t to = turned + ((part ^ lane % 8) << 4);
      SM90_UNROLL for (int pair = 0; pair < I::kKeys / 16; pair += kTurners) {
        // (Scales of keys: worked out anew; ptxas then spills nothing of its consumers.)
        const uint32_t there = I::kInt8 ? turned + (((pair + part) ^ lane % 8) << 4) : to ^ pair << 4;
        SM90_UNROLL for (int quarter = 0; quarter < 4; quarter += I::kAtOnce) {
          uint32_t r[I::kAtOnce][4];
          SM90_UNROLL for (int i = 0; i < I::kAtOnce; ++i)
              load_matrix_transposed(r[i], (from ^ (quarter + i) << 5) + pair * 2048);
          SM90_UNROLL for (int i = 0; i < I::kAtOnce; ++i)
              store_matrix(there + (quarter + i) * 4096, __byte_perm(r[i][0], r[i][1], 0x6420),
                           __byte_perm(r[i][0], r[i][1], 0x7531), __byte_perm(r[i][2], r[i][3], 0x6420),
                           __byte_perm(r[i][2], r[i][3], 0x7531));
        }
      }
      fence_async();
      __syncwarp();
      if (lane == 0) {
        barrier_arrive(shared_address(&sh.turned_full[ring.stage]));
        barrier_arrive(shared_address(&sh.v_empty[ring.stage]));
      }
      ring.next();
    }
  }
}

// ---- consumers: two warpgroups of 64 query rows

template <class I, bool kCap>
__device__ inline void consume_bytes(const ByteCall& p, typename I::Shared& sh, int wg) {
  constexpr int kKeys = I::kKeys;
  using Scored = float[kKeys / 2];
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  typename I::Sum s[kKeys / 2];
  float o[64], part[64];
  uint32_t probability[kKeys / 8];
  float top[2] = {}, sum[2] = {}, alpha[2];  // alpha: of the tile that `part` belongs to
  // What S is multiplied by: e4m3: before a cap, else by the softmax, one number for both rows; int8: when it
  // becomes fp32 or, kRaw, by the softmax, a number for each row, without a cap to powers of 2.
  constexpr int kOwn = I::kInt8 ? 2 : 1;
  float factor[kOwn];
  TileRows<kKeys, false> tile;
  // Steps begun and tiles of rows begun. Registers are short, so buffers and phases come from these counts.
  uint32_t steps = 0, items = 0;
  const uint32_t desc_q = operand(shared_address(sh.q[0]) + wg * 64 * 128, 16);
  const uint32_t desc_k = operand(shared_address(sh.k[0]), 16);
  const uint32_t desc_v = operand(shared_address(sh.turned[0]), 16);

  auto scales_of = [&](uint32_t item) {  // read as read_work() does
    ItemScales own{};
    if (lane == 0) own = sh.scales[item % kWorkSlots];
    return ItemScales{__shfl_sync(~0u, own.scores, 0), __shfl_sync(~0u, own.values, 0)};
  };
  auto scale_of_codes = [&](const Work& w, float scale, int r) {  // of row r of this thread
    if (!I::kInt8 || p.q_tokens.data == nullptr) return scale;
    const int at = min(w.row + wg * 64 + 16 * warp + lane / 4 + 8 * r, w.rows - 1);
    // Not 0: a maximum of -infinity times 0 would be NaN.
    const float* const own = p.q_tokens.data + (w.first_row + at) * p.q_tokens.token;
    return fmaxf(scale * __ldg(own + w.head * p.q_tokens.head), 0x1p-100f);
  };
  auto factor_of = [&](const Work& w, float scale, int r) {
    const float factor = (kCap ? p.into_cap : p.scale_log2) * scale_of_codes(w, scale, r);
    return I::kRaw ? fmaxf(factor, 0x1p-100f) : factor;  // not 0, as above
  };
  auto release = [&](uint64_t& bar) {  // each of the 8 warps reports for itself
    if (lane == 0) barrier_arrive(shared_address(&bar));
  };
  // The next tile of rows, number `items`; false: there is none.
  auto begin_item = [&] {
    barrier_wait(shared_address(&sh.q_full[items % I::kQueries]), items / I::kQueries % 2);
    const Work w = read_work(sh.work[items % kWorkSlots], lane);
    if (!w.valid) return false;
    tile.begin(p, w, wg, warp, lane);
    const float scale = scales_of(items).scores;
    SM90_UNROLL for (int r = 0; r < kOwn; ++r) factor[r] = factor_of(w, scale, r);
    return true;
  };
  auto start_scores = [&](uint32_t step) {  // S = Q K^T
    const uint32_t dk = desc_k + step % I::kStages * (I::kTileBytes >> 4);
    const uint32_t dq = desc_q + items % I::kQueries * (I::kQueryBytes >> 4);
    mma_fence();
    I::Scores::first(s, dq, dk);
    SM90_UNROLL for (int i = 1; i < 4; ++i) I::Scores::next(s, dq + 2 * i, dk + 2 * i);
    mma_commit();
  };
  auto wait_keys = [&](uint32_t step) {
    barrier_wait(shared_address(&sh.k_full[step % I::kStages]), step / I::kStages % 2);
  };
  auto start_values = [&] {  // part = P V
    barrier_wait(shared_address(&sh.turned_full[steps % I::kStages]), steps / I::kStages % 2);
    const uint32_t dv = desc_v + steps % I::kStages * (I::kDim * 128 >> 4);
    pin(probability);
    mma_fence();
    Mma8<128>::held_first(part, probability, dv);
    SM90_UNROLL for (int i = 1; i < kKeys / 32; ++i) Mma8<128>::held(part, &probability[4 * i], dv + 2 * i);
    mma_commit();
  };
  auto join = [&] {  // O = O alpha + P V of the step before
    pin(part);
    SM90_UNROLL for (int i = 0; i < 64; ++i) o[i] = fmaf(o[i], alpha[i / 2 % 2], part[i]);
  };
  auto clear_o = [&] { SM90_UNROLL for (int i = 0; i < 64; ++i) o[i] = 0; };
  // Writes tile of rows number `item` and gives its buffer of Q back.
  auto store = [&](uint32_t item, const float(&top)[2], const float(&sum)[2]) {
    const Work w = read_work(sh.work[item % kWorkSlots], lane);
    const ItemScales own = scales_of(item);
    const float scale = kCap ? p.scale : I::kInt8 ? kLn2 : p.scale * own.scores;
    SM90_UNROLL for (int r = 0; r < 2; ++r) {
      const int at = w.row + wg * 64 + 16 * warp + lane / 4 + 8 * r;
      constexpr float kUnit = 1.f / (1 << kByteExponentOfP);
      const float total = quad_sum(sum[r]) * kUnit;
      const float most = I::kRaw ? top[r] * factor_of(w, own.scores, r) : top[r];
      const float factor = finish_row(p, w, total, most, scale, at, lane % 4 == 0) * kUnit * own.values;
      if (at >= w.rows) continue;
      uint16_t* const out = p.o + (w.first_row + at) * p.o_row + w.head * p.o_head + lane % 4 * 4;
      SM90_UNROLL for (int c = 0; c < 8; ++c) {
        const float* const x = &o[8 * c + 2 * r];
        const float a = x[0] * factor, b = x[4] * factor, e = x[1] * factor, f = x[5] * factor;
        *reinterpret_cast<uint2*>(out + 16 * c) = p.half ? make_uint2(pack<true>(a, b), pack<true>(e, f))
                                                         : make_uint2(pack<false>(a, b), pack<false>(e, f));
      }
    }
    __syncwarp();
    release(sh.q_empty[item % I::kQueries]);
  };

  // A step begins when its S is complete: the maxima, meanwhile the last products with V, O of the step
  // before; then S is read once, to the exponents, so that its registers are free for the next S.
  float x[kKeys / 2];
  bool begins = true;  // this step begins a tile of rows
  // e4m3: no row of this warp has a maximum below zero, so scores above it compare by their bits.
  bool not_below_zero = false;
  // The largest of every eighth score, so of each row four; by their bits three in an instruction.
  auto largest = [&](bool by_bits, const auto& y, float(&most)[8]) {
    SM90_UNROLL for (int k = 0; k < 8; ++k) {
      if (by_bits) {
        const auto bits = [&](int i) { return __float_as_int(y[i + k]); };
        int32_t of = bits(0);
        SM90_UNROLL for (int i = 8; i + 8 < kKeys / 2; i += 16) of = __vimax3_s32(of, bits(i), bits(i + 8));
        most[k] = __int_as_float(max(of, bits(kKeys / 2 - 8)));
      } else {
        most[k] = y[k];
        SM90_UNROLL for (int i = 8; i < kKeys / 2; i += 8) most[k] = fmaxf(most[k], y[i + k]);
      }
    }
  };
  // S as it came, in fp32. The buffer of K and of its scales is free then.
  auto scores = [&](float(&to)[kKeys / 2]) {
    const int stage = steps % I::kStages;
    if (p.k_tokens.data == nullptr) {
      SM90_UNROLL for (int i = 0; i < kKeys / 2; ++i) to[i] = static_cast<float>(s[i]) * factor[i / 2 % 2];
    } else {
      const float* const scale = sh.key_scale[stage] + 2 * (lane % 4);
      SM90_UNROLL for (int j = 0; j < kKeys / 8; ++j) {
        const float2 of = *reinterpret_cast<const float2*>(scale + 8 * j);
        SM90_UNROLL for (int i = 4 * j; i < 4 * j + 4; ++i) to[i] =
            static_cast<float>(s[i]) * (i % 2 == 0 ? of.x : of.y) * factor[i / 2 % 2];
      }
      __syncwarp();
    }
    release(sh.k_empty[stage]);
  };
  auto exponents_of = [&](auto is_first, auto& y) {
    constexpr bool kFirst = decltype(is_first)::value;
    const float old_top[2] = {top[0], top[1]};
    if (begins) top[0] = top[1] = -INFINITY, not_below_zero = false;
    if constexpr (kCap) {
      SM90_UNROLL for (int i = 0; i < kKeys / 2; ++i) y[i] = tanh_fast(I::kInt8 ? y[i] : y[i] * factor[0]);
    }
    const float scale_log2 = kCap ? p.scale_log2 : I::kInt8 ? 1.f : factor[0];
    if constexpr (!I::kRaw)
      if (tile.needs_mask()) tile.mask(p, y, lane);
    float fresh[2], bias[2];
    const auto raise = [&](const auto& of) {
      raise_maxima<true, kByteExponentOfP>(of, top, fresh, bias, scale_log2, [&](float value) {
        hold_until(fmaxf(top[0], value), shared_address(&sh.k_empty[0]));
      });
    };
    if constexpr (I::kRaw) {
      float most[8];
      if (tile.needs_mask()) {
        SM90_UNROLL for (int i = 0; i < kKeys / 2; ++i) y[i] = static_cast<float>(__float_as_int(y[i]));
        tile.mask(p, y, lane);
        largest(false, y, most);
      } else {
        largest(true, y, most);
        SM90_UNROLL for (int i = 0; i < 8; ++i) most[i] = static_cast<float>(__float_as_int(most[i]));
        SM90_UNROLL for (int i = 0; i < kKeys / 2; ++i) y[i] = static_cast<float>(__float_as_int(y[i]));
      }
      SM90_UNROLL for (int r = 0; r < 2; ++r) {
        const float now = fmaxf(top[r], quad_max(fmaxf(fmaxf(most[2 * r], most[2 * r + 1]),
                                                       fmaxf(most[2 * r + 4], most[2 * r + 5]))));
        const float of = factor[r % kOwn];
        bias[r] = now == -INFINITY ? 0.f : now * of - kByteExponentOfP;
        fresh[r] = now == -INFINITY ? 1.f : exp2_fast((top[r] - now) * of);
        if (r == 1) hold_until(fmaxf(top[0], now), shared_address(&sh.k_empty[0]));
        top[r] = now;
      }
    } else if constexpr (I::kInt8) {
      raise(y);
    } else {
      float most[8];
      if (not_below_zero)
        largest(true, y, most);
      else
        largest(false, y, most);
      raise(most);
      not_below_zero = __all_sync(~0u, fminf(top[0], top[1]) >= 0);
    }
    if constexpr (!kFirst) {
      mma_wait<0>();
      join();
      release(sh.turned_empty[(steps - 1) % I::kStages]);
      if (begins) store(items - 1, old_top, sum);
    }
    if (begins) clear_o(), sum[0] = sum[1] = 0;
    alpha[0] = fresh[0], alpha[1] = fresh[1];
    SM90_UNROLL for (int i = 0; i < kKeys / 2; ++i) {
      const int r = i / 2 % 2;
      x[i] = fmaf(y[i], I::kRaw ? factor[r % kOwn] : scale_log2, -bias[r]);
    }
  };
  auto exponents = [&](auto is_first) {
    mma_wait<decltype(is_first)::value ? 0 : 1>();
    pin(s);
    if constexpr (I::kRaw) {
      Scored y;
      SM90_UNROLL for (int i = 0; i < kKeys / 2; ++i) y[i] = __int_as_float(s[i]);
      release(sh.k_empty[steps % I::kStages]);
      exponents_of(is_first, y);
    } else if constexpr (I::kInt8) {
      Scored y;
      scores(y);
      exponents_of(is_first, y);
    } else {
      release(sh.k_empty[steps % I::kStages]);
      exponents_of(is_first, s);
    }
  };
  // The step's other half: weights, their sums, the products with V.
  auto weights = [&] {
    SM90_UNROLL for (int r = 0; r < 2; ++r) {
      float a = 0, b = 0;
      SM90_UNROLL for (int j = 0; j < kKeys / 8; ++j) {
        float *const u = &x[4 * j + 2 * r], *const v = u + 1;
        *u = exp2_fast(*u), *v = exp2_fast(*v);
        a += *u, b += *v;
      }
      sum[r] = fmaf(sum[r], alpha[r], a + b);
    }
    // The sums of S are, as they lie, the A operand of the second product.
    SM90_UNROLL for (int i = 0; i < kKeys / 32; ++i) {
      SM90_UNROLL for (int j = 0; j < 4; ++j) {
        const float* const y = &x[16 * i + j / 2 * 8 + j % 2 * 2];
        probability[4 * i + j] = pack_e4m3(y[0], y[1], y[4], y[5]);
      }
    }
    start_values();
    ++steps;
  };

  if (!begin_item()) return;
  wait_keys(0);
  start_scores(0);
  exponents(std::true_type());
  for (;;) {
    begins = tile.n == tile.bottom;
    --tile.n;
    if (begins) {
      ++items;
      if (!begin_item()) break;
    }
    wait_keys(steps + 1);
    start_scores(steps + 1);  // runs under the exponentials
    weights();
    exponents(std::false_type());
  }
  weights();
  mma_wait<0>();
  join();
  store(items - 1, top, sum);
}

template <class I, bool kCap>
__global__ void __launch_bounds__(kThreads<I>, 1)
    prefill_bytes(const __grid_constant__ PrefillMaps maps, const __grid_constant__ ByteCall p) {
  auto& sh = *reinterpret_cast<typename I::Shared*>(dynamic_memory());
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    prefetch_map(&maps.q);
    prefetch_map(&maps.k);
    prefetch_map(&maps.v);
    init_producers<I, false>(sh);
    for (int i = 0; i < I::kStages; ++i) {
      barrier_init(shared_address(&sh.k_full[i]), I::kKeyScales && p.k_tokens.data != nullptr ? 33 : 1);
      barrier_init(shared_address(&sh.k_empty[i]), 8);
      barrier_init(shared_address(&sh.v_full[i]), 1);
      barrier_init(shared_address(&sh.v_empty[i]), kTurners);
      barrier_init(shared_address(&sh.turned_full[i]), kTurners);
      barrier_init(shared_address(&sh.turned_empty[i]), 8);
    }
    barrier_init_fence();
  }
  __syncthreads();
  constexpr bool kMost = !I::kInt8 && !kCap;  // for consumers; with a cap producers would spill
  if (group == 0) {
    registers_down<kMost ? 24 : 40>();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (warp == 0)
      copy_tiles<I>(maps, p, sh, [&](const Work& work, int tile, int stage) {
        if constexpr (I::kKeyScales)
          if (p.k_tokens.data != nullptr)
            copy_key_scales<I>(p, work, tile, sh.key_scale[stage], shared_address(&sh.k_full[stage]));
      });
    else if (warp == 1)
      find_work<I, false>(p, sh, [&](const Work& w, int slot) {
        sh.scales[slot] = {scale_of(p.q_scale, w.request, w.head / p.q_scale_group) *
                               scale_of(p.k_scale, w.request, w.head / p.group),
                           scale_of(p.v_scale, w.request, w.head / p.group)};
      });
    else
      turn_values<I>(sh, warp - 2);
  } else {
    registers_up<kMost ? 240 : 232>();
    consume_bytes<I, kCap>(p, sh, group - 1);
  }
}

template <class I, bool kCap>
cudaError_t launch_bytes(const PrefillMaps& maps, const ByteCall& call, int32_t grid, cudaStream_t stream) {
  const auto kernel = prefill_bytes<I, kCap>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, I::kShared);
  if (ready != cudaSuccess) return ready;
  return launch_kernel(kernel, {.grid = grid, .threads = kThreads<I>, .bytes = I::kShared, .stream = stream},
                       maps, call);
}

}  // namespace
}  // namespace assay_sm90
