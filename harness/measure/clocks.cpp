// SPDX-License-Identifier: Apache-2.0
// See clocks.hpp.
#include "harness/measure/clocks.hpp"

#include <vector>

#include "harness/measure/clock_libraries.hpp"

namespace assay {

std::unique_ptr<DeviceClock> DeviceClock::open(const std::string& backend, const assay_device& device,
                                               std::string* why, const std::string& library) {
  using Open = std::unique_ptr<DeviceClock> (*)(const assay_device&, const std::string&, std::string*);
  // A library of any name may drive a GPU of either vendor: whoever knows the device reads its clock.
  std::vector<Open> readers = {open_nvml, open_amd_smi};
  if (backend == "cuda") readers = {open_nvml};
  if (backend == "hip") readers = {open_amd_smi};
  if (device.uuid[0] == '\0' && device.pci[0] == '\0') {
    *why = "backend " + backend + " tells neither the UUID nor the PCI address of its device";
    return nullptr;
  }
  std::string all;
  for (const Open open : readers) {
    if (auto clock = open(device, library, why)) return clock;
    all += (all.empty() ? "" : "; ") + *why;
  }
  *why = all;
  return nullptr;
}

}  // namespace assay
