// SPDX-License-Identifier: Apache-2.0
// See products.hpp. A block is one warp and one product.
#include "kernels/emulator/testing/products.hpp"

namespace products {
namespace {

template <class Half>
__global__ void multiply_kernel(const Data d, const int exchanged) {
  const int lane = threadIdx.x, member = gpu::member_of(lane);
  const int64_t first = int64_t{blockIdx.x} * kSize;
  const auto at = [&](int row, int column) { return first + row * 16 + column; };
  gpu::Operand a{}, b{};
  gpu::Sums sums;
  for (int i = 0; i < gpu::kLines; ++i)
    for (int p = 0; p < gpu::kPlaces; ++p) {
      const int line = gpu::line_of(lane, i), place = gpu::place(member, p);
      a.word[i][p / 2] |= static_cast<uint32_t>(d.a[at(line, place)]) << (p % 2 * 16);
      b.word[i][p / 2] |= static_cast<uint32_t>(d.b[at(place, line)]) << (p % 2 * 16);
      sums.at[i][p] = d.c[at(line, place)];
    }
  const int from = lane == 1 || lane == 2 ? 3 - lane : lane;
  if (exchanged == 0) a = gpu::shfl(a, from);
  if (exchanged == 1) b = gpu::shfl(b, from);
  gpu::multiply<Half>(sums, a, b);
  if (exchanged == 2) sums = gpu::shfl(sums, from);
  for (int i = 0; i < gpu::kLines; ++i)
    for (int p = 0; p < gpu::kPlaces; ++p)
      d.d[at(gpu::line_of(lane, i), gpu::place(member, p))] = sums.at[i][p];
}

gpu::Status launch(const Data& d, Format format, int exchanged) {
  return gpu::launch(format == Format::bf16 ? multiply_kernel<gpu::Bf16> : multiply_kernel<gpu::Fp16>,
                     static_cast<unsigned>(d.count), gpu::kWarp, 0, nullptr, d, exchanged);
}

}  // namespace

gpu::Status multiply(const Data& d, Format format) { return launch(d, format, -1); }
gpu::Status multiply_exchanged(const Data& d, Format format, int which) { return launch(d, format, which); }

}  // namespace products
