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

// 1, n, 2, n - 1, ...: every stretch has the median of the whole.
std::vector<double> mirrored(int n) {
  std::vector<double> v;
  for (int i = 1; 2 * i <= n + 1; ++i) {
    v.push_back(i);
    if (n + 1 - i != i) v.push_back(n + 1 - i);
  }
  return v;
}

// Binomial(n, 1/2): n = 6: 2 P(<= 0) = 2/64 = 0.031; n = 9: 2 P(<= 1) = 20/512 = 0.039, 2 P(<= 2) = 0.18;
// n = 32: 2 P(<= 9) = 0.0201, 2 P(<= 10) = 0.0501; n = 96: 2 P(<= 37) = 0.0325, 2 P(<= 38) = 0.052. Ranks of
// the median; another measurement's lies sqrt(2) times as far away.
TEST(Summarize, IntervalRanksOfKnownSizes) {
  const struct {
    int n;
    double low, high;
  } known[] = {{6, 1, 6}, {8, 1, 8}, {9, 2, 8}, {32, 10, 23}, {96, 38, 59}};
  for (const auto& k : known) {
    const Timing t = summarize(mirrored(k.n));
    EXPECT_NEAR(t.low_us, t.median_us - std::sqrt(2) * (t.median_us - k.low), 1e-9) << k.n;
    EXPECT_NEAR(t.high_us, t.median_us + std::sqrt(2) * (k.high - t.median_us), 1e-9) << k.n;
  }
}

// Eight blocks of eight samples, each of one value: order statistics see two of them, and between the second
// and the last but one of the blocks lie another run's medians.
TEST(Summarize, WhatDiffersBetweenBlocksIsPartOfIt) {
  std::vector<double> blocks, mixed;
  for (int i = 0; i < 64; ++i) {
    blocks.push_back(100 + i / 8);
    mixed.push_back(100 + i % 8);
  }
  const Timing t = summarize(blocks), m = summarize(mixed);
  EXPECT_EQ(t.median_us, 103.5);
  EXPECT_EQ(m.median_us, 103.5);
  EXPECT_NEAR(t.low_us, 103.5 - std::sqrt(2) * 1.2 * 2.5, 1e-9);
  EXPECT_NEAR(t.high_us, 103.5 + std::sqrt(2) * 1.2 * 2.5, 1e-9);
  EXPECT_NEAR(t.between_us, std::sqrt(2) * 1.2 * 2.5, 1e-9);
  EXPECT_LT(m.high_us, t.high_us);
  // An eighth of a run that somebody disturbed says nothing of the median of another; a quarter does.
  std::vector<double> late(64, 100.0);
  for (size_t i = 56; i < 64; ++i) late[i] = 300;
  EXPECT_NEAR(summarize(late).high_us, 100, 1e-9);
  for (size_t i = 48; i < 64; ++i) late[i] = 300;
  EXPECT_NEAR(summarize(late).high_us, 100 + std::sqrt(2) * 1.2 * 200, 1e-9);
  EXPECT_NEAR(summarize(late).low_us, 100, 1e-9);
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
  const Timing t = c.run({.min_samples = 9, .warmup_seconds = 0, .min_seconds = 0, .steady_seconds = 0});
  EXPECT_EQ(t.stop, StopReason::kConfident);
  EXPECT_EQ(t.samples_us.size(), 9u);
  EXPECT_EQ(c.calls, 9u) << "no warm-up";
}

TEST(Measure, WarmUpLastsAsLongAsAsked) {
  FakeClock c{.durations_us = {1000}};
  c.run({.min_samples = 9, .warmup_seconds = 0.0105, .min_seconds = 0, .steady_seconds = 0});
  EXPECT_EQ(c.calls, 11u + 9u);
}

// Samples alternate 100 and 104: the interval is [100, 104] for ever, 4 % wide.
TEST(Measure, WideIntervalGoesOnToTheMaximum) {
  FakeClock c{.durations_us = {100, 104}};
  const Timing t = c.run({.relative_width = 0.02,
                          .max_samples = 300,
                          .warmup_seconds = 0,
                          .min_seconds = 0,
                          .steady_seconds = 0});
  EXPECT_EQ(t.stop, StopReason::kMaxSamples);
  EXPECT_EQ(t.samples_us.size(), 300u);
  EXPECT_GE(t.high_us - t.low_us, 4 * std::sqrt(2) - 1e-9);
  EXPECT_LE(t.high_us - t.low_us, 1.2 * 4 * std::sqrt(2) + 1e-9) << "blocks say 100 or 104, too";
  FakeClock d{.durations_us = {100, 104}};
  EXPECT_EQ(d.run({.relative_width = 0.06, .warmup_seconds = 0, .min_seconds = 0, .steady_seconds = 0}).stop,
            StopReason::kConfident);
}

TEST(Measure, TimeEndsItEvenBeforeTheMinimum) {
  FakeClock c{.durations_us = {400'000}};
  const Timing t = c.run(
      {.min_samples = 9, .max_seconds = 1.0, .warmup_seconds = 0, .min_seconds = 0, .steady_seconds = 0});
  EXPECT_EQ(t.stop, StopReason::kMaxSeconds);
  EXPECT_EQ(t.samples_us.size(), 3u);
  EXPECT_TRUE(std::isnan(t.low_us));
  EXPECT_DOUBLE_EQ(t.median_us, 400'000);
}

TEST(Measure, EveryCallIsKeptWithItsTime) {
  FakeClock c{.durations_us = {500, 400, 300, 200}};
  const Timing t = c.run(
      {.min_samples = 4, .max_samples = 4, .warmup_seconds = 1e-9, .min_seconds = 0, .steady_seconds = 0});
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
  const Timing t =
      measure(sample, {.min_samples = 9, .warmup_seconds = 1e-9, .min_seconds = 0, .steady_seconds = 0},
              [&] { return now; });
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
  const Timing none = measure(
      never,
      {.min_samples = 1, .max_samples = 20, .warmup_seconds = 0, .min_seconds = 0, .steady_seconds = 0},
      [&] { return now; });
  EXPECT_EQ(none.dropped, 200);
  EXPECT_TRUE(none.samples_us.empty());
  EXPECT_TRUE(std::isnan(none.median_us));
}

TEST(Measure, ImpossibleDurationsAndRulesAreRefused) {
  EXPECT_THROW(measure([] { return -1.0; }, {}), CheckError);
  EXPECT_THROW(measure([] { return std::nan(""); }, {}), CheckError);
  EXPECT_THROW(measure([] { return 1.0; }, {.min_samples = 9, .max_samples = 3}), CheckError);
}

// Coverage by simulation, of the medians of other measurements: with nothing between them but skewed noise,
// with a clock that is another one every few samples, in whose sight the noise is nothing, and with stretches
// that somebody disturbed besides.
TEST(Summarize, IntervalCoversTheMediansOfOtherMeasurements) {
  uint64_t state = 12345;
  const auto uniform = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (static_cast<double>(state >> 11) + 0.5) / 9007199254740992.0;
  };
  struct {
    double clock, disturbed, widest;
  } const known[] = {{0, 0, 0.15}, {0.02, 0, 4}, {0.02, 0.05, 12}};
  for (const auto& [clock, disturbed, widest] : known) {
    const auto once = [&, clock = clock, disturbed = disturbed] {
      std::vector<double> v(128);
      double slower = 1;
      for (size_t i = 0; i < v.size(); ++i) {
        if (i % 16 == 0) slower = (1 + clock * (uniform() - 0.5)) * (uniform() < disturbed ? 2 : 1);
        v[i] = 100 * slower - 0.1 * std::log(uniform());
      }
      return summarize(v);
    };
    int inside = 0, all = 0;
    double widths = 0;
    for (int d = 0; d < 400; ++d) {
      const Timing t = once();
      widths += (t.high_us - t.low_us) / 400;
      for (int other = 0; other < 5; ++other, ++all) {
        const double m = once().median_us;
        inside += t.low_us <= m && m <= t.high_us;
      }
    }
    EXPECT_GE(inside, all * 0.92) << clock << " " << disturbed;
    EXPECT_LE(widths, widest) << "wider than it need be";
  }
}

// Two runs' medians differ by more than one run's samples show: by a deviation that is known, beside what
// blocks of the samples show or in its place.
TEST(Widen, IntervalTakesInWhatRunsDifferBy) {
  std::vector<double> swing(64);  // no ties: they would be a clock's steps
  for (size_t i = 0; i < swing.size(); ++i) swing[i] = (i < 48 ? 100 : 110) + 1e-9 * static_cast<double>(i);
  const Timing narrow = summarize(swing);
  ASSERT_GT(narrow.between_us, 1);
  Timing t = narrow;
  widen(t, 0.01);
  EXPECT_NEAR(t.high_us - t.median_us, std::hypot(narrow.high_us - narrow.median_us, 1.96 * std::sqrt(2)),
              1e-6);
  EXPECT_NEAR(t.median_us - t.low_us, std::hypot(narrow.median_us - narrow.low_us, 1.96 * std::sqrt(2)),
              1e-6);
  t = narrow;
  widen(t, 0.01, true);
  EXPECT_EQ(t.between_us, 0);
  EXPECT_NEAR(t.median_us - t.low_us, 1.96 * std::sqrt(2), 1e-6);
  Timing few = summarize(one_to(5));
  widen(few, 0.01);
  EXPECT_TRUE(std::isnan(few.low_us));
}

// A clock of 32 ns, nearly always the same: another run is a step away.
TEST(Widen, IntervalIsAStepOfTheClockAtLeast) {
  std::vector<double> v(64, 40.64);
  v[10] = v[40] = 40.672;
  Timing t = summarize(v);
  ASSERT_NEAR(t.low_us, t.high_us, 1e-9);
  widen(t, 0);
  EXPECT_NEAR(t.low_us, 40.608, 1e-9);
  EXPECT_NEAR(t.high_us, 40.672, 1e-9);
  for (size_t i = 0; i < v.size(); ++i) v[i] = 40 + 0.001 * static_cast<double>(i);
  t = summarize(v);
  const double high = t.high_us;
  widen(t, 0);
  EXPECT_EQ(t.high_us, high) << "no two are equal";
}

// A power limit acts after 0.3 s, and lets the clock swing: a quarter of each second is 5 % slower.
TEST(Measure, WaitsUntilTimesAreSteady) {
  double now = 0;
  const auto sample = [&] {
    const double part = now - std::floor(now);
    TimedSample s(now < 0.6 ? 1000 : part < 0.25 ? 1155 : 1100);
    now += s.us * 1e-6;
    return s;
  };
  StoppingRule rule{.warmup_seconds = 0.01, .min_seconds = 0, .steady_seconds = 4};
  const Timing t = measure(sample, rule, [&] { return now; });
  EXPECT_TRUE(t.steady);
  EXPECT_GT(t.waited_s, 2.9) << "two whole stretches behind the change, though shorter ones agree earlier";
  EXPECT_LT(t.waited_s, 3.1);
  now = 0;
  rule.steady_seconds = 0;
  EXPECT_EQ(measure(sample, rule, [&] { return now; }).median_us, 1000) << "not asked for";
}

TEST(Measure, WhatIsNeverSteadySaysSo) {
  double now = 0;
  const auto sample = [&] {
    TimedSample s(1000 * (1 + now / 10));
    now += s.us * 1e-6;
    return s;
  };
  const Timing t = measure(sample, {.steady_seconds = 4}, [&] { return now; });
  EXPECT_FALSE(t.steady);
  EXPECT_NEAR(t.waited_s, 4, 0.01);
}

TEST(Measure, LastsLongEnoughToSeeAnythingChange) {
  FakeClock c{.durations_us = {50}};
  const Timing t = c.run({.warmup_seconds = 0, .min_seconds = 0.02, .steady_seconds = 0});
  EXPECT_EQ(t.samples_us.size(), 400u);
  EXPECT_EQ(t.stop, StopReason::kConfident);
}

}  // namespace
}  // namespace assay
