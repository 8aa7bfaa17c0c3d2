// SPDX-License-Identifier: Apache-2.0
// Memory of the host that a device's driver knows (page-locked), through which large copies go in pieces. A
// driver copies other memory through a small area of its own, with one thread: caches of gigabytes, uploaded
// and compared some ten times for each timed row, then take most of a run. Filling and comparing a piece is
// shared among threads here. Buffers themselves are not locked: that takes as long as a copy, and a kernel
// that was handed an address of the host's could work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace assay {

// The one area of a process, for whoever holds this. Made by the first large copy before which a backend has
// loaded a driver.
class Staging {
 public:
  static constexpr int64_t kBytes = int64_t{32} << 20;
  explicit Staging(int64_t bytes);  // that are to be copied
  // Null where so few bytes cost a call and no time, without a driver, and where it refuses.
  std::byte* area() const { return area_; }
  // While it lives, areas are memory that no driver knows: for tests on machines without a device.
  class Unlocked {
   public:
    Unlocked();
    ~Unlocked();
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
  };

 private:
  std::unique_lock<std::mutex> alone_;
  std::byte* area_ = nullptr;
};

// Copies and comparisons of memory of the host are cut into such shares, one a thread at a time, where there
// are several for each: a share takes longer than it takes to wake a thread.
inline constexpr int64_t kCopyShareBytes = int64_t{256} << 10;

// memcpy by all threads; the first byte at which two pieces differ, or -1.
void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes);
int64_t first_difference(const std::byte* a, const std::byte* b, int64_t bytes);

}  // namespace assay
