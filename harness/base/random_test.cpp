// SPDX-License-Identifier: Apache-2.0
// Philox against the known-answer vectors of the Random123 distribution (file kat_vectors), and the
// draws built on it: moments, ranges, independence of streams, and that the vector form repeats the
// scalar one bit for bit. A new draw wants its moments and its range here.
#include "harness/base/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace assay {
namespace {

using Words = std::array<uint32_t, 4>;

TEST(Philox, MatchesRandom123KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRng, BitsAreTheFirstTwoWordsOfTheBlock) {
  const uint64_t seed = 0x299f31d0a4093822, stream = 0x0370734413198a2e, index = 0x85a308d3243f6a88;
  EXPECT_EQ(CounterRng(seed, stream).bits(index), 0x94fdccebd16cfe09u);
}

TEST(CounterRng, NormalIsTheStandardisedSumOfTheEightHalves) {
  // The words of the all-zero known answer.
  const double sum = 0x6627 + 0xe8d5 + 0xe169 + 0xc58d + 0xbc57 + 0xac4c + 0x9b00 + 0xdbd8;
  EXPECT_NEAR(CounterRng(0, 0).normal(0), (sum - 8 * 65535 / 2) / std::sqrt(8 * (0x1p32 - 1) / 12), 1e-14);
}

TEST(CounterRng, VectorFormRepeatsTheScalarForm) {
  const CounterRng rng(0x123456789abcdef0, kStreamK);
  // The start makes the low counter word wrap, the lengths leave every kind of remainder.
  for (int64_t count : {0, 1, 31, 32, 33, 100}) {
    const uint64_t first = 0x7FFFFFFFFu - 20;
    std::vector<double> out(count + 1, 777);
    rng.normals(first, count, out.data());
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(out[i], rng.normal(first + i)) << count << " " << i;
    EXPECT_EQ(out[count], 777);
  }
}

TEST(CounterRng, NormalHasTheStatedMoments) {
  const int64_t n = 1 << 20;
  std::vector<double> x(n);
  CounterRng(7, kStreamQ).normals(0, n, x.data());
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, largest = 0;
  for (double v : x) {
    m1 += v;
    m2 += v * v;
    m3 += v * v * v;
    m4 += v * v * v * v;
    largest = std::max(largest, std::abs(v));
  }
  EXPECT_NEAR(m1 / n, 0, 0.005);
  EXPECT_NEAR(m2 / n, 1, 0.006);
  EXPECT_NEAR(m3 / n, 0, 0.015);
  EXPECT_NEAR(m4 / n, 2.85, 0.04);
  EXPECT_LT(largest, 4.9);
  EXPECT_GT(largest, 4.0);
}

TEST(CounterRng, UniformFillsItsRangeEvenly) {
  const CounterRng rng(3, kStreamLengths);
  int count[10] = {};
  for (int i = 0; i < 100000; ++i) {
    const double u = rng.uniform(i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++count[static_cast<int>(u * 10)];
  }
  for (int c : count) EXPECT_NEAR(c, 10000, 500);
}

TEST(CounterRng, BelowIsTheHighHalfOfTheProduct) {
  const CounterRng rng(11, kStreamPages);
  for (uint64_t n : {1ull, 2ull, 7ull, 1ull << 33, 0xFFFFFFFFFFFFFFFFull, 0x123456789ABCDEFull}) {
    for (uint64_t i = 0; i < 1000; ++i) {
      __extension__ using Wide = unsigned __int128;
      const auto expected = static_cast<uint64_t>((static_cast<Wide>(rng.bits(i)) * n) >> 64);
      ASSERT_EQ(rng.below(i, n), expected);
      ASSERT_LT(rng.below(i, n), n);
    }
  }
}

TEST(CounterRng, SeedsStreamsAndIndicesAreIndependent) {
  std::set<uint64_t> seen;
  for (uint64_t seed : {0ull, 1ull, 1ull << 32})
    for (uint64_t stream = kStreamQ; stream <= kStreamSampling; ++stream)
      for (uint64_t index : {0ull, 1ull, 1ull << 32}) seen.insert(CounterRng(seed, stream).bits(index));
  EXPECT_EQ(seen.size(), 3u * 10u * 3u);
}

}  // namespace
}  // namespace assay
