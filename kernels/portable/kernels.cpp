// SPDX-License-Identifier: Apache-2.0
// The list of the portable kernels.
#include "kernels/portable/kernels.hpp"

namespace assay_gpu {

std::vector<const assay_kernel*> every_portable_kernel() {
  std::vector<const assay_kernel*> all;
  for (const auto& family :
       {simple_kernels(), tiled_kernels(), split_kernels(), mma_kernels(), merge_kernels(), move_kernels(),
        metadata_kernels(), persistent_kernels(), fused_kernels()})
    all.insert(all.end(), family.begin(), family.end());
  static const std::vector<const assay_kernel*> steps = step_kernels(all);
  all.insert(all.end(), steps.begin(), steps.end());
  return all;
}

}  // namespace assay_gpu
