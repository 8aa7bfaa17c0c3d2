// SPDX-License-Identifier: Apache-2.0
// fp32 sums over thousands of groups of keys lose more than those over the keys of one span.
#include "reference/bounds/bounds_partial.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace assay::matrix_bounds {
namespace {

constexpr Eigen::Index kChannels = 16;

// Of `groups` groups, each with sum p v^2 = of(channel).
template <class Of>
PartialSums sums_of(int64_t groups, const Of& of) {
  PartialSums sums;
  sums.resize(1, kChannels, {});
  const Matrix none = Matrix::Zero(1, kChannels);
  sums.begin_part(none);
  GroupTerms terms;
  terms.hard_m = 1, terms.variance_m = 1, terms.systematic_m = 1, terms.apart = true;
  for (int64_t g = 0; g < groups; ++g) {
    for (Eigen::Index d = 0; d < kChannels; ++d) sums.in_group(0, d) = of(d);
    sums.end_group(0, none, terms, 1, 0, 0, true, 1);
  }
  return sums;
}

// Equal groups, as structured data has them, are rounded the same way again and again.
TEST(Partial, SumsOverManyGroupsAreRaisedByWhatTheyLose) {
  const auto of = [](Eigen::Index d) { return 1.0f + 0.0371f * static_cast<float>(d); };
  for (const int64_t groups : {300, 5000, 40000, 200000}) {
    const PartialSums one = sums_of(1, of), all = sums_of(groups, of);
    ASSERT_EQ(all.groups[0], groups);
    const double raised = inflation(kTileKeys + groups), times = static_cast<double>(groups);
    int too_small = 0;
    for (Eigen::Index d = 0; d < kChannels; ++d) {
      EXPECT_NEAR(all.second(0, d), times * of(d), times * of(d) * 1e-10);
      for (const MatrixF PartialSums::*sum :
           {&PartialSums::hard, &PartialSums::variance, &PartialSums::systematic, &PartialSums::tile_error}) {
        const double exact = times * static_cast<double>((one.*sum)(0, d)), got = (all.*sum)(0, d);
        ASSERT_GT(exact, 0);
        EXPECT_GE(got * raised, exact) << groups << " groups, channel " << d;
        too_small += got * inflation(kTileKeys) * (1 + 0x1p-18) < exact;
      }
    }
    if (groups >= 40000) EXPECT_GT(too_small, 0) << "nothing was lost that one span does not lose";
  }
}

TEST(Partial, WhatIsLostGrowsWithTheTermsOfASum) {
  // (1 - u)^-n, of n roundings that all make a sum smaller.
  for (const int64_t n : {1, 256, 4096, 65536, (1 << 17) - 1, 1 << 17, 1 << 20, 1 << 22})
    EXPECT_GE(inflation(n), std::exp(-static_cast<double>(n) * std::log1p(-0x1p-24))) << n;
}

}  // namespace
}  // namespace assay::matrix_bounds
