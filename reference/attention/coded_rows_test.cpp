// SPDX-License-Identifier: Apache-2.0
// The products over codes against loops over decoded values: every format, every number of rows that has a
// block of its own, dimensions with and without a tail, fewer and more vectors than a chunk.
#include "reference/attention/coded_rows.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

std::vector<int32_t> formats() {
  std::vector<int32_t> out;
  for (int32_t format = ASSAY_FP32; format <= ASSAY_INT8; ++format)
    if (has_coded_rows(format)) out.push_back(format);
  return out;
}

class CodedRowsTest : public ::testing::TestWithParam<int32_t> {
 protected:
  static constexpr int64_t kStride = 200;
  // Vectors of codes at scattered addresses, and their values.
  void draw(int64_t count, int64_t dim) {
    const int bytes = format_bytes(GetParam());
    storage_.assign(count * (dim + 3) * bytes + 64, std::byte{0});
    values_.assign(count * dim, 0.0);
    vectors_.clear();
    for (int64_t j = 0; j < count; ++j) {
      // Backwards and unaligned: nothing may rely on neighbours.
      std::byte* at = storage_.data() + (count - 1 - j) * (dim + 3) * bytes;
      for (int64_t d = 0; d < dim; ++d) {
        store(GetParam(), at, d, GetParam() == ASSAY_INT8 ? std::round(40 * normal_(rng_)) : normal_(rng_));
        values_[j * dim + d] = load(GetParam(), at, d);
      }
      vectors_.push_back(at);
    }
  }
  std::vector<double> random(int64_t count) {
    std::vector<double> out(count);
    for (double& x : out) x = normal_(rng_);
    return out;
  }

  std::mt19937_64 rng_{7};
  std::normal_distribution<double> normal_;
  std::vector<std::byte> storage_;
  std::vector<const std::byte*> vectors_;
  std::vector<double> values_;
};

TEST_P(CodedRowsTest, ScoresAreDotProducts) {
  ASSERT_TRUE(has_coded_rows(GetParam()));
  for (const int64_t dim : {1, 16, 31, 128, 200})
    for (const int64_t rows : {1, 2, 3, 4, 7, 8, 13, 16})
      for (const int64_t count : {1, 9, 130}) {
        draw(count, dim);
        const std::vector<double> q = random(rows * dim);
        std::vector<double> scores(rows * kStride, -7.0);
        coded_rows_scores(GetParam(), q.data(), rows, vectors_.data(), count, dim, scores.data(), kStride);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t j = 0; j < kStride; ++j) {
            double want = j < count ? 0.0 : -7.0, size = 0;
            for (int64_t d = 0; j < count && d < dim; ++d) {
              want += q[r * dim + d] * values_[j * dim + d];
              size += std::abs(q[r * dim + d] * values_[j * dim + d]);
            }
            ASSERT_NEAR(scores[r * kStride + j], want, 1e-14 * size)
                << "dim " << dim << " rows " << rows << " count " << count << " row " << r << " key " << j;
          }
      }
}

TEST_P(CodedRowsTest, AccumulationAddsWeightedVectors) {
  for (const int64_t dim : {1, 16, 31, 128, 200})
    for (const int64_t rows : {1, 2, 3, 4, 7, 8, 13, 16})
      for (const int64_t count : {1, 9, 130}) {
        draw(count, dim);
        const std::vector<double> weights = random(rows * kStride), before = random(rows * dim);
        std::vector<double> acc = before;
        coded_rows_accumulate(GetParam(), weights.data(), kStride, rows, vectors_.data(), count, dim,
                              acc.data());
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t d = 0; d < dim; ++d) {
            double want = before[r * dim + d], size = std::abs(want);
            for (int64_t j = 0; j < count; ++j) {
              want += weights[r * kStride + j] * values_[j * dim + d];
              size += std::abs(weights[r * kStride + j] * values_[j * dim + d]);
            }
            ASSERT_NEAR(acc[r * dim + d], want, 1e-14 * size)
                << "dim " << dim << " rows " << rows << " count " << count << " row " << r << " dim " << d;
          }
      }
}

TEST(CodedRows, FormatsWithoutADecoderSaySo) {
  EXPECT_FALSE(has_coded_rows(ASSAY_INT64));
  EXPECT_FALSE(has_coded_rows(ASSAY_FORMAT_NONE));
}

// With weight one the vector itself comes out: the value of every code, not-a-number included.
TEST(CodedRows, EveryCodeOfTheNarrowFormatsDecodes) {
  for (const int32_t format : formats()) {
    const int bytes = format_bytes(format);
    if (bytes > 2) continue;
    const int64_t count = int64_t{1} << 8 * bytes;
    std::vector<std::byte> codes(count * bytes);
    for (int64_t code = 0; code < count; ++code)
      for (int byte = 0; byte < bytes; ++byte)
        codes[code * bytes + byte] = std::byte(code >> 8 * byte & 0xff);
    const double one = 1.0;
    for (int64_t first = 0; first < count; first += 128) {
      std::vector<double> out(128, 0.0);
      const std::byte* vector = codes.data() + first * bytes;
      coded_rows_accumulate(format, &one, 1, 1, &vector, 1, 128, out.data());
      for (int64_t i = 0; i < 128; ++i) {
        const double want = decode(format, uint32_t(first + i));
        ASSERT_TRUE(std::isnan(want) ? std::isnan(out[i]) : out[i] == want)
            << "format " << format << " code " << first + i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CodedRowsTest, ::testing::ValuesIn(formats()),
                         [](const auto& info) { return "format_" + std::to_string(info.param); });

}  // namespace
}  // namespace assay
