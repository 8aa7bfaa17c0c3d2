// SPDX-License-Identifier: Apache-2.0
// Counts survive interruption and add up; the bound on the rate is the textbook's.
#include "harness/campaign/totals.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "harness/base/error.hpp"
#include "harness/campaign/recorded.hpp"

namespace assay::campaign {
namespace {

using ::testing::HasSubstr;

class TotalsOnDisk : public ::testing::Test {
 protected:
  TotalsOnDisk() {
    path_ = ::testing::TempDir() + "/assay_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
    std::filesystem::remove(path_);
  }
  ~TotalsOnDisk() override { std::filesystem::remove(path_); }

  static Totals some(int64_t passed) {
    Totals t;
    t.lines = 2;
    t.kernels["paged_a"] = {passed, 1, 2, 3, 1, 0.25, 1.0 / static_cast<double>(passed)};
    t.untrusted["because"] = 2;
    t.alarm_lines = 1;
    t.alarms.push_back({"paged batch=1q1", "paged batch=2q1", "paged_a", "cpu", "wrong", "tier D", "so"});
    return t;
  }
  static Identity identity(uint64_t seed = 7) {
    return {seed, 1e5, 64, 4, {"cpu"}, {"lib.so"}, "1/1", "abc"};
  }
  template <class Act>
  static std::string refusal(const Act& act) {
    try {
      act();
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  }
  std::string path_;
};

TEST_F(TotalsOnDisk, AreFoundAgain) {
  {
    TotalsFile file(path_, identity(), false);
    file.append(3, some(10));
    file.append(5, some(20));
  }
  TotalsFile again(path_, identity(), true);
  EXPECT_TRUE(again.has(3) && again.has(5));
  EXPECT_FALSE(again.has(4));
  const Counts sum = again.sum().sum();
  EXPECT_EQ(sum, (Counts{30, 2, 4, 6, 2, 0.25, 0.1}));
  EXPECT_EQ(sum.judged(), 32);
  EXPECT_EQ(again.sum().lines, 4);
  EXPECT_EQ(again.sum().alarms, (std::vector<Alarm>{some(1).alarms[0], some(1).alarms[0]}));
  EXPECT_EQ(again.sum().untrusted.at("because"), 4);
}

TEST_F(TotalsOnDisk, ALineThatWasCutOffIsDoneAgain) {
  { TotalsFile(path_, identity(), false).append(1, some(1)); }
  std::ofstream(path_, std::ios::app) << R"({"chunk":2,"lines":)";
  {
    TotalsFile file(path_, identity(), true);
    EXPECT_FALSE(file.has(2));
    file.append(2, some(5));
  }
  EXPECT_EQ(read_totals(path_).sum().passed, 6);
}

// Files of before say nothing of errors.
TEST_F(TotalsOnDisk, FourCountsAreReadToo) {
  { TotalsFile(path_, identity(), false).append(1, some(1)); }
  const auto with = [&](const std::string& counts) {
    std::ofstream(path_, std::ios::app)
        << R"({"chunk":2,"lines":1,"alarm_lines":0,"unbuilt":0,"seconds":0,"untrusted":{},"kernels":{"paged_a":[)"
        << counts << "]}}\n";
  };
  with("7,0,0,1");
  EXPECT_EQ(read_totals(path_).sum(), (Counts{8, 1, 2, 4, 1, 0.25, 1}));
  with("7,0,0,1,0");
  EXPECT_THAT(refusal([&] { read_totals(path_); }), HasSubstr("four counts, or five and two ratios"));
}

TEST_F(TotalsOnDisk, AnotherCampaignsAreRefused) {
  { TotalsFile(path_, identity(), false).append(1, some(1)); }
  EXPECT_THAT(refusal([&] { TotalsFile(path_, identity(8), true); }),
              HasSubstr("another campaign's (seed 7"));
  EXPECT_THAT(refusal([&] { TotalsFile(path_, identity(), false); }), HasSubstr("--resume"));
  std::ofstream(path_, std::ios::app) << "{\"chunk\":1}\n";
  EXPECT_THAT(refusal([&] { read_totals(path_); }), HasSubstr("lines"));
  EXPECT_THAT(refusal([&] { TotalsFile(path_ + ".none", identity(), true); }), HasSubstr("no file"));
}

TEST(RateBound, IsThatOfClopperAndPearson) {
  // No event in n: 1 - 0.05^(1/n), about 3 / n.
  for (const int64_t n : {1, 10, 1000, 1'000'000})
    EXPECT_NEAR(rate_bound(0, n) / -std::expm1(std::log(0.05) / static_cast<double>(n)), 1, 1e-6) << n;
  // Tables of the beta distribution: its 95 % quantile for (k + 1, n - k).
  EXPECT_NEAR(rate_bound(1, 10), 0.39416, 1e-4);
  EXPECT_NEAR(rate_bound(5, 20), 0.45558, 1e-4);
  EXPECT_NEAR(rate_bound(0, 0), 1, 0);
  EXPECT_NEAR(rate_bound(3, 3), 1, 0);
  EXPECT_LT(rate_bound(10, 100000), 2e-4);
  EXPECT_GT(rate_bound(10, 100000), 1e-4);
}

TEST_F(TotalsOnDisk, AlarmsBecomeASuite) {
  const Alarm alarm{"paged batch=1q1s9 seed=3", "", "paged_a", "cpu", "wrong", "tier D", "so"};
  Alarm other = alarm;
  other.kernel = "paged_b";
  record(path_, alarm);
  record(path_, alarm);
  record(path_, other);
  EXPECT_EQ(read_recorded(path_), (std::vector<Recorded>{{alarm.line, "paged_a"}, {alarm.line, "paged_b"}}));
  std::ofstream(path_, std::ios::app) << "paged batch=1q1s10\n";
  EXPECT_THAT(refusal([&] { read_recorded(path_); }), HasSubstr("a line without its kernel"));
}

}  // namespace
}  // namespace assay::campaign
