// SPDX-License-Identifier: Apache-2.0
// See cold.hpp. Reading and writing each line evicts clean and dirty lines alike, and a write cannot be
// dropped by the compiler.
#include "harness/measure/cold.hpp"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

namespace assay {
namespace {
constexpr int64_t kDefaultCacheBytes = 4 << 20;
constexpr size_t kWordsPerLine = 8;
}  // namespace

CacheFlusher::CacheFlusher(int64_t private_cache_bytes, int32_t threads) : threads_(std::max(threads, 1)) {
  const int64_t cache = private_cache_bytes > 0 ? private_cache_bytes : kDefaultCacheBytes;
  // 2.5 times the cache: replacement is not exactly least recently used.
  words_per_thread_ = (static_cast<size_t>(cache) * 5 / 2 / 64 + 1) * kWordsPerLine;
  words_.assign(words_per_thread_ * static_cast<size_t>(threads_), 0);
}

CacheFlusher CacheFlusher::of_host(const assay_device& device) {
  return {std::max<int64_t>(device.cache_bytes, sysconf(_SC_LEVEL2_CACHE_SIZE)),
          std::max(device.multiprocessors, omp_get_num_procs())};
}

void CacheFlusher::flush() {
  uint64_t* all = words_.data();
  const auto threads = threads_;
  const auto words = words_per_thread_;
#pragma omp parallel for schedule(static, 1) num_threads(threads)
  for (int32_t t = 0; t < threads; ++t) {
    uint64_t* mine = all + static_cast<size_t>(t) * words;
    for (size_t w = 0; w < words; w += kWordsPerLine) ++mine[w];
  }
}

uint64_t CacheFlusher::checksum() const { return std::accumulate(words_.begin(), words_.end(), uint64_t{0}); }

}  // namespace assay
