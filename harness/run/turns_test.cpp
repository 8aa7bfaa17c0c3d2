// SPDX-License-Identifier: Apache-2.0
// Who is alone is alone, and rows come out in the order of their cases.
#include "harness/run/turns.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "harness/base/error.hpp"

namespace assay {
namespace {

using ::testing::ElementsAre;

TEST(Gate, WhoIsAloneMeetsNobody) {
  Gate gate;
  std::atomic<int> inside{0}, most{0}, met{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 400; ++i) {
        const bool alone = (t + i) % 5 == 0;
        const Gate::Pass pass(gate, alone);
        const int now = ++inside;
        std::this_thread::yield();
        if (alone && (now > 1 || inside > 1)) ++met;
        if (now > most) most = now;
        --inside;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(met, 0);
  EXPECT_EQ(inside, 0);
}

TEST(Gate, WhoWantsToBeAloneIsNotPassedBy) {
  Gate gate;
  std::atomic<bool> was_alone{false};
  auto first = std::make_unique<Gate::Pass>(gate, false);
  std::thread alone([&] {
    const Gate::Pass pass(gate, true);
    was_alone = true;
  });
  std::atomic<bool> late_came_first{false};
  std::this_thread::sleep_for(
      std::chrono::milliseconds(50));  // the other waits by now, or the test says less
  std::thread late([&] {
    const Gate::Pass pass(gate, false);
    late_came_first = !was_alone;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(was_alone) << "somebody is inside";
  first.reset();
  alone.join();
  late.join();
  EXPECT_FALSE(late_came_first);
}

class Ordered : public ::testing::Test {
 protected:
  std::vector<std::string> written;
  OrderedRows rows{[this](const Row& row, const Samples&) { written.push_back(row.scenario); }};
  static Row row(const std::string& name) {
    Row r;
    r.scenario = name;
    return r;
  }
};

TEST_F(Ordered, TheFirstCaseIsWrittenAtOnceThoseBehindWhenItIsClosed) {
  const int64_t a = rows.open(), b = rows.open(), c = rows.open(), d = rows.open();
  rows.add(b, row("b1"));
  rows.add(c, row("c1"));
  rows.close(c);
  rows.add(a, row("a1"));
  EXPECT_THAT(written, ElementsAre("a1"));
  EXPECT_EQ(rows.held(), 2);
  rows.close(a);
  EXPECT_THAT(written, ElementsAre("a1", "b1"));
  rows.add(b, row("b2"));
  EXPECT_THAT(written, ElementsAre("a1", "b1", "b2"));
  rows.close(b);
  EXPECT_THAT(written, ElementsAre("a1", "b1", "b2", "c1"));
  rows.close(d);  // without a row
  rows.add(rows.open(), row("e1"));
  EXPECT_THAT(written, ElementsAre("a1", "b1", "b2", "c1", "e1"));
  EXPECT_EQ(rows.held(), 0);
  EXPECT_THROW(rows.add(a, row("a2")), CheckError) << "it is closed";
}

TEST_F(Ordered, WhatWasHeldWhenARunEndsEarlyIsWrittenOnce) {
  const int64_t a = rows.open(), b = rows.open(), c = rows.open();
  rows.add(c, row("c1"));
  rows.add(b, row("b1"));
  rows.close(c);
  rows.flush();
  EXPECT_THAT(written, ElementsAre("b1", "c1"));
  rows.close(a);
  rows.flush();
  EXPECT_THAT(written, ElementsAre("b1", "c1"));
}

}  // namespace
}  // namespace assay
