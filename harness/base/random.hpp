// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: value = f(seed, stream, index), the same on host and device, for any
// thread count and any order of evaluation. Philox4x32-10 (Salmon et al., SC'11).
#pragma once

#include <array>
#include <cstdint>

namespace assay {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// One independent sequence per (seed, stream). Streams are small integers with names (see Stream).
class CounterRng {
 public:
  CounterRng(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  uint64_t bits(uint64_t index) const;
  double uniform(uint64_t index) const;  // [0, 1), 53 bits
  // Close to a standard normal (mean 0, variance 1, kurtosis 2.85): the sum of eight 16-bit uniforms of
  // one counter block, integer arithmetic and one final multiplication, so a GPU gives the same bits
  // (no libm). |x| < 4.9.
  double normal(uint64_t index) const;
  // out[i] = normal(first + i), the same bits, in vector registers: large tensors are drawn this way.
  void normals(uint64_t first, int64_t count, double* out) const;
  uint64_t below(uint64_t index, uint64_t n) const;  // unbiased enough for n << 2^64: multiply-shift

 private:
  uint64_t seed_, stream_;
};

// Stream ids: adding one at the end keeps all old inputs unchanged.
enum Stream : uint64_t {
  kStreamQ = 1,
  kStreamK,
  kStreamV,
  kStreamSinks,
  kStreamTree,
  kStreamPages,
  kStreamLengths,
  kStreamScales,
  kStreamRecipe,
  kStreamSampling,
  kStreamPadding,    // padded rows of cache_write
  kStreamStarts,     // of gathered chunks
  kStreamStates,     // LSE of partial results
  kStreamSource,     // values a data op reads
  kStreamHeld,       // what a cache holds before it is written
  kStreamPositions,  // of first keys and rows
  kStreamPatterns,   // of input=patterned
  kStreamSlots,      // of the tokens of a page
  kStreamSchedule,   // which worker has what of a schedule, and how partial results are numbered
  kStreamEncoders,   // tokens of encoders
  kStreamPool,       // blocks of a full pool
};

}  // namespace assay
