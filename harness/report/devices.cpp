// SPDX-License-Identifier: Apache-2.0
// See devices.hpp. Ratios per timing, then their median: one odd case must not accuse a device.
#include "harness/report/devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace assay {
namespace {

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

}  // namespace

std::vector<std::string> slow_devices(std::span<const Row> rows) {
  struct Device {
    std::string label, uuid;
    auto operator<=>(const Device&) const = default;
  };
  using Times = std::map<Device, double>;
  // By name of the device, then by what was timed.
  std::map<std::string, std::map<std::string, Times>> timings;
  for (const Row& row : rows)
    if (std::isfinite(row.time_us) && row.time_us > 0)
      timings[row.device][row.scenario + "|" + row.kernel + "|" + row.mode()]
             [{row.backend, row.device_uuid}] = row.time_us;
  std::vector<std::string> lines;
  for (const auto& [name, cases] : timings) {
    std::map<Device, std::vector<double>> ratios;
    size_t most = 0;
    for (const auto& [what, times] : cases) {
      // Two builds of one library on one device are no two devices.
      std::set<std::string> apart;
      for (const auto& [device, time] : times) apart.insert(device.uuid.empty() ? device.label : device.uuid);
      if (apart.size() < 2) continue;
      most = std::max(most, apart.size());
      for (const auto& [device, time] : times) {
        std::vector<double> others;
        for (const auto& [other, its_time] : times)
          if (other != device) others.push_back(its_time);
        ratios[device].push_back(time / median(others));
      }
    }
    for (const auto& [device, all] : ratios) {
      const double ratio = median(all);
      if (ratio <= 1 + kSlowDevice) continue;
      lines.push_back(fmt::format("{}{} takes {:.2f} times as long as the other {} {} over {} timing{}",
                                  device.label, device.uuid.empty() ? "" : " (" + device.uuid + ")", ratio,
                                  most - 1, name, all.size(), all.size() == 1 ? "" : "s"));
    }
  }
  return lines;
}

}  // namespace assay
