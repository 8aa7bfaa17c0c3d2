// SPDX-License-Identifier: Apache-2.0
// What the functions of the emulator's C table answer when they cannot serve.
#pragma once

#include "kernels/device/status.hpp"

namespace assay_gpu {

// ASSAY_FAILED while a call is captured, which is of no use then: what waits for a device cannot be recorded.
int refuse_in_capture(char* error, size_t size);

constexpr const char* kNoTimes = "times of an emulator say nothing about a GPU";

}  // namespace assay_gpu
