// SPDX-License-Identifier: Apache-2.0
// The decode kernel of one request or a few short ones (decode_one.h): its instances, and how large clusters
// may be.
#include <array>

#include "kernels/sm90/decode_one.h"

namespace assay_sm90 {
namespace {

using OneOf16 = OneInstance<DecodeCodes::k16>;
using OneOfE4m3 = OneInstance<DecodeCodes::kE4m3>;

// How many clusters of so many blocks run at the same time: a cluster lies within one part of the device,
// and these are not all of one size, so it is asked for, once.
const std::array<int, kMostCluster + 1>& clusters_at_once() {
  static const std::array<int, kMostCluster + 1> count = [] {
    std::array<int, kMostCluster + 1> n{};
    if (ready_one<OneOf16, false>() != cudaSuccess) return n;
    for (int size = 1; size <= kMostCluster; ++size) {
      cudaLaunchAttribute attribute{};
      const cudaLaunchConfig_t config = launch_config({.grid = size,
                                                       .threads = OneOf16::kThreads,
                                                       .bytes = OneOf16::kShared,
                                                       .stream = {},
                                                       .cluster = size},
                                                      attribute);
      if (cudaOccupancyMaxActiveClusters(&n[static_cast<size_t>(size)], decode_one<OneOf16, false>,
                                         &config) != cudaSuccess)
        n[static_cast<size_t>(size)] = 0;
    }
    return n;
  }();
  return count;
}

}  // namespace

int32_t decode_cluster(const DecodeShape& shape, int32_t requests, int32_t heads_kv, int32_t most_keys,
                       int32_t grid) {
  // Half of the machine reads one request as fast as all of it. Of several the longest is not shared by all
  // blocks: at so many keys for each of its own it takes no longer than the list would. One block for each is
  // no faster.
  constexpr int32_t kMostKeysOfABlock = 1024, kLeastOfSeveral = 2;
  if (shape.half || shape.packed || shape.blocks != 1 ||
      (shape.codes != DecodeCodes::kE4m3 && shape.codes != DecodeCodes::k16))
    return 0;
  const int64_t segments = int64_t{requests} * heads_kv;
  int32_t size = kMostCluster;
  while (size > 0 && clusters_at_once()[static_cast<size_t>(size)] < segments) --size;
  if (requests > 1 && (size < kLeastOfSeveral || most_keys > kMostKeysOfABlock * size)) return 0;
  return size * segments * 20 >= grid * 9 ? size : 0;
}

cudaError_t launch_decode_one(DecodeCall p, const DecodeShape& shape, cudaStream_t stream) {
  const bool several = p.requests > 1;
  if (shape.codes == DecodeCodes::k16)
    return several ? launch_one<OneOf16, true>(p, stream) : launch_one<OneOf16, false>(p, stream);
  return several ? launch_one<OneOfE4m3, true>(p, stream) : launch_one<OneOfE4m3, false>(p, stream);
}

}  // namespace assay_sm90
