// SPDX-License-Identifier: Apache-2.0
// An allocation between two guard zones, so that a write out of bounds shows even where it hits no other
// operand. Copies are handles of the same memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace assay {

inline constexpr int64_t kGuardBytes = 4096;  // before and after every buffer
inline constexpr uint8_t kGuardByte = 0xA5;

// One allocation with guards. payload() is 64-byte aligned (page-aligned for sizes >= 4096).
class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  explicit GuardedBuffer(int64_t payload_bytes);
  std::byte* payload();
  const std::byte* payload() const;
  int64_t bytes() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }
  // Whole allocation with both guards, for uploading in one copy.
  const std::byte* raw() const;
  int64_t raw_bytes() const;

 private:
  int64_t bytes_ = 0;
  std::shared_ptr<std::byte[]> storage_;
  std::byte* base_ = nullptr;
};

// Offset of the first guard byte that changed, relative to the payload (negative: before it), or
// INT64_MAX when both guards are whole. `raw` has the layout of GuardedBuffer::raw().
int64_t broken_guard(const std::byte* raw, int64_t payload_bytes);

}  // namespace assay
