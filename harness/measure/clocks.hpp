// SPDX-License-Identifier: Apache-2.0
// The clock of a GPU and whether it slowed itself down, asked after every timed call. The vendors' management
// libraries are opened at run time, whichever knows the device by its UUID (NVML) or PCI address (AMD SMI);
// where none does the reason is kept and rows stay empty. To add a vendor: a file clocks_NAME.cpp and a line
// in clocks.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "harness/abi/assay_kernel.h"

namespace assay {

struct ClockReading {
  double sm_mhz = 0;  // of the multiprocessors; AMD: of the graphics engine
  // Slowed by heat, by the power brake or by the board's hardware protection. The power cap is not counted: a
  // kernel that draws full power runs into it every time, and its time is then the true one. Empty where the
  // library does not tell it.
  std::optional<bool> throttled;
};

class DeviceClock {
 public:
  // Null with *why when it cannot be read. `library`: what is opened instead of the vendor's.
  static std::unique_ptr<DeviceClock> open(const std::string& backend, const assay_device& device,
                                           std::string* why, const std::string& library = "");
  virtual ~DeviceClock() = default;
  virtual const char* source() const = 0;          // "nvml", "amd-smi"
  virtual std::optional<ClockReading> read() = 0;  // nothing when the library refuses
};

}  // namespace assay
