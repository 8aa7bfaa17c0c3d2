// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: ten rounds of two 32 x 32 -> 64 bit products and xors over a 128-bit counter, with a
// 64-bit key that advances by a Weyl constant per round. Source of the constants and of the round: Salmon,
// Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11. A new kind of draw belongs
// here as another function of one counter block, so that a device can repeat it.
#include "harness/base/random.hpp"

#if defined(__AVX512F__)
#  include <immintrin.h>
#endif

namespace assay {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;  // golden ratio
constexpr uint32_t kWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
constexpr int kRounds = 10;

// Blocks computed side by side: two 512-bit registers of 32-bit words, which hides the multiplier latency.
constexpr int kLanes = 32;

// A sum of eight uniforms on {0..65535} has mean 8 * 65535 / 2 and variance 8 * (2^32 - 1) / 12.
constexpr int64_t kNormalMean = 262140;
constexpr double kNormalScale = 1.8688123650118534e-05;  // 1 / sqrt(8 * (2^32 - 1) / 12)

int64_t halves(uint32_t word) { return static_cast<int64_t>(word & 0xFFFFu) + (word >> 16); }

struct Lanes {
  alignas(64) uint32_t word[4][kLanes];
};

// Both halves of the products of kLanes words with one multiplier.
#if defined(__AVX512F__)
// The compiler would multiply 64 by 64 bits, which takes three times as long.
inline void multiply(const uint32_t* words, uint32_t multiplier, uint32_t* low, uint32_t* high) {
  constexpr __mmask16 kOdd = 0xAAAA;
  const __m512i by = _mm512_set1_epi64(multiplier);
  for (int i = 0; i < kLanes; i += 16) {
    const __m512i w = _mm512_load_si512(words + i);
    const __m512i even = _mm512_mul_epu32(w, by), odd = _mm512_mul_epu32(_mm512_srli_epi64(w, 32), by);
    _mm512_store_si512(low + i, _mm512_mask_blend_epi32(kOdd, even, _mm512_slli_epi64(odd, 32)));
    _mm512_store_si512(high + i, _mm512_mask_blend_epi32(kOdd, _mm512_srli_epi64(even, 32), odd));
  }
}
#else
inline void multiply(const uint32_t* words, uint32_t multiplier, uint32_t* low, uint32_t* high) {
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t product = uint64_t{multiplier} * words[i];
    low[i] = static_cast<uint32_t>(product), high[i] = static_cast<uint32_t>(product >> 32);
  }
}
#endif

void philox_lanes(Lanes& c, uint32_t key0, uint32_t key1) {
  alignas(64) uint32_t low0[kLanes], high0[kLanes], low1[kLanes], high1[kLanes];
  for (int round = 0; round < kRounds; ++round) {
    multiply(c.word[0], kMultiplier0, low0, high0);
    multiply(c.word[2], kMultiplier1, low1, high1);
    for (int i = 0; i < kLanes; ++i) {
      c.word[0][i] = high1[i] ^ c.word[1][i] ^ key0;
      c.word[2][i] = high0[i] ^ c.word[3][i] ^ key1;
      c.word[1][i] = low1[i];
      c.word[3][i] = low0[i];
    }
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
}

std::array<uint32_t, 4> block(uint64_t seed, uint64_t stream, uint64_t index) {
  return philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                     static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * c[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * c[2];
    c = {static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return c;
}

uint64_t CounterRng::bits(uint64_t index) const {
  const auto w = block(seed_, stream_, index);
  return w[0] | uint64_t{w[1]} << 32;
}

double CounterRng::uniform(uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1p-53; }

double CounterRng::normal(uint64_t index) const {
  const auto w = block(seed_, stream_, index);
  const int64_t sum = halves(w[0]) + halves(w[1]) + halves(w[2]) + halves(w[3]);
  return static_cast<double>(sum - kNormalMean) * kNormalScale;
}

void CounterRng::normals(uint64_t first, int64_t count, double* out) const {
  Lanes lanes;
  for (int64_t start = 0; start < count; start += kLanes) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t index = first + static_cast<uint64_t>(start + i);
      lanes.word[0][i] = static_cast<uint32_t>(index);
      lanes.word[1][i] = static_cast<uint32_t>(index >> 32);
      lanes.word[2][i] = static_cast<uint32_t>(stream_);
      lanes.word[3][i] = static_cast<uint32_t>(stream_ >> 32);
    }
    philox_lanes(lanes, static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32));
    const int n = static_cast<int>(count - start < kLanes ? count - start : kLanes);
    for (int i = 0; i < n; ++i) {
      int32_t sum = 0;
      for (const auto& word : lanes.word)
        sum += static_cast<int32_t>(word[i] & 0xFFFFu) + static_cast<int32_t>(word[i] >> 16);
      out[start + i] = static_cast<double>(sum - static_cast<int32_t>(kNormalMean)) * kNormalScale;
    }
  }
}

uint64_t CounterRng::below(uint64_t index, uint64_t n) const {
  // High half of the 64 x 64 bit product, by 32-bit halves: __int128 is not ISO C++.
  const uint64_t x = bits(index);
  const uint64_t x0 = x & 0xFFFFFFFFu, x1 = x >> 32, n0 = n & 0xFFFFFFFFu, n1 = n >> 32;
  const uint64_t middle = x1 * n0 + ((x0 * n0) >> 32);
  const uint64_t carry = (middle & 0xFFFFFFFFu) + x0 * n1;
  return x1 * n1 + (middle >> 32) + (carry >> 32);
}

}  // namespace assay
