// SPDX-License-Identifier: Apache-2.0
// Even shares of a number of tiles, computed by everybody alike.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace assay_sm90 {

// `total` tiles cut evenly over `workers`: worker i begins at floor(i * total / workers), without a division.
struct Cut {
  int quotient, rest;
  uint32_t magic;
  __device__ Cut(int total, int workers, uint32_t m) : magic(m) {
    quotient = static_cast<int>(__umulhi(total, m)), rest = total - quotient * workers;
    if (rest < 0) rest += workers, --quotient;
    if (workers == 1) quotient = total, rest = 0;  // 2^32 does not fit into m
  }
  __device__ int begin(int i) const { return i * quotient + static_cast<int>(__umulhi(i * rest, magic)); }
};

}  // namespace assay_sm90
