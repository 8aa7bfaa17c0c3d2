// SPDX-License-Identifier: Apache-2.0
// How busy the machine was with others while something ran: whoever times on the host, or launches from it,
// shares the processors with them. From /proc, of the whole machine; a container does not hide it.
#pragma once

#include <cstdint>
#include <string>

namespace assay {

struct HostLoad {
  double load;            // runnable processes, mean of the last minute
  double steal_percent;   // of the processors' time, given to other virtual machines
  double others_percent;  // of the processors' time, used by other processes and interrupts
};

class HostLoadMeter {
 public:
  explicit HostLoadMeter(std::string proc = "/proc");  // starts
  // Since the start; NaN where /proc does not say, or no tick of the clock has passed.
  HostLoad read() const;

 private:
  struct Ticks {
    int64_t all = 0, busy = 0, steal = 0, own = 0;
  };
  Ticks ticks() const;
  std::string proc_;
  Ticks start_;
};

}  // namespace assay
