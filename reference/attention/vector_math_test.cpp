// SPDX-License-Identifier: Apache-2.0
// Accuracy of the vectorisable exp and tanh against quad precision, in units of the last place.
#include "reference/attention/vector_math.hpp"

#include <gtest/gtest.h>
#include <quadmath.h>

#include <cmath>
#include <limits>

namespace assay {
namespace {

double ulps(double got, __float128 exact) {
  const double nearest = double(exact);
  const double spacing = std::nextafter(std::fabs(nearest), INFINITY) - std::fabs(nearest);
  return std::fabs(double((got - exact) / spacing));
}

TEST(VectorMath, ExpIsWithinOneUnit) {
  double worst = 0, at = 0;
  for (int i = 0; i <= 300000; ++i) {
    // Dense near 0, where softmax arguments crowd, sparse down to the cut.
    const double u = double(i) / 300000;
    const double x = -707.9 * u * u * u * u + (i % 3 == 0 ? 0.4 * u : 0.0);
    const double e = ulps(vector_math::exp(x), expq(x));
    if (e > worst) worst = e, at = x;
  }
  EXPECT_LT(worst, 1.1) << "at " << at;
  EXPECT_EQ(vector_math::exp(0.0), 1.0);
  EXPECT_EQ(vector_math::exp(-708.5), 0.0);
  EXPECT_EQ(vector_math::exp(-INFINITY), 0.0);
  EXPECT_TRUE(std::isnan(vector_math::exp(NAN)));
}

TEST(VectorMath, TanhIsWithinThreeUnits) {
  double worst = 0, at = 0;
  for (int i = -200000; i <= 200000; ++i) {
    const double u = double(i) / 200000;
    const double x = 25 * u * u * u;
    if (x == 0) continue;
    const double e = ulps(vector_math::tanh(x), tanhq(x));
    if (e > worst) worst = e, at = x;
  }
  EXPECT_LT(worst, 3.0) << "at " << at;
  EXPECT_EQ(vector_math::tanh(0.0), 0.0);
  EXPECT_EQ(vector_math::tanh(1000.0), 1.0);
  EXPECT_EQ(vector_math::tanh(-INFINITY), -1.0);
  EXPECT_TRUE(std::isnan(vector_math::tanh(NAN)));
}

}  // namespace
}  // namespace assay
