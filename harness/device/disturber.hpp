// SPDX-License-Identifier: Apache-2.0
// Trouble beside the kernels of a backend (harness/abi/assay_disturb.h): by the backend's own library, else
// by an installed one that works on the same device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/abi/assay_disturb.h"
#include "harness/device/backend.hpp"

namespace assay {

class Disturber {
 public:
  // The table stays with the caller.
  explicit Disturber(const assay_disturber&);
  // Nothing where neither has one; `why` says so then.
  static std::optional<Disturber> open(const Backend&, const assay_device&, std::string* why);
  // Of enum assay_disturbance, in that order; at least one.
  const std::vector<int32_t>& kinds() const { return kinds_; }
  // InfrastructureError when it cannot. Every begin() wants its end().
  void begin(int32_t kind, uint64_t seed, double microseconds) const;
  void end() const;

 private:
  const assay_disturber* table_;
  std::vector<int32_t> kinds_;
};

// "while some threads of each block are slowed down"
std::string_view disturbance_text(int32_t kind);

}  // namespace assay
