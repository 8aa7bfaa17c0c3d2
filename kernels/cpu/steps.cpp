// SPDX-License-Identifier: Apache-2.0
// Steps made of the plain kernels of this backend (kernels/common/stages.hpp): step_unified_cpu,
// step_aiter_fa_cpu, step_sglang_fa_cpu, step_mla_prefill_cpu, step_aiter_mla_cpu,
// step_aiter_mla_prefill_cpu, step_ixformer_fa_cpu and step_ixformer_dcp_cpu.
#include "kernels/common/group.hpp"
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
  return {make_composed(&kUnifiedStep, "step_unified_cpu", "x86-64",
                        {{"write", &kCacheWrite}, {"attend", &kPagedNaive}}, nullptr),
          make_composed(&kAiterFa, "step_aiter_fa_cpu", "x86-64",
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
                         {"unified", &kPagedNaive}},
                        nullptr),
          make_composed(&kSglangFa, "step_sglang_fa_cpu", "x86-64",
                        {{"write", &kCacheWrite},
                         {"decode", &kPagedNaive},
                         {"extend", &kPagedNaive},
                         {"local", metadata_kernel(ASSAY_OP_LOCAL_BATCHES)},
                         {"prefix", &kPagedNaive},
                         {"drafts", metadata_kernel(ASSAY_OP_TREE_TABLES)},
                         {"draft", &kPagedNaive},
                         {"merge", &kMergeStates},
                         {"paths", metadata_kernel(ASSAY_OP_SWA_TREE_TABLE)},
                         {"path", &kPagedNaive},
                         {"decoder", metadata_kernel(ASSAY_OP_DECODE_METADATA)},
                         {"cross", &kPagedNaive},
                         {"q_cast", &kQuantizeInt8},
                         {"q_heads", &kJoinHeads},
                         {"k_join", &kJoinHeads}},
                        nullptr),
          make_composed(&kMlaPrefill, "step_mla_prefill_cpu", "x86-64",
                        {{"write", &kCacheWrite},
                         {"new", &kPrefillNaive},
                         {"lengths", metadata_kernel(ASSAY_OP_WINDOW_METADATA)},
                         {"chunks", metadata_kernel(ASSAY_OP_CHUNK_METADATA)},
                         {"gather", &kCacheGather},
                         {"context", &kPrefillNaive},
                         {"merge", &kMergeStates},
                         {"k_join", &kJoinHeads}},
                        nullptr),
          make_composed(&kAiterMla, "step_aiter_mla_cpu", "x86-64",
                        {{"write", &kCacheWrite},
                         {"tokens", metadata_kernel(ASSAY_OP_EXPAND_PAGES)},
                         {"decode", &kDecodeSplit},
                         {"merge", &kMergeStates},
                         {"extend", &kPagedNaive},
                         {"schedule", metadata_kernel(ASSAY_OP_PS_METADATA)},
                         {"reduce", &kReduce},
                         {"q_heads", &kJoinHeads},
                         {"o_heads", &kJoinHeads}},
                        nullptr),
          make_composed(&kAiterMlaPrefill, "step_aiter_mla_prefill_cpu", "x86-64",
                        {{"write", &kCacheWrite},
                         {"q_cast", &kQuantizeInt8},
                         {"k_cast", &kQuantizeInt8},
                         {"v_cast", &kQuantizeInt8},
                         {"schedule", metadata_kernel(ASSAY_OP_PS_METADATA)},
                         {"tiles", &kPersistentPrefill},
                         {"reduce", &kReduce},
                         {"new", &kPrefillNaive},
                         {"lengths", metadata_kernel(ASSAY_OP_WINDOW_METADATA)},
                         {"chunks", metadata_kernel(ASSAY_OP_CHUNK_METADATA)},
                         {"gather", &kCacheGather},
                         {"context", &kPrefillNaive},
                         {"merge", &kMergeStates},
                         {"k_join", &kJoinHeads}},
                        nullptr),
          make_composed(&kIxformerFa, "step_ixformer_fa_cpu", "x86-64",
                        {{"write", &kCacheWrite},
                         {"k_codes", &kQuantizeInt8},
                         {"v_codes", &kQuantizeInt8},
                         {"split", metadata_kernel(ASSAY_OP_SPLIT_BATCH)},
                         {"decode", &kPagedNaive},
                         {"prefill", &kPagedNaive},
                         {"cascade", metadata_kernel(ASSAY_OP_CASCADE_METADATA)},
                         {"prefix", &kPagedNaive},
                         {"suffix", &kPagedNaive},
                         {"merge", &kMergeStates},
                         {"encoder", &kPrefillNaive}},
                        nullptr),
          make_composed(&kIxformerDcp, "step_ixformer_dcp_cpu", "x86-64",
                        {{"write", &kCacheWrite},
                         {"lengths", metadata_kernel(ASSAY_OP_DCP_LENGTHS)},
                         {"context", &kPagedNaive},
                         {"rows", metadata_kernel(ASSAY_OP_WINDOW_METADATA)},
                         {"new", &kPrefillNaive},
                         {"merge", &kMergeStates},
                         {"gather_q", &kAllGather},
                         {"gather_lse", &kAllGather},
                         {"correct", &kLseCorrect},
                         {"scatter", &kReduceScatter}},
                        nullptr)};
}

}  // namespace assay_cpu
