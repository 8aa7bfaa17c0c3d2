// SPDX-License-Identifier: Apache-2.0
// Steps made of the plain kernels of this backend (kernels/common/stages.hpp): step_unified_cpu and
// step_aiter_fa_cpu.
#include "kernels/common/stages.hpp"
#include "kernels/cpu/kernels.hpp"

namespace assay_cpu {
namespace {

const assay_kernel* metadata_kernel(int32_t op) {
  for (const assay_kernel& k : kMetadata)
    if (k.op == op) return &k;
  return nullptr;
}

}  // namespace

std::vector<const assay_kernel*> step_kernels() {
  using namespace assay_kernels;
  constexpr uint32_t kPromises = ASSAY_PROMISE_REPEATABLE;
  return {
      make_composed(&kUnifiedStep, "step_unified_cpu", "x86-64", kPromises | ASSAY_PROMISE_BATCH_INVARIANT,
                    {{"write", &kCacheWrite}, {"attend", &kPagedNaive}}),
      make_composed(&kAiterFa, "step_aiter_fa_cpu", "x86-64", kPromises,
                    {{"write", &kCacheWrite},
                     {"split", metadata_kernel(ASSAY_OP_SPLIT_BATCH)},
                     {"prefill", &kPrefillNaive},
                     {"extend", &kPrefillNaive},
                     {"window", metadata_kernel(ASSAY_OP_WINDOW_METADATA)},
                     {"chunks", metadata_kernel(ASSAY_OP_CHUNK_METADATA)},
                     {"gather", &kCacheGather},
                     {"context", &kPrefillNaive},
                     {"merge", &kMergeStates},
                     {"decode", &kDecodeSplit},
                     {"unified", &kPagedNaive}})};
}

}  // namespace assay_cpu
