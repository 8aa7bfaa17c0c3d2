// SPDX-License-Identifier: Apache-2.0
// See queries.hpp.
#include <algorithm>
#include <stdexcept>

#include "kernels/emulator/sm90/testing/queries.hpp"
#include "kernels/sm90/decode_products.h"
#include "kernels/sm90/launch.h"

namespace queries {
namespace {

using namespace assay_sm90;

__global__ void prepare_rows(Lane* warp) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Lane& own = warp[lane];
  const DecodeCall call{};
  Products<DecodeInstance<false, DecodeCodes::kE4m3, false, 1>> products{call, lane, nullptr, 0, nullptr};
  std::copy(own.q.begin(), own.q.end(), products.q[0]);
  products.prepare_queries(8, 1.f);
  std::copy_n(products.q[0], own.q.size(), own.q.begin());
  own.scales = {products.to_log2[0], products.to_log2[1]}, own.narrow = products.narrow;
}

}  // namespace

void prepare(std::array<Lane, 32>& warp) {
  if (assay_sm90::launch_kernel(prepare_rows, {1, 32, 0, nullptr}, warp.data()) != cudaSuccess)
    throw std::runtime_error("the launch of a warp failed");
}

}  // namespace queries
