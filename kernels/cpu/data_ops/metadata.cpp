// SPDX-License-Identifier: Apache-2.0
// The metadata ops, one thread per unit (kernels/common/metadata.hpp): expand_pages_cpu, dcp_lengths_cpu,
// local_batches_cpu, split_batch_cpu, chunk_metadata_cpu, decode_metadata_cpu, cascade_metadata_cpu,
// tree_tables_cpu, swa_tree_table_cpu, ps_metadata_cpu, window_metadata_cpu. They differ in the op they stand
// for alone.
#include "kernels/common/metadata.hpp"

#include "kernels/cpu/kernels.hpp"

namespace assay_cpu {

using namespace assay_kernels;
namespace {

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
        char* error, size_t size) {
  if (metadata_supports(self, p, t, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  MetadataOperands m;
  if (!make_metadata_operands(p, t, &m, error, size)) return ASSAY_INVALID_ARGUMENT;
  const int64_t units = metadata::units_of(m);
#pragma omp parallel for schedule(static)
  for (int64_t unit = 0; unit < units; ++unit) metadata::do_unit(m.op, m, unit, OneThread{});
  if (metadata::sums_follow(m)) metadata::sum_lengths(m, OneThread{});
  return ASSAY_OK;
}

constexpr assay_kernel metadata_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.op = op, k.arch = "x86-64", k.description = description;
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT;
  k.supports = metadata_supports, k.arithmetic = metadata_arithmetic, k.run = run;
  return k;
}

}  // namespace

const assay_kernel kMetadata[kMetadataKernels] = {
    metadata_kernel(ASSAY_OP_EXPAND_PAGES, "expand_pages_cpu", "page table to slots"),
    metadata_kernel(ASSAY_OP_DCP_LENGTHS, "dcp_lengths_cpu", "lengths of every rank"),
    metadata_kernel(ASSAY_OP_LOCAL_BATCHES, "local_batches_cpu", "chunks as batches"),
    metadata_kernel(ASSAY_OP_SPLIT_BATCH, "split_batch_cpu", "decode, extend, prefill"),
    metadata_kernel(ASSAY_OP_CHUNK_METADATA, "chunk_metadata_cpu", "contexts in steps"),
    metadata_kernel(ASSAY_OP_DECODE_METADATA, "decode_metadata_cpu", "lengths, starts and page table"),
    metadata_kernel(ASSAY_OP_CASCADE_METADATA, "cascade_metadata_cpu", "shared prefix and the rest"),
    metadata_kernel(ASSAY_OP_TREE_TABLES, "tree_tables_cpu", "drafts that each draft sees"),
    metadata_kernel(ASSAY_OP_SWA_TREE_TABLE, "swa_tree_table_cpu", "context and drafts that each draft sees"),
    metadata_kernel(ASSAY_OP_PS_METADATA, "ps_metadata_cpu", "a schedule of even shares"),
    metadata_kernel(ASSAY_OP_WINDOW_METADATA, "window_metadata_cpu", "keys that a window shows"),
};

}  // namespace assay_cpu
