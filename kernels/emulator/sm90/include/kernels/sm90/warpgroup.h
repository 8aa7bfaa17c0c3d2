// SPDX-License-Identifier: Apache-2.0
// The functions of kernels/sm90/warpgroup.h on the emulator, found by include path in its place; their rules
// stand there.
#pragma once

#include <cuda.h>

#include "kernels/sm90/warp.h"

namespace sm90 {

// ---- mbarriers
inline void barrier_init(uint32_t bar, uint32_t arrivals, Where where = Where::current()) {
  machine::barrier_init(bar, arrivals, where);
}
inline void barrier_init_fence() { machine::barrier_init_fence(); }
inline void barrier_expect(uint32_t bar, uint32_t bytes, Where where = Where::current()) {
  machine::barrier_arrive(bar, bytes, where);
}
inline void barrier_arrive(uint32_t bar, Where where = Where::current()) {
  machine::barrier_arrive(bar, 0, where);
}
inline void arrive_when_copied(uint32_t bar, Where where = Where::current()) {
  machine::arrive_when_copied(bar, where);
}
inline void barrier_wait(uint32_t bar, uint32_t parity, Where where = Where::current()) {
  machine::barrier_wait(bar, parity, where);
}
inline void barrier_wait_asleep(uint32_t bar, uint32_t parity, Where where = Where::current()) {
  machine::barrier_wait(bar, parity, where);
}
inline void hold_until(float, uint32_t) {}

// ---- clusters
inline uint32_t cluster_rank() { return machine::cluster_rank(); }
inline void cluster_arrive(Where where = Where::current()) { machine::cluster_arrive(where); }
inline void cluster_wait(Where where = Where::current()) { machine::cluster_wait(where); }
inline void cluster_sync(Where where = Where::current()) {
  machine::cluster_arrive(where);
  machine::cluster_wait(where);
}
inline void send(uint32_t to, uint32_t bar, uint32_t rank, float4 x, Where where = Where::current()) {
  const float values[4] = {x.x, x.y, x.z, x.w};
  machine::send(to, bar, rank, values, sizeof values, where);
}
inline void send(uint32_t to, uint32_t bar, uint32_t rank, float2 x, Where where = Where::current()) {
  const float values[2] = {x.x, x.y};
  machine::send(to, bar, rank, values, sizeof values, where);
}
inline void barrier_arrive_at(uint32_t bar, uint32_t rank, Where where = Where::current()) {
  machine::barrier_arrive_at(bar, rank, where);
}

inline void named_sync(int id, int threads, Where where = Where::current()) {
  machine::named_barrier(id, threads, true, where);
}
inline void named_arrive(int id, int threads, Where where = Where::current()) {
  machine::named_barrier(id, threads, false, where);
}

// ---- bulk tensor copies
constexpr uint64_t kEvictFirst = 0x12F0000000000000ull;
constexpr uint64_t kEvictLast = 0x14F0000000000000ull;
constexpr uint64_t kEvictNormal = 0x1000000000000000ull;

inline void prefetch_map(const CUtensorMap*) {}
inline void load_box(uint32_t to, const CUtensorMap* map, uint32_t bar, int x0, int x1, int x2, uint64_t,
                     Where where = Where::current()) {
  machine::load_box(0, to, *map, bar, {3, {x0, x1, x2}}, where);
}
inline void load_box5(uint32_t to, const CUtensorMap* map, uint32_t bar, int x0, int x1, int x2, int x3,
                      int x4, uint64_t, Where where = Where::current()) {
  machine::load_box(0, to, *map, bar, {5, {x0, x1, x2, x3, x4}}, where);
}
inline void load_box_for(uint16_t blocks, uint32_t to, const CUtensorMap* map, uint32_t bar, int x0, int x1,
                         int x2, uint64_t, Where where = Where::current()) {
  machine::load_box(blocks, to, *map, bar, {3, {x0, x1, x2}}, where);
}
inline void store_box(const CUtensorMap* map, uint32_t from, int x0, int x1, int x2,
                      Where where = Where::current()) {
  machine::store_box(*map, from, {3, {x0, x1, x2}}, where);
}
inline void store_commit() { machine::store_commit(); }
inline void store_wait_read() { machine::store_wait_read(); }
inline void fence_async() { machine::fence_async(); }
inline bool elect(Where where = Where::current()) { return machine::elect(where); }

// ---- dependent launches
inline void launch_next() {}
inline void wait_previous() { machine::wait_previous(); }

// ---- registers
template <int kCount>
void registers_up(Where where = Where::current()) {
  machine::set_registers(kCount, true, where);
}
template <int kCount>
void registers_down(Where where = Where::current()) {
  machine::set_registers(kCount, false, where);
}
template <int kCount>
void pin(float (&)[kCount]) {}
template <int kCount>
void pin(uint32_t (&)[kCount]) {}
template <int kCount>
void pin(int32_t (&)[kCount]) {}

// ---- products of a warpgroup
inline void mma_fence(Where where = Where::current()) { machine::mma_fence(where); }
inline void mma_commit(Where where = Where::current()) { machine::mma_commit(where); }
template <int kLeft>
void mma_wait(Where where = Where::current()) {
  machine::mma_wait(kLeft, where);
}
inline uint32_t operand(uint32_t address, uint32_t leading_bytes) {
  return ((address & 0x3FFFF) >> 4) | (leading_bytes >> 4) << 16;
}

// The next 8 rows `group` bytes further, 128-byte swizzle.
inline uint64_t whole_operand(uint32_t lower, uint32_t group = 1024) {
  return uint64_t{0x40000000 | group >> 4} << 32 | lower;
}

template <bool kHalf, int kN, int kGroup = 1024>
struct Mma {
  static_assert(kN == 16 || kN == 32 || kN == 64 || kN == 80 || kN == 128 || kN == 256);
  static constexpr auto kFormat = kHalf ? machine::Format::kFp16 : machine::Format::kBf16;
  static void first(float (&d)[kN / 2], uint32_t a, uint32_t b, Where where = Where::current()) {
    machine::multiply({kN, kFormat, false, false, false}, d, nullptr, whole_operand(a),
                      whole_operand(b, kGroup), where);
  }
  static void next(float (&d)[kN / 2], uint32_t a, uint32_t b, Where where = Where::current()) {
    machine::multiply({kN, kFormat, true, false, false}, d, nullptr, whole_operand(a),
                      whole_operand(b, kGroup), where);
  }
  static void values(float (&d)[kN / 2], uint32_t a, uint32_t b, Where where = Where::current()) {
    machine::multiply({kN, kFormat, true, false, true}, d, nullptr, whole_operand(a),
                      whole_operand(b, kGroup), where);
  }
  static void turned(float (&d)[kN / 2], uint32_t a, uint32_t b, Where where = Where::current()) {
    machine::multiply({kN, kFormat, true, true, false}, d, nullptr, whole_operand(a),
                      whole_operand(b, kGroup), where);
  }
  static void held(float (&d)[kN / 2], const uint32_t* a, uint32_t b, Where where = Where::current()) {
    machine::multiply({kN, kFormat, true, false, false}, d, a, 0, whole_operand(b, kGroup), where);
  }
  static void transposed(float (&d)[kN / 2], const uint32_t* a, uint32_t b, Where where = Where::current()) {
    machine::multiply({kN, kFormat, true, false, true}, d, a, 0, whole_operand(b, kGroup), where);
  }
};

template <int kN>
struct Mma8 {
  static_assert(kN % 8 == 0 && kN <= 256);
  static constexpr auto kFormat = machine::Format::kE4m3;
  static void first(float (&d)[kN / 2], uint32_t a, uint32_t b, Where where = Where::current()) {
    machine::multiply({kN, kFormat, false, false, false}, d, nullptr, whole_operand(a), whole_operand(b),
                      where);
  }
  static void next(float (&d)[kN / 2], uint32_t a, uint32_t b, Where where = Where::current()) {
    machine::multiply({kN, kFormat, true, false, false}, d, nullptr, whole_operand(a), whole_operand(b),
                      where);
  }
  static void held_first(float (&d)[kN / 2], const uint32_t* a, uint32_t b, Where where = Where::current()) {
    machine::multiply({kN, kFormat, false, false, false}, d, a, 0, whole_operand(b), where);
  }
  static void held(float (&d)[kN / 2], const uint32_t* a, uint32_t b, Where where = Where::current()) {
    machine::multiply({kN, kFormat, true, false, false}, d, a, 0, whole_operand(b), where);
  }
};

template <int kN>
struct MmaInt8 {
  static_assert((kN == 8 || kN == 24 || kN % 16 == 0) && kN <= 256);
  static constexpr auto kFormat = machine::Format::kInt8;
  static void first(int32_t (&d)[kN / 2], uint32_t a, uint32_t b, Where where = Where::current()) {
    machine::multiply({kN, kFormat, false, false, false}, d, nullptr, whole_operand(a), whole_operand(b),
                      where);
  }
  static void next(int32_t (&d)[kN / 2], uint32_t a, uint32_t b, Where where = Where::current()) {
    machine::multiply({kN, kFormat, true, false, false}, d, nullptr, whole_operand(a), whole_operand(b),
                      where);
  }
};

}  // namespace sm90
