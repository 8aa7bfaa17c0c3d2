// SPDX-License-Identifier: Apache-2.0
// The maximum of a row of scores by bits and by floating point against the host's, where bits alone mislead:
// rows of negative numbers, rows that saw nothing yet, zeros of both signs, masked scores.
#include "kernels/emulator/sm90/testing/maxima.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace {

using maxima::kScores;
using maxima::Lane;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Eight pairs of rows, four lanes each. share: of numbers that are not negative.
std::array<Lane, 32> drawn(std::mt19937& random, double share) {
  std::normal_distribution<float> normal(0, 10);
  std::uniform_real_distribution<double> uniform(0, 1);
  const auto score = [&] {
    const double kind = uniform(random);
    if (kind < 0.1) return kNothing;  // masked
    if (kind < 0.15) return share > 0 ? 0.f : -0.f;
    const float x = std::abs(normal(random));
    return uniform(random) < share ? x : -x;
  };
  std::array<Lane, 32> warp{};
  for (int lane = 0; lane < 32; ++lane) {
    for (float& x : warp[lane].scores) x = score();
    for (float& x : warp[lane].tops) x = uniform(random) < 0.5 ? kNothing : score();
    warp[lane].tops = warp[lane / 4 * 4].tops;
  }
  return warp;
}

float expected(const std::array<Lane, 32>& warp, int lane, int row) {
  float most = warp[lane].tops[row];
  for (int i = lane / 4 * 4; i < lane / 4 * 4 + 4; ++i)
    for (int s = 0; s < kScores; ++s)
      if (s / 2 % 2 == row) most = std::max(most, warp[i].scores[s]);
  return most;
}

TEST(RowMaximum, ByBitsAndByFloatingPoint) {
  std::mt19937 random(7);
  for (const double share : {0.0, 0.001, 0.01, 0.5, 1.0}) {
    for (int n = 0; n < 20; ++n) {
      auto warp = drawn(random, share);
      for (const bool bits : {false, true}) {
        maxima::find(bits, warp);
        for (int lane = 0; lane < 32; ++lane)
          for (int row = 0; row < 2; ++row)
            ASSERT_EQ(warp[lane].found[row], expected(warp, lane, row))
                << "share " << share << ", lane " << lane << ", row " << row << ", bits " << bits;
      }
    }
  }
}

}  // namespace
