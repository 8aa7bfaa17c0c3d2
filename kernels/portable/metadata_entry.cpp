// SPDX-License-Identifier: Apache-2.0
// Entries of the metadata ops (metadata.cu): expand_pages_gpu, dcp_lengths_gpu, local_batches_gpu,
// split_batch_gpu, chunk_metadata_gpu, decode_metadata_gpu, cascade_metadata_gpu, tree_tables_gpu,
// swa_tree_table_gpu, ps_metadata_gpu, window_metadata_gpu. They differ in the op they stand for alone.
#include "kernels/portable/entry.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/portable/metadata.hpp"

namespace assay_gpu {
namespace {

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  if (assay_kernels::metadata_supports(self, p, t, nullptr, error, size) != ASSAY_OK)
    return ASSAY_UNSUPPORTED;
  MetadataOperands m;
  if (!assay_kernels::make_metadata_operands(p, t, &m, error, size)) return ASSAY_INVALID_ARGUMENT;
  return answer(launch_metadata(m, static_cast<gpu::Stream>(stream)), self->name, error, size);
}

constexpr assay_kernel metadata_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k = entry(op, ASSAY_PROMISE_BATCH_INVARIANT, name, description);
  k.supports = assay_kernels::metadata_supports, k.arithmetic = assay_kernels::metadata_arithmetic,
  k.run = run;
  return k;
}

constexpr assay_kernel kKernels[] = {
    metadata_kernel(ASSAY_OP_EXPAND_PAGES, "expand_pages_gpu", "page table to slots, a block per request"),
    metadata_kernel(ASSAY_OP_DCP_LENGTHS, "dcp_lengths_gpu", "lengths of every rank, a block per rank"),
    metadata_kernel(ASSAY_OP_LOCAL_BATCHES, "local_batches_gpu", "chunks as batches, a block per request"),
    metadata_kernel(ASSAY_OP_SPLIT_BATCH, "split_batch_gpu", "decode, extend, prefill, a block per request"),
    metadata_kernel(ASSAY_OP_CHUNK_METADATA, "chunk_metadata_gpu", "contexts in steps, a block per step"),
    metadata_kernel(ASSAY_OP_DECODE_METADATA, "decode_metadata_gpu",
                    "lengths, starts and page table, a block per request"),
    metadata_kernel(ASSAY_OP_CASCADE_METADATA, "cascade_metadata_gpu",
                    "shared prefix and the rest, a block per request"),
    metadata_kernel(ASSAY_OP_TREE_TABLES, "tree_tables_gpu", "drafts that each draft sees, a block per row"),
    metadata_kernel(ASSAY_OP_SWA_TREE_TABLE, "swa_tree_table_gpu",
                    "context and drafts that each draft sees, a block per row"),
    metadata_kernel(ASSAY_OP_PS_METADATA, "ps_metadata_gpu", "a schedule of even shares, a block per worker"),
    metadata_kernel(ASSAY_OP_WINDOW_METADATA, "window_metadata_gpu",
                    "keys that a window shows, a block per request"),
};

}  // namespace

std::vector<const assay_kernel*> metadata_kernels() {
  std::vector<const assay_kernel*> list;
  for (const assay_kernel& k : kKernels) list.push_back(&k);
  return list;
}

}  // namespace assay_gpu
