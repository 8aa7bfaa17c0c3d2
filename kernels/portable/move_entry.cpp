// SPDX-License-Identifier: Apache-2.0
// Entries of the ops that move rows (move.cu): cache_write, cache_gather, quantize_int8.
#include "kernels/common/fill_struct.hpp"
#include "kernels/portable/entry.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/portable/move.hpp"

namespace assay_gpu {
namespace {

using assay_kernels::RowsView;

// scaling_relative_error 0: one division or product, one rounding.
int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* out) {
  assay_kernels::fill_struct(out, assay_arithmetic{});
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

StoredPlane stored(MovedRows from, MovedRows to, const ScaleView& scale, float* dynamic, int32_t dims) {
  StoredPlane plane{from, to, scale, dynamic, dims};
  plane.split = dims;
  return plane;
}

gpu::Status cache_write(const DataOpOperands& b, gpu::Stream stream) {
  const assay_problem& p = b.a.p;
  const bool latent = p.layout == ASSAY_LAYOUT_MLA;
  StoreRows a{};
  a.planes = b.dense_v.data != nullptr && !latent ? 2 : 1;
  a.heads = p.heads_kv, a.page_size = p.page_size, a.rows = p.rows;
  a.slots = b.slots, a.slots_stride = b.slots_stride;
  const int32_t dims = p.head_dim_qk;
  const bool parts = b.dense_v.data != nullptr && latent;
  a.plane[0] = stored(dense_rows(b.dense_k, parts ? p.head_dim_v : dims), cache_rows(b.a.k, b.k, dims),
                      b.a.k_scale, b.k_scale, dims);
  if (parts) {
    a.plane[0].split = p.head_dim_v;
    a.plane[0].rest = dense_rows(b.dense_v, dims - p.head_dim_v);
  }
  if (a.planes == 2)
    a.plane[1] = stored(dense_rows(b.dense_v, p.head_dim_v), cache_rows(b.a.v, b.v, p.head_dim_v),
                        b.a.v_scale, b.v_scale, p.head_dim_v);
  a.plane[0].codes = a.plane[1].codes = b.ready_codes;
  a.plane[0].ready = b.dense_k_scale, a.plane[1].ready = b.dense_v_scale;
  for (int i = 0; i < 2; ++i) {
    a.plane[0].ready_stride[i] = b.dense_k_scale_stride[i];
    a.plane[1].ready_stride[i] = b.dense_v_scale_stride[i];
  }
  return launch_store(a, stream);
}

gpu::Status cache_gather(const DataOpOperands& b, gpu::Stream stream) {
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

gpu::Status quantize_int8(const DataOpOperands& b, gpu::Stream stream) {
  const assay_problem& p = b.a.p;
  StoreRows a{};
  a.planes = 1, a.heads = p.heads_q, a.page_size = 1, a.rows = p.rows;
  a.live_rows = b.live_rows;
  a.plane[0] = stored(dense_rows(b.source, p.head_dim_qk), dense_rows(b.q, p.head_dim_qk), b.a.q_scale,
                      b.q_scale, p.head_dim_qk);
  if (b.channel_scales == nullptr) return launch_store(a, stream);
  const int64_t* by = b.a.q_scale.stride;
  const gpu::Status status = launch_channel_scales(
      {b.source, b.channel_scales, {by[0], by[1]}, b.live_rows, p.rows, p.heads_q, p.head_dim_qk, p.q_format},
      stream);
  return gpu::ok(status, "", nullptr, 0) ? launch_store(a, stream) : status;
}

// Parts of a row that do not meet between two chunks would need loads of single elements.
int write_supports(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                   const assay_device* device, char* why, size_t size) {
  const bool parts = p->layout == ASSAY_LAYOUT_MLA && t != nullptr && t->dense_v.shape[0] > 0;
  if (!parts || p->head_dim_v % kPartsMeetAt == 0) return rows_supports(self, p, t, device, why, size);
  if (why != nullptr && size > 0)
    std::snprintf(why, size, "required a rope part from dimension %d on, supported multiples of %d",
                  p->head_dim_v, kPartsMeetAt);
  return ASSAY_UNSUPPORTED;
}

template <gpu::Status (*kLaunch)(const DataOpOperands&, gpu::Stream)>
constexpr assay_kernel move_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k = entry(op, ASSAY_PROMISE_BATCH_INVARIANT, name, description);
  k.supports = rows_supports, k.arithmetic = arithmetic, k.run = run_rows<kLaunch>;
  return k;
}

constexpr assay_kernel kCacheWrite = [] {
  assay_kernel k = move_kernel<cache_write>(ASSAY_OP_CACHE_WRITE, "cache_write_gpu",
                                            "new rows of K and V into the cache, quantised on the way");
  k.supports = write_supports;
  return k;
}();
constexpr assay_kernel kCacheGather = move_kernel<cache_gather>(
    ASSAY_OP_CACHE_GATHER, "cache_gather_gpu", "cached tokens to dense rows, dequantised on the way");
constexpr assay_kernel kQuantizeInt8 = move_kernel<quantize_int8>(
    ASSAY_OP_QUANTIZE_INT8, "quantize_int8_gpu",
    "rows to int8 or fp8 by given scales, by a scale per row and head or per channel");

}  // namespace

std::vector<const assay_kernel*> move_kernels() { return {&kCacheWrite, &kCacheGather, &kQuantizeInt8}; }

}  // namespace assay_gpu
