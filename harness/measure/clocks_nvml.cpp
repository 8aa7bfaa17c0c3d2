// SPDX-License-Identifier: Apache-2.0
// See clocks.hpp. The few declarations of NVML needed here are written out from its manual ("NVML API
// Reference": device queries, clock event reasons), so that building needs no header of it.
#include <cstdint>

#include "harness/measure/clock_libraries.hpp"

namespace assay {
namespace {

constexpr int kSmClock = 1;
constexpr uint64_t kHardwareSlowdown = 0x8, kSoftwareThermal = 0x20, kHardwareThermal = 0x40,
                   kPowerBrake = 0x80;
constexpr uint64_t kThrottled = kHardwareSlowdown | kSoftwareThermal | kHardwareThermal | kPowerBrake;

class NvmlClock : public DeviceClock {
 public:
  using Init = int (*)();
  using ByUuid = int (*)(const char*, void**);
  using Clock = int (*)(void*, int, unsigned*);
  using Reasons = int (*)(void*, unsigned long long*);  // of the library's interface

  // Empty when everything is there.
  std::string connect(const std::string& uuid, const std::string& library) {
    ManagementLibrary nvml(library);
    Init init;
    ByUuid find;
    nvml.get("nvmlInit_v2", &init), nvml.get("nvmlDeviceGetHandleByUUID", &find);
    nvml.get("nvmlDeviceGetClockInfo", &clock_);
    // The second is its name before driver 535.
    nvml.get("nvmlDeviceGetCurrentClocksEventReasons", &reasons_,
             "nvmlDeviceGetCurrentClocksThrottleReasons");
    if (!nvml.why().empty()) return nvml.why();
    if (const int status = init(); status != 0) return "nvmlInit_v2 answered " + std::to_string(status);
    if (const int status = find(uuid.c_str(), &device_); status != 0)
      return "NVML answered " + std::to_string(status) + " for device " + uuid;
    return read() ? "" : "NVML does not tell the clock of " + uuid;
  }

  const char* source() const override { return "nvml"; }
  std::optional<ClockReading> read() override {
    unsigned mhz = 0;
    unsigned long long reasons = 0;
    if (clock_(device_, kSmClock, &mhz) != 0 || reasons_(device_, &reasons) != 0) return std::nullopt;
    return ClockReading{static_cast<double>(mhz), (reasons & kThrottled) != 0};
  }

 private:
  void* device_ = nullptr;
  Clock clock_ = nullptr;
  Reasons reasons_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceClock> open_nvml(const assay_device& device, const std::string& library,
                                       std::string* why) {
  return connected<NvmlClock>(device.uuid, library.empty() ? "libnvidia-ml.so.1" : library, why);
}

}  // namespace assay
