// SPDX-License-Identifier: Apache-2.0
// What kernels made of kernels, and those that are their stages alone, share: texts into the buffers of the C
// table, supports() and with_stages().
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace assay_kernels {

inline int say(int status, const std::string& text, char* to, size_t size) {
  if (to != nullptr && size > 0) std::snprintf(to, size, "%s", text.c_str());
  return status;
}

// supports() of kernels of no op, whose pipelines alone call them.
inline int supports_all(const assay_kernel*, const assay_problem*, const assay_tensors*, const assay_device*,
                        char*, size_t) {
  return ASSAY_OK;
}

// Puts `count` kernels into the places of the same names among `all`. `fits(at, op)`: whether kernels of that
// op may stand at all[at].
template <class Fits>
int replace_stages(const char* kernel, const assay_stage* stages, int32_t count, const Fits& fits,
                   std::vector<assay_stage>& all, char* error, size_t size) {
  for (int32_t i = 0; i < count; ++i) {
    std::string known;
    size_t at = 0;
    while (at < all.size() && std::strcmp(all[at].name, stages[i].name) != 0)
      known += (known.empty() ? "" : ", ") + std::string(all[at++].name);
    if (at == all.size())
      return say(ASSAY_INVALID_ARGUMENT,
                 std::string(kernel) + " has no stage " + stages[i].name + "; it has " + known, error, size);
    if (!fits(at, stages[i].kernel->op))
      return say(ASSAY_INVALID_ARGUMENT,
                 std::string("stage ") + all[at].name + " of " + kernel + ": " + stages[i].kernel->name +
                     " is a kernel of another op than " + all[at].kernel->name,
                 error, size);
    all[at].kernel = stages[i].kernel;
  }
  return ASSAY_OK;
}

}  // namespace assay_kernels
