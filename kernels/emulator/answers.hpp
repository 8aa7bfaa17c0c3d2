// SPDX-License-Identifier: Apache-2.0
// What the functions of the emulator's C table answer when they cannot serve.
#pragma once

#include <cstddef>
#include <cstdio>

namespace assay_gpu {

constexpr const char* kNoTimes = "times of an emulator say nothing about a GPU";

inline int fail(int status, char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) std::snprintf(error, size, "%s", text);
  return status;
}

}  // namespace assay_gpu
