// SPDX-License-Identifier: Apache-2.0
// What a kernel sees of the emulator: the names CUDA and HIP have in common (threadIdx, dim3, uint4, fmaf)
// and the neutral ones of gpu.h. A block is one fiber per thread; every barrier, shuffle and ballot is a
// rendezvous of fibers (see thread_block.hpp). Only gpu.h includes this. Nothing here is a macro over a
// vendor's function, and nothing reads the emulator's own memory: in checked builds the compiler reports each
// access of this text to the checker, which must see the kernel's accesses alone.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <source_location>
#include <type_traits>

#if ASSAY_EMULATOR != 32 && ASSAY_EMULATOR != 64
#  error "ASSAY_EMULATOR is the number of lanes of a warp: 32 or 64"
#endif

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __forceinline__ inline __attribute__((always_inline))

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

// In the C library these are calls, in a device one instruction: in place they take a fifth off the time of
// the smoke suite under the checker. The results are the library's: of two zeros the second, of a NaN and a
// number the number.
extern "C" {
extern inline __attribute__((gnu_inline, always_inline)) float fmaxf(float a, float b) noexcept {
  return a > b || b != b ? a : b;
}
extern inline __attribute__((gnu_inline, always_inline)) float fminf(float a, float b) noexcept {
  return a < b || b != b ? a : b;
}
}

namespace gpu {

constexpr int kWarp = ASSAY_EMULATOR;
// The device is a Hopper GPU with its asynchronous copies and products (sm90/machine.hpp).
#ifdef ASSAY_EMULATOR_SM90
constexpr bool kHopper = true;
#else
constexpr bool kHopper = false;
#endif
using LaneMask = std::conditional_t<kWarp == 64, uint64_t, uint32_t>;

namespace emulator {

// A place in the source, to tell collectives apart and to name them.
using Where = std::source_location;

// Coordinate 0-2 of the thread in its block, 3-5 of the block in the grid, 6-8 size of the block, 9-11 of the
// grid. Constant within a thread, which is all that the attribute says.
[[gnu::const]] unsigned coordinate(int which);

template <int kWhich>
struct Coordinate {
  operator unsigned() const { return coordinate(kWhich); }
};
template <int kFirst>
struct Coordinates {
  Coordinate<kFirst> x;
  Coordinate<kFirst + 1> y;
  Coordinate<kFirst + 2> z;
};

constexpr size_t kSlotBytes = 64;  // largest value a lane can hand over

void block_barrier(Where);
void warp_barrier(Where);
// Every lane of the warp hands over `bytes` at `value` and takes those of lane `from` in their place.
void exchange(void* value, size_t bytes, int from, Where);
uint64_t ballot(bool, Where);
int lane();
// The matrix instruction of the device with this many lanes (matrix.cpp), in the order of its registers: a of
// 4 (64 lanes: 2) words, b of 2, d of 4 floats; 16-bit elements in pairs.
void matrix_step(bool fp16, const uint32_t* a, const uint32_t* b, float* d, Where);

// The block's array for a declaration, created by the first thread that comes by; `tag` tells declarations
// apart. All-ones bytes at first (NaN). `scalar`: alignment of what is stored in it, for the checker.
void* shared_array(const void* tag, size_t bytes, size_t scalar, const char* name, Where);
void* dynamic_shared_bytes(Where);

// Read-modify-write that no other access comes between; *old is what was there.
enum class Atomic { kAdd, kMax, kExchange, kCompareExchange };
void atomic_u32(void* at, Atomic, uint32_t operand, uint32_t expected, uint32_t* old, Where);
void atomic_i32(void* at, Atomic, int32_t operand, int32_t* old, Where);
void atomic_f32(void* at, float operand, float* old, Where);
// 16 bytes from an address that must be a multiple of 16.
void load_16(const void* from, void* to, Where);

[[noreturn]] void trap(Where);
uint64_t nanoseconds();

}  // namespace emulator

#define GPU_HERE \
  ::gpu::emulator::Where { __builtin_FILE(), __builtin_LINE() }

template <class T>
T shfl(T value, int lane, emulator::Where where = emulator::Where::current()) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= emulator::kSlotBytes);
  emulator::exchange(&value, sizeof value, lane, where);
  return value;
}
template <class T>
T shfl_xor(T value, int mask, emulator::Where where = emulator::Where::current()) {
  return shfl(value, emulator::lane() ^ mask, where);
}
inline void block_barrier(emulator::Where where = emulator::Where::current()) {
  emulator::block_barrier(where);
}
inline void warp_barrier(emulator::Where where = emulator::Where::current()) {
  emulator::warp_barrier(where);
}
inline LaneMask ballot(bool predicate, emulator::Where where = emulator::Where::current()) {
  return static_cast<LaneMask>(emulator::ballot(predicate, where));
}
// Written anew, not shared with the devices' own: the place that calls it names the collective.
template <class T, class F>
T warp_reduce(T value, F f, int low = 1, int high = kWarp,
              emulator::Where where = emulator::Where::current()) {
  for (int mask = high / 2; mask >= low; mask /= 2) value = f(value, shfl_xor(value, mask, where));
  return value;
}

inline uint32_t atomic_add(uint32_t* at, uint32_t value, emulator::Where where = emulator::Where::current()) {
  uint32_t old;
  emulator::atomic_u32(at, emulator::Atomic::kAdd, value, 0, &old, where);
  return old;
}
inline int32_t atomic_add(int32_t* at, int32_t value, emulator::Where where = emulator::Where::current()) {
  int32_t old;
  emulator::atomic_i32(at, emulator::Atomic::kAdd, value, &old, where);
  return old;
}
inline float atomic_add(float* at, float value, emulator::Where where = emulator::Where::current()) {
  float old;
  emulator::atomic_f32(at, value, &old, where);
  return old;
}
inline int32_t atomic_max(int32_t* at, int32_t value, emulator::Where where = emulator::Where::current()) {
  int32_t old;
  emulator::atomic_i32(at, emulator::Atomic::kMax, value, &old, where);
  return old;
}
inline uint32_t atomic_max(uint32_t* at, uint32_t value, emulator::Where where = emulator::Where::current()) {
  uint32_t old;
  emulator::atomic_u32(at, emulator::Atomic::kMax, value, 0, &old, where);
  return old;
}
inline uint32_t atomic_exchange(uint32_t* at, uint32_t value,
                                emulator::Where where = emulator::Where::current()) {
  uint32_t old;
  emulator::atomic_u32(at, emulator::Atomic::kExchange, value, 0, &old, where);
  return old;
}
inline uint32_t atomic_compare_exchange(uint32_t* at, uint32_t expected, uint32_t value,
                                        emulator::Where where = emulator::Where::current()) {
  uint32_t old;
  emulator::atomic_u32(at, emulator::Atomic::kCompareExchange, value, expected, &old, where);
  return old;
}

inline uint4 load_16(const void* from, emulator::Where where = emulator::Where::current()) {
  uint4 value;
  emulator::load_16(from, &value, where);
  return value;
}
inline uint2 load_8(const void* from) { return *static_cast<const uint2*>(from); }

using emulator::nanoseconds;

template <class T>
T* dynamic_shared(emulator::Where where = emulator::Where::current()) {
  return static_cast<T*>(emulator::dynamic_shared_bytes(where));
}

[[noreturn]] inline void trap(emulator::Where where = emulator::Where::current()) { emulator::trap(where); }

namespace emulator {
// The tag is a type of its own for every declaration and every instance of the function around it.
template <class T, class Tag>
T& shared(Tag, const char* name, Where where) {
  static const char tag = 0;
  using Element = std::remove_all_extents_t<T>;
  return *static_cast<T*>(shared_array(&tag, sizeof(T), alignof(Element), name, where));
}
}  // namespace emulator

}  // namespace gpu

inline constexpr gpu::emulator::Coordinates<0> threadIdx{};
inline constexpr gpu::emulator::Coordinates<3> blockIdx{};
inline constexpr gpu::emulator::Coordinates<6> blockDim{};
inline constexpr gpu::emulator::Coordinates<9> gridDim{};

// Functions that device compilers declare for every file, outside any namespace.
template <class T>
inline T __ldg(const T* at) {
  return *at;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a < b ? b : a; }
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
inline float rsqrtf(float value) { return 1.0f / sqrtf(value); }
