// SPDX-License-Identifier: Apache-2.0
// The operands by name, and where each one lies. Shapes are those of the C header, strides follow
// Problem::strided. A new operand: a name, a place in tensor_of, a case in operand_layout.
#include "harness/input/operand_layout.hpp"

#include <algorithm>

#include "harness/base/error.hpp"

namespace assay {
namespace {

// rows x heads x dim where a row has room for `spare` more heads than the view shows.
TensorLayout head_slice(int32_t format, int64_t rows, int64_t heads, int64_t dim, int64_t spare) {
  TensorLayout t = dense_layout(format, {rows, heads, dim});
  t.stride[0] = (heads + spare) * dim;
  t.allocation = rows * t.stride[0];
  return t;
}

// Two axes stored the other way round.
TensorLayout transposed(int32_t format, int64_t rows, int64_t columns) {
  TensorLayout t = dense_layout(format, {rows, columns});
  t.stride[0] = 1;
  t.stride[1] = rows;
  return t;
}

TensorLayout scale_layout(const Problem& p, int32_t kind, int64_t heads, int64_t dim, int64_t tokens,
                          bool paged) {
  switch (kind) {
    case ASSAY_SCALE_TENSOR:
      return dense_layout(ASSAY_FP32, {1});
    case ASSAY_SCALE_HEAD:
      return dense_layout(ASSAY_FP32, {heads});
    case ASSAY_SCALE_REQUEST_HEAD:
      return dense_layout(ASSAY_FP32, {static_cast<int64_t>(p.requests.size()), p.heads_kv});
    case ASSAY_SCALE_CHANNEL:
      return dense_layout(ASSAY_FP32, {heads, dim});
    case ASSAY_SCALE_TOKEN_HEAD:
      break;
    default:
      return {};
  }
  if (!paged)
    return p.strided.scales ? transposed(ASSAY_FP32, tokens, heads)
                            : dense_layout(ASSAY_FP32, {tokens, heads});
  TensorLayout t = dense_layout(ASSAY_FP32, {p.num_blocks, heads, p.page_size});
  if (p.strided.scales) {
    t.stride[0] = p.page_size;
    t.stride[1] = int64_t{p.num_blocks} * p.page_size;
  }
  return t;
}

TensorLayout table_layout(const Problem& p) {
  int64_t columns = 0;
  if (p.table == ASSAY_TABLE_TOKEN) {
    columns = p.max_kv_len();
  } else {
    for (const auto& list : p.pages) columns = std::max(columns, static_cast<int64_t>(list.size()));
  }
  TensorLayout t = dense_layout(ASSAY_INT32, {static_cast<int64_t>(p.requests.size()), columns});
  if (p.strided.table) {
    t.stride[0] = columns + kTablePadding;
    t.allocation = t.shape[0] * t.stride[0];
  }
  return t;
}

// Partial results are what a merge reads and what decode_splitkv writes.
bool partials_strided(const Problem& p) {
  return p.op == ASSAY_OP_DECODE_SPLITKV ? p.strided.out : p.strided.q;
}

// Rows x heads of every state; transposed: heads x rows.
TensorLayout partial_lse_layout(const Problem& p) {
  TensorLayout t = dense_layout(ASSAY_FP32, {p.states, p.rows(), p.heads_q});
  if (partials_strided(p)) t.stride[1] = 1, t.stride[2] = p.rows();
  return t;
}

TensorLayout partial_o_layout(const Problem& p) {
  const int32_t format = p.op == ASSAY_OP_DECODE_SPLITKV ? p.o_format : p.source_format;
  TensorLayout t = dense_layout(format, {p.states, p.rows(), p.heads_q, p.head_dim_v});
  if (partials_strided(p)) {
    t.stride[1] = int64_t{p.heads_q + 1} * p.head_dim_v;
    t.stride[0] = p.rows() * t.stride[1];
    t.allocation = p.states * t.stride[0];
  }
  return t;
}

// The rows a cache is written from (slices of a fused QKV projection) or gathered into.
TensorLayout dense_rows_layout(const Problem& p, int32_t dim) {
  if (p.op == ASSAY_OP_CACHE_GATHER)
    return head_slice(p.o_format, p.rows(), p.heads_kv, dim, p.strided.out ? 1 : 0);
  return head_slice(p.source_format, p.rows(), p.heads_kv, dim, p.strided.q ? p.heads_q + p.heads_kv : 0);
}

// Which operands an op has at all (enum assay_op); what the fields of the problem leave of them is below.
bool has_operand(const Problem& p, Operand operand) {
  const bool latent = p.layout == ASSAY_LAYOUT_MLA;
  switch (p.op) {
    case ASSAY_OP_MERGE_STATES:
      return operand == Operand::kPartialO || operand == Operand::kPartialLse || operand == Operand::kSinks ||
             operand == Operand::kO || operand == Operand::kLse || operand == Operand::kCuQ;
    case ASSAY_OP_QUANTIZE_INT8:
      return operand == Operand::kSource || operand == Operand::kQ || operand == Operand::kQScale ||
             operand == Operand::kCuQ;
    case ASSAY_OP_DECODE_SPLITKV:
      if (operand == Operand::kPartialO || operand == Operand::kPartialLse) return true;
      return operand <= Operand::kWorkspace && operand != Operand::kO && operand != Operand::kLse;
    case ASSAY_OP_CACHE_WRITE:
    case ASSAY_OP_CACHE_GATHER:
      break;
    default:
      return operand <= Operand::kWorkspace;
  }
  switch (operand) {
    case Operand::kK:
    case Operand::kV:
    case Operand::kKScale:
    case Operand::kDenseK:
      return true;
    case Operand::kVScale:
    case Operand::kDenseV:
      return !latent;
    case Operand::kSlotMapping:
      return p.op == ASSAY_OP_CACHE_WRITE;
    case Operand::kCuQ:
    case Operand::kKvLen:
    case Operand::kSeqStarts:
    case Operand::kTokenToBatch:
    case Operand::kBlockTable:
    case Operand::kIndptr:
    case Operand::kIndices:
    case Operand::kLastPageLen:
      return p.op == ASSAY_OP_CACHE_GATHER;
    default:
      return false;
  }
}

}  // namespace

bool has_scale_tensor(int32_t kind) { return kind != ASSAY_SCALE_NONE && kind != ASSAY_SCALE_HOST; }

TensorLayout operand_layout(const Problem& p, Operand operand) {
  if (!has_operand(p, operand)) return {};
  const auto requests = static_cast<int64_t>(p.requests.size());
  const int64_t rows = p.rows(), keys = p.total_kv();
  const bool paged = has_cache(p.op);
  const bool csr = paged && p.table == ASSAY_TABLE_CSR;
  const auto when = [](bool used, const TensorLayout& t) { return used ? t : TensorLayout{}; };
  switch (operand) {
    case Operand::kQ:
      if (p.op == ASSAY_OP_QUANTIZE_INT8)
        return head_slice(p.q_format, rows, p.heads_q, p.head_dim_qk, p.strided.out ? 1 : 0);
      return head_slice(p.q_format, rows, p.heads_q, p.head_dim_qk, p.strided.q ? 2 * p.heads_kv : 0);
    case Operand::kK:
      if (paged) return PagedCache(p).k();
      return head_slice(p.k_format, keys, p.heads_kv, p.head_dim_qk, p.strided.kv ? 1 : 0);
    case Operand::kV:
      if (paged) return PagedCache(p).v();
      return head_slice(p.v_format, keys, p.heads_kv, p.head_dim_v, p.strided.kv ? 1 : 0);
    case Operand::kO:
      return head_slice(p.o_format, rows, p.heads_q, p.head_dim_v, p.strided.out ? 1 : 0);
    case Operand::kLse:
      return p.strided.out ? transposed(ASSAY_FP32, rows, p.heads_q)
                           : dense_layout(ASSAY_FP32, {rows, p.heads_q});
    case Operand::kQScale:
      return scale_layout(p, p.q_scale, p.heads_q, p.head_dim_qk, rows, false);
    case Operand::kKScale:
      return scale_layout(p, p.k_scale, p.heads_kv, p.head_dim_qk, keys, paged);
    case Operand::kVScale:
      return scale_layout(p, p.v_scale, p.heads_kv, p.head_dim_v, keys, paged);
    case Operand::kCuQ:
      return dense_layout(ASSAY_INT32, {requests + 1});
    case Operand::kCuKv:
      return when(!paged, dense_layout(ASSAY_INT32, {requests + 1}));
    case Operand::kKvLen:
      return dense_layout(ASSAY_INT32, {requests});
    case Operand::kBlockTable:
      return paged && !csr ? table_layout(p) : TensorLayout{};
    case Operand::kIndptr:
      return when(csr, dense_layout(ASSAY_INT32, {requests + 1}));
    case Operand::kIndices: {
      int64_t entries = 0;
      for (const auto& list : p.pages) entries += static_cast<int64_t>(list.size());
      return when(csr, dense_layout(ASSAY_INT32, {entries}));
    }
    case Operand::kLastPageLen:
      return when(csr, dense_layout(ASSAY_INT32, {requests}));
    case Operand::kAlibiSlopes:
      return when(p.alibi != ASSAY_ALIBI_NONE, dense_layout(ASSAY_FP32, {p.heads_q}));
    case Operand::kSinks:
      return when(p.sinks, dense_layout(ASSAY_FP32, {p.heads_q}));
    case Operand::kTreeMask:
      return when(p.mask == ASSAY_MASK_TREE,
                  dense_layout(ASSAY_UINT8, {static_cast<int64_t>(p.tree_mask.size())}));
    case Operand::kTreeIndptr:
      return when(p.mask == ASSAY_MASK_TREE, dense_layout(ASSAY_INT64, {requests + 1}));
    case Operand::kWorkspace:
      return {};
    case Operand::kPartialO:
      return partial_o_layout(p);
    case Operand::kPartialLse:
      return partial_lse_layout(p);
    case Operand::kDenseK:
      return dense_rows_layout(p, p.head_dim_qk);
    case Operand::kDenseV:
      return dense_rows_layout(p, p.head_dim_v);
    case Operand::kSlotMapping:
      return dense_layout(ASSAY_INT64, {rows});
    case Operand::kSeqStarts:
      return dense_layout(ASSAY_INT32, {requests});
    case Operand::kTokenToBatch:
      return dense_layout(ASSAY_INT32, {rows});
    case Operand::kSource:
      return head_slice(p.source_format, rows, p.heads_q, p.head_dim_qk, p.strided.q ? 2 * p.heads_kv : 0);
  }
  return {};
}

std::string_view operand_name(Operand operand) {
  static constexpr std::string_view kNames[kOperandCount] = {"q",
                                                             "k",
                                                             "v",
                                                             "o",
                                                             "lse",
                                                             "q_scale",
                                                             "k_scale",
                                                             "v_scale",
                                                             "cu_q",
                                                             "cu_kv",
                                                             "kv_len",
                                                             "block_table",
                                                             "indptr",
                                                             "indices",
                                                             "last_page_len",
                                                             "alibi_slopes",
                                                             "sinks",
                                                             "tree_mask",
                                                             "tree_indptr",
                                                             "workspace",
                                                             "partial_o",
                                                             "partial_lse",
                                                             "dense_k",
                                                             "dense_v",
                                                             "slot_mapping",
                                                             "seq_starts",
                                                             "token_to_batch",
                                                             "source"};
  const int index = static_cast<int>(operand);
  return index >= 0 && index < kOperandCount ? kNames[index] : "?";
}

bool is_output(const Problem& p, Operand operand) {
  if (operand == Operand::kWorkspace) return true;
  switch (p.op) {
    case ASSAY_OP_CACHE_WRITE:
      return operand == Operand::kK || operand == Operand::kV ||
             (operand == Operand::kKScale && p.k_scale == ASSAY_SCALE_TOKEN_HEAD) ||
             (operand == Operand::kVScale && p.v_scale == ASSAY_SCALE_TOKEN_HEAD);
    case ASSAY_OP_CACHE_GATHER:
      return operand == Operand::kDenseK || operand == Operand::kDenseV;
    case ASSAY_OP_DECODE_SPLITKV:
      return operand == Operand::kPartialO || operand == Operand::kPartialLse;
    case ASSAY_OP_QUANTIZE_INT8:
      return operand == Operand::kQ || (operand == Operand::kQScale && p.q_scale == ASSAY_SCALE_TOKEN_HEAD);
    default:
      return operand == Operand::kO || operand == Operand::kLse;
  }
}

assay_tensor& tensor_of(assay_tensors& t, Operand operand) {
  assay_tensor* const members[kOperandCount] = {&t.q,
                                                &t.k,
                                                &t.v,
                                                &t.o,
                                                &t.lse,
                                                &t.q_scale,
                                                &t.k_scale,
                                                &t.v_scale,
                                                &t.cu_q,
                                                &t.cu_kv,
                                                &t.kv_len,
                                                &t.block_table,
                                                &t.indptr,
                                                &t.indices,
                                                &t.last_page_len,
                                                &t.alibi_slopes,
                                                &t.sinks,
                                                &t.tree_mask,
                                                &t.tree_indptr,
                                                &t.workspace,
                                                &t.partial_o,
                                                &t.partial_lse,
                                                &t.dense_k,
                                                &t.dense_v,
                                                &t.slot_mapping,
                                                &t.seq_starts,
                                                &t.token_to_batch,
                                                &t.source};
  const int index = static_cast<int>(operand);
  ASSAY_CHECK(index >= 0 && index < kOperandCount, "operand {}", index);
  return *members[index];
}

const assay_tensor& tensor_of(const assay_tensors& t, Operand operand) {
  return tensor_of(const_cast<assay_tensors&>(t), operand);
}

}  // namespace assay
