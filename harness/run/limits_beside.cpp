// SPDX-License-Identifier: Apache-2.0
// See limits_beside.hpp.
#include "harness/run/limits_beside.hpp"

#include <algorithm>

#include "harness/device/backend.hpp"
#include "harness/run/dispatcher.hpp"
#include "harness/run/sweep.hpp"

namespace assay {

bool is_installed(const std::string& path) {
  std::vector<std::string> names = installed_backends();
  for (const std::string& name : named_backends()) names.push_back(name);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return installed_path(name) == path; });
}

MeasuredLimits limits_beside(const DeviceInfo& device, int log_fd, const RunOptions& options,
                             const std::atomic<bool>& stop) {
  const auto same = [&](const DeviceInfo& other) {
    return device.uuid.empty() || other.uuid.empty() ? device.name == other.name && device.arch == other.arch
                                                     : device.uuid == other.uuid;
  };
  for (const std::string& name : installed_backends()) {
    try {
      const int32_t count =
          Dispatcher(worker_command({name, installed_path(name)}, options), log_fd, options).device_count();
      for (int32_t d = 0; d < count && !stop; ++d) {
        Dispatcher one(worker_command({name, installed_path(name), d}, options), log_fd, options);
        if (!same(one.device())) continue;
        one.measure_limits(stop);
        if (one.limits()) return *one.limits();
      }
    } catch (const InfrastructureError&) {  // this one cannot say
    }
  }
  MeasuredLimits none;
  none.missing = {"no installed backend has the device " + device.name +
                  ", and what a library says of its own device is no limit"};
  return none;
}

}  // namespace assay
