// SPDX-License-Identifier: Apache-2.0
// An allocation between two guard zones, so that a write out of bounds shows even where it hits no other
// operand. Copies are handles of the same memory. One that is far larger than what it holds is sparse:
// address space of which only the pages that somebody writes take memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace assay {

inline constexpr int64_t kGuardBytes = 4096;  // before and after every buffer
inline constexpr uint8_t kGuardByte = 0xA5;

// Bytes begin .. end - 1 of GuardedBuffer::raw().
struct ByteRange {
  int64_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

// One allocation with guards. payload() is 64-byte aligned (page-aligned for sizes >= 4096).
class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  explicit GuardedBuffer(int64_t payload_bytes);
  // All zeros, and without memory but for what is written. What lies outside of `kept` (bytes of the payload,
  // ascending, apart from each other) is neither copied to a device nor compared.
  GuardedBuffer(int64_t payload_bytes, const std::vector<ByteRange>& kept);
  std::byte* payload();
  const std::byte* payload() const;
  int64_t bytes() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }
  // Whole allocation with both guards, for uploading in one copy.
  const std::byte* raw() const;
  int64_t raw_bytes() const;
  // What of raw() is held and compared, ascending, guards included: all of it, unless the buffer is sparse.
  std::vector<ByteRange> held() const;
  bool sparse() const { return held_ != nullptr; }

 private:
  int64_t bytes_ = 0;
  std::shared_ptr<std::byte[]> storage_;
  std::shared_ptr<const std::vector<ByteRange>> held_;  // of a sparse buffer
  std::byte* base_ = nullptr;
};

// Offset of the first guard byte that changed, relative to the payload (negative: before it), or
// INT64_MAX when both guards are whole. `raw` has the layout of GuardedBuffer::raw().
int64_t broken_guard(const std::byte* raw, int64_t payload_bytes);

}  // namespace assay
