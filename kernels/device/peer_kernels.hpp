// SPDX-License-Identifier: Apache-2.0
// The two exchanges of ranks that write into each other's memory (peers.cpp opens it), for messages so small
// that what a library of exchanges takes is its latency: a launch, and one way over the wire. Plain C++ on
// both sides.
#pragma once

#include <cstdint>

#include "kernels/dialect/gpu.h"

namespace assay_gpu {

constexpr int kMostPeers = 8;
constexpr int64_t kMostPeerBytes = 256 << 10;  // that a rank has for another; more is for the library

// Memory of every rank into which the others write: a place for each of them, twice, in turns of exchanges.
// Zeros at first.
constexpr int64_t kPeerPlaceBytes = 2 * kMostPeerBytes;
constexpr int64_t peer_room_bytes(int32_t ranks) { return 2 * ranks * kPeerPlaceBytes; }

struct Peers {
  int32_t rank, ranks;
  unsigned char* rooms[kMostPeers];  // of all ranks, as this one sees them
  uint32_t* turn;                    // of this rank: exchanges so far; blocks of this one that are through
};

// Called by all ranks in the same order with the same sizes, on one stream each. Any alignment of bytes;
// floats lie as floats do.
// receive [ranks][bytes]: what every rank sent.
gpu::Status launch_peer_gather(const Peers&, const void* send, void* receive, int64_t bytes, gpu::Stream);
// send [ranks][count] -> receive [count]: the sum, in the order of the ranks, of what is this rank's.
gpu::Status launch_peer_sum(const Peers&, const float* send, float* receive, int64_t count, gpu::Stream);

}  // namespace assay_gpu
