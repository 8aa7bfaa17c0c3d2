// SPDX-License-Identifier: Apache-2.0
// What the adapters of this folder share: refusals in words, places in the workspace, facts about the device.
#pragma once

#include <assay/assay_arithmetic.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <assay/assay_kit.hpp>

namespace peer {

inline int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int multiprocessors() {
  static const int count = [] {
    int device = 0, n = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    return std::max(1, n);
  }();
  return count;
}

// Bytes of the workspace, one piece after the other; offsets from its start.
class Places {
 public:
  int64_t take(int64_t bytes) {
    const int64_t start = bytes_;
    bytes_ += up(bytes, 256) * 256;
    return start;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

// Strides that a tensor map takes: elements of `bytes`, all axes but the last (packed) at multiples of 16.
inline bool for_maps(const assay_tensor& t, int bytes) {
  for (int i = 0; i + 1 < t.rank; ++i)
    if (t.shape[i] > 1 && t.stride[i] * bytes % 16 != 0) return false;
  return t.rank > 0 && (t.shape[t.rank - 1] <= 1 || t.stride[t.rank - 1] == 1) &&
         reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

// True where every request has as many new tokens (and keys, if asked for) as the first.
inline bool alike(const assay_problem* p, bool keys) {
  for (int32_t r = 0; r < p->requests; ++r)
    if (p->q_len[r] != p->q_len[0] || (keys && p->kv_len[r] != p->kv_len[0])) return false;
  return p->requests > 0 && p->q_len[0] > 0;
}

// Refusals common to all: none of the peers knows these.
inline const char* common_refusal(const assay_problem* p) {
  if (p->first_key != nullptr || p->positions != nullptr) return "peer: no positions of keys or rows";
  if (p->mask == ASSAY_MASK_TREE) return "peer: no trees";
  if (p->alibi != 0 || p->chunk > 0 || p->softcap > 0) return "peer: no ALiBi, chunks, soft cap";
  return nullptr;
}

}  // namespace peer
