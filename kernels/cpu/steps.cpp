// SPDX-License-Identifier: Apache-2.0
// Steps made of the plain kernels of this backend (kernels/common/pipelines.hpp).
#include "kernels/common/pipelines.hpp"
#include "kernels/cpu/kernels.hpp"

namespace assay_cpu {

assay_kernels::Kit step_kit() {
  assay_kernels::Kit kit = {"x86-64",
                            "cpu",
                            {&kCacheWrite, &kPrefillNaive, &kPagedNaive, &kDecodeSplit, &kMergeStates,
                             &kCacheGather, &kQuantizeInt8, &kPersistentPrefill, &kReduce},
                            &kPagedNaive,
                            &kJoinHeads,
                            &kLseCorrect,
                            nullptr};
  for (const assay_kernel& kernel : kMetadata) kit.of_op.push_back(&kernel);
  return kit;
}

std::vector<const assay_kernel*> step_kernels() { return make_steps(step_kit()); }

}  // namespace assay_cpu
