// SPDX-License-Identifier: Apache-2.0
// The right kernel that the libraries of this folder have beside their planted ones.
#pragma once

#include <cstring>

#include "kernels/portable/entry.hpp"
#include "kernels/portable/kernels.hpp"

namespace assay_gpu {

inline const assay_kernel& healthy() {
  static const assay_kernel* const found = [] {
    for (const assay_kernel* k : portable_kernels())
      if (std::strcmp(k->name, "paged_simple_gpu") == 0) return k;
    return static_cast<const assay_kernel*>(nullptr);
  }();
  return *found;
}

}  // namespace assay_gpu
