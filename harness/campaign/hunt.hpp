// SPDX-License-Identifier: Apache-2.0
// A campaign as a whole: chunks of lines spread over processes, for so long or for so many cases, with
// everything counted and every alarm kept. A crash ends one process and is an alarm; the rest goes on.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "harness/campaign/judging.hpp"
#include "harness/campaign/totals.hpp"
#include "harness/run/options.hpp"

namespace assay::campaign {

struct HuntOptions {
  DrawOptions draw;
  SuspectOptions suspects;
  double seconds = 60;  // no chunk begins later; 0: no limit
  int64_t cases = 0;    // nor after so many judged ones; 0: no limit
  int jobs = 2;
  Shard shard;
  double silent_s = 60;         // a process that says nothing for so long hangs
  std::vector<Recorded> again;  // these instead of drawn lines, once
};

inline constexpr uint64_t kLinesPerChunk = 64;

struct HuntProgress {
  const Totals& totals;  // of this hunt, unfinished chunks included
  double seconds = 0;
  const Alarm* alarm = nullptr;  // a new one
};

struct HuntResult {
  Totals totals;  // whole chunks, those of the file included
  double seconds = 0;
  bool complete = false;  // false: stopped
};

// `file` may be null. Must run before this process uses OpenMP. InfrastructureError when a process or a
// library fails, or assay itself in one.
HuntResult hunt(const HuntOptions&, TotalsFile* file, const std::atomic<bool>* stop,
                const std::function<void(const HuntProgress&)>& on);

}  // namespace assay::campaign
