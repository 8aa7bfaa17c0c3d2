// SPDX-License-Identifier: Apache-2.0
// Cold-cache samples on the CPU: between two samples every hardware thread walks and writes an array
// more than twice as large as a private cache, so no operand survives in one. The cache shared by all
// cores is left alone: on server parts it is hundreds of MiB, serving reads through it too, and
// a cold row says "private caches cold", no more. GPU backends flush their own L2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay {

class CacheFlusher {
 public:
  // private_cache_bytes: assay_device.cache_bytes; 0 or less takes 4 MiB, more than any L2 of today's CPUs
  // that lack a way to ask. `threads`: hardware threads to flush from.
  CacheFlusher(int64_t private_cache_bytes, int32_t threads);
  // For kernels on this host: no less than its own caches and processors, whatever a library says of them.
  static CacheFlusher of_host(const assay_device&);
  void flush();
  int32_t threads() const { return threads_; }
  int64_t bytes_per_thread() const { return static_cast<int64_t>(words_per_thread_) * 8; }
  // Changes by one per word and flush: tests see that every line was written.
  uint64_t checksum() const;

 private:
  int32_t threads_;
  size_t words_per_thread_;
  std::vector<uint64_t> words_;
};

}  // namespace assay
