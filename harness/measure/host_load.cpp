// SPDX-License-Identifier: Apache-2.0
// See host_load.hpp. Fields of /proc/stat and /proc/loadavg: proc(5).
#include "harness/measure/host_load.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

namespace assay {

HostLoadMeter::HostLoadMeter(std::string proc) : proc_(std::move(proc)), start_(ticks()) {}

HostLoadMeter::Ticks HostLoadMeter::ticks() const {
  Ticks t;
  std::ifstream in(proc_ + "/stat");
  std::string word;
  int64_t user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft_irq = 0;
  if (!(in >> word >> user >> nice >> system >> idle >> wait >> irq >> soft_irq >> t.steal)) return t;
  t.busy = user + nice + system + irq + soft_irq;
  t.all = t.busy + idle + wait + t.steal;
  const auto seconds = [](const timeval& v) {
    return static_cast<double>(v.tv_sec) + 1e-6 * static_cast<double>(v.tv_usec);
  };
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage own{};
    getrusage(who, &own);
    t.own += std::llround((seconds(own.ru_utime) + seconds(own.ru_stime)) *
                          static_cast<double>(sysconf(_SC_CLK_TCK)));
  }
  return t;
}

HostLoad HostLoadMeter::read() const {
  HostLoad h{std::nan(""), std::nan(""), std::nan("")};
  std::ifstream in(proc_ + "/loadavg");
  if (!(in >> h.load)) h.load = std::nan("");
  const Ticks now = ticks();
  const auto all = static_cast<double>(now.all - start_.all);
  if (!(all > 0) || start_.all == 0) return h;
  h.steal_percent = 100 * static_cast<double>(now.steal - start_.steal) / all;
  const int64_t others = now.busy - start_.busy - (now.own - start_.own);
  h.others_percent = 100 * static_cast<double>(std::max<int64_t>(others, 0)) / all;
  return h;
}

}  // namespace assay
