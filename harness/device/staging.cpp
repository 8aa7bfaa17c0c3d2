// SPDX-License-Identifier: Apache-2.0
// See staging.hpp. The driver's function is found at run time, as the clocks' are: the program is the same
// with and without a GPU.
#include "harness/device/staging.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

namespace assay {
namespace {

constexpr int64_t kLeastBytes = int64_t{4} << 20;
constexpr int64_t kShare = int64_t{1} << 20;  // of a thread at a time
constexpr const char* kDriver = "libcuda.so.1";

std::byte* unlocked = nullptr;  // of tests

std::byte* room() {
  return static_cast<std::byte*>(
      ::operator new (static_cast<size_t>(Staging::kBytes), std::align_val_t{4096}, std::nothrow));
}

// CUDA driver API, "Memory Management". Stays locked until the process ends; so does the library.
std::byte* locked(void* driver) {
  constexpr unsigned kPortable = 1;  // for all contexts
  using Register = int (*)(void*, size_t, unsigned);
  const auto lock = reinterpret_cast<Register>(dlsym(driver, "cuMemHostRegister_v2"));
  std::byte* const memory = lock == nullptr ? nullptr : room();
  if (memory == nullptr) return nullptr;
  if (lock(memory, static_cast<size_t>(Staging::kBytes), kPortable) == 0) return memory;
  ::operator delete (memory, std::align_val_t{4096});
  return nullptr;
}

}  // namespace

Staging::Staging(int64_t bytes) {
  if (bytes < kLeastBytes) return;
  static std::mutex users;
  static std::byte* memory = nullptr;
  static bool asked = false;
  alone_ = std::unique_lock(users);
  if (!asked && unlocked == nullptr)
    if (void* const driver = dlopen(kDriver, RTLD_NOW | RTLD_NOLOAD); driver != nullptr)
      memory = locked(driver), asked = true;
  area_ = unlocked != nullptr ? unlocked : memory;
  if (area_ == nullptr) alone_.unlock();
}

Staging::Unlocked::Unlocked() { unlocked = room(); }
Staging::Unlocked::~Unlocked() {
  ::operator delete (unlocked, std::align_val_t{4096});
  unlocked = nullptr;
}

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
#pragma omp parallel for schedule(static) if (bytes > 4 * kShare)
  for (int64_t at = 0; at < bytes; at += kShare)
    std::memcpy(to + at, from + at, static_cast<size_t>(std::min(kShare, bytes - at)));
}

int64_t first_difference(const std::byte* a, const std::byte* b, int64_t bytes) {
  int64_t first = bytes;
#pragma omp parallel for schedule(static) reduction(min : first) if (bytes > 4 * kShare)
  for (int64_t at = 0; at < bytes; at += kShare) {
    const int64_t share = std::min(kShare, bytes - at);
    if (std::memcmp(a + at, b + at, static_cast<size_t>(share)) == 0) continue;
    first = std::min<int64_t>(first, std::mismatch(a + at, a + at + share, b + at).first - a);
  }
  return first < bytes ? first : -1;
}

}  // namespace assay
