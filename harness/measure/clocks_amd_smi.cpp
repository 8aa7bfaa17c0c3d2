// SPDX-License-Identifier: Apache-2.0
// AMD SMI, as its reference describes it (ROCm 6 and 7: amdsmi_init, amdsmi_get_processor_handle_from_bdf,
// amdsmi_get_clock_info), so that building needs no header of it. A device is found by its PCI address.
// Throttling is not asked for: the library watches the counters of violations for 100 ms to answer, far
// longer than most calls. Not run on AMD hardware; tested with a library made for it.
#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include "harness/measure/clock_libraries.hpp"

namespace assay {
namespace {

constexpr uint64_t kGpus = 2;  // AMDSMI_INIT_AMD_GPUS
constexpr int kGraphicsClock = 0;

struct ClockInfo {  // amdsmi_clk_info_t; the first field has kept its place, what follows grew
  uint32_t mhz;
  uint32_t rest[31];
};

// amdsmi_bdf_t: function 3 bits, device 5, bus 8, domain 48. Nothing when it is no address.
std::optional<uint64_t> packed(const char* pci) {
  uint64_t domain = 0, bus = 0, device = 0, function = 0;
  if (std::sscanf(pci, "%" SCNx64 ":%" SCNx64 ":%" SCNx64 ".%" SCNx64, &domain, &bus, &device, &function) !=
      4)
    return std::nullopt;
  return domain << 16 | (bus & 0xff) << 8 | (device & 0x1f) << 3 | (function & 7);
}

class AmdSmiClock : public DeviceClock {
 public:
  using Init = int (*)(uint64_t);
  using ByAddress = int (*)(uint64_t, void**);
  using Clock = int (*)(void*, int, ClockInfo*);

  // Empty when everything is there.
  std::string connect(const char* pci, const std::string& library) {
    const auto address = packed(pci);
    if (!address) return std::string("the backend tells no PCI address, but '") + pci + "'";
    ManagementLibrary smi(library);
    Init init;
    ByAddress find;
    smi.get("amdsmi_init", &init), smi.get("amdsmi_get_processor_handle_from_bdf", &find);
    smi.get("amdsmi_get_clock_info", &clock_);
    if (!smi.why().empty()) return smi.why();
    if (const int status = init(kGpus); status != 0) return "amdsmi_init answered " + std::to_string(status);
    if (const int status = find(*address, &device_); status != 0)
      return "AMD SMI answered " + std::to_string(status) + " for device " + pci;
    return read() ? "" : std::string("AMD SMI does not tell the clock of ") + pci;
  }

  const char* source() const override { return "amd-smi"; }
  std::optional<ClockReading> read() override {
    ClockInfo info{};
    if (clock_(device_, kGraphicsClock, &info) != 0) return std::nullopt;
    return ClockReading{static_cast<double>(info.mhz), std::nullopt};
  }

 private:
  void* device_ = nullptr;
  Clock clock_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceClock> open_amd_smi(const assay_device& device, const std::string& library,
                                          std::string* why) {
  return connected<AmdSmiClock>(device.pci, library.empty() ? "libamd_smi.so" : library, why);
}

}  // namespace assay
