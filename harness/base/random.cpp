// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: ten rounds of two 32 x 32 -> 64 bit products and xors over a 128-bit counter, with a
// 64-bit key that advances by a Weyl constant per round. Source of the constants and of the round: Salmon,
// Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11. A new kind of draw belongs
// here as another function of one counter block, so that a device can repeat it.
#include "harness/base/random.hpp"

#if defined(__AVX512F__) || defined(__AVX2__)
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

#if defined(__AVX512F__) || defined(__AVX2__)
// Vectors of words, whose products are formed of even and odd ones: the compiler would multiply 64 by 64
// bits, which takes three times as long.
#  if defined(__AVX512F__)
using Words = __m512i;
inline Words load(const uint32_t* from) { return _mm512_load_si512(from); }
inline void store(uint32_t* to, Words w) { _mm512_store_si512(to, w); }
inline Words all(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
inline Words xor3(Words a, Words b, Words c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }
inline Words even_products(Words w, Words by) { return _mm512_mul_epu32(w, by); }
inline Words odd_below(Words w) { return _mm512_srli_epi64(w, 32); }
inline Words even_above(Words w) { return _mm512_slli_epi64(w, 32); }
inline Words odd_of(Words even, Words odd) { return _mm512_mask_blend_epi32(0xAAAA, even, odd); }
#  else
using Words = __m256i;
inline Words load(const uint32_t* from) { return _mm256_load_si256(reinterpret_cast<const Words*>(from)); }
inline void store(uint32_t* to, Words w) { _mm256_store_si256(reinterpret_cast<Words*>(to), w); }
inline Words all(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
inline Words xor3(Words a, Words b, Words c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
inline Words even_products(Words w, Words by) { return _mm256_mul_epu32(w, by); }
inline Words odd_below(Words w) { return _mm256_srli_epi64(w, 32); }
inline Words even_above(Words w) { return _mm256_slli_epi64(w, 32); }
inline Words odd_of(Words even, Words odd) { return _mm256_blend_epi32(even, odd, 0xAA); }
#  endif
constexpr int kWords = sizeof(Words) / sizeof(uint32_t);

// Two vectors at a time hide the multiplier's latency and leave their four words in registers.
void philox_lanes(Lanes& c, uint32_t key0, uint32_t key1) {
  constexpr int kBeside = 2;
  const Words by0 = all(kMultiplier0), by1 = all(kMultiplier1);
  for (int first = 0; first < kLanes; first += kBeside * kWords) {
    Words w[4][kBeside];
    for (int n = 0; n < 4; ++n)
      for (int i = 0; i < kBeside; ++i) w[n][i] = load(c.word[n] + first + i * kWords);
    uint32_t k0 = key0, k1 = key1;
    for (int round = 0; round < kRounds; ++round, k0 += kWeyl0, k1 += kWeyl1)
      for (int i = 0; i < kBeside; ++i) {
        const Words even0 = even_products(w[0][i], by0), odd0 = even_products(odd_below(w[0][i]), by0);
        const Words even1 = even_products(w[2][i], by1), odd1 = even_products(odd_below(w[2][i]), by1);
        w[0][i] = xor3(odd_of(odd_below(even1), odd1), w[1][i], all(k0));
        w[2][i] = xor3(odd_of(odd_below(even0), odd0), w[3][i], all(k1));
        w[1][i] = odd_of(even1, even_above(odd1));
        w[3][i] = odd_of(even0, even_above(odd0));
      }
    for (int n = 0; n < 4; ++n)
      for (int i = 0; i < kBeside; ++i) store(c.word[n] + first + i * kWords, w[n][i]);
  }
}
#else
void philox_lanes(Lanes& c, uint32_t key0, uint32_t key1) {
  for (int i = 0; i < kLanes; ++i) {
    const auto words = philox4x32({c.word[0][i], c.word[1][i], c.word[2][i], c.word[3][i]}, {key0, key1});
    for (int n = 0; n < 4; ++n) c.word[n][i] = words[n];
  }
}
#endif

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
