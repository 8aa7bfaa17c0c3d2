// SPDX-License-Identifier: Apache-2.0
// A slow device among others is named; noise, other kinds of devices and missing timings accuse nobody.
#include "harness/report/devices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace assay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Row timed_device(const std::string& scenario, int device, double us, const std::string& name = "H200") {
  Row r;
  r.scenario = scenario, r.kernel = "k", r.backend = "cuda:" + std::to_string(device), r.device = name;
  r.device_uuid = "GPU-" + std::to_string(device), r.outcome = "passed", r.time_us = us;
  r.set_mode("hot");
  return r;
}

TEST(Devices, TheSlowOneIsNamed) {
  std::vector<Row> rows;
  for (int c = 0; c < 5; ++c)
    for (int d = 0; d < 4; ++d)
      rows.push_back(timed_device("case " + std::to_string(c), d, (10 + c) * (d == 2 ? 1.12 : 1)));
  EXPECT_THAT(slow_devices(rows),
              ElementsAre("cuda:2 (GPU-2) takes 1.12 times as long as the other 3 H200 over 5 timings"));
}

TEST(Devices, OneOddCaseOrALittleNoiseAccusesNobody) {
  std::vector<Row> rows;
  for (int c = 0; c < 5; ++c)
    for (int d = 0; d < 2; ++d)
      rows.push_back(timed_device("case " + std::to_string(c), d, d == 1 && c == 3 ? 99 : 10 + 0.3 * d));
  EXPECT_THAT(slow_devices(rows), IsEmpty());
}

TEST(Devices, OnlyDevicesOfOneNameAreCompared) {
  const std::vector<Row> other = {timed_device("a", 0, 10), timed_device("a", 1, 30, "A100")};
  EXPECT_THAT(slow_devices(other), IsEmpty());
  std::vector<Row> builds = {timed_device("a", 0, 10),
                             timed_device("a", 0, 30)};  // two libraries, one device
  builds[1].backend = "./libmine.so";
  EXPECT_THAT(slow_devices(builds), IsEmpty());
  std::vector<Row> rows = {timed_device("a", 0, 10), timed_device("a", 1, 20)};
  EXPECT_THAT(slow_devices(rows), ElementsAre(HasSubstr("cuda:1")));
  rows[1].time_us = std::nan("");
  EXPECT_THAT(slow_devices(rows), IsEmpty());
}

}  // namespace
}  // namespace assay
