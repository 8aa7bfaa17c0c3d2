// SPDX-License-Identifier: Apache-2.0
// A BufferSet on a device. Each allocation is copied whole, guards included, so that writes past a buffer are
// seen wherever the device is; device addresses agree with the host's modulo a page, so that an operand is
// exactly as aligned as on the host. What the host holds is what the device must hold, unless somebody was
// allowed to write it.
#pragma once

#include <string>
#include <vector>

#include "harness/buffers/buffer_set.hpp"
#include "harness/device/backend.hpp"

namespace assay {

class DeviceBuffers {
 public:
  // Allocates and uploads every buffer of the set. InfrastructureError when the device cannot hold it.
  DeviceBuffers(const Backend&, BufferSet);
  ~DeviceBuffers();
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  const BufferSet& set() const { return set_; }
  // The device address of what lies at a host address; CheckError when that is in no buffer.
  void* address(const void* host) const;

  void upload(int buffer);                            // what the host's holds
  void upload(int buffer, int64_t from, int64_t to);  // bytes of GuardedBuffer::raw()
  // The whole allocation, layout of GuardedBuffer::raw().
  std::vector<std::byte> download(int buffer) const;
  // What the device holds between the guards becomes the host's image.
  void accept(int buffer);

  // Byte of the payload, or -1 when the device holds what the host does.
  int64_t changed_at(int buffer) const;
  // "o (byte 1 past its end)"; empty when both guards are whole.
  std::string broken_guard(int buffer) const;

 private:
  struct Allocation {
    void* pointer = nullptr;   // as the backend returned it
    std::byte* raw = nullptr;  // device address of GuardedBuffer::raw()
  };
  void release();
  [[noreturn]] void fail(const std::string& what, const char* error) const;
  void to_host(void* to, int buffer, int64_t offset, int64_t bytes) const;
  // Of the bytes [begin, end) of a buffer the first that is another one than the host's, or -1: by way of the
  // staging area, or of memory of the host's by all threads.
  int64_t first_staged_change(int buffer, int64_t begin, int64_t end) const;
  int64_t first_change(int buffer, int64_t begin, int64_t end) const;

  Backend backend_;
  BufferSet set_;
  std::vector<Allocation> allocations_;
};

}  // namespace assay
