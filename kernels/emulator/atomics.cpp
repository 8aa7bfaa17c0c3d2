// SPDX-License-Identifier: Apache-2.0
// Atomics and the accesses that are more than a load: out of line, so that the checker is told what they are.
// They are atomic among all blocks and order nothing else, as the relaxed atomics of the devices.
#include <bit>
#include <cstring>

#include "kernels/emulator/check.hpp"
#include "kernels/emulator/thread_block.hpp"

namespace gpu::emulator {
namespace {

Site site_of(const Where& w) { return {w.file_name(), static_cast<int>(w.line()), nullptr}; }

template <class T>
T combine(T old, Atomic op, T operand, T expected) {
  switch (op) {
    case Atomic::kAdd:
      return static_cast<T>(old + operand);
    case Atomic::kMax:
      return old < operand ? operand : old;
    case Atomic::kCompareExchange:
      return old == expected ? operand : old;
    default:
      return operand;
  }
}

template <class T>
T update(void* at, Atomic op, T operand, T expected, Where where) {
  if constexpr (kChecked) check::access(at, sizeof(T), check::Access::kAtomic, site_of(where));
  T* const place = static_cast<T*>(at);
  T old = __atomic_load_n(place, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(place, &old, combine(old, op, operand, expected), false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

}  // namespace

void atomic_u32(void* at, Atomic op, uint32_t operand, uint32_t expected, uint32_t* old, Where where) {
  *old = update(at, op, operand, expected, where);
}
void atomic_i32(void* at, Atomic op, int32_t operand, int32_t* old, Where where) {
  *old = update<int32_t>(at, op, operand, 0, where);
}
void atomic_f32(void* at, float operand, float* old, Where where) {
  if constexpr (kChecked) check::access(at, sizeof(float), check::Access::kAtomic, site_of(where));
  auto* const place = static_cast<uint32_t*>(at);
  uint32_t bits = __atomic_load_n(place, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(place, &bits,
                                      std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + operand), false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  *old = std::bit_cast<float>(bits);
}

void load_16(const void* from, void* to, Where where) {
  const Site site = site_of(where);
  // On a device a misaligned access ends the kernel: this needs no checked build.
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0)
    running_block()->stop(Kind::kMisaligned, site, "16 bytes from an address that is no multiple of 16");
  if constexpr (kChecked) check::access(from, 16, check::Access::kRead, site);
  std::memcpy(to, from, 16);
}

}  // namespace gpu::emulator
