// SPDX-License-Identifier: Apache-2.0
// assay_disturb.h for kernels on the host: threads that take processors in bursts or keep memory busy, and
// fewer processors for the threads of the process. All threads are gone, and all processors back, after
// end().
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "harness/abi/assay_disturb.h"
#include "kernels/device/host_memory.hpp"

namespace {

using assay_host::fail;
using Clock = std::chrono::steady_clock;

constexpr size_t kScratchWords = size_t{8} << 20;  // 64 MiB

struct Trouble {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  bool taken = false;  // processors
  cpu_set_t before{};
};
Trouble& trouble() {
  static Trouble t;
  return t;
}

// Threads of this process; some may have ended by the time they are asked for.
std::vector<pid_t> tasks() {
  std::vector<pid_t> all;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error))
    all.push_back(static_cast<pid_t>(std::atoi(entry.path().filename().c_str())));
  return all;
}
void run_on(const cpu_set_t& processors) {
  for (const pid_t task : tasks()) (void)sched_setaffinity(task, sizeof processors, &processors);
}
std::vector<int> processors_in(const cpu_set_t& set) {
  std::vector<int> all;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) all.push_back(i);
  return all;
}
cpu_set_t only(int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  return one;
}

// Busy for a while, away for a while, each some tens to hundreds of microseconds.
void burn(int processor, uint64_t seed, Clock::time_point until) {
  const cpu_set_t one = only(processor);
  (void)sched_setaffinity(0, sizeof one, &one);
  std::mt19937_64 random(seed);
  while (!trouble().stop && Clock::now() < until) {
    const auto burst = Clock::now() + std::chrono::microseconds(20 + random() % 400);
    while (!trouble().stop && Clock::now() < burst) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  }
}

void read_and_write(uint64_t* words, uint64_t seed, Clock::time_point until) {
  uint64_t at = seed | 1, sum = 0;
  while (!trouble().stop && Clock::now() < until)
    for (int n = 0; n < 1000; ++n) {
      at = at * 6364136223846793005ull + 1442695040888963407ull;
      uint64_t& word = words[at >> 20 & (kScratchWords - 1)];
      if (at >> 62 == 0)
        __atomic_store_n(&word, sum, __ATOMIC_RELAXED);
      else
        sum += __atomic_load_n(&word, __ATOMIC_RELAXED);
    }
}

int end(char*, size_t) {
  Trouble& t = trouble();
  t.stop = true;
  for (std::thread& thread : t.threads) thread.join();
  t.threads.clear();
  if (t.taken) run_on(t.before);
  t.taken = false;
  t.stop = false;
  return ASSAY_OK;
}

int begin(int32_t kind, uint64_t seed, double microseconds, char* error, size_t size) {
  Trouble& t = trouble();
  if (!(microseconds >= 0 && microseconds <= ASSAY_DISTURB_LONGEST_US))
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "disturb: 0 to ASSAY_DISTURB_LONGEST_US microseconds");
  if (sched_getaffinity(0, sizeof t.before, &t.before) != 0)
    return fail(ASSAY_FAILED, error, size, "disturb: the processors of this process cannot be read");
  const auto until = Clock::now() + std::chrono::microseconds(static_cast<int64_t>(microseconds));
  std::vector<int> own = processors_in(t.before);
  std::mt19937_64 random(seed);
  constexpr size_t kMostThreads = 64;
  switch (kind) {
    case ASSAY_DISTURB_SKEW:
      std::shuffle(own.begin(), own.end(), random);
      own.resize(std::min(own.size(), kMostThreads));
      for (const int processor : own) t.threads.emplace_back(burn, processor, random(), until);
      return ASSAY_OK;
    case ASSAY_DISTURB_MEMORY: {
      static const std::unique_ptr<uint64_t[]> words(new uint64_t[kScratchWords]());
      const size_t count = std::min(own.size(), kMostThreads);
      for (size_t i = 0; i < count; ++i) t.threads.emplace_back(read_and_write, words.get(), random(), until);
      return ASSAY_OK;
    }
    case ASSAY_DISTURB_FEWER: {
      std::shuffle(own.begin(), own.end(), random);
      own.resize(1 + random() % std::max<size_t>(1, own.size() / 2));
      cpu_set_t few;
      CPU_ZERO(&few);
      for (const int processor : own) CPU_SET(processor, &few);
      t.taken = true;
      run_on(few);
      return ASSAY_OK;
    }
    default:
      return fail(ASSAY_UNSUPPORTED, error, size, "disturb: no such kind on a host");
  }
}

const assay_disturber kDisturber = {
    sizeof(assay_disturber),
    1u << ASSAY_DISTURB_SKEW | 1u << ASSAY_DISTURB_MEMORY | 1u << ASSAY_DISTURB_FEWER, begin, end};

}  // namespace

extern "C" __attribute__((visibility("default"))) const assay_disturber* assay_disturber_open(
    uint32_t abi_version) {
  return abi_version == ASSAY_ABI_VERSION ? &kDisturber : nullptr;
}
