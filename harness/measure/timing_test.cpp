// SPDX-License-Identifier: Apache-2.0
// Summaries against numbers worked out by hand, and the stopping rule under a clock the test moves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/base/error.hpp"
#include "harness/measure/measure.hpp"

namespace assay {
namespace {

std::vector<double> one_to(int n) {
  std::vector<double> v(n);
  std::iota(v.begin(), v.end(), 1.0);
  return v;
}

TEST(Summarize, QuartilesOfUnsortedSamples) {
  const Timing t = summarize({40, 10, 30, 20});
  EXPECT_DOUBLE_EQ(t.median_us, 25);
  EXPECT_DOUBLE_EQ(t.q1_us, 17.5);
  EXPECT_DOUBLE_EQ(t.q3_us, 32.5);
  EXPECT_EQ(t.samples_us, (std::vector<double>{40, 10, 30, 20})) << "samples stay in order";
}

// Binomial(n, 1/2): n = 6: 2 P(<= 0) = 2/64 = 0.031; n = 9: 2 P(<= 1) = 20/512 = 0.039, 2 P(<= 2) = 0.18;
// n = 20: 2 P(<= 5) = 0.0414, 2 P(<= 6) = 0.115; n = 100: 2 P(<= 39) = 0.0352, 2 P(<= 40) = 0.0569.
TEST(Summarize, IntervalRanksOfKnownSizes) {
  const struct {
    int n;
    double low, high;
  } known[] = {{6, 1, 6}, {8, 1, 8}, {9, 2, 8}, {20, 6, 15}, {100, 40, 61}};
  for (const auto& k : known) {
    const Timing t = summarize(one_to(k.n));
    EXPECT_EQ(t.low_us, k.low) << k.n;
    EXPECT_EQ(t.high_us, k.high) << k.n;
  }
}

TEST(Summarize, FiveSamplesHaveNoInterval) {
  const Timing t = summarize(one_to(5));
  EXPECT_EQ(t.median_us, 3);
  EXPECT_TRUE(std::isnan(t.low_us));
  EXPECT_TRUE(std::isnan(t.high_us));
}

TEST(Summarize, NothingIsNaN) { EXPECT_TRUE(std::isnan(summarize({}).median_us)); }

struct FakeClock {
  double now = 100;
  std::vector<double> durations_us;
  size_t calls = 0;
  double sample() {
    const double us = durations_us[calls++ % durations_us.size()];
    now += us * 1e-6;
    return us;
  }
  Timing run(const StoppingRule& rule) {
    return measure([this] { return sample(); }, rule, [this] { return now; });
  }
};

TEST(Measure, EqualSamplesStopAtTheMinimum) {
  FakeClock c{.durations_us = {50}};
  const Timing t = c.run({.min_samples = 9, .warmup_seconds = 0});
  EXPECT_EQ(t.stop, StopReason::kConfident);
  EXPECT_EQ(t.samples_us.size(), 9u);
  EXPECT_EQ(c.calls, 10u) << "one warm-up call";
}

TEST(Measure, WarmUpLastsAsLongAsAsked) {
  FakeClock c{.durations_us = {1000}};
  c.run({.min_samples = 9, .warmup_seconds = 0.0105});
  EXPECT_EQ(c.calls, 11u + 9u);
}

// Samples alternate 100 and 104: the interval is [100, 104] for ever, 4 % wide.
TEST(Measure, WideIntervalGoesOnToTheMaximum) {
  FakeClock c{.durations_us = {100, 104}};
  const Timing t = c.run({.relative_width = 0.02, .max_samples = 300, .warmup_seconds = 0});
  EXPECT_EQ(t.stop, StopReason::kMaxSamples);
  EXPECT_EQ(t.samples_us.size(), 300u);
  EXPECT_EQ(t.high_us - t.low_us, 4);
  FakeClock d{.durations_us = {100, 104}};
  EXPECT_EQ(d.run({.relative_width = 0.05, .warmup_seconds = 0}).stop, StopReason::kConfident);
}

TEST(Measure, TimeEndsItEvenBeforeTheMinimum) {
  FakeClock c{.durations_us = {400'000}};
  const Timing t = c.run({.min_samples = 9, .max_seconds = 1.0, .warmup_seconds = 0});
  EXPECT_EQ(t.stop, StopReason::kMaxSeconds);
  EXPECT_EQ(t.samples_us.size(), 3u);
  EXPECT_TRUE(std::isnan(t.low_us));
  EXPECT_DOUBLE_EQ(t.median_us, 400'000);
}

TEST(Measure, EveryCallIsKeptWithItsTime) {
  FakeClock c{.durations_us = {500, 400, 300, 200}};
  const Timing t = c.run({.min_samples = 4, .max_samples = 4, .warmup_seconds = 0});
  ASSERT_EQ(t.taken.size(), 4u) << "without the warm-up";
  const double us[] = {400, 300, 200, 500}, at_us[] = {400, 700, 900, 1400};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(t.taken[i].us, us[i]);
    EXPECT_NEAR(t.taken[i].at_s, at_us[i] * 1e-6, 1e-12);
  }
  std::vector<double> kept;
  for (const TimedSample& s : t.taken) kept.push_back(s.us);
  EXPECT_EQ(kept, t.samples_us);
}

// Every second call is dropped and slow: neither counts, but both take time.
TEST(Measure, DroppedCallsAreCountedAndLeftOut) {
  double now = 0;
  int calls = 0;
  const auto sample = [&] {
    TimedSample s(++calls % 2 == 0 ? 900.0 : 50.0);
    s.dropped = calls % 2 == 0;
    now += s.us * 1e-6;
    return s;
  };
  const Timing t = measure(sample, {.min_samples = 9, .warmup_seconds = 0}, [&] { return now; });
  EXPECT_EQ(t.taken.size(), t.samples_us.size() + static_cast<size_t>(t.dropped));
  EXPECT_EQ(std::count_if(t.taken.begin(), t.taken.end(), [](const TimedSample& s) { return s.dropped; }),
            t.dropped);
  EXPECT_EQ(t.median_us, 50);
  EXPECT_EQ(t.samples_us.size(), 9u);
  EXPECT_EQ(t.dropped, 9) << "the first call is the warm-up";
  const auto never = [&] {
    TimedSample s(50.0);
    s.dropped = true;
    now += 1e-6;
    return s;
  };
  const Timing none =
      measure(never, {.min_samples = 1, .max_samples = 20, .warmup_seconds = 0}, [&] { return now; });
  EXPECT_EQ(none.dropped, 200);
  EXPECT_TRUE(none.samples_us.empty());
  EXPECT_TRUE(std::isnan(none.median_us));
}

TEST(Measure, ImpossibleDurationsAndRulesAreRefused) {
  EXPECT_THROW(measure([] { return -1.0; }, {}), CheckError);
  EXPECT_THROW(measure([] { return std::nan(""); }, {}), CheckError);
  EXPECT_THROW(measure([] { return 1.0; }, {.min_samples = 9, .max_samples = 3}), CheckError);
}

// Coverage by simulation: the interval of a skewed distribution encloses its median in at least 95 %
// of 4,000 seeded draws (standard error 0.35 %).
TEST(Summarize, IntervalCoversTheMedianOfASkewedDistribution) {
  uint64_t state = 12345;
  const auto uniform = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (static_cast<double>(state >> 11) + 0.5) / 9007199254740992.0;
  };
  int inside = 0;
  const int draws = 4000;
  for (int d = 0; d < draws; ++d) {
    std::vector<double> v(25);
    for (double& x : v) x = -std::log(uniform());  // median ln 2
    const Timing t = summarize(v);
    inside += t.low_us <= std::log(2.0) && std::log(2.0) <= t.high_us;
  }
  EXPECT_GE(inside, draws * 0.945);
  EXPECT_LE(inside, draws * 0.975) << "wider than it need be: 25 samples reach 95.7 %";
}

}  // namespace
}  // namespace assay
