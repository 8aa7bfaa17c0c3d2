// SPDX-License-Identifier: Apache-2.0
// See clocks.hpp. The few declarations of NVML needed here are written out from its manual ("NVML API
// Reference": device queries, clock event reasons), so that building needs no header of it.
#include "harness/measure/clocks.hpp"

#include <dlfcn.h>

#include <cstdint>

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
    // Kept open: the driver does not like to be unloaded and loaded again.
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return library + " cannot be opened";
    const auto init = reinterpret_cast<Init>(dlsym(handle, "nvmlInit_v2"));
    const auto find = reinterpret_cast<ByUuid>(dlsym(handle, "nvmlDeviceGetHandleByUUID"));
    clock_ = reinterpret_cast<Clock>(dlsym(handle, "nvmlDeviceGetClockInfo"));
    reasons_ = reinterpret_cast<Reasons>(dlsym(handle, "nvmlDeviceGetCurrentClocksEventReasons"));
    if (reasons_ == nullptr)  // its name before driver 535
      reasons_ = reinterpret_cast<Reasons>(dlsym(handle, "nvmlDeviceGetCurrentClocksThrottleReasons"));
    if (init == nullptr || find == nullptr || clock_ == nullptr || reasons_ == nullptr)
      return library + " lacks a function";
    if (const int status = init(); status != 0) return "nvmlInit_v2 answered " + std::to_string(status);
    if (const int status = find(uuid.c_str(), &device_); status != 0)
      return "NVML answered " + std::to_string(status) + " for device " + uuid;
    return read() ? "" : "NVML does not tell the clock of " + uuid;
  }

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

std::unique_ptr<DeviceClock> DeviceClock::open(const std::string& backend, const std::string& uuid,
                                               std::string* why, const std::string& library) {
  if (backend != "cuda") {
    *why = "no reader of clocks for the backend " + backend;
    return nullptr;
  }
  auto clock = std::make_unique<NvmlClock>();
  *why = clock->connect(uuid, library);
  if (!why->empty()) return nullptr;
  return clock;
}

}  // namespace assay
