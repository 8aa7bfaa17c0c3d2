// SPDX-License-Identifier: Apache-2.0
// The exchanges of peer_kernels.hpp for the ranks of a group: their memory, opened in each other's processes.
#pragma once

#include <functional>

#include "kernels/device/peer_kernels.hpp"

namespace assay_gpu {

struct PeerExchanges {
  Peers peers;
  decltype(&launch_peer_gather) gather;
  decltype(&launch_peer_sum) sum;
  decltype(&launch_peer_parts) parts;
};

// Called by all ranks of a group. gather: receive [ranks][bytes] what all sent, host memory; whether it did.
// Null where a rank cannot: then for all of them; and where they are not asked to (ASSAY_EXCHANGE=peers, in
// the environment of all), then without a call of gather. Lives as long as the process.
using GatherOnHost = std::function<bool(const void* send, void* receive, int64_t bytes)>;
const PeerExchanges* open_peers(int32_t rank, int32_t ranks, const GatherOnHost& gather);

}  // namespace assay_gpu
