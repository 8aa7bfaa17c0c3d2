// SPDX-License-Identifier: Apache-2.0
// What was named as a backend or a catalogue is none that this program can use: no library, no entry point,
// another interface version, a broken table. The machine is fine, so the program ends as for bad input.
#pragma once

#include "harness/base/error.hpp"

namespace assay {

class NotABackend : public InfrastructureError {
 public:
  using InfrastructureError::InfrastructureError;
};

}  // namespace assay
