// SPDX-License-Identifier: Apache-2.0
// An allocation with a guard page before and after its payload, both filled with one byte, so that a
// kernel writing out of bounds is caught even when the stray write hits no other operand. The payload
// starts on a page, which also keeps vector loads and DMA aligned. The content starts undefined: the
// builder writes every byte, values or poison.
#include "harness/buffers/guarded_buffer.hpp"

#include <sys/mman.h>

#include <cstring>
#include <limits>
#include <new>

#include "harness/base/error.hpp"

namespace assay {
namespace {

constexpr std::align_val_t kAlignment{4096};
static_assert(kGuardBytes % 4096 == 0, "the payload behind the guard must stay page-aligned");

}  // namespace

GuardedBuffer::GuardedBuffer(int64_t payload_bytes) : bytes_(payload_bytes) {
  ASSAY_CHECK(payload_bytes >= 0, "a buffer of {} bytes", payload_bytes);
  const auto total = static_cast<size_t>(payload_bytes + 2 * kGuardBytes);
  auto* memory = static_cast<std::byte*>(::operator new(total, kAlignment, std::nothrow));
  if (memory == nullptr) throw InfrastructureError(fmt::format("no memory for a buffer of {} bytes", total));
  storage_ = std::shared_ptr<std::byte[]>(memory, [](std::byte* p) { ::operator delete(p, kAlignment); });
  base_ = memory + kGuardBytes;
  std::memset(memory, kGuardByte, kGuardBytes);
  std::memset(base_ + payload_bytes, kGuardByte, kGuardBytes);
}

GuardedBuffer::GuardedBuffer(int64_t payload_bytes, const std::vector<ByteRange>& kept)
    : bytes_(payload_bytes) {
  ASSAY_CHECK(payload_bytes >= 0, "a buffer of {} bytes", payload_bytes);
  const auto total = static_cast<size_t>(payload_bytes + 2 * kGuardBytes);
  void* memory =
      mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw InfrastructureError(fmt::format("no addresses for a sparse buffer of {} bytes", total));
  storage_ = std::shared_ptr<std::byte[]>(static_cast<std::byte*>(memory),
                                          [total](std::byte* p) { munmap(p, total); });
  // Huge pages would give a whole one to every key.
  madvise(memory, total, MADV_NOHUGEPAGE);
  base_ = storage_.get() + kGuardBytes;
  std::memset(storage_.get(), kGuardByte, kGuardBytes);
  std::memset(base_ + payload_bytes, kGuardByte, kGuardBytes);
  std::vector<ByteRange> held = {{0, kGuardBytes}};
  const auto add = [&](int64_t begin, int64_t end) {
    ASSAY_CHECK(begin >= held.back().end && begin <= end && end <= static_cast<int64_t>(total),
                "bytes {} to {} of {} behind {}", begin, end, total, held.back().end);
    if (begin == held.back().end)
      held.back().end = end;
    else
      held.push_back({begin, end});
  };
  for (const ByteRange& range : kept) add(kGuardBytes + range.begin, kGuardBytes + range.end);
  add(kGuardBytes + payload_bytes, static_cast<int64_t>(total));
  held_ = std::make_shared<const std::vector<ByteRange>>(std::move(held));
}

std::vector<ByteRange> GuardedBuffer::held() const {
  if (held_ != nullptr) return *held_;
  return {{0, raw_bytes()}};
}

std::byte* GuardedBuffer::payload() { return base_; }
const std::byte* GuardedBuffer::payload() const { return base_; }
const std::byte* GuardedBuffer::raw() const { return storage_.get(); }
int64_t GuardedBuffer::raw_bytes() const { return storage_ ? bytes_ + 2 * kGuardBytes : 0; }

int64_t broken_guard(const std::byte* raw, int64_t payload_bytes) {
  for (int64_t i = 0; i < kGuardBytes; ++i)
    if (raw[i] != std::byte{kGuardByte}) return i - kGuardBytes;
  const std::byte* behind = raw + kGuardBytes + payload_bytes;
  for (int64_t i = 0; i < kGuardBytes; ++i)
    if (behind[i] != std::byte{kGuardByte}) return payload_bytes + i;
  return std::numeric_limits<int64_t>::max();
}

}  // namespace assay
