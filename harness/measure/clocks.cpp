// SPDX-License-Identifier: Apache-2.0
// See clocks.hpp.
#include "harness/measure/clocks.hpp"

#include "harness/measure/clock_libraries.hpp"

namespace assay {

std::unique_ptr<DeviceClock> DeviceClock::open(const std::string& backend, const assay_device& device,
                                               std::string* why, const std::string& library) {
  if (backend == "cuda") return open_nvml(device, library, why);
  if (backend == "hip") return open_amd_smi(device, library, why);
  *why = "no reader of clocks for the backend " + backend;
  return nullptr;
}

}  // namespace assay
