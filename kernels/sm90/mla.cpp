// SPDX-License-Identifier: Apache-2.0
// paged_mla_sm90 and paged_mla_widened_sm90 as entries of the C table: what they accept, what they declare,
// how they are launched. They differ in what they make of a cache of e4m3: items of 16 rows, whose codes are
// widened in registers (mla_turned.h); items of 64 or 128, widened in shared memory (mla_widened.h).
#include "kernels/sm90/mla.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "kernels/common/fill_struct.hpp"
#include "kernels/common/operands.hpp"
#include "kernels/device/status.hpp"
#include "kernels/sm90/listed.hpp"
#include "kernels/sm90/sm90.hpp"
#include "kernels/sm90/tensor_map.hpp"
#include "kernels/sm90/workers.hpp"

namespace assay_sm90 {
namespace {

template <bool kWidened>
MlaShape shape_of(const assay_problem& p) {
  const int64_t rows = int64_t{p.max_q_len} * p.heads_q;
  const bool bytes = p.k_format == ASSAY_FP8_E4M3, few = !kWidened && (bytes || rows <= kMlaFewRows);
  const int32_t own = few ? kMlaFewRows : rows <= 64 ? 64 : 128;
  const int32_t blocks = std::max(1, assay_gpu::multiprocessors);
  const int64_t items = p.requests * ((rows + own - 1) / own);
  return {p.q_format == ASSAY_FP16, bytes, p.page_size % kMlaKeys == 0, own,
          dividing_workers(items, std::max(1, own == 128 ? blocks / 2 : blocks))};
}

int32_t items_of(const assay_problem& p, const MlaShape& shape) {
  return static_cast<int32_t>((int64_t{p.max_q_len} * p.heads_q + shape.rows - 1) / shape.rows);
}

int refuse_formats(const assay_problem& p, char* why, size_t size) {
  if (p.k_format != ASSAY_FP8_E4M3) return refuse_8_bit(p, why, size);
  if (p.q_format != ASSAY_BF16 && p.q_format != ASSAY_FP16)
    return refuse(why, size, assay_kernels::format_name(p.q_format), "q bf16 or fp16", "an instance of it");
  if (p.v_format != p.k_format || p.o_format != p.q_format || p.q_scale_kind != ASSAY_SCALE_NONE)
    return refuse(why, size, "other formats of V or O, or a scale of Q", "V as K, O as Q, no scale of Q",
                  "an instance of these formats");
  if (!scale_per_segment(p.k_scale_kind) || !scale_per_segment(p.v_scale_kind))
    return refuse(why, size, "scales per token or channel", "one scale for all keys of a request",
                  "a scale for every key or dimension");
  return ASSAY_OK;
}

int refuse_tensors(const assay_tensors& t, int32_t bytes, char* why, size_t size) {
  if (!rows_of(t.q, 2, 8) || !rows_of(t.k, bytes, 16 / bytes))
    return refuse(why, size, "strides or start of Q or K", "packed rows at multiples of 16 bytes",
                  "element by element access");
  if (t.k.shape[0] * t.k.stride[0] * bytes / 16 > INT32_MAX)
    return refuse(why, size, "a cache of more than 32 GiB", "smaller ones", "64-bit positions of keys");
  if (!rows_of(t.o, 2, 4))
    return refuse(why, size, "strides or start of O", "packed rows at multiples of 8 bytes",
                  "element by element access");
  return ASSAY_OK;
}

template <bool kWidened>
int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
             const assay_device* device, char* why, size_t size) {
  if (const int bad = common_supports(self, p, device, why, size)) return bad;
  if (kWidened && p->k_format != ASSAY_FP8_E4M3)
    return refuse(why, size, assay_kernels::format_name(p->k_format), "a cache of e4m3",
                  "this format (paged_mla_sm90 has 16 bits)");
  if (const int bad = refuse_formats(*p, why, size)) return bad;
  if (p->layout != ASSAY_LAYOUT_MLA || p->head_dim_qk != kMlaDim || p->head_dim_v != kMlaValueDim) {
    char text[96];
    std::snprintf(text, sizeof text, "head dimensions %d and %d", p->head_dim_qk, p->head_dim_v);
    return refuse(why, size, text, "layout mla, 576 and 512", "an instance of this width");
  }
  if (p->mask == ASSAY_MASK_TREE || p->alibi != ASSAY_ALIBI_NONE || p->softcap > 0)
    return refuse(why, size, "a tree mask, ALiBi or a soft cap",
                  "causal, full, cross, windows, chunks, sinks", "this mask or bias");
  if (const int bad = refuse_slots(*p, why, size)) return bad;
  return t == nullptr ? static_cast<int>(ASSAY_OK)
                      : refuse_tensors(*t, p->k_format == ASSAY_FP8_E4M3 ? 1 : 2, why, size);
}

template <bool kWidened>
int64_t workspace_bytes(const assay_kernel*, const assay_problem* p) {
  const MlaShape shape = shape_of<kWidened>(*p);
  return mla_state_bytes(shape, int64_t{p->requests} * items_of(*p, shape));
}

template <bool kWidened>
int arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  const MlaShape shape = shape_of<kWidened>(*p);
  assay_arithmetic m{};
  // One instruction of 16 products, measured on an H200 (results/h200/calibrate.txt).
  m.qk = m.pv = {ASSAY_ACC_BLOCK, 16, 25, 23};
  m.qk_instruction = shape.half ? "wgmma fp16" : "wgmma bf16";
  // Where few rows widen codes twice, V goes to fp16; else K and V are the same bytes, in the format of Q.
  const bool half_values = shape.half || (shape.bytes && shape.rows == kMlaFewRows);
  m.pv_instruction = half_values ? "wgmma fp16" : "wgmma bf16";
  m.p_format = half_values ? ASSAY_FP16 : ASSAY_BF16;
  m.tile_keys = kMlaKeys;
  // The tiles of all items are one list, cut over the workers: evenly, or in whole items (MlaShares).
  const ListedTiles list = listed_tiles(*p, kMlaKeys, shape.rows);
  const int64_t even = list.all / shape.workers, share = std::max<int64_t>(1, even);
  const int64_t whole = (list.items + shape.workers - 1) / shape.workers * list.most;
  const bool in_wholes = list.least == list.most && whole <= even + even / 32 + 4,
             one_each = !in_wholes && list.all <= shape.workers;
  // Two warpgroups take the tiles of few rows in turn.
  m.share_turns = shape.rows == kMlaFewRows ? 2 : 1;
  m.splits = static_cast<int32_t>((std::min(list.most, (list.most + share - 1) / share) + 1) * m.share_turns);
  m.item_rows = shape.rows, m.shares = shape.workers;
  m.share_tiles = in_wholes ? static_cast<int32_t>(whole) : one_each ? 1 : 0;
  m.order_declared = in_wholes || one_each || cuts_evenly(list.all, shape.workers);
  // What is left of a weight is scaled where the warpgroups' sums are joined (in mla_held.h one has all of
  // them) and once per batch of the merge.
  constexpr int32_t kMerged = 32 * kMlaMergeBatch;
  const int32_t joined = shape.bytes || shape.rows == kMlaFewRows ? 1 : 0;
  m.partial_roundings = joined + (shape.workers + kMerged - 1) / kMerged;
  // A thread adds the keys of a tile in two sums of eight and joins them, adds tiles; then four threads,
  // parts.
  m.row_sum_chain = static_cast<int32_t>(
      kMlaKeys / 8 + 1 + std::min(list.most, std::max(share + 1, int64_t{m.share_tiles})) + 2 + m.splits);
  m.partial_format = m.partial_lse_format = ASSAY_FP32;
  m.exp_relative_error = 0x1p-22;
  m.exp_instruction = "ex2.approx.ftz";
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

template <bool kWidened>
int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  if (const int bad = supports<kWidened>(self, p, t, nullptr, error, size)) return bad;
  assay_kernels::Operands a{};
  if (!assay_kernels::make_operands(p, t, &a, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->total_q == 0) return ASSAY_OK;
  const MlaShape shape = shape_of<kWidened>(*p);
  if (t->workspace.data == nullptr || t->workspace.shape[0] < workspace_bytes<kWidened>(self, p))
    return invalid(error, size, "a workspace of workspace_bytes() expected");
  CUtensorMap map{};
  if (shape.bulk && a.k.data != nullptr) {
    const std::array<MapAxis, 3> axes{{{kMlaDim, 1, shape.bytes ? 128 : 64},
                                       {p->page_size, t->k.stride[1], kMlaKeys},
                                       {t->k.shape[0], t->k.stride[0], 1}}};
    if (!make_map(&map, p->k_format, a.k.data, 3, axes.data(), MapFetch::kRow))
      return invalid(error, size, "the driver makes no tensor map of these operands");
  }
  MlaCall call{};
  place_batch(*p, *t, a, call);
  call.q = reinterpret_cast<const uint16_t*>(a.q), call.kv = a.k.data;
  call.q_row = a.q_stride[0], call.q_head = a.q_stride[1];
  call.kv_block = a.k.block_stride * a.k.element_bytes, call.kv_slot = a.k.slot_outer * a.k.element_bytes;
  int64_t head = 0;  // there is one
  place_scale(a.k_scale, call.k_scale, call.k_scale_request, head, call.k_scale_host);
  place_scale(a.v_scale, call.v_scale, call.v_scale_request, head, call.v_scale_host);
  call.parts = static_cast<float*>(t->workspace.data);
  call.heads = p->heads_q, call.items = items_of(*p, shape);
  call.scale_log2 = static_cast<float>(p->softmax_scale * kLog2e);
  return assay_gpu::answer(launch_mla(call, map, shape, static_cast<cudaStream_t>(stream)), "MLA kernel",
                           error, size);
}

template <bool kWidened>
constexpr assay_kernel entry(const char* name, const char* description) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.arch = "sm_90a", k.description = description;
  k.op = ASSAY_OP_PAGED, k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH;
  k.supports = supports<kWidened>, k.arithmetic = arithmetic<kWidened>;
  k.workspace_bytes = workspace_bytes<kWidened>, k.run = run<kWidened>;
  return k;
}

constexpr assay_kernel kMla = entry<false>(
    "paged_mla_sm90",
    "absorbed MLA decode (576/512) of bf16, fp16 and e4m3 caches by wgmma, all tiles cut evenly over the "
    "machine, then a merge; e4m3 in items of 16 rows");
constexpr assay_kernel kMlaWidened =
    entry<true>("paged_mla_widened_sm90",
                "the same of e4m3 caches in items of 64 or 128 rows: codes widened once, in shared memory");

}  // namespace

std::vector<const assay_kernel*> mla_kernels() { return {&kMla, &kMlaWidened}; }

}  // namespace assay_sm90
