// SPDX-License-Identifier: Apache-2.0
// Which keys share products: those that agree over neighbouring dimensions, whatever sign they have, and none
// of random keys, of few bits either.
#include "reference/bounds/bounds_shared.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "harness/base/random.hpp"
#include "harness/problem/problem.hpp"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_classes.hpp"
#include "reference/bounds/bounds_rows.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr int64_t kDimsOfKeys = 64;

// Of `count` keys whose dimensions from `own` on are of one of `kinds` kinds, and the others random.
SharedProducts keys_of_kinds(int64_t count, int64_t kinds, int64_t from, int64_t to, bool turned) {
  SharedProducts all(kDimsOfKeys);
  const CounterRng random(5, 7);
  std::vector<double> k(kDimsOfKeys);
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t d = 0; d < kDimsOfKeys; ++d)
      k[d] = random.normal(static_cast<uint64_t>((d >= from && d < to ? 100000 + j % kinds : j) * 64 + d)) *
             (turned && j % 3 == 1 ? -1 : 1);
    all.add(k.data());
  }
  return all;
}

TEST(SharedProducts, AreCountedByPairs) {
  EXPECT_EQ(keys_of_kinds(40, 40, 0, 64, false).common(nullptr), 0);
  EXPECT_NEAR(keys_of_kinds(40, 1, 0, 48, false).common(nullptr), 0.75, 1e-3);
  EXPECT_NEAR(keys_of_kinds(40, 1, 16, 64, false).common(nullptr), 0.75, 1e-3);
  // Of two kinds, 20 keys each: 380 of 780 pairs.
  EXPECT_NEAR(keys_of_kinds(40, 2, 0, 64, false).common(nullptr), 380.0 / 780, 1e-3);
  EXPECT_NEAR(keys_of_kinds(40, 1, 0, 64, true).common(nullptr), 1, 1e-3) << "signs of whole keys";
  // Where Q is zero in what is their own, keys share all there is.
  std::vector<double> q(kDimsOfKeys, 1.0);
  std::fill(q.begin() + 48, q.end(), 1e-9);
  EXPECT_TRUE(leaves_out(q.data(), kDimsOfKeys));
  EXPECT_NEAR(keys_of_kinds(40, 1, 0, 48, false).common(q.data()), 1, 1e-3);
}

TEST(SharedProducts, RandomKeysShareNone) {
  for (const int32_t format : {ASSAY_FP32, ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_INT8})
    for (const int64_t dims : {64, 128, 576}) {
      const int64_t keys = 8192;
      SharedProducts some(dims);
      const CounterRng random(static_cast<uint64_t>(format), static_cast<uint64_t>(dims));
      std::vector<double> k(static_cast<size_t>(dims));
      for (const int64_t place : SharedProducts::spread(keys)) {
        for (int64_t d = 0; d < dims; ++d)
          k[d] = round_to(format, (format == ASSAY_INT8 ? 40 : 1) *
                                      random.normal(static_cast<uint64_t>(place * dims + d)));
        some.add(k.data());
      }
      EXPECT_LT(1 + static_cast<double>(keys) * some.common(nullptr), 3) << format << " " << dims;
    }
}

TEST(SharedProducts, OfTheHeaviestKeysAreSeenWhereTheyAreFew) {
  const int64_t keys = 2000;
  std::vector<double> x(keys), q(kDimsOfKeys, 1.0);
  const CounterRng random(3, 3);
  for (int64_t j = 0; j < keys; ++j) x[j] = (j % 40 == 7 ? 20 : 0) + random.uniform(static_cast<uint64_t>(j));
  int64_t read = 0;
  const auto one_kind = [&](int64_t place, double* k) {
    EXPECT_EQ(place % 40, 7) << "has no weight";
    ++read;
    for (int64_t d = 0; d < kDimsOfKeys; ++d)
      k[d] = random.normal(static_cast<uint64_t>(d < 60 ? d : place * 64 + d));
  };
  const double top = *std::max_element(x.begin(), x.end());
  EXPECT_NEAR(heavy_keys_together(kDimsOfKeys, q.data(), x.data(), keys, top, one_kind), 1 + 49 * 60.0 / 64,
              1e-9);
  EXPECT_EQ(read, 32);
  for (double& score : x) score = 0;
  EXPECT_EQ(heavy_keys_together(kDimsOfKeys, q.data(), x.data(), keys, 0, one_kind), 1);
}

// Rows of random operands stay what they were: no kernel of theirs shares errors.
TEST(SharedProducts, RowsOfRandomOperandsHaveErrorsOfTheirOwn) {
  for (const testkit::Family family : {testkit::Family::kNormal, testkit::Family::kPeaked,
                                       testkit::Family::kOutlier, testkit::Family::kHeavyTail})
    for (const int32_t format : {ASSAY_BF16, ASSAY_FP8_E4M3}) {
      const testkit::DenseCase c = testkit::make_case(family, 2, 1000, 64, 11, format);
      const assay_arithmetic a = testkit::arithmetic(ASSAY_FP32, 4, 64);
      const HostOperands operands = c.host();
      const OperandReader reader(c.problem, operands);
      for (const RowId row : c.rows())
        EXPECT_FALSE(row_scores(c.problem, reader, row, 1, &a).order.shared())
            << static_cast<int>(family) << " " << format;
    }
}

}  // namespace
}  // namespace assay
