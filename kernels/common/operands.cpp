// SPDX-License-Identifier: Apache-2.0
// Turns the tables of the C interface into Operands and refuses calls whose operands are missing or
// contradict the problem. A new layout gets its axes here, in make_kv_view, and nowhere else.
#include "kernels/common/operands.hpp"

#include <algorithm>
#include <climits>
#include <cstring>

#include "kernels/common/operand_reader.hpp"

namespace assay_kernels {

int32_t element_bytes(int32_t format) {
  switch (format) {
    case ASSAY_FP32:
    case ASSAY_INT32:
      return 4;
    case ASSAY_BF16:
    case ASSAY_FP16:
      return 2;
    case ASSAY_INT64:
      return 8;
    default:
      return 1;
  }
}

const char* format_name(int32_t format) {
  switch (format) {
    case ASSAY_FP32:
      return "fp32";
    case ASSAY_BF16:
      return "bf16";
    case ASSAY_FP16:
      return "fp16";
    case ASSAY_FP8_E4M3:
      return "fp8_e4m3";
    case ASSAY_FP8_E5M2:
      return "fp8_e5m2";
    case ASSAY_FP8_E4M3FNUZ:
      return "fp8_e4m3fnuz";
    case ASSAY_FP8_E5M2FNUZ:
      return "fp8_e5m2fnuz";
    case ASSAY_INT8:
      return "int8";
    case ASSAY_UINT8:
      return "uint8";
    case ASSAY_INT32:
      return "int32";
    case ASSAY_INT64:
      return "int64";
    default:
      return "none";
  }
}

int32_t kv_rank(const assay_problem& p, bool is_v) {
  if (p.op == ASSAY_OP_PREFILL) return 3;
  switch (p.layout) {
    case ASSAY_LAYOUT_X:
      return is_v ? 4 : 5;
    case ASSAY_LAYOUT_SHUFFLED:
      return 5;
    case ASSAY_LAYOUT_MLA:
      return 3;
    default:
      return 4;
  }
}

KvView make_kv_view(const assay_problem& p, const assay_tensor& t, int32_t format, bool is_v) {
  KvView view{};
  view.data = static_cast<const unsigned char*>(t.data);
  view.format = format;
  view.element_bytes = element_bytes(format);
  view.slot_pack = 1;
  view.dim_pack = INT_MAX;
  const int64_t* s = t.stride;
  if (p.op == ASSAY_OP_PREFILL) {
    view.block_stride = s[0], view.head_stride = s[1], view.dim_inner = s[2];
    return view;
  }
  view.block_stride = s[0];
  switch (p.layout) {
    case ASSAY_LAYOUT_NHD:
      view.slot_outer = s[1], view.head_stride = s[2], view.dim_inner = s[3];
      break;
    case ASSAY_LAYOUT_HND:
      view.head_stride = s[1], view.slot_outer = s[2], view.dim_inner = s[3];
      break;
    case ASSAY_LAYOUT_MLA:
      view.slot_outer = s[1], view.dim_inner = s[2];
      break;
    default:
      view.head_stride = s[1];
      if (!is_v) {  // [block, head, dim / x, slot, x]
        view.dim_outer = s[2], view.slot_outer = s[3], view.dim_inner = s[4];
        view.dim_pack = static_cast<int32_t>(t.shape[4]);
      } else if (p.layout == ASSAY_LAYOUT_X) {  // [block, head, dim, slot]
        view.dim_inner = s[2], view.slot_outer = s[3];
      } else {  // [block, head, slot / x, dim, x]
        view.slot_outer = s[2], view.dim_inner = s[3], view.slot_inner = s[4];
        view.slot_pack = static_cast<int32_t>(t.shape[4]);
      }
  }
  return view;
}

ScaleView make_scale(OperandReader& reader, const assay_problem& p, const assay_tensor& t, const char* name,
                     int32_t kind, float host, bool is_q) {
  ScaleView scale{};
  scale.kind = kind, scale.host = host;
  if (kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_HOST) return scale;
  int32_t rank = 2;
  if (kind == ASSAY_SCALE_TENSOR || kind == ASSAY_SCALE_HEAD) rank = 1;
  if (kind == ASSAY_SCALE_TOKEN_HEAD && !is_q && p.op != ASSAY_OP_PREFILL) rank = 3;
  scale.data = static_cast<const float*>(reader.take(t, name, ASSAY_FP32, rank, p.total_q == 0));
  for (int i = 0; i < rank && i < 3; ++i) scale.stride[i] = t.stride[i];
  return scale;
}

namespace {

// o and lse, in decode_splitkv those of every part.
void take_results(OperandReader& reader, const assay_problem& p, const assay_tensors& t, bool no_rows,
                  bool lse_optional, Operands& a) {
  const bool parts = p.op == ASSAY_OP_DECODE_SPLITKV;
  const assay_tensor &o = parts ? t.partial_o : t.o, &lse = parts ? t.partial_lse : t.lse;
  const int first = parts ? 1 : 0;  // axis of the rows
  a.o = static_cast<unsigned char*>(
      const_cast<void*>(reader.take(o, parts ? "partial_o" : "o", p.o_format, 3 + first, no_rows)));
  a.lse = static_cast<float*>(const_cast<void*>(reader.take(lse, parts ? "partial_lse" : "lse", ASSAY_FP32,
                                                            2 + first, no_rows || (lse_optional && !parts))));
  for (int i = 0; i < 3; ++i) a.o_stride[i] = o.stride[first + i];
  for (int i = 0; i < 2; ++i) a.lse_stride[i] = lse.stride[first + i];
  if (parts) a.o_part = o.stride[0], a.lse_part = lse.stride[0];
}

}  // namespace

bool make_operands(const assay_problem* p, const assay_tensors* t, Operands* out, char* error,
                   size_t error_size, bool lse_optional) {
  OperandReader reader(error, error_size);
  if (p == nullptr || t == nullptr) {
    reader.fail("problem or tensors", "is a null pointer");
    return false;
  }
  if (p->op == ASSAY_OP_DECODE_SPLITKV &&
      (p->struct_size < sizeof(assay_problem) || t->struct_size < sizeof(assay_tensors))) {
    reader.fail("problem or tensors", "is of an interface without decode_splitkv");
    return false;
  }
  Operands a{};
  // An older caller's struct is shorter; what it lacks is 0.
  std::memcpy(&a.p, p, std::min<size_t>(p->struct_size, sizeof a.p));
  a.group = p->heads_q / p->heads_kv;
  const bool no_rows = p->total_q == 0;
  const bool no_keys = no_rows || p->total_kv == 0;
  const bool paged = p->op != ASSAY_OP_PREFILL;

  a.q = static_cast<const unsigned char*>(reader.take(t->q, "q", p->q_format, 3, no_rows));
  a.q_element_bytes = element_bytes(p->q_format);
  for (int i = 0; i < 3; ++i) a.q_stride[i] = t->q.stride[i];
  take_results(reader, *p, *t, no_rows, lse_optional, a);
  reader.take(t->k, "k", p->k_format, kv_rank(*p, false), no_keys);
  reader.take(t->v, "v", p->v_format, kv_rank(*p, true), no_keys);
  a.k = make_kv_view(*p, t->k, p->k_format, false);
  a.v = make_kv_view(*p, t->v, p->v_format, true);
  if (a.k.dim_pack < 1) reader.fail("k", "has an empty innermost axis");
  if (a.v.slot_pack < 1) reader.fail("v", "has an empty innermost axis");
  a.q_scale = make_scale(reader, *p, t->q_scale, "q_scale", p->q_scale_kind, p->q_scale_host, true);
  a.k_scale = make_scale(reader, *p, t->k_scale, "k_scale", p->k_scale_kind, p->k_scale_host, false);
  a.v_scale = make_scale(reader, *p, t->v_scale, "v_scale", p->v_scale_kind, p->v_scale_host, false);

  a.cu_q = static_cast<const int32_t*>(reader.take(t->cu_q, "cu_q", ASSAY_INT32, 1, p->requests == 0));
  a.cu_q_stride = t->cu_q.stride[0];
  if (!paged) {
    a.cu_kv = static_cast<const int32_t*>(reader.take(t->cu_kv, "cu_kv", ASSAY_INT32, 1, p->requests == 0));
    a.cu_kv_stride = t->cu_kv.stride[0];
  } else if (p->table == ASSAY_TABLE_CSR) {
    a.indptr = static_cast<const int32_t*>(reader.take(t->indptr, "indptr", ASSAY_INT32, 1, no_keys));
    a.indices = static_cast<const int32_t*>(reader.take(t->indices, "indices", ASSAY_INT32, 1, no_keys));
    a.indptr_stride = t->indptr.stride[0], a.indices_stride = t->indices.stride[0];
  } else {
    a.block_table =
        static_cast<const int32_t*>(reader.take(t->block_table, "block_table", ASSAY_INT32, 2, no_keys));
    a.block_table_stride[0] = t->block_table.stride[0], a.block_table_stride[1] = t->block_table.stride[1];
  }
  if (p->alibi != ASSAY_ALIBI_NONE) {
    a.alibi_slopes =
        static_cast<const float*>(reader.take(t->alibi_slopes, "alibi_slopes", ASSAY_FP32, 1, no_rows));
    a.alibi_stride = t->alibi_slopes.stride[0];
  }
  if (p->has_sinks) {
    a.sinks = static_cast<const float*>(reader.take(t->sinks, "sinks", ASSAY_FP32, 1, no_rows));
    a.sinks_stride = t->sinks.stride[0];
  }
  if (p->mask == ASSAY_MASK_TREE) {
    a.tree_mask =
        static_cast<const uint8_t*>(reader.take(t->tree_mask, "tree_mask", ASSAY_UINT8, 1, no_rows));
    a.tree_indptr =
        static_cast<const int64_t*>(reader.take(t->tree_indptr, "tree_indptr", ASSAY_INT64, 1, no_rows));
    a.tree_mask_stride = t->tree_mask.stride[0], a.tree_indptr_stride = t->tree_indptr.stride[0];
  }
  if (p->first_key != nullptr) {
    a.first_key =
        static_cast<const int32_t*>(reader.take(t->first_key, "first_key", ASSAY_INT32, 1, p->requests == 0));
    a.first_key_stride = t->first_key.stride[0];
  }
  if (p->positions != nullptr) {
    a.positions =
        static_cast<const int32_t*>(reader.take(t->positions, "positions", ASSAY_INT32, 1, no_rows));
    a.positions_stride = t->positions.stride[0];
  }
  *out = a;
  return reader.ok();
}

}  // namespace assay_kernels
