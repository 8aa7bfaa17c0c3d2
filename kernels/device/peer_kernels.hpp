// SPDX-License-Identifier: Apache-2.0
// The exchanges of ranks that write into each other's memory (peers.cpp opens it), for messages so small
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

// What a rank sends to all: `heads` times `rows` pieces of piece_bytes, which lie anywhere. If there are
// several, of whole 8 bytes.
struct PeerRows {
  const unsigned char* from;
  int64_t heads, rows, piece_bytes, head_stride, row_stride;  // strides in bytes
  constexpr int64_t bytes() const { return heads * rows * piece_bytes; }
};
// Parts of a rank, made of the keys it has: for each rank `units` rows of `dims` numbers, an even number of
// them, with the log-sum-exp of each row. fp32, dense.
struct PeerParts {
  int64_t units;
  int32_t dims;
  const float* part;  // [ranks * units, dims]; undefined where its LSE is -inf
  const float* lse;   // [ranks * units]
  float* out;         // [units, dims]: the parts of this rank's units, each times exp(its LSE - total), added
  float* total;       // [units]: the LSE over all ranks
  constexpr int64_t bytes() const { return (units * (dims + 1) + units % 2) * 4; }
};

// Called by all ranks in the same order with the same sizes, on one stream each. Any alignment of bytes;
// floats lie as floats do.
// receive [ranks][heads, rows, piece]: what every rank sent.
gpu::Status launch_peer_gather(const Peers&, const PeerRows& send, void* receive, gpu::Stream);
// send [ranks][count] -> receive [count]: the sum, in the order of the ranks, of what is this rank's.
gpu::Status launch_peer_sum(const Peers&, const float* send, float* receive, int64_t count, gpu::Stream);
// In the order of the ranks, too: all-gather of LSE, correction and sum as one exchange.
gpu::Status launch_peer_parts(const Peers&, const PeerParts&, gpu::Stream);

}  // namespace assay_gpu
