// SPDX-License-Identifier: Apache-2.0
// See timed_call.hpp.
#include "harness/run/timed_call.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <thread>
#include <utility>

#include "harness/base/system_time.hpp"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;  // cheaper to read than host_time_us(), which it is held against

double us_since(double start_us) { return host_time_us() - start_us; }

// Median over a few calls: a plan is made once per batch shape, so its cost is a single number.
double time_plan(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                 const assay_tensors* tensors) {
  if (kernel.plan == nullptr) return std::nan("");
  std::vector<double> us;
  for (int i = 0; i < 5; ++i) {
    assay_plan* plan = nullptr;
    const CallResult r = call_plan(backend, kernel, problem, tensors, &plan, &us.emplace_back());
    call_free_plan(kernel, plan);
    if (!r.ok()) throw TimedCallFailed{"plan failed when repeated: " + r.error};
  }
  return summarize(us).median_us;
}

// A dirty cache is that after as much was written as others' benchmarks write (triton's do_bench: 256 MiB),
// and more where that is no several times the cache.
constexpr int64_t kDirtyBytes = int64_t{256} << 20, kDirtyCaches = 4;

// What a backend says of its own kernels, beside the host's clock round the call. That one sees flushing,
// launching and waiting too, so only what no such work explains is refused.
constexpr double kHostAtLeastUs = 2000, kHostTimes = 5, kHostSlack = 1.05, kHostSlackUs = 50;
constexpr int kHostAsked = 3;  // a host that was elsewhere for milliseconds once is no objection

// Calls in a row last so long: behind each row a device rests for tenths of a millisecond, less than half a
// hundredth of that, and looks at results come often enough.
constexpr double kRowUs = 60000;
constexpr int64_t kMostInARow = 256;

void check_number(double us) {
  if (!(us > 0) || std::isinf(us))
    throw TimedCallFailed{fmt::format("the backend's clock said {:g} us, which is no time", us)};
}

[[noreturn]] void implausible(double us, double host_us) {
  throw TimeImplausible{fmt::format(
      "the backend's clock said {:.4g} us of a call that took {:.4g} us by the host's", us, host_us)};
}

// call(us): a call timed by the backend, or the mean of so many. Its time, and the host's round it, which is
// no less. Why there is none is thrown.
template <class Call>
TimedSample timed_once(const Call& call, const char* doing, int64_t calls) {
  TimedSample s;
  const double before = host_time_us();
  const CallResult r = call(&s.us);
  s.host_us = us_since(before) / static_cast<double>(calls);
  if (!r.ok()) throw TimedCallFailed{fmt::format("failed while being {}: {}", doing, r.error)};
  check_number(s.us);
  if (s.us > kHostSlack * s.host_us + kHostSlackUs) implausible(s.us, s.host_us);
  return s;
}

// The same, called again where it is hot and the host's clock says much more.
template <class Call>
double plausible_us(const Call& call, bool hot, const char* doing, int64_t calls = 1) {
  HostBeside beside;
  TimedSample s = timed_once(call, doing, calls);
  while (hot && beside.again(s.us, s.host_us)) s = timed_once(call, doing, calls);
  return s.us;
}

}  // namespace

bool HostBeside::again(double us, double host_us) {
  if (!(host_us > kHostAtLeastUs && us * kHostTimes < host_us)) return false;
  if (++asked_ == kHostAsked) implausible(us, host_us);
  return true;
}

TimedCall::TimedCall(const Backend& backend, const assay_device& device, const assay_kernel& kernel,
                     const assay_problem* problem, const assay_tensors* tensors, const std::string& mode,
                     DeviceClock* clock, CallsAgain again)
    : backend_(backend),
      kernel_(kernel),
      problem_(problem),
      tensors_(tensors),
      clock_(clock),
      again_(again),
      series_(mode == "graph" || backend.table()->time_run == nullptr ? nullptr : series_of(backend)) {
  if (mode == "graph")
    if (const std::string why = graph_refusal(backend, kernel); !why.empty()) throw ModeRefused{why};
  plan_us_ = time_plan(backend, kernel, problem, tensors);
  if (const CallResult r = call_plan(backend, kernel, problem, tensors, &plan_); !r.ok())
    throw TimedCallFailed{"plan failed when repeated: " + r.error};
  if (kernel.refresh != nullptr) {
    const double start = host_time_us();
    const CallResult r = call_refresh(backend, kernel, problem, tensors, plan_);
    refresh_us_ = us_since(start);
    if (!r.ok()) {
      call_free_plan(kernel, plan_);
      throw TimedCallFailed{"refresh failed when repeated: " + r.error};
    }
  }
  if (mode == "graph") {
    const CallResult r = call_capture(backend, kernel, problem, tensors, plan_, &graph_);
    if (!r.ok()) {
      call_free_plan(kernel, plan_);
      throw TimedCallFailed{"cannot be captured: " + r.error};
    }
  }
  if (mode != "cold" && mode != "dirty") return;
  // The device flushes its own cache where it has a clock of its own; the CPU's threads flush theirs, by
  // writing, and all of them, whatever the library says of caches and processors.
  if (mode == "dirty" && backend.table()->time_run != nullptr)
    flush_bytes_ = -std::max(kDirtyBytes, kDirtyCaches * device.cache_bytes);
  else if (backend.table()->time_run != nullptr)
    flush_bytes_ = 2 * device.cache_bytes;
  else
    flusher_.emplace(CacheFlusher::of_host(device));
}

TimedCall::~TimedCall() {
  call_free_graph(backend_, graph_);
  call_free_plan(kernel_, plan_);
}

template <class Call>
TimedSample TimedCall::by_backend(const Call& call, bool hot, const char* doing) const {
  if (again_ == CallsAgain::kItself) return plausible_us(call, hot, doing);
  TimedSample s = timed_once(call, doing, 1);
  if (!hot) s.host_us = std::nan("");
  return s;
}

TimedSample TimedCall::eager() {
  if (backend_.table()->time_run != nullptr)
    return by_backend(
        [&](double* us) {
          return call_time_run(backend_, kernel_, problem_, tensors_, plan_, flush_bytes_, us);
        },
        flush_bytes_ == 0, "timed");
  if (flusher_) flusher_->flush();
  const double before_us = system_time_us();
  const auto before = Clock::now();
  const CallResult r = call_run_again(backend_, kernel_, problem_, tensors_, plan_);
  const double us = 1e6 * std::chrono::duration<double>(Clock::now() - before).count();
  hidden_us_.push_back(system_time_us() - before_us - us);
  if (!r.ok()) throw TimedCallFailed{"failed while being timed: " + r.error};
  return us;
}

void TimedCall::hold_against_system(double median_us) {
  constexpr double kSlack = 0.05, kSlackUs = 5;
  if (!kSystemTellsTime) return;
  if (std::isnan(system_time_us())) throw TimeImplausible{"the system does not tell the time any more"};
  if (hidden_us_.empty()) return;
  const double hidden = summarize(hidden_us_).median_us;
  if (!(std::abs(hidden) <= kSlack * median_us + kSlackUs))
    throw TimeImplausible{fmt::format("the process's clock said {:.4g} us a call, and the system's {:.4g} us",
                                      median_us, median_us + hidden)};
}

void TimedCall::hold_against_host(double median_us) {
  constexpr double kLeastUs = 100, kWholeUs = 5000, kSlackTimes = 1.5, kSlackUs = 60;
  if (backend_.table()->time_run == nullptr || graph_ != nullptr || flush_bytes_ != 0 ||
      !(median_us >= kLeastUs))
    return;
  const int calls = std::max(1, static_cast<int>(kWholeUs / median_us));
  double least = std::numeric_limits<double>::infinity();  // of three: anything else only adds to it
  for (int i = 0; i < 3; ++i) {
    const double before = host_time_us();
    for (int n = 0; n < calls; ++n)
      if (const CallResult r = call_run_again(backend_, kernel_, problem_, tensors_, plan_); !r.ok())
        throw TimedCallFailed{"failed while being timed: " + r.error};
    least = std::min(least, us_since(before) / calls);
  }
  if (least > kSlackTimes * median_us + kSlackUs)
    throw TimeImplausible{fmt::format(
        "the backend's clock said {:.4g} us a call, and {} calls in a row took {:.4g} us each by the host's",
        median_us, calls, least)};
}

// Asking whether the device still answers waits for all that is on it.
void TimedCall::empty_device() {
  if (backend_.table()->time_run == nullptr) return;
  if (std::string why; device_lost(backend_, &why)) throw TimedCallFailed{"failed while being timed: " + why};
  emptied_ = true;
}

void TimedCall::hold_against_alone(double median_us) {
  constexpr double kSlackTimes = 1.5, kSlackUs = 60;
  constexpr size_t kLeastCalls = 2;
  if (alone_us_.size() < kLeastCalls) return;
  const double least = *std::min_element(alone_us_.begin(), alone_us_.end());
  if (least > kSlackTimes * median_us + kSlackUs)
    throw TimeImplausible{fmt::format(
        "{} calls took {:.4g} us or more where nothing was left on the device, and the others {:.4g} us",
        alone_us_.size(), least, median_us)};
}

TimedSample TimedCall::replayed() {
  return by_backend([&](double* us) { return call_time_replay(backend_, graph_, 0, us); }, true, "replayed");
}

void TimedCall::set_clock(std::vector<TimedSample>& samples, const std::optional<ClockReading>& reading) {
  if (!reading) return;
  knows_throttling_ = reading->throttled.has_value();
  for (TimedSample& s : samples) {
    s.dropped = reading->throttled.value_or(false);
    s.sm_mhz = reading->sm_mhz;
    if (!s.dropped) clocks_mhz_.push_back(reading->sm_mhz);
  }
}

TimedSample TimedCall::sample() {
  const double before = host_time_us();
  std::vector<TimedSample> one = {graph_ != nullptr ? replayed() : eager()};
  took_us_ = us_since(before);
  if (clock_ != nullptr) set_clock(one, clock_->read());
  if (std::exchange(emptied_, false) && !one.front().dropped) alone_us_.push_back(one.front().us);
  return one.front();
}

int64_t TimedCall::in_a_row() const {
  if (series_ == nullptr || !(took_us_ > 0)) return 1;
  return std::clamp<int64_t>(static_cast<int64_t>(kRowUs / took_us_), 1, kMostInARow);
}

std::vector<TimedSample> TimedCall::samples(const std::vector<Changes>& before) {
  ASSAY_CHECK(series_ != nullptr, "calls of backend {} are timed one by one", backend_.name());
  const auto calls = static_cast<int64_t>(before.size());
  // By somebody else: the host asks for a millisecond, in which the device would rest behind the last call.
  std::future<std::optional<ClockReading>> reading;
  if (clock_ != nullptr)
    reading = std::async(std::launch::async, [this, half_us = took_us_ * static_cast<double>(calls) / 2] {
      std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(half_us));
      return clock_->read();
    });
  const double start = host_time_us();
  std::vector<double> us;
  plausible_us(
      [&](double* mean) {
        const CallResult r =
            call_time_runs(*series_, kernel_, problem_, tensors_, plan_, flush_bytes_, before, us);
        for (const double one : us) {
          if (r.ok()) check_number(one);
          *mean += one / static_cast<double>(calls);
        }
        return r;
      },
      flush_bytes_ == 0, "timed", calls);
  took_us_ = us_since(start) / static_cast<double>(calls);
  std::vector<TimedSample> samples(us.begin(), us.end());
  if (reading.valid()) set_clock(samples, reading.get());
  return samples;
}

CallClocks TimedCall::clocks() const {
  return {clocks_mhz_.empty() ? std::nan("") : summarize(clocks_mhz_).median_us, knows_throttling_};
}

}  // namespace assay
