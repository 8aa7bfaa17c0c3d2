// SPDX-License-Identifier: Apache-2.0
// See data_op_operands.hpp.
#include "kernels/common/data_op_operands.hpp"

#include "kernels/common/operand_reader.hpp"

namespace assay_kernels {
namespace {

RowsView rows_view(OperandReader& reader, const assay_tensor& t, const char* name, int32_t format, bool empty,
                   int32_t rank = 3) {
  RowsView view{};
  view.data = static_cast<unsigned char*>(const_cast<void*>(reader.take(t, name, format, rank, empty)));
  view.format = format;
  view.element_bytes = element_bytes(format);
  const int first = rank - 3;
  view.state = first > 0 ? t.stride[0] : 0;
  view.row = t.stride[first], view.head = t.stride[first + 1], view.dim = t.stride[first + 2];
  return view;
}

template <class T>
const T* vector_of(OperandReader& reader, const assay_tensor& t, const char* name, int32_t format, bool empty,
                   int64_t* stride) {
  *stride = t.stride[0];
  return static_cast<const T*>(reader.take(t, name, format, 1, empty));
}

float* written(const ScaleView& scale) {
  return scale.kind == ASSAY_SCALE_TOKEN_HEAD ? const_cast<float*>(scale.data) : nullptr;
}

void take_rows(OperandReader& reader, const assay_problem& p, const assay_tensors& t, DataOpOperands& b) {
  b.a.cu_q = vector_of<int32_t>(reader, t.cu_q, "cu_q", ASSAY_INT32, p.requests == 0, &b.a.cu_q_stride);
  if (b.a.cu_q != nullptr) b.live_rows = b.a.cu_q + p.requests * b.a.cu_q_stride;
}

void take_cache(OperandReader& reader, const assay_problem& p, const assay_tensors& t, bool no_rows,
                DataOpOperands& b) {
  const bool latent = p.layout == ASSAY_LAYOUT_MLA, gathers = p.op == ASSAY_OP_CACHE_GATHER;
  const bool no_cache = no_rows && p.total_kv == 0;
  b.k = static_cast<unsigned char*>(
      const_cast<void*>(reader.take(t.k, "k", p.k_format, kv_rank(p, false), no_cache)));
  b.a.k = make_kv_view(p, t.k, p.k_format, false);
  if (b.a.k.dim_pack < 1) reader.fail("k", "has an empty innermost axis");
  b.a.k_scale = make_scale(reader, p, t.k_scale, "k_scale", p.k_scale_kind, p.k_scale_host, false);
  b.ready_codes = !gathers && p.source_format == ASSAY_FORMAT_NONE;
  const int32_t dense = gathers ? p.o_format : p.source_format;
  const int32_t of_k = b.ready_codes ? p.k_format : dense, of_v = b.ready_codes ? p.v_format : dense;
  b.dense_k = rows_view(reader, t.dense_k, "dense_k", of_k, no_rows);
  const auto ready = [&](const assay_tensor& scale, const char* name, int32_t kind, int64_t* stride) {
    if (!b.ready_codes || kind != ASSAY_SCALE_TOKEN_HEAD) return static_cast<const float*>(nullptr);
    stride[0] = scale.stride[0], stride[1] = scale.stride[1];
    return static_cast<const float*>(reader.take(scale, name, ASSAY_FP32, 2, no_rows));
  };
  b.dense_k_scale = ready(t.dense_k_scale, "dense_k_scale", p.k_scale_kind, b.dense_k_scale_stride);
  if (latent && !gathers && t.dense_v.data != nullptr)
    b.dense_v = rows_view(reader, t.dense_v, "dense_v", of_k, no_rows);
  if (!latent) {
    b.v = static_cast<unsigned char*>(
        const_cast<void*>(reader.take(t.v, "v", p.v_format, kv_rank(p, true), no_cache)));
    b.a.v = make_kv_view(p, t.v, p.v_format, true);
    if (b.a.v.slot_pack < 1) reader.fail("v", "has an empty innermost axis");
    b.a.v_scale = make_scale(reader, p, t.v_scale, "v_scale", p.v_scale_kind, p.v_scale_host, false);
    b.dense_v = rows_view(reader, t.dense_v, "dense_v", of_v, no_rows);
    b.dense_v_scale = ready(t.dense_v_scale, "dense_v_scale", p.v_scale_kind, b.dense_v_scale_stride);
  }
  if (!gathers) {
    b.slots =
        vector_of<int64_t>(reader, t.slot_mapping, "slot_mapping", ASSAY_INT64, no_rows, &b.slots_stride);
    b.k_scale = written(b.a.k_scale);
    b.v_scale = written(b.a.v_scale);
    return;
  }
  take_rows(reader, p, t, b);
  b.seq_starts = vector_of<int32_t>(reader, t.seq_starts, "seq_starts", ASSAY_INT32, p.requests == 0,
                                    &b.seq_starts_stride);
  b.token_to_batch = vector_of<int32_t>(reader, t.token_to_batch, "token_to_batch", ASSAY_INT32, no_rows,
                                        &b.token_to_batch_stride);
  if (p.table == ASSAY_TABLE_CSR) {
    b.a.indptr = vector_of<int32_t>(reader, t.indptr, "indptr", ASSAY_INT32, no_rows, &b.a.indptr_stride);
    b.a.indices = vector_of<int32_t>(reader, t.indices, "indices", ASSAY_INT32, no_rows, &b.a.indices_stride);
  } else {
    b.a.block_table =
        static_cast<const int32_t*>(reader.take(t.block_table, "block_table", ASSAY_INT32, 2, no_rows));
    b.a.block_table_stride[0] = t.block_table.stride[0], b.a.block_table_stride[1] = t.block_table.stride[1];
  }
}

}  // namespace

bool make_data_op_operands(const assay_problem* p, const assay_tensors* t, DataOpOperands* out, char* error,
                           size_t error_size) {
  OperandReader reader(error, error_size);
  if (p == nullptr || t == nullptr) {
    reader.fail("problem or tensors", "is a null pointer");
    return false;
  }
  // Data ops came later than the first tables.
  if (p->struct_size < sizeof(assay_problem) || t->struct_size < sizeof(assay_tensors)) {
    reader.fail("problem or tensors", "is of an interface without data ops");
    return false;
  }
  DataOpOperands b{};
  b.a.p = *p;
  const bool no_rows = p->rows == 0;
  switch (p->op) {
    case ASSAY_OP_MERGE_STATES:
      take_rows(reader, *p, *t, b);
      b.partial_o = rows_view(reader, t->partial_o, "partial_o", p->source_format, no_rows, 4);
      b.partial_lse =
          static_cast<const float*>(reader.take(t->partial_lse, "partial_lse", ASSAY_FP32, 3, no_rows));
      for (int i = 0; i < 3; ++i) b.partial_lse_stride[i] = t->partial_lse.stride[i];
      b.o = rows_view(reader, t->o, "o", p->o_format, no_rows);
      b.lse = static_cast<float*>(const_cast<void*>(reader.take(t->lse, "lse", ASSAY_FP32, 2, no_rows)));
      b.lse_stride[0] = t->lse.stride[0], b.lse_stride[1] = t->lse.stride[1];
      if (p->has_sinks)
        b.a.sinks = vector_of<float>(reader, t->sinks, "sinks", ASSAY_FP32, no_rows, &b.a.sinks_stride);
      break;
    case ASSAY_OP_QUANTIZE_INT8:
      take_rows(reader, *p, *t, b);
      b.source = rows_view(reader, t->source, "source", p->source_format, no_rows);
      b.q = rows_view(reader, t->q, "q", p->q_format, no_rows);
      b.a.q_scale = make_scale(reader, *p, t->q_scale, "q_scale", p->q_scale_kind, p->q_scale_host, true);
      b.q_scale = written(b.a.q_scale);
      if (p->computed_scales != 0) b.channel_scales = const_cast<float*>(b.a.q_scale.data);
      break;
    default:
      take_cache(reader, *p, *t, no_rows, b);
  }
  *out = b;
  return reader.ok();
}

int supports_data_op(const assay_problem* p, int32_t op, char* why, size_t why_size) {
  static const char* const kNames[] = {"merge_states", "cache_write", "cache_gather", "quantize_int8"};
  const auto refuse = [&](const char* required, const char* supported) {
    if (why != nullptr && why_size > 0)
      snprintf(why, why_size, "required %s, supported %s, missing %s", required, supported, required);
    return ASSAY_UNSUPPORTED;
  };
  const auto operand = [](int32_t f) { return f >= ASSAY_FP32 && f <= ASSAY_INT8; };
  const auto plain = [](int32_t f) { return f == ASSAY_FP32 || f == ASSAY_BF16 || f == ASSAY_FP16; };
  if (p->op != op) return refuse("another op", kNames[op - ASSAY_OP_MERGE_STATES]);
  if (p->head_dim_qk > kMaxHeadDim || p->head_dim_v > kMaxHeadDim)
    return refuse("a larger head", "1024 dims");
  const bool cache = op == ASSAY_OP_CACHE_WRITE || op == ASSAY_OP_CACHE_GATHER;
  if (cache && !(operand(p->k_format) && operand(p->v_format)))
    return refuse("another cache format", "fp32, 16-bit, fp8 and int8");
  const bool codes = op == ASSAY_OP_CACHE_WRITE && p->source_format == ASSAY_FORMAT_NONE;
  if (op != ASSAY_OP_CACHE_GATHER && !codes && !plain(p->source_format))
    return refuse("another source format", "fp32, bf16 and fp16");
  if ((op == ASSAY_OP_MERGE_STATES || op == ASSAY_OP_CACHE_GATHER) && !plain(p->o_format))
    return refuse("another output format", "fp32, bf16 and fp16");
  if (op == ASSAY_OP_QUANTIZE_INT8 && !(operand(p->q_format) && !plain(p->q_format)))
    return refuse("another code", "int8 and fp8");
  if (p->computed_scales != 0 && !(op == ASSAY_OP_QUANTIZE_INT8 && p->q_scale_kind == ASSAY_SCALE_CHANNEL))
    return refuse("computed scales", "those of channels in quantize_int8");
  return ASSAY_OK;
}

}  // namespace assay_kernels
