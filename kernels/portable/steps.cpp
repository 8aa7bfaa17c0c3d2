// SPDX-License-Identifier: Apache-2.0
// Steps made of the kernels of a library (kernels/common/stages.hpp): step_unified_gpu, step_aiter_fa_gpu,
// step_sglang_fa_gpu, step_mla_prefill_gpu, step_aiter_mla_gpu, step_aiter_mla_prefill_gpu,
// step_ixformer_fa_gpu, step_ixformer_dcp_gpu. They launch nothing themselves.
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/common/group.hpp"
#include "kernels/common/stages.hpp"
#include "kernels/device/library.hpp"
#include "kernels/portable/correct.hpp"
#include "kernels/portable/join.hpp"
#include "kernels/portable/kernels.hpp"

namespace assay_gpu {

std::vector<const assay_kernel*> step_kernels(const std::vector<const assay_kernel*>& all) {
  using namespace assay_kernels;
  const auto named = [&](const char* name) {
    for (const assay_kernel* kernel : all)
      if (std::strcmp(kernel->name, name) == 0) return kernel;
    throw std::logic_error(std::string("a step is made of ") + name + ", and there is no such kernel");
  };
  const assay_kernel* prefill = named("prefill_tiled_gpu");
  const assay_kernel* join = watched(&kJoinHeads);
  return {make_composed(&kUnifiedStep, "step_unified_gpu", "any",
                        {{"write", named("cache_write_gpu")}, {"attend", named("paged_tiled_gpu")}},
                        capture_intact),
          make_composed(&kAiterFa, "step_aiter_fa_gpu", "any",
                        {{"write", named("cache_write_gpu")},
                         {"split", named("split_batch_gpu")},
                         {"prefill", prefill},
                         {"extend", prefill},
                         {"window", named("window_metadata_gpu")},
                         {"chunks", named("chunk_metadata_gpu")},
                         {"gather", named("cache_gather_gpu")},
                         {"context", prefill},
                         {"merge", named("merge_states_gpu")},
                         {"decode", named("decode_splitkv_gpu")},
                         {"unified", named("paged_tiled_gpu")}},
                        capture_intact),
          make_composed(&kSglangFa, "step_sglang_fa_gpu", "any",
                        {{"write", named("cache_write_gpu")},
                         {"decode", named("paged_split256_gpu")},
                         {"extend", named("paged_tiled_gpu")},
                         {"local", named("local_batches_gpu")},
                         {"prefix", named("paged_tiled_gpu")},
                         {"drafts", named("tree_tables_gpu")},
                         {"draft", named("paged_split256_gpu")},
                         {"merge", named("merge_states_gpu")},
                         {"paths", named("swa_tree_table_gpu")},
                         {"path", named("paged_split256_gpu")},
                         {"decoder", named("decode_metadata_gpu")},
                         {"cross", named("paged_tiled_gpu")},
                         {"q_cast", named("quantize_int8_gpu")},
                         {"q_heads", join},
                         {"k_join", join}},
                        capture_intact),
          make_composed(&kMlaPrefill, "step_mla_prefill_gpu", "any",
                        {{"write", named("cache_write_gpu")},
                         {"new", prefill},
                         {"lengths", named("window_metadata_gpu")},
                         {"chunks", named("chunk_metadata_gpu")},
                         {"gather", named("cache_gather_gpu")},
                         {"context", prefill},
                         {"merge", named("merge_states_gpu")},
                         {"k_join", join}},
                        capture_intact),
          make_composed(&kAiterMla, "step_aiter_mla_gpu", "any",
                        {{"write", named("cache_write_gpu")},
                         {"tokens", named("expand_pages_gpu")},
                         {"decode", named("decode_splitkv_gpu")},
                         {"merge", named("merge_states_gpu")},
                         {"extend", named("paged_split256_gpu")},
                         {"schedule", named("ps_metadata_gpu")},
                         {"reduce", named("reduce_gpu")},
                         {"q_heads", join},
                         {"o_heads", join}},
                        capture_intact),
          make_composed(&kAiterMlaPrefill, "step_aiter_mla_prefill_gpu", "any",
                        {{"write", named("cache_write_gpu")},
                         {"q_cast", named("quantize_int8_gpu")},
                         {"k_cast", named("quantize_int8_gpu")},
                         {"v_cast", named("quantize_int8_gpu")},
                         {"schedule", named("ps_metadata_gpu")},
                         {"tiles", named("persistent_prefill_gpu")},
                         {"reduce", named("reduce_gpu")},
                         {"new", prefill},
                         {"lengths", named("window_metadata_gpu")},
                         {"chunks", named("chunk_metadata_gpu")},
                         {"gather", named("cache_gather_gpu")},
                         {"context", prefill},
                         {"merge", named("merge_states_gpu")},
                         {"k_join", join}},
                        capture_intact),
          make_composed(&kIxformerFa, "step_ixformer_fa_gpu", "any",
                        {{"write", named("cache_write_gpu")},
                         {"k_codes", named("quantize_int8_gpu")},
                         {"v_codes", named("quantize_int8_gpu")},
                         {"split", named("split_batch_gpu")},
                         {"decode", named("paged_split256_gpu")},
                         {"prefill", named("paged_tiled_gpu")},
                         {"cascade", named("cascade_metadata_gpu")},
                         {"prefix", named("paged_tiled_gpu")},
                         {"suffix", named("paged_split256_gpu")},
                         {"merge", named("merge_states_gpu")},
                         {"encoder", prefill}},
                        capture_intact),
          make_composed(&kIxformerDcp, "step_ixformer_dcp_gpu", "any",
                        {{"write", named("cache_write_gpu")},
                         {"lengths", named("dcp_lengths_gpu")},
                         {"context", named("paged_split256_gpu")},
                         {"rows", named("window_metadata_gpu")},
                         {"new", prefill},
                         {"merge", named("merge_states_gpu")},
                         {"gather_q", &kAllGather},
                         {"gather_lse", &kAllGather},
                         {"correct", watched(&kLseCorrect)},
                         {"scatter", &kReduceScatter}},
                        capture_intact)};
}

}  // namespace assay_gpu
