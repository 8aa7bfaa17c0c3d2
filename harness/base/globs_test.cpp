// SPDX-License-Identifier: Apache-2.0
#include "harness/base/globs.hpp"

#include <gtest/gtest.h>

namespace assay {
namespace {

TEST(Globs, FitTheWholeName) {
  EXPECT_TRUE(fits_glob("paged_naive_cpu", "paged_*_cpu"));
  EXPECT_TRUE(fits_glob("paged_naive_cpu", "paged_[mn]aive_cpu"));
  EXPECT_FALSE(fits_glob("paged_naive_cpu", "paged"));
  EXPECT_FALSE(fits_glob("paged_naive_cpu", "naive*"));
  // The end of a view is the end of the name, whatever stands behind it.
  EXPECT_TRUE(fits_glob(std::string_view("paged_naive_cpu").substr(0, 5), "paged"));
}

TEST(Globs, NoGlobsChooseEveryName) {
  EXPECT_TRUE(chosen_by("a", {}));
  EXPECT_TRUE(chosen_by("a", {"b", "?"}));
  EXPECT_FALSE(chosen_by("ab", {"b", "?"}));
}

}  // namespace
}  // namespace assay
