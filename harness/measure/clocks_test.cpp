// SPDX-License-Identifier: Apache-2.0
// The clock of a device through a library made for the test, and every way of not having one.
#include "harness/measure/clocks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay {
namespace {

using ::testing::HasSubstr;
const std::string kFakeNvml = ASSAY_BINARY_DIR "/testing/libassay_fake_nvml.so";
const std::string kFakeAmdSmi = ASSAY_BINARY_DIR "/testing/libassay_fake_amd_smi.so";

assay_device with(const std::string& uuid, const std::string& pci = "") {
  assay_device d{};
  uuid.copy(d.uuid, sizeof d.uuid - 1), pci.copy(d.pci, sizeof d.pci - 1);
  return d;
}

TEST(Clocks, ReadsClockAndHeatButNotThePowerCap) {
  std::string why;
  const auto clock = DeviceClock::open("cuda", with("GPU-one"), &why, kFakeNvml);
  ASSERT_NE(clock, nullptr) << why;
  // The first question was asked while opening.
  EXPECT_EQ(clock->read()->sm_mhz, 1980);
  const auto third = clock->read();
  EXPECT_EQ(third->sm_mhz, 1970);
  EXPECT_EQ(third->throttled, true);
  EXPECT_EQ(clock->read()->throttled, false) << "the power cap alone";
  EXPECT_STREQ(clock->source(), "nvml");
}

TEST(Clocks, OfAnAmdGpuByItsPciAddress) {
  std::string why;
  const auto clock = DeviceClock::open("hip", with("GPU-x", "0001:c1:02.3"), &why, kFakeAmdSmi);
  ASSERT_NE(clock, nullptr) << why;
  EXPECT_EQ(clock->read()->sm_mhz, 2080) << "the first question was asked while opening";
  EXPECT_EQ(clock->read()->throttled, std::nullopt);
  EXPECT_STREQ(clock->source(), "amd-smi");
  EXPECT_EQ(DeviceClock::open("hip", with("GPU-x", "0001:c1:02.0"), &why, kFakeAmdSmi), nullptr);
  EXPECT_THAT(why, HasSubstr("answered 31 for device 0001:c1:02.0"));
  EXPECT_EQ(DeviceClock::open("hip", with("GPU-x"), &why, kFakeAmdSmi), nullptr);
  EXPECT_THAT(why, HasSubstr("no PCI address"));
}

// A plugin calls its backend what it likes.
TEST(Clocks, OfABackendOfAnyNameByItsDevice) {
  std::string why;
  EXPECT_NE(DeviceClock::open("mine", with("GPU-one"), &why, kFakeNvml), nullptr) << why;
  EXPECT_NE(DeviceClock::open("mine", with("GPU-x", "0001:c1:02.3"), &why, kFakeAmdSmi), nullptr) << why;
  EXPECT_EQ(DeviceClock::open("mine", with("GPU-two"), &why, kFakeNvml), nullptr);
  EXPECT_THAT(why, HasSubstr("answered 6 for device GPU-two; "));
}

TEST(Clocks, MissingOnesSayWhy) {
  std::string why;
  EXPECT_EQ(DeviceClock::open("cuda", with("GPU-two"), &why, kFakeNvml), nullptr);
  EXPECT_THAT(why, HasSubstr("answered 6 for device GPU-two"));
  EXPECT_EQ(DeviceClock::open("cuda", with("GPU-one"), &why, "/no/such/library.so"), nullptr);
  EXPECT_THAT(why, HasSubstr("cannot be opened"));
  EXPECT_EQ(DeviceClock::open("cuda", with("GPU-one"), &why, "libdl.so.2"), nullptr);
  EXPECT_THAT(why, HasSubstr("lacks the function nvmlInit_v2"));
  EXPECT_EQ(DeviceClock::open("cpu", with(""), &why), nullptr);
  EXPECT_THAT(why, HasSubstr("backend cpu"));
}

}  // namespace
}  // namespace assay
