// SPDX-License-Identifier: Apache-2.0
// The load of a machine from files that look like those of /proc.
#include "harness/measure/host_load.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace assay {
namespace {

TEST(HostLoad, WhatOthersUsedSinceTheStart) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("assay_host_load_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder / name) << text; };
  write("stat", "cpu  1000 0 1000 8000 0 0 0 100 0 0\ncpu0 1 1 1 1\n");
  write("loadavg", "7.25 3.00 1.00 2/300 12345\n");
  const HostLoadMeter meter(folder);
  EXPECT_TRUE(std::isnan(meter.read().others_percent)) << "no tick has passed";
  // A million ticks: 60 % busy, 10 % stolen; what this test used of them is nothing.
  write("stat", "cpu  401000 100000 101000 308000 0 0 0 100100 0 0\n");
  const HostLoad h = meter.read();
  EXPECT_EQ(h.load, 7.25);
  EXPECT_NEAR(h.steal_percent, 10, 0.1);
  EXPECT_NEAR(h.others_percent, 60, 1);
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(std::isnan(HostLoadMeter(folder).read().load));
}

}  // namespace
}  // namespace assay
