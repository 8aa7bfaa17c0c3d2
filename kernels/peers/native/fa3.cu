// SPDX-License-Identifier: Apache-2.0
// FlashAttention-3 (Dao-AILab/flash-attention, hopper/) behind assay's table: what its mha_fwd() does,
// without torch. prefill_fa3 takes batches of one shape as the library's fixed-length call, all others as its
// call of varying lengths; paged_fa3 is the call with a cache. The scheduler's metadata is computed in every
// call, as flash_attn_with_kvcache() does unless it is handed in.
#include <cutlass/numeric_types.h>
#include <flash.h>
#include <heuristics.h>
#include <tile_size.h>

#include <algorithm>
#include <tuple>

#include "peer.hpp"

namespace {

bool fp8(const assay_problem* p) { return p->q_format == ASSAY_FP8_E4M3; }
bool paged(const assay_problem* p) { return p->op == ASSAY_OP_PAGED; }
bool fixed(const assay_problem* p) { return !paged(p) && peer::alike(p, true); }
int tile_keys(const Flash_fwd_params& f, bool paged_kv) {
  return std::get<1>(
      tile_size_fwd_sm90(f.d, f.dv, f.is_causal, false, f.is_e4m3 ? 1 : 2, false, paged_kv, false));
}

bool known_width(const assay_problem* p) {
  const int qk = p->head_dim_qk, v = p->head_dim_v;
  if (paged(p) || fp8(p)) return qk == 128 && v == 128;
  return (qk == v && (qk == 64 || qk == 128 || qk == 256)) || (qk == 192 && v == 128);
}

int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, const assay_device*,
             char* why, size_t size) {
  const auto no = [&](const char* text) { return assay_kit::refuse(why, size, text); };
  if (p->op != self->op) return no("FA3: another op");
  if (const char* text = peer::common_refusal(p)) return no(text);
  if (!known_width(p)) return no("FA3: prefill of 64, 128, 256, 192/128, paged and e4m3 of 128");
  if (p->k_format != p->q_format || p->v_format != p->q_format || p->o_format != ASSAY_BF16 ||
      (p->q_format != ASSAY_BF16 && !fp8(p)))
    return no("FA3: q, k and v all bf16 or all e4m3, out bf16");
  for (const int kind : {p->q_scale_kind, p->k_scale_kind, p->v_scale_kind})
    if (kind != ASSAY_SCALE_NONE && kind != ASSAY_SCALE_REQUEST_HEAD)
      return no("FA3: scales per request and KV head");
  if (p->window_left >= 0 || p->window_right >= 0 || p->has_sinks)
    return no("FA3: built without windows; no sinks");
  if (paged(p)) {
    if (p->table != ASSAY_TABLE_BLOCK || (p->layout != ASSAY_LAYOUT_NHD && p->layout != ASSAY_LAYOUT_HND))
      return no("FA3: block tables, nhd and hnd");
    if (p->page_size % 128 == 0 && int64_t{p->max_q_len} * p->heads_q / p->heads_kv > 128)
      return no("FA3: pages of a whole tile are its contiguous instance, not built here");
  }
  if (t == nullptr) return ASSAY_OK;
  const int bytes = fp8(p) ? 1 : 2;
  const bool fits = peer::for_maps(t->q, bytes) && peer::for_maps(t->k, bytes) &&
                    peer::for_maps(t->v, bytes) && peer::for_maps(t->o, 2) &&
                    (!paged(p) || t->block_table.stride[1] == 1) && t->cu_q.stride[0] == 1 &&
                    (!paged(p) || t->kv_len.stride[0] == 1) && (paged(p) || t->cu_kv.stride[0] == 1);
  return fits ? int{ASSAY_OK} : no("FA3: multiples of 16 bytes, packed tables and lengths");
}

// The scalars of mha_fwd(); pointers follow in run().
Flash_fwd_params scalars(const assay_problem* p) {
  Flash_fwd_params f{};
  f.is_bf16 = !fp8(p), f.is_e4m3 = fp8(p);
  f.b = f.b_k = p->requests, f.h = p->heads_q, f.h_k = p->heads_kv;
  f.d = f.d_rounded = p->head_dim_qk, f.dv = f.dv_rounded = p->head_dim_v;
  f.seqlen_q = p->max_q_len, f.total_q = static_cast<int>(p->total_q);
  const int pages =
      static_cast<int>(paged(p) ? std::max<int64_t>(1, peer::up(p->max_kv_len, p->page_size)) : 0);
  f.seqlen_k = paged(p) ? pages * p->page_size : p->max_kv_len;
  f.total_k = paged(p) ? 1 : static_cast<int>(p->total_kv);
  f.seqlen_q_rounded = static_cast<int>(peer::up(f.seqlen_q, 128) * 128);
  f.seqlen_k_rounded = static_cast<int>(peer::up(f.seqlen_k, 128) * 128);
  f.scale_softmax = p->softmax_scale;
  f.p_dropout = 1, f.p_dropout_in_uint8_t = 255, f.rp_dropout = 1;
  // Of one row causal is full; the library keeps it for width 128 and pages, whose causal tiles suit them.
  f.is_causal = p->mask == ASSAY_MASK_CAUSAL && (f.seqlen_q > 1 || paged(p));
  f.window_size_left = f.seqlen_k - 1, f.window_size_right = f.is_causal ? 0 : f.seqlen_q - 1;
  f.arch = 90, f.num_sm = peer::multiprocessors();
  f.page_size = paged(p) ? p->page_size : 1;
  f.num_splits = 1;
  if (paged(p)) {
    const auto tile = tile_size_fwd_sm90(f.d, f.dv, f.is_causal, false, fp8(p) ? 1 : 2, false, true, false);
    const int rows = std::get<0>(tile), keys = std::get<1>(tile);
    const int blocks = static_cast<int>(peer::up(int64_t{f.seqlen_q} * (f.h / f.h_k), rows));
    f.num_splits =
        num_splits_heuristic(f.h_k * blocks, f.num_sm, static_cast<int>(peer::up(f.seqlen_k, keys)), blocks,
                             f.seqlen_k * (f.d + f.dv) * (fp8(p) ? 1 : 2), f.is_causal, 128);
    if (fp8(p)) f.num_splits = std::max(2, f.num_splits);  // of e4m3 only the split instance is built
    f.pack_gqa = true;
  }
  f.varlen_sort_batches = true, f.head_swizzle = f.is_causal;
  constexpr int kOneBlock = 992;  // requests that its scheduling kernel takes in one block
  f.prepare_varlen_pdl = !fixed(p) && f.b <= kOneBlock;
  return f;
}

int arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* a) {
  const Flash_fwd_params f = scalars(p);
  assay_like_flash_attention_3(a, p->q_format, f.num_splits);
  a->tile_keys = tile_keys(f, paged(p));
  return ASSAY_OK;
}

struct Layout {
  int64_t meta, lse, o_parts, lse_parts, bytes;
};
Layout layout_of(const Flash_fwd_params& f) {
  peer::Places places;
  Layout at{};
  at.meta = places.take(4 * (peer::up(f.b, 4) * 4 * 4 + 4));
  at.lse = places.take(int64_t{4} * f.h * f.total_q);
  if (f.num_splits > 1) {
    at.o_parts = places.take(int64_t{4} * f.num_splits * f.h * f.total_q * f.dv);
    at.lse_parts = places.take(int64_t{4} * f.num_splits * f.h * f.total_q);
  }
  at.bytes = places.bytes();
  return at;
}
int64_t workspace_bytes(const assay_kernel*, const assay_problem* p) { return layout_of(scalars(p)).bytes; }

using B = cutlass::bfloat16_t;
void attend(const assay_problem* p, Flash_fwd_params& f, cudaStream_t on) {
  if (paged(p)) {
    if (fp8(p))
      run_mha_fwd_<90, cutlass::float_e4m3_t, 128, 128, true, true, false, true>(f, on);
    else if (f.num_splits > 1)
      run_mha_fwd_<90, B, 128, 128, true, true, false, true>(f, on);
    else
      run_mha_fwd_<90, B, 128, 128, false, true, false, true>(f, on);
    if (f.num_splits > 1) f.is_bf16 = true, run_mha_fwd_combine_<B, float, 128>(f, on, true);
  } else if (fp8(p)) {
    run_mha_fwd_<90, cutlass::float_e4m3_t, 128, 128, false, false, false, false>(f, on);
  } else if (f.d == 64) {
    run_mha_fwd_<90, B, 64, 64, false, false, false, false>(f, on);
  } else if (f.d == 128) {
    run_mha_fwd_<90, B, 128, 128, false, false, false, false>(f, on);
  } else if (f.d == 192) {
    run_mha_fwd_<90, B, 192, 128, false, false, false, false>(f, on);
  } else {
    run_mha_fwd_<90, B, 256, 256, false, false, false, false>(f, on);
  }
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  if (const int bad = supports(self, p, t, nullptr, error, size)) return bad;
  if (p->total_q == 0) return ASSAY_OK;
  const auto on = static_cast<cudaStream_t>(stream);
  Flash_fwd_params f = scalars(p);
  const Layout at = layout_of(f);
  auto* const workspace = static_cast<char*>(t->workspace.data);
  const bool is_fixed = fixed(p), nhd = !paged(p) || p->layout == ASSAY_LAYOUT_NHD;
  const int base = paged(p) ? 1 : 0, row = base + (nhd ? 0 : 1), head = base + (nhd ? 1 : 0);
  f.q_ptr = t->q.data, f.k_ptr = t->k.data, f.v_ptr = t->v.data, f.o_ptr = t->o.data;
  f.q_row_stride = t->q.stride[0], f.q_head_stride = t->q.stride[1];
  f.o_row_stride = t->o.stride[0], f.o_head_stride = t->o.stride[1];
  f.k_row_stride = t->k.stride[row], f.k_head_stride = t->k.stride[head];
  f.v_row_stride = t->v.stride[row], f.v_head_stride = t->v.stride[head];
  f.v_dim_stride = 1;
  // Of one shape its LSE would be [requests, heads, rows]: kept aside, the kernel of that name has none.
  f.softmax_lse_ptr = self->contracts & ASSAY_CONTRACT_NO_LSE ? reinterpret_cast<float*>(workspace + at.lse)
                                                              : static_cast<float*>(t->lse.data);
  auto* const meta = reinterpret_cast<int*>(workspace + at.meta);
  if (is_fixed) {
    f.q_batch_stride = f.q_row_stride * f.seqlen_q, f.o_batch_stride = f.o_row_stride * f.seqlen_q;
    f.k_batch_stride = f.k_row_stride * f.seqlen_k, f.v_batch_stride = f.v_row_stride * f.seqlen_k;
    f.tile_count_semaphore = meta, f.tile_count_semaphore_offset = 0;
    if (const cudaError_t bad = cudaMemsetAsync(meta, 0, 4, on)) return assay_kit::launched(bad, error, size);
  } else {
    f.cu_seqlens_q = static_cast<int*>(t->cu_q.data);
    if (!paged(p)) f.cu_seqlens_k = static_cast<int*>(t->cu_kv.data);
    const int b = static_cast<int>(peer::up(f.b, 4) * 4), vectors = f.head_swizzle ? 4 : 3;
    f.num_splits_dynamic_ptr = meta, f.num_m_blocks_ptr = meta + b, f.varlen_batch_idx_ptr = meta + 2 * b;
    f.num_nheads_in_l2_ptr = f.head_swizzle ? meta + 3 * b : nullptr;
    f.tile_count_semaphore = meta + b * vectors, f.tile_count_semaphore_offset = b * vectors;
  }
  if (paged(p)) {
    f.k_batch_stride = t->k.stride[0], f.v_batch_stride = t->v.stride[0];
    f.seqused_k = static_cast<int*>(t->kv_len.data);
    f.page_table = static_cast<int*>(t->block_table.data),
    f.page_table_batch_stride = t->block_table.stride[0];
    f.num_pages = static_cast<int>(t->k.shape[0]);
  }
  if (f.num_splits > 1) {
    f.oaccum_ptr = workspace + at.o_parts, f.softmax_lseaccum_ptr = workspace + at.lse_parts;
    f.oaccum_row_stride = f.dv, f.oaccum_head_stride = int64_t{f.dv} * f.total_q;
    f.oaccum_split_stride = f.oaccum_head_stride * f.h;
    f.lseaccum_head_stride = f.total_q, f.lseaccum_split_stride = int64_t{f.total_q} * f.h;
  }
  const auto descale = [](const assay_tensor& s, int kind, auto& data, auto& request, auto& head_stride) {
    if (kind == ASSAY_SCALE_REQUEST_HEAD)
      data = static_cast<float*>(s.data), request = s.stride[0], head_stride = s.stride[1];
  };
  descale(t->q_scale, p->q_scale_kind, f.q_descale_ptr, f.q_descale_batch_stride, f.q_descale_head_stride);
  descale(t->k_scale, p->k_scale_kind, f.k_descale_ptr, f.k_descale_batch_stride, f.k_descale_head_stride);
  descale(t->v_scale, p->v_scale_kind, f.v_descale_ptr, f.v_descale_batch_stride, f.v_descale_head_stride);
  attend(p, f, on);
  return assay_kit::launched(cudaGetLastError(), error, size);
}

constexpr uint32_t kUnused = ASSAY_CONTRACT_FINITE_UNUSED | ASSAY_CONTRACT_NO_EMPTY_REQUESTS;
assay_kernel entry(const char* name, int32_t op, uint32_t contracts) {
  assay_kernel k = assay_kit::kernel(name, op, "sm_90a", supports, run, arithmetic);
  k.description = "FlashAttention-3", k.workspace_bytes = workspace_bytes, k.contracts = contracts;
  k.promises = ASSAY_PROMISE_GRAPH;
  return k;
}
const assay_kernel kernels[] = {entry("prefill_fa3", ASSAY_OP_PREFILL, kUnused | ASSAY_CONTRACT_NO_LSE),
                                entry("paged_fa3", ASSAY_OP_PAGED, kUnused | ASSAY_CONTRACT_LSE_HEADS_FIRST)};

}  // namespace
ASSAY_EXPORT_BACKEND(assay_kit::cuda_backend("fa3", kernels, 2))
