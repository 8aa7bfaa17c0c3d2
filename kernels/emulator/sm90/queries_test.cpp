// SPDX-License-Identifier: Apache-2.0
// Q in bf16 becomes fp16 beside codes of a byte where that changes no number, and only there: rows of every
// size, elements so small beside the largest that fp16 has no room for them, zeros, subnormals, infinities.
#include "kernels/emulator/sm90/testing/queries.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/common/formats.hpp"

namespace {

using queries::Lane;
using Row = std::array<uint16_t, 128>;

uint16_t bf16(double x) { return assay_kernels::bf16_from_float(static_cast<float>(x)); }

// Of one size; then some elements `below` binades below it.
Row drawn_row(std::mt19937& random, int exponent, int below) {
  std::uniform_real_distribution<double> size(1.0, 1.99);
  std::uniform_int_distribution<int> kind(0, 9), down(0, 20);
  Row row;
  for (uint16_t& x : row) {
    const double value = std::ldexp(size(random), exponent - down(random));
    x = kind(random) == 0 ? 0 : bf16(kind(random) < 5 ? -value : value);
  }
  row[17] = bf16(std::ldexp(1.99, exponent));
  row[90] = bf16(-std::ldexp(1.0, exponent - below));
  row[91] = 0x8000;
  return row;
}

bool fits(const Row& row) {
  int most = 0, least = 255;
  for (const uint16_t x : row) {
    most = std::max(most, x >> 7 & 255);
    if ((x & 0x7FFF) != 0) least = std::min(least, x >> 7 & 255);
  }
  return most != 255 && (most <= 29 || least > most - 29);
}

class Queries {
 public:
  explicit Queries(const std::array<Row, 8>& rows) : rows_(rows) {
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 16; ++i) {
        const uint16_t* const from = &rows[lane / 4][first_of(lane, i)];
        warp_[lane].q[i] = from[0] | static_cast<uint32_t>(from[1]) << 16;
      }
    queries::prepare(warp_);
  }
  bool narrow() const { return warp_[0].narrow; }
  void expect_right() const {
    const bool all = std::all_of(rows_.begin(), rows_.end(), fits);
    for (int lane = 0; lane < 32; ++lane) {
      ASSERT_EQ(warp_[lane].narrow, all) << "lane " << lane;
      for (int i = 0; i < 16; ++i) all ? expect_half(lane, i) : expect_bf16(lane, i);
    }
  }

 private:
  static int first_of(int lane, int i) { return i / 2 * 16 + lane % 4 * 4 + i % 2 * 2; }
  void expect_half(int lane, int i) const {
    const int row = lane / 4;
    const float scale = warp_[row / 2].scales[row % 2];
    for (int half = 0; half < 2; ++half) {
      const auto code = static_cast<uint16_t>(warp_[lane].q[i] >> 16 * half);
      const float got = assay_kernels::float_from_fp16(code) * scale;
      const float want = assay_kernels::float_from_bf16(rows_[row][first_of(lane, i) + half]);
      ASSERT_EQ(std::memcmp(&got, &want, sizeof got), 0) << "row " << row << ": " << got << " for " << want;
    }
  }
  // Elements 0 and 2, 1 and 3 of four.
  void expect_bf16(int lane, int i) const {
    const uint16_t* const four = &rows_[lane / 4][first_of(lane, i / 2 * 2)];
    ASSERT_EQ(warp_[lane].q[i], four[i % 2] | static_cast<uint32_t>(four[i % 2 + 2]) << 16);
    ASSERT_EQ(warp_[lane].scales[0], 1.f);
    ASSERT_EQ(warp_[lane].scales[1], 1.f);
  }

  std::array<Row, 8> rows_;
  std::array<Lane, 32> warp_{};
};

TEST(Queries, BecomeHalvesWhereExact) {
  std::mt19937 random(3);
  for (const int exponent : {127, 100, 16, 3, 0, -20, -90, -97, -98, -99, -110, -126})
    for (const int below : {0, 5, 27, 28, 29, 40}) {
      std::array<Row, 8> rows;
      for (Row& row : rows) row = drawn_row(random, 2, 0);
      rows[5] = drawn_row(random, exponent, below);
      const Queries queries(rows);
      SCOPED_TRACE(testing::Message() << "2^" << exponent << ", " << below << " below");
      const bool gone = exponent - below < -133;  // too small for bf16 itself
      EXPECT_EQ(queries.narrow(), below <= 28 || exponent <= -98 || gone);
      queries.expect_right();
    }
}

TEST(Queries, OfNothingAndOfEverything) {
  std::mt19937 random(4);
  std::array<Row, 8> rows{};
  Queries(rows).expect_right();  // zeros alone
  for (Row& row : rows) row = drawn_row(random, 2, 0);
  rows[3].fill(0x8001), rows[4].fill(0),
      rows[6][77] = 1;  // the smallest subnormals; beside numbers of size 1
  const Queries mixed(rows);
  EXPECT_FALSE(mixed.narrow());
  mixed.expect_right();
  for (const uint16_t code : {0x7F80, 0xFF80, 0x7FC1}) {  // infinities and NaN
    rows[6] = drawn_row(random, 2, 0), rows[6][77] = code;
    const Queries odd(rows);
    EXPECT_FALSE(odd.narrow());
    odd.expect_right();
  }
}

}  // namespace
