// SPDX-License-Identifier: Apache-2.0
// See schedule.hpp.
#include <algorithm>
#include <stdexcept>

#include "kernels/emulator/sm90/testing/schedule.hpp"
#include "kernels/sm90/cut.h"
#include "kernels/sm90/decode_tiles.h"
#include "kernels/sm90/launch.h"
#include "kernels/sm90/mla_schedule.h"

namespace schedule {
namespace {

using namespace assay_sm90;

// A block is a worker, of one warp.
__global__ void write_mla(const __grid_constant__ MlaCall p, int item_rows, std::vector<Piece>* out) {
  const int worker = blockIdx.x;
  MlaPieces pieces(p, item_rows, worker, gridDim.x);
  for (MlaPiece w = pieces.take(); w.valid; w = pieces.take())
    if (threadIdx.x == 0) out->push_back({worker, w.request, 0, w.row / item_rows, w.tile, w.stop, w.part});
  mla_plan_merges(p, item_rows, gridDim.x);
}

__global__ void write_decode(const __grid_constant__ DecodeCall p, int workers, std::vector<Piece>* out) {
  int total = 0;
  for (int r = 0; r < p.requests; ++r) total += Request(p, r).tiles() * p.heads_kv;
  const Cut cut(total, workers, p.worker_magic);
  Cursor at{};
  while (at.request < p.requests && (at.of = Request(p, at.request), at.tiles = at.of.tiles()) == 0)
    ++at.request;
  for (int n = 0, worker = 0; n < total; ++n, at.next(p)) {
    const bool changes = n == cut.begin(worker + 1);
    while (n >= cut.begin(worker + 1)) ++worker;
    const int tile = at.of.first_tile() + at.tile;
    if (n == 0 || changes || at.tile == 0)
      out->push_back({worker, at.request, at.head, 0, tile, tile + 1, 0});
    else
      ++out->back().stop;
  }
}

uint32_t magic(int workers) {
  return static_cast<uint32_t>((uint64_t{1} << 32) / static_cast<uint32_t>(workers)) + 1;
}

}  // namespace

std::vector<Piece> of_mla(MlaCall p, int item_rows, int workers, std::vector<MlaMergePlan>& plans) {
  std::vector<Piece> all;
  plans.assign(static_cast<size_t>(p.requests) * p.items, {-2, -2, -2, -2});
  p.plans = plans.data(), p.worker_magic = magic(workers);
  if (launch_kernel(write_mla, {workers, 32, 0, nullptr}, p, item_rows, &all) != cudaSuccess)
    throw std::runtime_error("the schedule's launch failed");
  // Blocks run in any order.
  std::stable_sort(all.begin(), all.end(),
                   [](const Piece& a, const Piece& b) { return a.worker < b.worker; });
  return all;
}

std::vector<Piece> of_decode(DecodeCall p, int workers) {
  std::vector<Piece> all;
  p.worker_magic = magic(workers);
  p.all_keys = p.window_left < 0 && p.window_right < 0 && p.chunk == 0;
  if (launch_kernel(write_decode, {1, 1, 0, nullptr}, p, workers, &all) != cudaSuccess)
    throw std::runtime_error("the schedule's launch failed");
  return all;
}

}  // namespace schedule
