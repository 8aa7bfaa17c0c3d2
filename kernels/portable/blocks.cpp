// SPDX-License-Identifier: Apache-2.0
// The building blocks' entries of the C table: merge_states, cache_write, cache_gather, quantize_int8. They
// take everything the ops allow, declare single IEEE operations and launch grids that depend on shapes alone.
#include "kernels/portable/blocks.hpp"

#include "kernels/common/block_operands.hpp"
#include "kernels/common/fill_struct.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/portable/launch.hpp"

namespace assay_gpu {
namespace {

using assay_kernels::BlockOperands;
using assay_kernels::RowsView;

int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*, const assay_device*,
             char* why, size_t size) {
  return assay_kernels::supports_block(p, self->op, why, size);
}

int arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic m{};  // scaling_relative_error 0: one division or product, one rounding
  // CUDA's exp2f: at most 2 ulp, by the programming guide's table of the standard functions; HIP's is no
  // worse.
  if (p->op == ASSAY_OP_MERGE_STATES) m.exp_relative_error = 0x1p-22;
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

MovedRows dense_rows(const RowsView& rows, int32_t dims) {
  MovedRows out{};
  out.view.data = out.written = rows.data;
  out.view.format = rows.format, out.view.element_bytes = rows.element_bytes;
  out.view.block_stride = rows.row, out.view.head_stride = rows.head, out.view.dim_inner = rows.dim;
  out.view.slot_pack = 1, out.view.dim_pack = INT32_MAX;
  out.whole = whole_chunks(out.view, dims);
  return out;
}
MovedRows cache_rows(const assay_kernels::KvView& view, unsigned char* written, int32_t dims) {
  return {view, whole_chunks(view, dims), written};
}

gpu::Status merge_states(const BlockOperands& b, gpu::Stream stream) {
  const assay_problem& p = b.a.p;
  Merge a{};
  a.states = p.states, a.heads = p.heads_q, a.dims = p.head_dim_v, a.rows = p.rows;
  a.live_rows = b.live_rows;
  a.o = b.partial_o.data, a.o_format = b.partial_o.format;
  a.o_stride[0] = b.partial_o.state, a.o_stride[1] = b.partial_o.row;
  a.o_stride[2] = b.partial_o.head, a.o_stride[3] = b.partial_o.dim;
  a.lse = b.partial_lse;
  for (int i = 0; i < 3; ++i) a.lse_stride[i] = b.partial_lse_stride[i];
  a.out = b.o.data, a.out_format = b.o.format;
  a.out_stride[0] = b.o.row, a.out_stride[1] = b.o.head, a.out_stride[2] = b.o.dim;
  a.out_lse = b.lse;
  for (int i = 0; i < 2; ++i) a.out_lse_stride[i] = b.lse_stride[i];
  if (p.has_sinks) a.sinks = b.a.sinks, a.sinks_stride = b.a.sinks_stride;
  return launch_merge(a, stream);
}

gpu::Status cache_write(const BlockOperands& b, gpu::Stream stream) {
  const assay_problem& p = b.a.p;
  StoreRows a{};
  a.planes = b.dense_v.data != nullptr ? 2 : 1;
  a.heads = p.heads_kv, a.page_size = p.page_size, a.rows = p.rows;
  a.slots = b.slots, a.slots_stride = b.slots_stride;
  a.plane[0] = {dense_rows(b.dense_k, p.head_dim_qk), cache_rows(b.a.k, b.k, p.head_dim_qk), b.a.k_scale,
                b.k_scale, p.head_dim_qk};
  if (a.planes == 2)
    a.plane[1] = {dense_rows(b.dense_v, p.head_dim_v), cache_rows(b.a.v, b.v, p.head_dim_v), b.a.v_scale,
                  b.v_scale, p.head_dim_v};
  return launch_store(a, stream);
}

gpu::Status cache_gather(const BlockOperands& b, gpu::Stream stream) {
  const assay_problem& p = b.a.p;
  GatherRows a{};
  a.planes = b.dense_v.data != nullptr ? 2 : 1;
  a.op = b.a, a.live_rows = b.live_rows;
  a.seq_starts = b.seq_starts, a.seq_starts_stride = b.seq_starts_stride;
  a.token_to_batch = b.token_to_batch, a.token_to_batch_stride = b.token_to_batch_stride;
  a.plane[0] = {cache_rows(b.a.k, nullptr, p.head_dim_qk), dense_rows(b.dense_k, p.head_dim_qk), b.a.k_scale,
                p.head_dim_qk};
  if (a.planes == 2)
    a.plane[1] = {cache_rows(b.a.v, nullptr, p.head_dim_v), dense_rows(b.dense_v, p.head_dim_v), b.a.v_scale,
                  p.head_dim_v};
  return launch_gather(a, stream);
}

gpu::Status quantize_int8(const BlockOperands& b, gpu::Stream stream) {
  const assay_problem& p = b.a.p;
  StoreRows a{};
  a.planes = 1, a.heads = p.heads_q, a.page_size = 1, a.rows = p.rows;
  a.live_rows = b.live_rows;
  a.plane[0] = {dense_rows(b.source, p.head_dim_qk), dense_rows(b.q, p.head_dim_qk), b.a.q_scale, b.q_scale,
                p.head_dim_qk};
  return launch_store(a, stream);
}

template <gpu::Status (*kLaunch)(const BlockOperands&, gpu::Stream)>
int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  if (supports(self, p, t, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  BlockOperands b;
  if (!assay_kernels::make_block_operands(p, t, &b, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->rows == 0) return ASSAY_OK;
  return answer(kLaunch(b, static_cast<gpu::Stream>(stream)), "building block", error, size);
}

template <gpu::Status (*kLaunch)(const BlockOperands&, gpu::Stream)>
constexpr assay_kernel block_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.description = description, k.arch = "any", k.op = op;
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT | ASSAY_PROMISE_GRAPH;
  k.supports = supports, k.arithmetic = arithmetic, k.run = run<kLaunch>;
  return k;
}

constexpr assay_kernel kMergeStates = block_kernel<merge_states>(
    ASSAY_OP_MERGE_STATES, "merge_states_gpu", "merge of N partial results, a warp per row and head");
constexpr assay_kernel kCacheWrite = block_kernel<cache_write>(
    ASSAY_OP_CACHE_WRITE, "cache_write_gpu", "new rows of K and V into the cache, quantised on the way");
constexpr assay_kernel kCacheGather = block_kernel<cache_gather>(
    ASSAY_OP_CACHE_GATHER, "cache_gather_gpu", "cached tokens to dense rows, dequantised on the way");
constexpr assay_kernel kQuantizeInt8 =
    block_kernel<quantize_int8>(ASSAY_OP_QUANTIZE_INT8, "quantize_int8_gpu",
                                "rows to int8 by given channel scales or by a scale per row and head");

}  // namespace

std::vector<const assay_kernel*> block_kernels() {
  return {&kMergeStates, &kCacheWrite, &kCacheGather, &kQuantizeInt8};
}

}  // namespace assay_gpu
