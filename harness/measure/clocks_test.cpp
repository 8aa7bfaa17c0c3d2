// SPDX-License-Identifier: Apache-2.0
// The clock of a device through a library made for the test, and every way of not having one.
#include "harness/measure/clocks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay {
namespace {

using testing::HasSubstr;
const std::string kFakeNvml = ASSAY_BINARY_DIR "/testing/libassay_fake_nvml.so";

TEST(Clocks, ReadsClockAndHeatButNotThePowerCap) {
  std::string why;
  const auto clock = DeviceClock::open("cuda", "GPU-one", &why, kFakeNvml);
  ASSERT_NE(clock, nullptr) << why;
  // The first question was asked while opening.
  EXPECT_EQ(clock->read()->sm_mhz, 1980);
  const auto third = clock->read();
  EXPECT_EQ(third->sm_mhz, 1970);
  EXPECT_TRUE(third->throttled);
  EXPECT_FALSE(clock->read()->throttled) << "the power cap alone";
}

TEST(Clocks, MissingOnesSayWhy) {
  std::string why;
  EXPECT_EQ(DeviceClock::open("cuda", "GPU-two", &why, kFakeNvml), nullptr);
  EXPECT_THAT(why, HasSubstr("answered 6 for device GPU-two"));
  EXPECT_EQ(DeviceClock::open("cuda", "GPU-one", &why, "/no/such/library.so"), nullptr);
  EXPECT_THAT(why, HasSubstr("cannot be opened"));
  EXPECT_EQ(DeviceClock::open("cuda", "GPU-one", &why, "libdl.so.2"), nullptr);
  EXPECT_THAT(why, HasSubstr("lacks a function"));
  EXPECT_EQ(DeviceClock::open("cpu", "", &why), nullptr);
  EXPECT_THAT(why, HasSubstr("backend cpu"));
}

}  // namespace
}  // namespace assay
