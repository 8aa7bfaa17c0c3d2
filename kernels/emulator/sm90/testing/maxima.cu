// SPDX-License-Identifier: Apache-2.0
// See maxima.hpp.
#include <algorithm>
#include <stdexcept>

#include "kernels/emulator/sm90/testing/maxima.hpp"
#include "kernels/sm90/launch.h"
#include "kernels/sm90/softmax.h"

namespace maxima {
namespace {

template <bool kBits>
__global__ void find_rows(Lane* warp) {
  Lane& own = warp[threadIdx.x % 32];
  float scores[kScores];
  std::copy(own.scores.begin(), own.scores.end(), scores);
  for (int r = 0; r < 2; ++r) own.found[r] = assay_sm90::row_maximum<kBits>(scores, r, own.tops[r]);
}

}  // namespace

void find(bool bits, std::array<Lane, 32>& warp) {
  const auto kernel = bits ? find_rows<true> : find_rows<false>;
  if (assay_sm90::launch_kernel(kernel, {1, 32, 0, nullptr}, warp.data()) != cudaSuccess)
    throw std::runtime_error("the launch of a warp failed");
}

}  // namespace maxima
