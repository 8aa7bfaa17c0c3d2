// SPDX-License-Identifier: Apache-2.0
// See schedule.hpp.
#include <stdexcept>

#include "kernels/emulator/sm90/testing/schedule.hpp"
#include "kernels/sm90/launch.h"
#include "kernels/sm90/prefill_producers.h"

namespace schedule {
namespace {

using namespace assay_sm90;

// A block of one warp that asks for all numbers, as the warp of a block of the kernel asks for its own.
template <class I, bool kAcross>
__global__ void write_prefill(const __grid_constant__ PrefillCall p, std::vector<RowTile>* out) {
  const int lane = threadIdx.x;
  Tiles<I, false, kAcross> tiles{p, lane};
  for (int number = 0;; ++number) {
    const Work w = tiles.find(number);
    if (!w.valid) return;
    if (lane == 0) out->push_back({w.request, w.head, w.row / I::kRows});
  }
}

}  // namespace

std::vector<RowTile> of_prefill(const PrefillCall& p, bool across) {
  using I = PrefillInstance<128, 128>;
  std::vector<RowTile> all;
  const auto kernel = across ? write_prefill<I, true> : write_prefill<I, false>;
  if (launch_kernel(kernel, {1, 32, 0, nullptr}, p, &all) != cudaSuccess)
    throw std::runtime_error("the launch that lists tiles failed");
  return all;
}

}  // namespace schedule
