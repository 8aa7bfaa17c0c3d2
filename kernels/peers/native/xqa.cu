// SPDX-License-Identifier: Apache-2.0
// FlashInfer's XQA (flashinfer-ai/flashinfer, csrc/xqa) behind assay's table: decode of one new token per
// request, head dimension 128, groups of 4, pages of TOKENS_PER_PAGE (16 or 64), a cache of bf16
// (CACHE_ELEM_ENUM 0) or e4m3 (2): XQA is compiled for one shape. It returns no LSE; semaphores live in the
// zeroed part of the workspace.
#include <mha.h>

#include <cmath>
#include <exception>
#include <string>

#include "peer.hpp"

namespace {

#define PEER_TEXT_OF(x) #x
#define PEER_TEXT(x) PEER_TEXT_OF(x)
#define PEER_PAGE PEER_TEXT(TOKENS_PER_PAGE)
#if CACHE_ELEM_ENUM == 2
#  define PEER_NAME "xqa_fp8_" PEER_PAGE
#else
#  define PEER_NAME "xqa_" PEER_PAGE
#endif
constexpr bool kFp8 = CACHE_ELEM_ENUM == 2;
constexpr int kDim = HEAD_ELEMS, kGroup = HEAD_GRP_SIZE, kPage = TOKENS_PER_PAGE;

bool host_scale(int kind) { return kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_HOST; }
float scale_of(int kind, float value) { return kind == ASSAY_SCALE_HOST ? value : 1.f; }

int supports(const assay_kernel*, const assay_problem* p, const assay_tensors* t, const assay_device*,
             char* why, size_t size) {
  const auto no = [&](const char* text) { return assay_kit::refuse(why, size, text); };
  if (const char* text = peer::common_refusal(p)) return no(text);
  if (p->head_dim_qk != kDim || p->head_dim_v != kDim || p->heads_q != p->heads_kv * kGroup ||
      p->page_size != kPage)
    return no("XQA: compiled for head dimension 128, groups of 4, pages of " PEER_PAGE);
  const int cache = kFp8 ? ASSAY_FP8_E4M3 : ASSAY_BF16;
  if (p->q_format != ASSAY_BF16 || p->o_format != ASSAY_BF16 || p->k_format != cache || p->v_format != cache)
    return no("XQA: q and out in bf16, the cache in the format it was compiled for");
  if (!host_scale(p->k_scale_kind) || !host_scale(p->v_scale_kind)) return no("XQA: scales by value");
  if (p->table != ASSAY_TABLE_BLOCK || (p->layout != ASSAY_LAYOUT_NHD && p->layout != ASSAY_LAYOUT_HND) ||
      p->window_left >= 0 || p->has_sinks)
    return no("XQA: block tables, nhd and hnd, no windows, no sinks");
  if (p->total_q != p->requests || !peer::alike(p, false)) return no("XQA: one new token per request");
  if (t == nullptr) return ASSAY_OK;
  const auto dense = [&](const assay_tensor& x) {
    return x.stride[2] == 1 && x.stride[1] == kDim && x.stride[0] == int64_t{p->heads_q} * kDim;
  };
  bool fits = dense(t->q) && dense(t->o) && t->k.stride[3] == 1 && t->block_table.stride[1] == 1 &&
              t->kv_len.stride[0] == 1;
  for (int i = 0; i < 4; ++i)
    fits = fits && t->k.stride[i] == t->v.stride[i] && (i == 3 || t->k.stride[i] % kDim == 0);
  return fits ? int{ASSAY_OK} : no("XQA: packed q and out, K and V of the same strides");
}

// As the launchers choose it.
int parts_of(const assay_problem* p, int64_t longest) {
  const int64_t work = std::max(1, p->requests * p->heads_kv);
  if (kFp8)
    return static_cast<int>(std::min<int64_t>(
        std::max<int64_t>(1, std::llround(peer::multiprocessors() * 3. / static_cast<double>(work) * 0.25)),
        peer::up(longest, 64)));
  return static_cast<int>(
      std::min<int64_t>(std::max<int64_t>(1, peer::multiprocessors() / work), peer::up(longest, 256)));
}
int64_t zeroed_bytes(const assay_kernel*, const assay_problem* p) {
  return peer::up(int64_t{4} * p->requests * p->heads_kv, 4096) * 4096 + 4096;
}
int64_t workspace_bytes(const assay_kernel* self, const assay_problem* p) {
  constexpr int64_t kPart =
      2 * 256 + 2 * 32 * 16 * 16 + 1024;  // of a part: more than the library's structs take
  const int64_t parts = int64_t{p->requests} * p->heads_kv * (parts_of(p, INT32_MAX) + 1);
  return zeroed_bytes(self, p) + parts * kPart + 65536;
}

int arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* a) {
  const int parts = parts_of(p, p->max_kv_len);
  if (kFp8) {  // wgmma e4m3, Q rounded to e4m3, P times 448 rounded to e4m3, parts take tiles in turn
    assay_like_flash_attention_3(a, ASSAY_FP8_E4M3, parts);
    a->q_rounding = 0x1p-4, a->q_rounding_absolute = 0x1p-10, a->p_offset_log2 = 8.807354922;
  } else {  // mma.sync, two groups of warps, row sums of rounded P; P is scaled again and rounded again
    assay_like_tensor_cores(a, ASSAY_BF16, 2 * parts);
    a->row_sum_from_rounded_p = 1, a->p_roundings = 3;
  }
  a->tile_reverse = 0;
  a->partial_format = ASSAY_BF16, a->partial_roundings = 2;
  a->exp_relative_error = 0x1p-22;
  return ASSAY_OK;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  if (const int bad = supports(self, p, t, nullptr, error, size)) return bad;
  const bool nhd = p->layout == ASSAY_LAYOUT_NHD;
  const auto stride = [&](int i) { return static_cast<uint64_t>(t->k.stride[i]); };
  auto* const workspace = static_cast<char*>(t->workspace.data);
  const float v = scale_of(p->v_scale_kind, p->v_scale_host), k = scale_of(p->k_scale_kind, p->k_scale_host);
  const float q_scale = p->softmax_scale * std::sqrt(static_cast<float>(kDim)) * k / v;
  const auto call = [&](auto launch) {
    launch(peer::multiprocessors(), p->heads_kv, INT32_MAX, q_scale, nullptr,
           static_cast<OutputHead*>(t->o.data), static_cast<InputHead const*>(t->q.data), nullptr,
           static_cast<GMemCacheHead*>(t->k.data), static_cast<GMemCacheHead*>(t->v.data),
           static_cast<KVCachePageIndex const*>(t->block_table.data),
           static_cast<uint32_t>(t->block_table.stride[0] * kPage),
           static_cast<uint32_t const*>(t->kv_len.data), p->requests, v, nullptr,
           reinterpret_cast<uint32_t*>(workspace), workspace + zeroed_bytes(self, p), true, stride(0),
           stride(nhd ? 1 : 2), stride(nhd ? 2 : 1), static_cast<cudaStream_t>(stream));
  };
  try {
#if CACHE_ELEM_ENUM == 2
    call(launchHopperF8MHAFlashInfer);
#else
    call(launchMHAFlashInfer);
#endif
  } catch (const std::exception& e) {
    return assay_kit::fail(error, size, e.what());
  }
  return assay_kit::launched(cudaGetLastError(), error, size);
}

const assay_kernel kernels[] = {[] {
  assay_kernel k = assay_kit::kernel("paged_" PEER_NAME, ASSAY_OP_PAGED, "sm_90a", supports, run, arithmetic);
  k.description = "FlashInfer's XQA", k.promises = ASSAY_PROMISE_GRAPH;
  k.workspace_bytes = workspace_bytes, k.workspace_zeroed_bytes = zeroed_bytes;
  k.contracts = ASSAY_CONTRACT_NO_LSE | ASSAY_CONTRACT_FINITE_UNUSED | ASSAY_CONTRACT_NO_EMPTY_REQUESTS;
  return k;
}()};

}  // namespace
ASSAY_EXPORT_BACKEND(assay_kit::cuda_backend(PEER_NAME, kernels, 1))
