// SPDX-License-Identifier: Apache-2.0
// Reads the operands of a metadata op out of the C tables; what its entries say there.
#include "kernels/common/metadata.hpp"

#include <cstdio>

#include "kernels/common/fill_struct.hpp"
#include "kernels/common/operand_reader.hpp"

namespace assay_kernels {
namespace {

// A list, or the rows of a table.
Ints ints(OperandReader& reader, const assay_tensor& t, const char* name, int32_t rank) {
  Ints view{};
  int64_t elements = 1;
  for (int i = 0; i < t.rank; ++i) elements *= t.shape[i];
  view.data = static_cast<int32_t*>(
      const_cast<void*>(reader.take(t, name, ASSAY_INT32, rank, t.rank == rank && elements == 0)));
  if (view.data == nullptr) return view;
  view.rows = rank > 1 ? t.shape[0] : 1, view.columns = t.shape[rank - 1];
  view.row = rank > 1 ? t.stride[0] : 0, view.column = t.stride[rank - 1];
  return view;
}

}  // namespace

bool make_metadata_operands(const assay_problem* p, const assay_tensors* t, MetadataOperands* out,
                            char* error, size_t size) {
  OperandReader reader(error, size);
  if (p == nullptr || t == nullptr) {
    reader.fail("problem or tensors", "is a null pointer");
    return false;
  }
  if (p->struct_size < sizeof(assay_problem) || t->struct_size < sizeof(assay_tensors)) {
    reader.fail("problem or tensors", "is of an interface without metadata ops");
    return false;
  }
  MetadataOperands m{};
  m.op = p->op, m.requests = p->requests, m.table = p->table, m.page_size = p->page_size, m.chunk = p->chunk;
  m.ranks = p->ranks, m.interleave = p->interleave, m.threshold = p->threshold;
  m.heads_q = p->heads_q, m.heads = p->heads_kv;
  m.plain = p->alibi == ASSAY_ALIBI_NONE && p->window_left < 0 && p->chunk == 0;
  m.workers = p->workers, m.tile_rows = p->tile_rows, m.flat_tree = p->flat_tree != 0;
  m.drafted = p->drafted;
  m.token_budget = p->token_budget, m.prefix_tokens = p->prefix_tokens, m.window_left = p->window_left;

  const bool trees = p->op == ASSAY_OP_TREE_TABLES || p->op == ASSAY_OP_SWA_TREE_TABLE;
  const bool steps = p->op == ASSAY_OP_CHUNK_METADATA, lists = p->op == ASSAY_OP_LOCAL_BATCHES;
  const bool window = p->op == ASSAY_OP_WINDOW_METADATA;
  const bool table = trees || lists || p->op == ASSAY_OP_EXPAND_PAGES || p->op == ASSAY_OP_DECODE_METADATA ||
                     p->op == ASSAY_OP_CASCADE_METADATA;
  if (p->op == ASSAY_OP_DECODE_METADATA) {
    m.context_len = ints(reader, t->context_len, "context_len", 1);
    if (t->encoder_len.data != nullptr) m.encoder_len = ints(reader, t->encoder_len, "encoder_len", 1);
  } else {
    m.kv_len = ints(reader, t->kv_len, "kv_len", 1);
  }
  if (p->op != ASSAY_OP_EXPAND_PAGES && p->op != ASSAY_OP_DCP_LENGTHS)
    m.cu_q = ints(reader, t->cu_q, "cu_q", 1);
  if (table && p->table == ASSAY_TABLE_CSR) {
    m.indptr = ints(reader, t->indptr, "indptr", 1);
    m.indices = ints(reader, t->indices, "indices", 1);
  } else if (table) {
    m.pages = ints(reader, t->block_table, "block_table", 2);
  }
  if (lists && p->full_pool != 0) m.slot_map = ints(reader, t->slot_map, "slot_map", 1);
  if (trees) {
    m.tree_mask =
        static_cast<const uint8_t*>(reader.take(t->tree_mask, "tree_mask", ASSAY_UINT8, 1, p->total_q == 0));
    m.tree_indptr = static_cast<const int64_t*>(
        reader.take(t->tree_indptr, "tree_indptr", ASSAY_INT64, 1, p->requests == 0));
    m.tree_mask_stride = t->tree_mask.stride[0], m.tree_indptr_stride = t->tree_indptr.stride[0];
  }

  if (p->op == ASSAY_OP_PS_METADATA) {
    const int64_t keys = (int64_t{p->tile_keys} + p->page_size - 1) / p->page_size * p->page_size;
    m.block_keys = keys < INT32_MAX ? static_cast<int32_t>(keys) : INT32_MAX;
    m.work_indptr = ints(reader, t->work_indptr, "work_indptr", 1);
    m.work_info = ints(reader, t->work_info, "work_info", 2);
    m.reduce_indptr = ints(reader, t->reduce_indptr, "reduce_indptr", 1);
    m.reduce_final_map = ints(reader, t->reduce_final_map, "reduce_final_map", 2);
    m.reduce_partial_map = ints(reader, t->reduce_partial_map, "reduce_partial_map", 1);
    *out = m;
    return reader.ok();
  }

  const bool per_rank = p->op == ASSAY_OP_DCP_LENGTHS;
  if (p->op != ASSAY_OP_EXPAND_PAGES)
    m.out_len = ints(reader, t->out_len, "out_len", steps || per_rank || window ? 2 : 1);
  if (lists || trees || p->op == ASSAY_OP_SPLIT_BATCH || p->op == ASSAY_OP_CASCADE_METADATA ||
      p->op == ASSAY_OP_DECODE_METADATA)
    m.out_cu_q = ints(reader, t->out_cu_q, "out_cu_q", 1);
  if (!per_rank && p->op != ASSAY_OP_CASCADE_METADATA)
    m.out_cu_kv = ints(reader, t->out_cu_kv, "out_cu_kv", steps ? 2 : 1);
  if (steps || window) m.out_starts = ints(reader, t->out_starts, "out_starts", steps ? 2 : 1);
  if (table && p->op != ASSAY_OP_EXPAND_PAGES) m.out_table = ints(reader, t->out_table, "out_table", 2);
  if (p->op == ASSAY_OP_EXPAND_PAGES || p->op == ASSAY_OP_CASCADE_METADATA)
    m.out_indices = ints(reader, t->out_indices, "out_indices", 1);
  if (lists || steps || window || p->op == ASSAY_OP_SPLIT_BATCH)
    m.out_request = ints(reader, t->out_request, "out_request", steps ? 2 : 1);
  if (lists || steps || p->op == ASSAY_OP_SPLIT_BATCH || p->op == ASSAY_OP_CASCADE_METADATA)
    m.out_counts = ints(reader, t->out_counts, "out_counts", p->op == ASSAY_OP_SPLIT_BATCH ? 2 : 1);
  m.rows = m.out_len.columns;
  *out = m;
  return reader.ok();
}

int metadata_supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*,
                      const assay_device*, char* why, size_t size) {
  if (p->op == self->op) return ASSAY_OK;
  if (why != nullptr && size > 0) std::snprintf(why, size, "required another op, supported %s", self->name);
  return ASSAY_UNSUPPORTED;
}

int metadata_arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* out) {
  fill_struct(out, assay_arithmetic{});
  return ASSAY_OK;
}

}  // namespace assay_kernels
