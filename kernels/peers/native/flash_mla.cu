// SPDX-License-Identifier: Apache-2.0
// FlashMLA's dense decode (deepseek-ai/FlashMLA, csrc/sm90/decode/dense) behind assay's table: what its
// dense_attn_decode_interface() does, without torch. The metadata of a batch is refresh, as its users compute
// it once for all layers; run is the attention and the joining of parts.
#include <params.h>
#include <sm90/decode/dense/splitkv_mla.h>
#include <smxx/decode/combine/combine.h>
#include <smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.h>

#include <algorithm>
#include <string>

#include "peer.hpp"

namespace {

constexpr int kDim = 576, kValueDim = 512, kPage = 64, kRows = 64, kOverhead = 5;

int supports(const assay_kernel*, const assay_problem* p, const assay_tensors* t, const assay_device*,
             char* why, size_t size) {
  const auto no = [&](const char* text) { return assay_kit::refuse(why, size, text); };
  if (const char* text = peer::common_refusal(p)) return no(text);
  if (p->layout != ASSAY_LAYOUT_MLA || p->head_dim_qk != kDim || p->head_dim_v != kValueDim ||
      p->page_size != kPage)
    return no("FlashMLA: layout mla, 576 and 512, pages of 64");
  if (p->q_format != ASSAY_BF16 || p->k_format != ASSAY_BF16 || p->o_format != ASSAY_BF16)
    return no("FlashMLA: bf16");
  if (p->table != ASSAY_TABLE_BLOCK || p->has_sinks || p->window_left >= 0 || p->window_right >= 0)
    return no("FlashMLA: block tables, no sinks, no windows");
  if (p->mask != ASSAY_MASK_CAUSAL && p->max_q_len > 1) return no("FlashMLA: causal");
  if (!peer::alike(p, false)) return no("FlashMLA: as many new tokens in every request");
  if (t == nullptr) return ASSAY_OK;
  const bool packed = t->q.stride[0] == p->heads_q * t->q.stride[1] &&
                      t->o.stride[0] == p->heads_q * kValueDim && t->o.stride[1] == kValueDim &&
                      t->lse.stride[0] == p->heads_q && t->lse.stride[1] == 1;
  if (!packed || !peer::for_maps(t->q, 2) || !peer::for_maps(t->k, 2) || !peer::for_maps(t->o, 2) ||
      t->block_table.stride[1] != 1 || t->kv_len.stride[0] != 1)
    return no("FlashMLA: rows of Q, O and LSE one after the other, multiples of 16 bytes");
  return ASSAY_OK;
}

int parts_of(const assay_problem* p) {
  return static_cast<int>(
      std::max<int64_t>(1, peer::multiprocessors() / peer::up(int64_t{p->max_q_len} * p->heads_q, kRows)));
}

struct Layout {
  int64_t meta, splits, lse, o, bytes;
};
Layout layout_of(const assay_problem* p) {
  peer::Places places;
  Layout at{};
  const int64_t rows = (p->requests + parts_of(p)) * int64_t{p->max_q_len} * p->heads_q;
  at.meta = places.take(int64_t{parts_of(p)} * DecodingSchedMetaSize);
  at.splits = places.take(4 * (int64_t{p->requests} + 1));
  at.lse = places.take(4 * rows), at.o = places.take(4 * rows * kValueDim);
  at.bytes = places.bytes();
  return at;
}
int64_t workspace_bytes(const assay_kernel*, const assay_problem* p) { return layout_of(p).bytes; }

int arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* a) {
  int64_t tiles = 0, most = 0;
  for (int32_t r = 0; r < p->requests; ++r) {
    const int64_t own = peer::up(p->kv_len[r], kPage);
    tiles += own + kOverhead, most = std::max(most, own);
  }
  const int64_t share = std::max<int64_t>(1, tiles / parts_of(p));
  assay_like_flash_attention_3(a, ASSAY_BF16, static_cast<int32_t>(most / share + 2));
  a->tile_reverse = 0;
  a->p_roundings = 2;  // one half of V meets weights that were rounded before they were rescaled
  return ASSAY_OK;
}

struct Pointers {
  DecodingSchedMeta* meta;
  int* splits;
  float *lse, *o;
};
Pointers pointers_of(const assay_problem* p, const assay_tensors* t) {
  const Layout at = layout_of(p);
  auto* const from = static_cast<char*>(t->workspace.data);
  return {reinterpret_cast<DecodingSchedMeta*>(from + at.meta), reinterpret_cast<int*>(from + at.splits),
          reinterpret_cast<float*>(from + at.lse), reinterpret_cast<float*>(from + at.o)};
}

int refresh(const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
            char* error, size_t size) {
  const Pointers at = pointers_of(p, t);
  GetDecodeSchedMetaParams m{};
  m.b = p->requests, m.s_q = p->max_q_len, m.block_size_n = kPage, m.fixed_overhead_num_blocks = kOverhead;
  m.topk = m.extra_topk = -1;
  m.seqlens_k_ptr = static_cast<int*>(t->kv_len.data);
  m.tile_scheduler_metadata_ptr = at.meta, m.num_splits_ptr = at.splits, m.num_sm_parts = parts_of(p);
  m.stream = static_cast<cudaStream_t>(stream);
  smxx::decode::run_get_decoding_sched_meta_kernel(m);
  return assay_kit::launched(cudaGetLastError(), error, size);
}

// The library sees rows as (request, KV head, row within it); with one KV head that is how they lie.
int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  if (const int bad = supports(self, p, t, nullptr, error, size)) return bad;
  const Pointers at = pointers_of(p, t);
  const int rows = p->max_q_len * p->heads_q;
  DenseAttnDecodeParams a{};
  a.b = p->requests, a.s_q = p->max_q_len, a.q_seq_per_hk = rows, a.d = kDim, a.d_v = kValueDim;
  a.h_q = a.q_head_per_hk = p->heads_q, a.h_k = 1, a.num_blocks = static_cast<int>(t->k.shape[0]);
  a.is_causal = p->max_q_len > 1;
  a.scale_softmax = p->softmax_scale,
  a.scale_softmax_log2 = static_cast<float>(p->softmax_scale * 1.4426950408889634);
  a.q_ptr = t->q.data, a.k_ptr = t->k.data, a.o_ptr = t->o.data;
  a.softmax_lse_ptr = static_cast<float*>(t->lse.data);
  a.q_row_stride = t->q.stride[1], a.q_head_stride = kDim, a.q_batch_stride = rows * t->q.stride[1];
  a.k_batch_stride = t->k.stride[0], a.k_row_stride = t->k.stride[1], a.k_head_stride = kDim;
  a.o_row_stride = kValueDim, a.o_batch_stride = a.o_head_stride = int64_t{rows} * kValueDim;
  a.block_table = static_cast<int*>(t->block_table.data),
  a.block_table_batch_stride = t->block_table.stride[0];
  a.page_block_size = kPage, a.seqlens_k_ptr = static_cast<int*>(t->kv_len.data);
  a.tile_scheduler_metadata_ptr = at.meta, a.num_splits_ptr = at.splits, a.num_sm_parts = parts_of(p);
  a.total_num_splits = p->requests + a.num_sm_parts;
  a.softmax_lseaccum_ptr = at.lse, a.oaccum_ptr = at.o, a.stream = static_cast<cudaStream_t>(stream);
  sm90::run_flash_splitkv_mla_kernel<cutlass::bfloat16_t>(a);
  CombineParams c{};
  c.b = p->requests, c.s_q = p->max_q_len, c.h_q = p->heads_q, c.d_v = kValueDim;
  c.lse = a.softmax_lse_ptr, c.out = t->o.data, c.lse_accum = at.lse, c.o_accum = at.o;
  c.stride_lse_b = c.stride_lse_accum_split = rows, c.stride_lse_s_q = c.stride_lse_accum_s_q = p->heads_q;
  c.stride_o_b = c.stride_o_accum_split = rows * kValueDim;
  c.stride_o_s_q = c.stride_o_accum_s_q = p->heads_q * kValueDim;
  c.stride_o_h_q = c.stride_o_accum_h_q = kValueDim;
  c.tile_scheduler_metadata_ptr = at.meta, c.num_splits_ptr = at.splits, c.num_sm_parts = a.num_sm_parts;
  c.stream = a.stream;
  smxx::decode::run_flash_mla_combine_kernel<cutlass::bfloat16_t>(c);
  return assay_kit::launched(cudaGetLastError(), error, size);
}

const assay_kernel kernels[] = {[] {
  assay_kernel k = assay_kit::kernel("paged_flash_mla", ASSAY_OP_PAGED, "sm_90a", supports, run, arithmetic);
  k.description = "FlashMLA, dense decode", k.promises = ASSAY_PROMISE_GRAPH;
  k.workspace_bytes = workspace_bytes, k.refresh = refresh;
  k.contracts = ASSAY_CONTRACT_NO_EMPTY_REQUESTS;
  return k;
}()};

}  // namespace
ASSAY_EXPORT_BACKEND(assay_kit::cuda_backend("flash_mla", kernels, 1))
