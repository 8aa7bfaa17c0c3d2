// SPDX-License-Identifier: Apache-2.0
// Whose first reading waits is told from a host on which every reading takes another time.
#include "harness/check/session/read_twice.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace assay {
namespace {

// How long each reading in turn takes, in milliseconds; sleeps only ever take longer.
double longer_ms(const std::vector<int>& readings) {
  size_t count = 0;
  const auto read = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(readings[count++]));
    return Snapshot();
  };
  return 1e3 * read_twice(read, 0).longer_s;
}

}  // namespace

TEST(ReadTwice, WorkThatWaitsForTheFirstReadingIsSeen) { EXPECT_GT(longer_ms({400, 1, 1}), 100); }

TEST(ReadTwice, ReadingsThatDifferByThemselvesSayNothing) { EXPECT_LT(longer_ms({300, 1, 600}), 0); }

TEST(ReadTwice, AThirdReadingIsMadeOnlyWhereThereIsSomethingToExplain) {
  int count = 0;
  const auto read = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(count++ == 0 ? 0 : 200));
    return Snapshot();
  };
  read_twice(read, 0);
  EXPECT_EQ(count, 2);
}

}  // namespace assay
