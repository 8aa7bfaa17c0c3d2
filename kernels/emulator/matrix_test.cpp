// SPDX-License-Identifier: Apache-2.0
// The matrix instruction: every element of A, B and C must meet the right ones, through the layouts that
// kernels/dialect/matrix.h tells kernels and through those the emulator has from the manuals. And the
// arithmetic of the sums, by cases worked out by hand from what is documented (see matrix.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "kernels/emulator/check.hpp"
#include "kernels/emulator/host.hpp"
#include "kernels/emulator/testing/products.hpp"

namespace gpu::emulator {
namespace {

using products::Format;
using products::kSize;

class Matrix : public ::testing::TestWithParam<Format> {
 protected:
  void resize(int count) {
    count_ = count;
    const size_t size = static_cast<size_t>(count) * kSize;
    a_.assign(size, 0.0f), b_.assign(size, 0.0f), c_.assign(size, 0.0f);
    d_.assign(size, -7.0f);
  }
  float& a(int n, int row, int k) { return a_[static_cast<size_t>(n * kSize + row * 16 + k)]; }
  float& b(int n, int k, int column) { return b_[static_cast<size_t>(n * kSize + k * 16 + column)]; }
  float& c(int n, int row, int column) { return c_[static_cast<size_t>(n * kSize + row * 16 + column)]; }
  float d(int n, int row, int column) { return d_[static_cast<size_t>(n * kSize + row * 16 + column)]; }

  // Values must be exact in the format.
  std::vector<uint16_t> codes(const std::vector<float>& values) {
    std::vector<uint16_t> out;
    for (const float v : values) {
      out.push_back(GetParam() == Format::bf16 ? assay_kernels::bf16_from_float(v)
                                               : assay_kernels::fp16_from_float(v));
      const float back = GetParam() == Format::bf16 ? assay_kernels::float_from_bf16(out.back())
                                                    : assay_kernels::float_from_fp16(out.back());
      EXPECT_TRUE(back == v || std::isnan(v)) << v;
    }
    return out;
  }
  void run(int exchanged = -1) {
    const std::vector<uint16_t> a = codes(a_), b = codes(b_);
    const products::Data data{a.data(), b.data(), c_.data(), d_.data(), count_};
    if constexpr (kChecked) {
      const auto region = [](const auto* at, size_t count, check::Role role, const char* name) {
        return check::Region{reinterpret_cast<const unsigned char*>(at), count * sizeof *at, role, sizeof *at,
                             name};
      };
      check::begin_call({region(a.data(), a.size(), check::Role::kInput, "a"),
                         region(b.data(), b.size(), check::Role::kInput, "b"),
                         region(c_.data(), c_.size(), check::Role::kInput, "c"),
                         region(d_.data(), d_.size(), check::Role::kOutput, "d")});
    }
    const Status status = exchanged < 0 ? products::multiply(data, GetParam())
                                        : products::multiply_exchanged(data, GetParam(), exchanged);
    if constexpr (kChecked) check::end_call();
    ASSERT_EQ(status, emulatorSuccess) << last_error();
  }
  int wrong_elements() {
    int wrong = 0;
    for (int n = 0; n < count_; ++n)
      for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 16; ++column) {
          double sum = c(n, row, column);
          for (int k = 0; k < 16; ++k) sum += static_cast<double>(a(n, row, k)) * b(n, k, column);
          wrong += d(n, row, column) != sum;
        }
    return wrong;
  }
  // Row 0 of one product: c + sum of x[k] * y[k].
  float sum_of(float c0, const std::vector<float>& x, const std::vector<float>& y) {
    resize(1);
    c(0, 0, 0) = c0;
    for (size_t k = 0; k < x.size(); ++k)
      a(0, 0, static_cast<int>(k)) = x[k], b(0, static_cast<int>(k), 0) = y[k];
    run();
    return d(0, 0, 0);
  }

  int count_ = 0;
  std::vector<float> a_, b_, c_, d_;
};

TEST(MatrixLayout, EveryElementHasOneRegister) {
  std::set<std::pair<int, int>> seen;
  for (int lane = 0; lane < kWarp; ++lane)
    for (int i = 0; i < kLines; ++i)
      for (int p = 0; p < kPlaces; ++p) seen.insert({line_of(lane, i), place(member_of(lane), p)});
  EXPECT_EQ(seen.size(), 256u);
  // Lanes that share a line are kMemberStep apart.
  for (int lane = 0; lane < kWarp; ++lane) {
    EXPECT_EQ(line_of(lane ^ kMemberStep, 0), line_of(lane, 0));
    EXPECT_EQ(line_of(lane ^ (2 * kMemberStep), 0), line_of(lane, 0));
  }
}

// A single 1 in A picks row k of B, in every place; then the same for B.
TEST_P(Matrix, EveryPlaceOfA) {
  resize(256);
  for (int n = 0; n < 256; ++n) {
    a(n, n / 16, n % 16) = 1.0f;
    for (int i = 0; i < 256; ++i) b(n, i / 16, i % 16) = static_cast<float>(i + 1);
  }
  run();
  EXPECT_EQ(wrong_elements(), 0);
}
TEST_P(Matrix, EveryPlaceOfB) {
  resize(256);
  for (int n = 0; n < 256; ++n) {
    b(n, n / 16, n % 16) = 1.0f;
    for (int i = 0; i < 256; ++i) a(n, i / 16, i % 16) = static_cast<float>(i + 1);
  }
  run();
  EXPECT_EQ(wrong_elements(), 0);
}
TEST_P(Matrix, EveryPlaceOfC) {
  resize(1);
  for (int i = 0; i < 256; ++i) c(0, i / 16, i % 16) = 1000.5f + static_cast<float>(i);
  run();
  EXPECT_EQ(wrong_elements(), 0);
}

TEST_P(Matrix, WholeNumbersAreExact) {
  resize(20);
  std::mt19937 random(7);
  for (float& v : a_) v = static_cast<float>(static_cast<int>(random() % 129) - 64);
  for (float& v : b_) v = static_cast<float>(static_cast<int>(random() % 129) - 64);
  for (float& v : c_) v = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
  run();
  EXPECT_EQ(wrong_elements(), 0);
  for (int which = 0; which < 3; ++which) {
    run(which);
    EXPECT_GT(wrong_elements(), 20 * 6) << "registers of two lanes exchanged, and nothing noticed: " << which;
  }
}

TEST_P(Matrix, SumsAreFormedAsOnTheDevice) {
  const std::vector<float> ones(16, 1.0f);
  const auto sixteen = [](float v) { return std::vector<float>(16, v); };
  const auto first = [](float v, float others) {
    std::vector<float> all(16, others);
    all[0] = v;
    return all;
  };
  constexpr float kTick = 0x1p-23f;
  const std::vector<float> small = sixteen(0x1p-12f);
  if constexpr (kWarp == 32) {
    // 25 fraction bits at alignment: sixteen times 2^-25 beside 1 count, 2^-26 do not.
    EXPECT_EQ(sum_of(1.0f, sixteen(0x1p-13f), small), 1.0f + 4 * kTick);
    EXPECT_EQ(sum_of(1.0f, sixteen(0x1p-13f), sixteen(0x1p-13f)), 1.0f);
    // The sum is cut, not rounded, toward zero.
    EXPECT_EQ(sum_of(1.0f, first(1.5f * 0x1p-11f, 0.0f), small), 1.0f + kTick);
    EXPECT_EQ(sum_of(-1.0f, first(-1.5f * 0x1p-11f, 0.0f), small), -1.0f - kTick);
    // 1.5 * 1.5 has exponent 0, so 2^-25 beside it counts: fifteen of them are 1.875 ticks of [2, 4).
    EXPECT_EQ(sum_of(0.0f, first(1.5f, 0x1p-13f), first(1.5f, 0x1p-12f)), 2.25f + 2 * kTick);
    // All sixteen at once: nothing is lost on the way.
    EXPECT_EQ(sum_of(0.0f, first(-1.0f, 0x1p-4f), ones), -1.0f + 15.0f / 16.0f);
  } else {
    // Products are aligned among themselves, eight at a time.
    EXPECT_EQ(sum_of(1.0f, sixteen(0x1p-13f), small), 1.0f + 4 * kTick);
    EXPECT_EQ(sum_of(1.0f, sixteen(0x1p-13f), sixteen(0x1p-13f)), 1.0f + 2 * kTick);
    // Beside a product of 1, seven of 2^-24 count (3.5 ticks, to even), those of the second step too; 2^-25
    // are cut in the first step and count in the second: eight of them are two ticks.
    EXPECT_EQ(sum_of(0.0f, first(1.0f, 0x1p-12f), first(1.0f, 0x1p-12f)), 1.0f + 8 * kTick);
    EXPECT_EQ(sum_of(0.0f, first(1.0f, 0x1p-13f), first(1.0f, 0x1p-12f)), 1.0f + 2 * kTick);
    // Rounded to nearest even at the end.
    EXPECT_EQ(sum_of(1.0f, first(1.5f * 0x1p-11f, 0.0f), small), 1.0f + 2 * kTick);
    EXPECT_EQ(sum_of(-1.0f, first(-1.5f * 0x1p-11f, 0.0f), small), -1.0f - 2 * kTick);
    // The accumulator is rounded down where a product is larger.
    EXPECT_EQ(sum_of(0x1p-30f, first(1.0f, 0.0f), ones), 1.0f);
    EXPECT_EQ(sum_of(-0x1p-30f, first(1.0f, 0.0f), ones), 1.0f - kTick / 2);
  }
  EXPECT_EQ(sum_of(0.0f, sixteen(0.0f), ones), 0.0f);
  EXPECT_EQ(sum_of(0x1.8p-140f, sixteen(0.0f), ones), 0x1.8p-140f);
  EXPECT_TRUE(std::isnan(sum_of(0.0f, first(0.0f, 0.0f), first(INFINITY, 1.0f))));
  EXPECT_EQ(sum_of(-1.0f, first(INFINITY, 1.0f), ones), INFINITY);
}

// Other elements are what they would be without: a kernel that masks them sees no difference.
TEST_P(Matrix, NotFiniteNumbersStayInTheirRowsAndColumns) {
  resize(2);
  for (int i = 0; i < 256; ++i) {
    const int row = i / 16, column = i % 16;
    for (int n = 0; n < 2; ++n) {
      std::mt19937 same(static_cast<uint32_t>(i));
      const auto draw = [&] {
        return std::ldexp(static_cast<float>(same() % 255) - 127.0f, static_cast<int>(same() % 12) - 12);
      };
      a(n, row, column) = draw(), b(n, row, column) = draw(), c(n, row, column) = draw();
    }
  }
  a(1, 3, 5) = NAN, b(1, 6, 9) = INFINITY, c(1, 12, 2) = NAN;
  run();
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 16; ++column) {
      if (row == 3 || column == 9 || (row == 12 && column == 2))
        EXPECT_FALSE(std::isfinite(d(1, row, column))) << row << ", " << column;
      else
        EXPECT_EQ(d(1, row, column), d(0, row, column)) << row << ", " << column;
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, Matrix, ::testing::Values(Format::bf16, Format::fp16),
                         [](const auto& info) {
                           return std::string(info.param == Format::bf16 ? "bf16" : "fp16");
                         });

}  // namespace
}  // namespace gpu::emulator
