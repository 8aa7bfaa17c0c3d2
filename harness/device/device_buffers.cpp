// SPDX-License-Identifier: Apache-2.0
// See device_buffers.hpp.
#include "harness/device/device_buffers.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "harness/base/error.hpp"
#include "harness/device/library_text.hpp"
#include "harness/device/staging.hpp"

namespace assay {
namespace {

constexpr int64_t kPage = 4096;
constexpr size_t kErrorBytes = 512;
// Buffers are compared in pieces, so that checking a large cache does not double its memory.
constexpr int64_t kPieceBytes = int64_t{16} << 20;
static_assert(kPieceBytes <= Staging::kBytes);
// Of memory of the host: so little that what was copied is still in its thread's cache when it is compared.
constexpr int64_t kCachedBytes = int64_t{128} << 10;

}  // namespace

DeviceBuffers::DeviceBuffers(const Backend& backend, BufferSet set)
    : backend_(backend), set_(std::move(set)) {
  for (int i = 0; i < set_.count(); ++i) {
    const GuardedBuffer& host = set_[i];
    Allocation a;
    char error[kErrorBytes] = "";
    const int64_t bytes = host.raw_bytes() + kPage;  // room to agree with the host's address modulo a page
    if (backend_.table()->allocate(bytes, &a.pointer, error, sizeof(error)) != ASSAY_OK ||
        a.pointer == nullptr) {
      release();
      fail(fmt::format("{} bytes for {}", bytes, set_.name(i)), error);
    }
    const auto wanted = reinterpret_cast<uintptr_t>(host.raw()), got = reinterpret_cast<uintptr_t>(a.pointer);
    a.raw = static_cast<std::byte*>(a.pointer) + (wanted - got) % kPage;
    allocations_.push_back(a);
  }
  try {
    for (int i = 0; i < set_.count(); ++i) upload(i);
  } catch (...) {
    release();
    throw;
  }
}

DeviceBuffers::~DeviceBuffers() { release(); }

void DeviceBuffers::release() {
  char error[kErrorBytes];
  for (const Allocation& a : allocations_) backend_.table()->release(a.pointer, error, sizeof(error));
  allocations_.clear();
}

void DeviceBuffers::fail(const std::string& what, const char* error) const {
  throw InfrastructureError(
      fmt::format("backend {}: {}: {}", backend_.name(), what, library_text(error, kErrorBytes)));
}

void* DeviceBuffers::address(const void* host) const {
  const int buffer = set_.containing(host);
  ASSAY_CHECK(buffer >= 0, "a view of no buffer of its set");
  return allocations_[buffer].raw + (static_cast<const std::byte*>(host) - set_[buffer].raw());
}

void DeviceBuffers::upload(int buffer) {
  for (const ByteRange& range : set_[buffer].held()) upload(buffer, range.begin, range.end);
}

void DeviceBuffers::upload(int buffer, int64_t from, int64_t to) {
  const Staging staging(to - from);
  std::byte* const staged = staging.area();
  const int64_t piece = staged != nullptr ? Staging::kBytes : std::max<int64_t>(to - from, 1);
  for (int64_t at = from; at < to; at += piece) {
    const int64_t bytes = std::min(piece, to - at);
    const std::byte* source = set_[buffer].raw() + at;
    if (staged != nullptr) copy_bytes(staged, source, bytes), source = staged;
    char error[kErrorBytes] = "";
    if (backend_.table()->copy_to_device(allocations_[buffer].raw + at, source, bytes, error,
                                         sizeof(error)) != ASSAY_OK)
      fail("copy to the device", error);
  }
}

void DeviceBuffers::to_host(void* to, int buffer, int64_t offset, int64_t bytes) const {
  char error[kErrorBytes] = "";
  if (backend_.table()->copy_to_host(to, allocations_[buffer].raw + offset, bytes, error, sizeof(error)) !=
      ASSAY_OK)
    fail("copy to the host", error);
}

std::vector<std::byte> DeviceBuffers::download(int buffer) const {
  ASSAY_CHECK(!set_[buffer].sparse(), "{} is sparse and not to be copied whole", set_.name(buffer));
  std::vector<std::byte> raw(set_[buffer].raw_bytes());
  to_host(raw.data(), buffer, 0, set_[buffer].raw_bytes());
  return raw;
}

void DeviceBuffers::accept(int buffer) {
  GuardedBuffer host = set_[buffer];  // a handle of the same memory
  ASSAY_CHECK(!host.sparse(), "{} is sparse and not to be copied whole", set_.name(buffer));
  to_host(host.payload(), buffer, host.payload() - host.raw(), host.bytes());
}

int64_t DeviceBuffers::changed_at(int buffer) const {
  const GuardedBuffer& host = set_[buffer];
  const int64_t front = host.payload() - host.raw();
  for (const ByteRange& held : host.held()) {
    const int64_t begin = std::max(held.begin, front), end = std::min(held.end, front + host.bytes());
    const bool staged = Staging(end - begin).area() != nullptr || backend_.table()->host_memory != 1;
    const int64_t first = staged ? first_staged_change(buffer, begin, end) : first_change(buffer, begin, end);
    if (first >= 0) return first - front;
  }
  return -1;
}

int64_t DeviceBuffers::first_staged_change(int buffer, int64_t begin, int64_t end) const {
  std::vector<std::byte> own;
  for (int64_t at = begin; at < end; at += kPieceBytes) {
    const int64_t bytes = std::min(kPieceBytes, end - at);
    const Staging staging(bytes);
    std::byte* piece = staging.area();
    if (piece == nullptr) own.resize(bytes), piece = own.data();
    to_host(piece, buffer, at, bytes);
    const int64_t first = first_difference(piece, set_[buffer].raw() + at, bytes);
    if (first >= 0) return at + first;
  }
  return -1;
}

int64_t DeviceBuffers::first_change(int buffer, int64_t begin, int64_t end) const {
  const std::byte* const host = set_[buffer].raw();
  int64_t first = end;
  bool failed = false;
#pragma omp parallel if (end - begin > 4 * kCopyShareBytes) reduction(min : first) reduction(|| : failed)
  {
    const std::unique_ptr<std::byte[]> piece(new (std::nothrow) std::byte[kCachedBytes]);
    char error[kErrorBytes] = "";
#pragma omp for schedule(static)
    for (int64_t at = begin; at < end; at += kCachedBytes) {
      const int64_t bytes = std::min(kCachedBytes, end - at);
      failed = failed || piece == nullptr ||
               backend_.table()->copy_to_host(piece.get(), allocations_[buffer].raw + at, bytes, error,
                                              sizeof(error)) != ASSAY_OK;
      if (failed || std::memcmp(piece.get(), host + at, static_cast<size_t>(bytes)) == 0) continue;
      first = std::min(first, at + first_difference(piece.get(), host + at, bytes));
    }
  }
  if (failed) fail("copy to the host", "no memory for a piece");
  return first < end ? first : -1;
}

std::string DeviceBuffers::broken_guard(int buffer) const {
  // Only the guards travel; the payload in between is left unread.
  const GuardedBuffer& host = set_[buffer];
  const int64_t front = host.payload() - host.raw();
  const int64_t back = host.raw_bytes() - front - host.bytes();
  std::vector<std::byte> guards(front + back);
  to_host(guards.data(), buffer, 0, front);
  to_host(guards.data() + front, buffer, front + host.bytes(), back);
  if (std::memcmp(guards.data(), host.raw(), front) == 0 &&
      std::memcmp(guards.data() + front, host.payload() + host.bytes(), back) == 0)
    return {};
  std::vector<std::byte> expected(front + back);
  std::memcpy(expected.data(), host.raw(), front);
  std::memcpy(expected.data() + front, host.payload() + host.bytes(), back);
  const auto first = std::mismatch(guards.begin(), guards.end(), expected.begin()).first - guards.begin();
  return first < front ? fmt::format("{} (byte {} before its start)", set_.name(buffer), front - first)
                       : fmt::format("{} (byte {} past its end)", set_.name(buffer), first - front + 1);
}

}  // namespace assay
