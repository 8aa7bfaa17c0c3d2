// SPDX-License-Identifier: Apache-2.0
// See housekeeping.hpp.
#include "harness/run/housekeeping.hpp"

#include <malloc.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "harness/base/error.hpp"
#include "harness/run/keeper.hpp"

namespace assay {
namespace {

constexpr double kChildSeconds = 0.5;
constexpr auto kLinger = std::chrono::milliseconds(100);
constexpr int kDescriptors = 64;        // more of them than before: a leak
constexpr double kAddressSpace = 0.25;  // of what a worker may have and had not at the start

}  // namespace

Housekeeping::Housekeeping(const Backend& backend) {
  entries_.lend(backend);
  adopt_orphans();
  state_.emplace();
  // The threads of the reference are there before those of kernels are counted.
#pragma omp parallel
  std::this_thread::yield();
  bytes_at_start_ = address_space_bytes();
}

void Housekeeping::before_kernel() {
  threads_ = thread_count();
  descriptors_ = descriptor_count();
  asks_ = asks_the_system();
}

std::string Housekeeping::after_kernel(int& threads_left) {
  std::string why;
  const auto add = [&](const std::string& what) { why += (why.empty() ? "" : ", ") + what; };
  if (has_children()) {
    int ended = 0;
    const bool all = end_children(kChildSeconds, [&](pid_t, int) { ++ended; });
    add(all ? fmt::format("{} processes were left and ended", ended) : "processes were left that do not end");
  }
  if (const std::string changed = entries_.restore(); !changed.empty()) add(changed + " was changed");
  for (const std::string& what : state_->restore()) add(what + " was changed for good");
  threads_left = thread_count() - threads_;
  if (const int more = descriptor_count() - descriptors_; more > kDescriptors)
    add(fmt::format("{} descriptors were left open", more));
  if (!asks_ && asks_the_system()) add("requests to the system were left");
  return why;
}

void Housekeeping::linger(const std::string& kernel) {
  if (lingered_.insert(kernel).second) std::this_thread::sleep_for(kLinger);
}

std::string Housekeeping::after_case() const {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  const double room = static_cast<double>(limit.rlim_cur) - static_cast<double>(bytes_at_start_);
  const auto grown = [&] { return static_cast<double>(address_space_bytes() - bytes_at_start_); };
  if (grown() < kAddressSpace * room) return "";
  malloc_trim(0);
  if (grown() < kAddressSpace * room) return "";
  return fmt::format("{:.0f} MiB of memory were left", grown() / (1 << 20));
}

}  // namespace assay
