// SPDX-License-Identifier: Apache-2.0
// prefill_wgmma_sm90, paged_wgmma_sm90, prefill_fp8_sm90 and prefill_int8_sm90 as entries of the C table:
// what they accept, what they declare, how they are launched.
#include "kernels/sm90/prefill.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

#include "kernels/common/fill_struct.hpp"
#include "kernels/common/operands.hpp"
#include "kernels/device/status.hpp"
#include "kernels/sm90/prefill_bytes.hpp"
#include "kernels/sm90/sm90.hpp"
#include "kernels/sm90/tensor_map.hpp"

namespace assay_sm90 {
namespace {

constexpr int64_t kStateBytes = 2 * sizeof(int32_t);

int refuse_storage(const assay_problem& p, char* why, size_t size) {
  if (p.layout != ASSAY_LAYOUT_NHD && p.layout != ASSAY_LAYOUT_HND)
    return refuse(why, size, "layout x, shuffled or mla", "nhd, hnd", "this layout");
  if (const int bad = refuse_slots(p, why, size)) return bad;
  const int32_t page = p.page_size;
  if (page % 16 != 0) {
    char text[64];
    std::snprintf(text, sizeof text, "pages of %d", page);
    return refuse(why, size, text, "multiples of 16", "groups of 16 keys that cross pages");
  }
  return ASSAY_OK;
}

// How a paged cache is described to bulk copies (prefill.hpp): heads are neighbouring columns, or heads of
// all blocks stand in one row of blocks. `fits` false: neither.
struct PagedAxes {
  PagedView view;
  MapAxis columns, blocks;
  bool fits;
};
PagedAxes paged_axes(int64_t heads, int64_t blocks, int32_t dim, int64_t head_stride, int64_t block_stride) {
  const int32_t columns = dim / 64;
  if (heads <= 1 || head_stride == dim)
    return {{columns, 1, 0}, {columns * heads, 64, columns}, {blocks, block_stride, 1}, true};
  if (head_stride <= 0 || (blocks > 1 && block_stride % head_stride != 0)) return {};
  const int64_t step = blocks > 1 ? block_stride / head_stride : heads;
  return {{0, static_cast<int32_t>(step), 1},
          {columns, 64, columns},
          {(blocks - 1) * step + heads, head_stride, 1},
          step > 0 && step < 1 << 30};
}

int refuse_tensors(const assay_problem& p, const assay_tensors& t, char* why, size_t size) {
  if (!rows_of(t.q, 2, 8) || !rows_of(t.o, 2, 8) || !rows_of(t.k, 2, 8) || !rows_of(t.v, 2, 8))
    return refuse(why, size, "strides or starts of Q, K, V or O", "packed rows at multiples of 16 bytes",
                  "copies that are no bulk copies");
  if (p.op != ASSAY_OP_PAGED) return ASSAY_OK;
  const int heads = p.layout == ASSAY_LAYOUT_HND ? 1 : 2;
  for (const assay_tensor* x : {&t.k, &t.v})
    if (x->data != nullptr &&
        !paged_axes(x->shape[heads], x->shape[0], p.head_dim_qk, x->stride[heads], x->stride[0]).fits)
      return refuse(why, size, "strides of heads and blocks of K or V",
                    "neighbouring heads, or blocks a multiple of the distance of heads apart",
                    "copies that are no bulk copies");
  return ASSAY_OK;
}

int refuse_mask(const assay_problem& p, char* why, size_t size) {
  if (p.mask != ASSAY_MASK_TREE && p.alibi == ASSAY_ALIBI_NONE) return ASSAY_OK;
  return refuse(why, size, "a tree mask or ALiBi", "causal, full, cross, windows, chunks, caps, sinks",
                "this mask or bias");
}

int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
             const assay_device* device, char* why, size_t size) {
  if (const int bad = common_supports(self, p, device, why, size)) return bad;
  if (const int bad = refuse_8_bit(*p, why, size)) return bad;
  const bool equal = p->head_dim_qk == p->head_dim_v;
  if (!(equal && (p->head_dim_v == 64 || p->head_dim_v == 128 || p->head_dim_v == 256)) &&
      !(p->op == ASSAY_OP_PREFILL && p->head_dim_qk == 192 && p->head_dim_v == 128)) {
    char text[96];
    std::snprintf(text, sizeof text, "head dimensions %d and %d", p->head_dim_qk, p->head_dim_v);
    return refuse(why, size, text, "64, 128, 256, and contiguous 192 and 128", "an instance of this width");
  }
  if (const int bad = refuse_mask(*p, why, size)) return bad;
  if (p->op == ASSAY_OP_PAGED)
    if (const int bad = refuse_storage(*p, why, size)) return bad;
  return t == nullptr ? static_cast<int>(ASSAY_OK) : refuse_tensors(*p, *t, why, size);
}

// Of the kernels for codes of a byte; `format`: that of Q and K.
int supports_bytes(int32_t format, const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                   const assay_device* device, char* why, size_t size) {
  if (const int bad = common_supports(self, p, device, why, size)) return bad;
  using assay_kernels::format_name;
  char text[96];
  if (p->q_format != format || p->k_format != format || p->v_format != ASSAY_FP8_E4M3 ||
      (p->o_format != ASSAY_BF16 && p->o_format != ASSAY_FP16)) {
    std::snprintf(text, sizeof text, "q %s, k %s, v %s, out %s", format_name(p->q_format),
                  format_name(p->k_format), format_name(p->v_format), format_name(p->o_format));
    char fits[96];
    std::snprintf(fits, sizeof fits, "q and k %s, v fp8_e4m3, out bf16 or fp16", format_name(format));
    return refuse(why, size, text, fits, "an instance of these formats");
  }
  const auto scale_fits = [&](int32_t kind) {
    return scale_per_segment(kind) || (format == ASSAY_INT8 && kind == ASSAY_SCALE_TOKEN_HEAD);
  };
  if (!scale_fits(p->q_scale_kind) || !scale_fits(p->k_scale_kind) || !scale_per_segment(p->v_scale_kind))
    return refuse(why, size, "scales per token or channel",
                  format == ASSAY_INT8
                      ? "scales per tensor, head, request and head, of Q and K also per token and head"
                      : "scales per tensor, head or request and head",
                  "a scale for every dimension, of V and of fp8_e4m3 for every row or key");
  if (p->head_dim_qk != 128 || p->head_dim_v != 128) {
    std::snprintf(text, sizeof text, "head dimensions %d and %d", p->head_dim_qk, p->head_dim_v);
    return refuse(why, size, text, "128", "an instance of this width");
  }
  if (const int bad = refuse_mask(*p, why, size)) return bad;
  if (t == nullptr) return ASSAY_OK;
  if (!rows_of(t->q, 1, 16) || !rows_of(t->k, 1, 16) || !rows_of(t->v, 1, 16))
    return refuse(why, size, "strides or starts of Q, K or V", "packed rows at multiples of 16 bytes",
                  "copies that are no bulk copies");
  if (!rows_of(t->o, 2, 4))
    return refuse(why, size, "strides or start of O", "packed rows at multiples of 8 bytes",
                  "element by element access");
  return ASSAY_OK;
}

int supports_fp8(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                 const assay_device* device, char* why, size_t size) {
  return supports_bytes(ASSAY_FP8_E4M3, self, p, t, device, why, size);
}
int supports_int8(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                  const assay_device* device, char* why, size_t size) {
  return supports_bytes(ASSAY_INT8, self, p, t, device, why, size);
}

int64_t state_bytes(const assay_kernel*, const assay_problem*) { return kStateBytes; }

// What both kinds declare, with tiles of so many keys: their order, row sums and softmax.
assay_arithmetic with_tiles(const assay_problem& p, int32_t keys) {
  assay_arithmetic m{};
  m.tile_keys = keys, m.tile_reverse = 1, m.splits = 1, m.order_declared = 1;
  // Two sums of an eighth of the keys a thread and tile, joined; then one addition per tile; then four
  // threads.
  m.row_sum_chain = keys / 8 + 1 + (p.max_kv_len + keys - 1) / keys + 2;
  m.partial_format = m.partial_lse_format = ASSAY_FP32;
  m.exp_relative_error = 0x1p-22;
  m.exp_instruction = "ex2.approx.ftz";
  m.tanh_relative_error = 0x1p-10;
  m.tanh_instruction = "tanh.approx";
  return m;
}

// One instruction of 16 products, of e4m3 of 32, measured on an H200 (results/h200/calibrate.txt).
int arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic m = with_tiles(*p, prefill_keys(p->head_dim_qk));
  m.qk = m.pv = {ASSAY_ACC_BLOCK, 16, 25, 23};
  m.qk_instruction = m.pv_instruction = p->q_format == ASSAY_FP16 ? "wgmma fp16" : "wgmma bf16";
  m.p_format = p->q_format;
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

int arithmetic_bytes(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic m = with_tiles(*p, kByteKeys);
  m.qk = m.pv = {ASSAY_ACC_BLOCK, 32, 13, 13};
  m.qk_instruction = m.pv_instruction = "wgmma fp8_e4m3";
  if (p->q_format == ASSAY_INT8) m.qk = {ASSAY_ACC_INT32, 32, 0, 23}, m.qk_instruction = "wgmma int8";
  m.promote_pv = 1;
  m.p_format = ASSAY_FP8_E4M3, m.p_offset_log2 = kByteExponentOfP;
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

// Log2 of the heads that share a tile of rows (PrefillCall::pack): the group, where that makes fewer tiles. A
// row's arithmetic is the same either way.
int32_t pack_of(const assay_problem& p) {
  const int32_t group = p.heads_q / p.heads_kv;
  if (p.op != ASSAY_OP_PAGED || (group & (group - 1)) != 0 || group > kPrefillStoreRows) return 0;
  int64_t single = 0, packed = 0;
  for (int32_t r = 0; r < p.requests; ++r) {
    const auto tiles = [](int64_t rows) { return (rows + kPrefillRows - 1) / kPrefillRows; };
    single += tiles(p.q_len[r]) * group, packed += tiles(int64_t{p.q_len[r]} * group);
  }
  int32_t log2 = 0;
  while (1 << log2 < group) ++log2;
  return 10 * packed <= 9 * single ? log2 : 0;
}

// Three warpgroups of 64 rows pay where requests are long (VARIANTS.md). A row's arithmetic is the same.
int32_t rows_of_tile(const assay_problem& p) {
  const bool three =
      p.op == ASSAY_OP_PREFILL && p.head_dim_qk == 64 && p.total_q >= int64_t{3072} * p.requests;
  return three ? kPrefillLongRows : kPrefillRows;
}

bool codes_of_bytes(const assay_problem& p) {
  return p.q_format == ASSAY_FP8_E4M3 || p.q_format == ASSAY_INT8;
}

// The largest number of keys that divides a page and a tile.
int32_t box_of(const assay_problem& p) { return std::gcd(p.page_size, prefill_keys(p.head_dim_qk)); }

bool make_paged_map(const assay_problem& p, int64_t blocks, const assay_kernels::KvView& x, CUtensorMap* map,
                    PagedView* view) {
  const PagedAxes at = paged_axes(p.heads_kv, blocks, p.head_dim_qk, x.head_stride, x.block_stride);
  if (!at.fits) return false;
  *view = at.view;
  const MapAxis axes[5] = {{64, 1, 64},
                           {8, x.slot_outer, 8},
                           at.columns,
                           {p.page_size / 8, 8 * x.slot_outer, box_of(p) / 8},
                           at.blocks};
  return make_map(map, p.q_format, x.data, 5, axes, MapFetch::kRow);
}

bool make_maps(const assay_problem& p, const assay_tensors& t, const assay_kernels::Operands& a,
               PrefillMaps* maps, PrefillCall& call) {
  const bool bytes = codes_of_bytes(p);
  const int32_t keys = bytes ? kByteKeys : prefill_keys(p.head_dim_qk), wide = bytes ? 128 : 64;
  const auto rows = [&](const assay_tensor& x, int32_t dim, int32_t box, int32_t heads = 1) {
    return std::array<MapAxis, 3>{
        {{dim, 1, wide}, {x.shape[1], x.stride[1], heads}, {x.shape[0], x.stride[0], box / heads}}};
  };
  const auto make = [&](CUtensorMap* map, const void* data, const auto& axes) {
    return make_map(map, p.q_format, data, static_cast<int32_t>(axes.size()), axes.data());
  };
  if (!make(&maps->q, a.q, rows(t.q, p.head_dim_qk, rows_of_tile(p), 1 << call.pack)) ||
      !(bytes || make(&maps->o, a.o, rows(t.o, p.head_dim_v, kPrefillStoreRows, 1 << call.pack))))
    return false;
  if (a.k.data == nullptr || p.total_kv == 0) {  // no copy, or one that counts nothing
    if (p.op == ASSAY_OP_PAGED) {  // a row of Q stands for the cache; the rest of a box is zeros
      const int32_t columns = p.head_dim_qk / 64;
      const MapAxis axes[5] = {
          {64, 1, 64}, {1, 8, 8}, {columns, 64, columns}, {1, 8, box_of(p) / 8}, {1, 8, 1}};
      return make_map(&maps->k, p.q_format, a.q, 5, axes) && make_map(&maps->v, p.q_format, a.q, 5, axes);
    }
    return make(&maps->k, a.q, rows(t.q, p.head_dim_qk, keys)) &&
           make(&maps->v, a.q, rows(t.q, p.head_dim_v, keys));
  }
  if (p.op == ASSAY_OP_PAGED)
    return make_paged_map(p, t.k.shape[0], a.k, &maps->k, &call.k) &&
           make_paged_map(p, t.v.shape[0], a.v, &maps->v, &call.v);
  return make(&maps->k, a.k.data, rows(t.k, p.head_dim_qk, keys)) &&
         make(&maps->v, a.v.data, rows(t.v, p.head_dim_v, keys));
}

// What the calls of all kernels here hold.
int prepare(const assay_problem& p, const assay_tensors& t, const assay_kernels::Operands& a,
            PrefillMaps* maps, PrefillCall& call, char* error, size_t size) {
  if (t.workspace.data == nullptr || t.workspace.shape[0] < kStateBytes)
    return invalid(error, size, "workspace of 8 bytes expected");
  call.pack = pack_of(p);
  if (p.op == ASSAY_OP_PAGED) call.box = box_of(p);
  if (!make_maps(p, t, a, maps, call))
    return invalid(error, size, "the driver makes no tensor map of these operands");
  place_batch(p, t, a, call);
  call.cu_kv = a.cu_kv, call.cu_kv_stride = a.cu_kv_stride;
  call.counter = static_cast<int32_t*>(t.workspace.data);
  call.heads = p.heads_q, call.group = p.heads_q / p.heads_kv;
  const bool cap = p.softcap > 0;
  call.scale = cap ? p.softcap : p.softmax_scale;
  call.scale_log2 = static_cast<float>(call.scale * kLog2e);
  call.into_cap = cap ? p.softmax_scale / p.softcap : 1.f;
  return ASSAY_OK;
}

int32_t grid(const assay_problem& p) {
  const int64_t tiles = (p.total_q / rows_of_tile(p) + p.requests) * p.heads_q;
  return static_cast<int32_t>(std::min<int64_t>(std::max(1, assay_gpu::multiprocessors), tiles));
}

// A scale per token and head, or a coarser one.
void place(const assay_kernels::ScaleView& s, ScaleRef& to, TokenScales& tokens) {
  if (s.kind == ASSAY_SCALE_TOKEN_HEAD)
    tokens = {s.data, s.stride[0], s.stride[1]}, to.host = 1;
  else
    place_scale(s, to.data, to.request, to.head, to.host);
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  if (const int bad = self->supports(self, p, t, nullptr, error, size)) return bad;
  assay_kernels::Operands a{};
  if (!assay_kernels::make_operands(p, t, &a, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->total_q == 0) return ASSAY_OK;
  PrefillMaps maps{};
  ByteCall call{};
  if (const int bad = prepare(*p, *t, a, &maps, call, error, size)) return bad;
  const auto on = static_cast<cudaStream_t>(stream);
  const bool cap = p->softcap > 0;
  if (codes_of_bytes(*p)) {
    TokenScales none{};
    place(a.q_scale, call.q_scale, call.q_tokens), place(a.k_scale, call.k_scale, call.k_tokens);
    place(a.v_scale, call.v_scale, none);
    call.q_scale_group = p->q_scale_kind == ASSAY_SCALE_REQUEST_HEAD ? call.group : 1;
    call.half = p->o_format == ASSAY_FP16;
    const auto launch = p->q_format == ASSAY_INT8 ? launch_prefill_int8 : launch_prefill_fp8;
    return assay_gpu::answer(launch(maps, call, cap, grid(*p), on), "prefill kernel", error, size);
  }
  const PrefillShape shape{p->q_format == ASSAY_FP16, p->op == ASSAY_OP_PAGED, cap,
                           rows_of_tile(*p),          p->head_dim_qk,          p->head_dim_v};
  return assay_gpu::answer(launch_prefill(maps, call, shape, grid(*p), on), "prefill kernel", error, size);
}

constexpr assay_kernel entry(int32_t op, const char* name, const char* description) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.arch = "sm_90a", k.description = description;
  k.op = op;
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH | ASSAY_PROMISE_BATCH_INVARIANT;
  k.supports = supports, k.arithmetic = arithmetic;
  k.workspace_bytes = state_bytes, k.workspace_zeroed_bytes = state_bytes, k.run = run;
  return k;
}

constexpr assay_kernel kPrefill = entry(ASSAY_OP_PREFILL, "prefill_wgmma_sm90",
                                        "ragged prefill by TMA and wgmma, one pipeline across tiles");
constexpr assay_kernel kPaged = entry(ASSAY_OP_PAGED, "paged_wgmma_sm90",
                                      "prefill against a paged cache by TMA, a box per page, and wgmma");

constexpr assay_kernel kFp8 = [] {
  assay_kernel k = entry(ASSAY_OP_PREFILL, "prefill_fp8_sm90",
                         "ragged prefill of e4m3 by TMA and wgmma, each tile of O summed apart (two levels)");
  k.supports = supports_fp8, k.arithmetic = arithmetic_bytes;
  return k;
}();
constexpr assay_kernel kInt8 = [] {
  assay_kernel k =
      entry(ASSAY_OP_PREFILL, "prefill_int8_sm90",
            "ragged prefill of int8 Q and K and e4m3 V by TMA and wgmma, S in int32, O in two levels");
  k.supports = supports_int8, k.arithmetic = arithmetic_bytes;
  return k;
}();

}  // namespace

std::vector<const assay_kernel*> prefill_kernels() { return {&kPrefill, &kPaged, &kFp8, &kInt8}; }

}  // namespace assay_sm90
