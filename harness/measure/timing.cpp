// SPDX-License-Identifier: Apache-2.0
// The stopping rule and the summary of samples. The interval of the median comes from order
// statistics: the number of samples below the median is Binomial(n, 1/2) whatever the distribution
// (David and Nagaraja, Order Statistics, section 7.1), and latency distributions are never normal.
#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/base/error.hpp"
#include "harness/base/now.hpp"
#include "harness/measure/measure.hpp"

namespace assay {
namespace {

constexpr double kCoverage = 0.95;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Largest k (from 1) such that the k-th smallest and the k-th largest of n enclose the median with at
// least 95 %, i.e. 2 P(Binomial(n, 1/2) <= k - 1) <= 5 %; 0 when there is none.
int64_t interval_rank(int64_t n) {
  const double log_all = static_cast<double>(n) * std::log(2.0);
  double below = 0;
  int64_t k = 0;
  for (int64_t i = 0; i < n / 2; ++i) {
    below += std::exp(std::lgamma(n + 1.0) - std::lgamma(i + 1.0) - std::lgamma(n - i + 1.0) - log_all);
    if (2 * below > 1 - kCoverage) break;
    k = i + 1;
  }
  return k;
}

double quantile(const std::vector<double>& sorted, double p) {
  const double at = p * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

// Medians of eight blocks of the samples, in order, less the least and the largest (fewer: all of them):
// where the median of as many other blocks lies, when time is what makes them differ. One block that
// something disturbed does not make it wide. Both 0 where there are too few samples.
struct Spread {
  double below = 0, above = 0;
};
Spread between_blocks(const std::vector<double>& in_order, double median_us) {
  constexpr size_t kBlocks = 8, kFewest = 4;
  constexpr double kScale = 1.2;  // chosen by simulation (timing_test.cpp), for 92 % and more
  const size_t blocks = std::min(kBlocks, in_order.size() / 4);
  if (blocks < kFewest) return {};
  std::vector<double> medians;
  for (size_t b = 0; b < blocks; ++b) {
    const auto at = [&](size_t i) {
      return in_order.begin() + static_cast<long>(in_order.size() * i / blocks);
    };
    medians.push_back(median({at(b), at(b + 1)}));
  }
  std::sort(medians.begin(), medians.end());
  const size_t out = blocks == kBlocks ? 1 : 0;
  return {kScale * std::max(0.0, median_us - medians[out]),
          kScale * std::max(0.0, medians[blocks - 1 - out] - median_us)};
}

// Of the order statistics: distances of the interval's ends from the median.
Spread of_order(const std::vector<double>& sorted, int64_t rank, double median_us) {
  const auto n = static_cast<int64_t>(sorted.size());
  return {median_us - sorted[static_cast<size_t>(rank - 1)],
          sorted[static_cast<size_t>(n - rank)] - median_us};
}

constexpr double kTwoMedians = 1.4142135623730951;  // the other one has its own sampling

void fill_summary(const std::vector<double>& sorted, const std::vector<double>& in_order, Timing& t) {
  const int64_t rank = interval_rank(static_cast<int64_t>(sorted.size()));
  t.median_us = quantile(sorted, 0.5);
  t.q1_us = quantile(sorted, 0.25);
  t.q3_us = quantile(sorted, 0.75);
  t.low_us = t.high_us = kNaN;
  t.between_us = 0;
  if (rank == 0) return;
  const Spread order = of_order(sorted, rank, t.median_us), blocks = between_blocks(in_order, t.median_us);
  t.between_us = kTwoMedians * std::max(blocks.below, blocks.above);
  t.low_us = t.median_us - kTwoMedians * std::max(order.below, blocks.below);
  t.high_us = t.median_us + kTwoMedians * std::max(order.above, blocks.above);
}

// Whether two stretches of a second, and of five calls at least, came to agree in their medians before
// `most_s` seconds had passed. A device at its power limit lets its clock swing with about that period (seen
// on an H200: a quarter of each second is 5 % slower), so shorter ones agree or not by chance.
template <class Take, class Now>
bool wait_until_steady(const Take& take, const Now& now, double most_s) {
  constexpr double kStretchS = 1, kAgreement = 0.01;
  constexpr size_t kCalls = 5;
  double last = kNaN;
  const double start = now();
  while (now() - start < most_s) {
    std::vector<double> us;
    for (const double from = now(); us.size() < kCalls || now() - from < kStretchS;) {
      us.push_back(take().us);
      if (now() - start > most_s) break;
    }
    const double is = median(us);
    if (std::fabs(is - last) <= kAgreement * std::max(is, last)) return true;  // false of NaN
    last = is;
  }
  return false;
}

}  // namespace

std::string_view stop_name(StopReason stop) {
  switch (stop) {
    case StopReason::kConfident:
      return "confident";
    case StopReason::kMaxSamples:
      return "max_samples";
    case StopReason::kMaxSeconds:
      return "max_seconds";
  }
  return "?";
}

void widen(Timing& t, double deviation, bool instead_of_blocks) {
  constexpr double kNormal = 1.96;
  if (std::isnan(t.low_us)) return;
  std::vector<double> sorted = t.samples_us;
  std::sort(sorted.begin(), sorted.end());
  Spread half{t.median_us - t.low_us, t.high_us - t.median_us};
  if (instead_of_blocks) {
    const Spread order = of_order(sorted, interval_rank(static_cast<int64_t>(sorted.size())), t.median_us);
    half = {kTwoMedians * order.below, kTwoMedians * order.above};
    t.between_us = 0;
  }
  double step = std::numeric_limits<double>::infinity();
  size_t ties = 0;
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i] == sorted[i - 1])
      ++ties;
    else
      step = std::min(step, sorted[i] - sorted[i - 1]);
  }
  if (2 * ties < sorted.size() || std::isinf(step)) step = 0;
  const double between = kNormal * kTwoMedians * deviation * t.median_us;
  t.low_us = t.median_us - std::max(std::hypot(half.below, between), step);
  t.high_us = t.median_us + std::max(std::hypot(half.above, between), step);
}

Timing summarize(std::vector<double> samples_us) {
  Timing t;
  t.samples_us = std::move(samples_us);
  if (t.samples_us.empty()) {
    t.median_us = t.q1_us = t.q3_us = t.low_us = t.high_us = kNaN;
    return t;
  }
  std::vector<double> sorted = t.samples_us;
  std::sort(sorted.begin(), sorted.end());
  fill_summary(sorted, t.samples_us, t);
  return t;
}

Timing measure(const std::function<TimedSample()>& sample, const StoppingRule& rule,
               const std::function<double()>& now_s) {
  ASSAY_CHECK(rule.min_samples >= 1 && rule.max_samples >= rule.min_samples && rule.max_seconds > 0,
              "stopping rule: {} to {} samples in {} s", rule.min_samples, rule.max_samples,
              rule.max_seconds);
  const auto now = now_s ? now_s : std::function<double()>(assay::now_s);
  const auto take = [&] {
    const TimedSample s = sample();
    ASSAY_CHECK(std::isfinite(s.us) && s.us >= 0, "a sample took {} us", s.us);
    return s;
  };

  // The first call pays for page faults and thread creation.
  for (const double warm_until = now() + rule.warmup_seconds; now() < warm_until;) take();

  const double steady_from = now();
  const bool steady = rule.steady_seconds <= 0 || wait_until_steady(take, now, rule.steady_seconds);
  const double waited_s = now() - steady_from;
  const double least_seconds = std::min(rule.min_seconds, rule.max_seconds);

  std::vector<double> in_order, sorted;
  Samples taken;
  StopReason stop = StopReason::kMaxSamples;
  int64_t next_look = rule.min_samples, dropped = 0;
  const double start = now();
  while (static_cast<int32_t>(in_order.size()) < rule.max_samples) {
    taken.push_back(take());
    TimedSample& s = taken.back();
    s.at_s = now() - start;
    if (s.dropped) {
      ++dropped;
    } else {
      in_order.push_back(s.us);
      sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), s.us), s.us);
    }
    const auto n = static_cast<int64_t>(sorted.size());
    // Not before it may end: a device at its limit of power would rest meanwhile, and take less for what
    // follows.
    if (!s.dropped && n >= next_look && s.at_s >= least_seconds) {
      next_look = n + std::max<int64_t>(1, n / 50);  // the rank costs n logarithms: not after every sample
      Timing t;
      fill_summary(sorted, in_order, t);
      // False of NaN.
      if (t.high_us - t.low_us <= rule.relative_width * t.median_us) {
        stop = StopReason::kConfident;
        break;
      }
    }
    if (n + dropped >= int64_t{10} * rule.max_samples) break;
    if (now() - start >= rule.max_seconds) {
      stop = StopReason::kMaxSeconds;
      break;
    }
  }
  Timing t = summarize(std::move(in_order));
  t.stop = stop;
  t.dropped = dropped;
  t.taken = std::move(taken);
  t.steady = steady;
  t.waited_s = waited_s;
  return t;
}

}  // namespace assay
