// SPDX-License-Identifier: Apache-2.0
// The clock of a GPU and whether it slowed itself down, asked after every timed call. NVIDIA's management
// library is opened at run time; where there is none, or for another vendor, the reason is kept and rows stay
// empty. To add a vendor: another source in clocks.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace assay {

struct ClockReading {
  double sm_mhz = 0;
  // Slowed by heat, by the power brake or by the board's hardware protection. The power cap is not counted: a
  // kernel that draws full power runs into it every time, and its time is then the true one.
  bool throttled = false;
};

class DeviceClock {
 public:
  // `uuid` as in assay_device ("GPU-..."). Null with *why when it cannot be read. `library`: what is opened.
  static std::unique_ptr<DeviceClock> open(const std::string& backend, const std::string& uuid,
                                           std::string* why,
                                           const std::string& library = "libnvidia-ml.so.1");
  virtual ~DeviceClock() = default;
  virtual std::optional<ClockReading> read() = 0;  // nothing when the library refuses
};

}  // namespace assay
