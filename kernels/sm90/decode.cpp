// SPDX-License-Identifier: Apache-2.0
// decode_paged_splitkv_sm90 as an entry of the C table: what it accepts, what it declares, how it is
// launched.
#include "kernels/sm90/decode.hpp"

#include <algorithm>
#include <cstdio>

#include "kernels/common/fill_struct.hpp"
#include "kernels/common/operands.hpp"
#include "kernels/device/status.hpp"
#include "kernels/sm90/listed.hpp"
#include "kernels/sm90/sm90.hpp"

namespace assay_sm90 {
namespace {

using assay_kernels::format_name;

bool power_of_two(int32_t x) { return (x & (x - 1)) == 0; }

DecodeShape shape_of(const assay_problem& p) {
  const int32_t columns = p.max_q_len * (p.heads_q / p.heads_kv);
  const bool keys = p.k_scale_kind == ASSAY_SCALE_TOKEN_HEAD || p.v_scale_kind == ASSAY_SCALE_TOKEN_HEAD;
  const DecodeCodes codes = p.k_format == ASSAY_FP8_E4M3 ? keys ? DecodeCodes::kE4m3Keys : DecodeCodes::kE4m3
                            : p.k_format == ASSAY_FP8_E5M2 ? DecodeCodes::kE5m2
                            : p.k_format == ASSAY_INT8     ? DecodeCodes::kInt8
                                                           : DecodeCodes::k16;
  return {p.q_format == ASSAY_FP16, codes, p.layout == ASSAY_LAYOUT_X || p.layout == ASSAY_LAYOUT_SHUFFLED,
          columns <= 8    ? 1
          : columns <= 16 ? 2
                          : 4};
}
int32_t bytes_of(const assay_problem& p) { return shape_of(p).codes == DecodeCodes::k16 ? 2 : 1; }

int refuse_formats(const assay_problem& p, char* why, size_t size) {
  char text[96];
  const bool q_fits = p.q_format == ASSAY_BF16 || p.q_format == ASSAY_FP16;
  const bool kv_fits =
      p.k_format == p.v_format && (p.k_format == p.q_format || p.k_format == ASSAY_FP8_E4M3 ||
                                   p.k_format == ASSAY_FP8_E5M2 || p.k_format == ASSAY_INT8);
  if (!q_fits || !kv_fits || (p.o_format != p.q_format && p.o_format != ASSAY_FP32)) {
    std::snprintf(text, sizeof text, "q %s, k %s, v %s, out %s", format_name(p.q_format),
                  format_name(p.k_format), format_name(p.v_format), format_name(p.o_format));
    return refuse(why, size, text,
                  "q bf16 or fp16, out that or fp32, k and v both that of q, both fp8_e4m3, fp8_e5m2 or int8",
                  "an instance of these formats");
  }
  if (p.q_scale_kind != ASSAY_SCALE_NONE)
    return refuse(why, size, "a scale of Q", "none", "a factor on its scores");
  const auto fits = [&](int32_t kind) {
    return scale_per_segment(kind) || (bytes_of(p) == 1 && kind == ASSAY_SCALE_TOKEN_HEAD);
  };
  if (!fits(p.k_scale_kind) || !fits(p.v_scale_kind))
    return refuse(why, size, "scales per channel, or per token of a format of 16 bits",
                  "scales per tensor, head, request and head, of codes also per token and head",
                  "a scale for every dimension");
  const DecodeShape shape = shape_of(p);
  const bool few = shape.codes == DecodeCodes::kE5m2 || shape.codes == DecodeCodes::kE4m3Keys;
  if (few && (shape.packed || int64_t{p.max_q_len} * (p.heads_q / p.heads_kv) > kMostKeyedColumns))
    return refuse(why, size,
                  "e5m2, or e4m3 with scales per token, of more than 8 rows or in layout x or shuffled",
                  "up to 8 rows per KV head, nhd and hnd", "an instance");
  return ASSAY_OK;
}

int refuse_tensors(const assay_problem& p, const assay_tensors& t, char* why, size_t size) {
  const int32_t bytes = bytes_of(p);
  if (!rows_of(t.q, 2, 8) || !rows_of(t.o, p.o_format == ASSAY_FP32 ? 4 : 2, 4))
    return refuse(why, size, "strides or start of Q or O",
                  "packed rows, of Q at multiples of 16 bytes, of O of 4 elements",
                  "element by element access");
  if (!rows_of(t.k, bytes, 16 / bytes) || !rows_of(t.v, bytes, 16 / bytes))
    return refuse(why, size, "strides or start of K or V", "packed rows at multiples of 16 bytes",
                  "element by element access");
  if (shape_of(p).packed) {
    const bool x_fits =
        t.k.shape[4] * bytes == 16 && (p.layout == ASSAY_LAYOUT_X || t.v.shape[4] * bytes == 16);
    if (!x_fits || t.k.stride[3] * bytes > INT32_MAX)
      return refuse(why, size, "an innermost axis of other than 16 bytes", "16 bytes",
                    "other pieces of a key");
    return ASSAY_OK;
  }
  const int slot = p.layout == ASSAY_LAYOUT_HND ? 2 : 1;
  if (std::max(t.k.stride[slot], t.v.stride[slot]) * bytes * p.page_size > INT32_MAX)
    return refuse(why, size, "pages of more than 2 GiB", "smaller ones", "64-bit offsets within a page");
  return ASSAY_OK;
}

int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
             const assay_device* device, char* why, size_t size) {
  if (const int bad = common_supports(self, p, device, why, size)) return bad;
  if (const int bad = refuse_formats(*p, why, size)) return bad;
  char text[96];
  if (p->head_dim_qk != kDecodeDim || p->head_dim_v != kDecodeDim) {
    std::snprintf(text, sizeof text, "head dimensions %d and %d", p->head_dim_qk, p->head_dim_v);
    return refuse(why, size, text, "128", "an instance of this width");
  }
  const int32_t group = p->heads_q / p->heads_kv;
  if (int64_t{p->max_q_len} * group > kMostDecodeColumns) {
    std::snprintf(text, sizeof text, "%d new tokens of %d heads per KV head", p->max_q_len, group);
    return refuse(why, size, text, "up to 32 rows per KV head", "more columns (paged_wgmma_sm90 has them)");
  }
  if (p->mask == ASSAY_MASK_TREE || p->alibi != ASSAY_ALIBI_NONE)
    return refuse(why, size, "a tree mask or ALiBi", "causal, full, cross, windows, chunks, caps, sinks",
                  "this mask or bias");
  if (p->layout == ASSAY_LAYOUT_MLA)
    return refuse(why, size, "layout mla", "nhd, hnd, x, shuffled", "this layout (paged_mla_sm90 has it)");
  if (const int bad = refuse_slots(*p, why, size)) return bad;
  if (!power_of_two(p->page_size) && p->page_size % kDecodeTile != 0) {
    std::snprintf(text, sizeof text, "pages of %d", p->page_size);
    return refuse(why, size, text, "powers of two and multiples of 16", "tiles that cross pages anywhere");
  }
  if (shape_of(*p).packed && p->page_size % kDecodeTile != 0) {
    std::snprintf(text, sizeof text, "pages of %d in layout x or shuffled", p->page_size);
    return refuse(why, size, text, "multiples of 16", "tiles of several such pages");
  }
  return t == nullptr ? static_cast<int>(ASSAY_OK) : refuse_tensors(*p, *t, why, size);
}

int32_t grid() { return std::max(1, assay_gpu::multiprocessors); }

// Neither a window nor a chunk hides a key from all rows of a request.
bool sees_all(const assay_problem& p) {
  return p.chunk == 0 && (p.window_left < 0 || p.window_left >= p.max_kv_len) &&
         (p.window_right < 0 || p.window_right >= p.max_kv_len + p.max_q_len);
}

// Blocks of a cluster, or 0 where the list is for all requests and heads (decode_kernel.h).
int32_t cluster_of(const assay_problem& p) {
  return p.page_size >= kDecodeTile && (p.requests == 1 || sees_all(p))
             ? decode_cluster(shape_of(p), p.requests, p.heads_kv, p.max_kv_len, grid())
             : 0;
}

int64_t state_bytes(const assay_kernel*, const assay_problem* p) {
  return decode_state_bytes(shape_of(*p), grid());
}

// How often what is left of a weight is scaled on its way from a warp to the result: by its block, then once
// for every batch of blocks that the last one collects. Blocks without a tile lie between others only where
// there are more blocks than tiles.
int32_t merge_levels(const ListedTiles& list, int32_t workers, int32_t warps) {
  const int64_t blocks = workers / warps, each = list.all / blocks, batch = decode_batch(warps);
  const int64_t spanned = std::min(blocks, each > 0 ? (list.most + each - 1) / each + 1 : list.most);
  const int64_t batches =
      each > 0 ? (spanned - 1 + batch - 1) / batch : std::min(spanned - 1, (blocks - 1 + batch - 1) / batch);
  return static_cast<int32_t>(1 + std::max<int64_t>(0, batches));
}

int arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  const DecodeShape shape = shape_of(*p);
  assay_arithmetic m{};
  // One instruction of 16 products, measured on an H200 (results/h200/calibrate.txt).
  m.qk = m.pv = {ASSAY_ACC_BLOCK, 16, 25, 23};
  // Q in bf16 beside codes of a byte is mostly multiplied as fp16, exact as well, in sums of the same kind.
  m.qk_instruction = shape.half ? "mma.sync fp16" : "mma.sync bf16";
  const bool half_p = shape.codes == DecodeCodes::kE4m3 || (shape.codes == DecodeCodes::k16 && shape.half);
  m.pv_instruction = half_p ? "mma.sync fp16" : "mma.sync bf16";
  m.p_format = half_p ? ASSAY_FP16 : ASSAY_BF16;
  m.tile_keys = kDecodeTile;
  const int32_t cluster = cluster_of(*p);
  // The tiles of all requests and KV heads are one list, cut evenly over all warps.
  const int32_t workers = decode_blocks(p->requests, p->heads_kv, grid()) * decode_warps(shape);
  const ListedTiles list = listed_tiles(*p, kDecodeTile, kMostDecodeColumns);
  const int64_t share = std::max<int64_t>(1, list.all / workers);
  m.splits = static_cast<int32_t>(std::min(list.most, (list.most + share - 1) / share) + 1);
  m.item_rows = kMostDecodeColumns, m.shares = workers;
  m.partial_roundings = merge_levels(list, workers, decode_warps(shape));
  if (cluster > 0) {  // the warps of a cluster take the tiles of its head in turn
    m.splits = decode_one_warps(shape.codes) * cluster;
    m.partial_roundings = 2;  // what a warp has: by the block, by the cluster
    if (p->requests == 1)
      m.shares = p->heads_kv, m.share_turns = m.splits;  // every head is a share
    else
      m.item_rows = m.shares = 0, m.split_interleaved = 1;  // from the first key on
  }
  // Weights that take the scales of V along are rounded with them.
  m.order_declared =
      (cluster > 0 || cuts_evenly(list.all, workers)) && p->v_scale_kind != ASSAY_SCALE_TOKEN_HEAD;
  // A lane adds two keys of a tile, then lanes, slots of the block and blocks are added.
  const int64_t of_warp = cluster > 0 ? (list.most + m.splits - 1) / m.splits : share + 1;  // tiles
  m.row_sum_chain = static_cast<int32_t>(2 * of_warp + 3 + 2 * decode_warps(shape) + grid());
  m.partial_format = m.partial_lse_format = ASSAY_FP32;
  m.exp_relative_error = 0x1p-22;
  m.exp_instruction = "ex2.approx.ftz";
  m.tanh_relative_error = 0x1p-22;
  m.tanh_instruction = "tanhf";
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

// A scale per key and head, or a coarser one.
void place_key_scale(const assay_kernels::ScaleView& s, KeyScales& keys, const float*& data, int64_t& request,
                     int64_t& head, float& host) {
  if (s.kind == ASSAY_SCALE_TOKEN_HEAD)
    keys = {s.data, s.stride[0], s.stride[1], s.stride[2]}, host = 1;
  else
    place_scale(s, data, request, head, host);
}

void place_pages(const assay_problem& p, const assay_kernels::Operands& a, DecodeCall& call) {
  const int64_t bytes = a.k.element_bytes;
  call.k_chunk = a.k.dim_outer * bytes, call.v_dim = a.v.dim_inner * bytes;
  call.v_joined = p.layout == ASSAY_LAYOUT_X && bytes == 2;
  call.v_group = p.layout == ASSAY_LAYOUT_SHUFFLED ? a.v.slot_outer * bytes : 16;
  call.k = a.k.data, call.v = a.v.data;
  call.k_block = a.k.block_stride * bytes, call.k_head = a.k.head_stride * bytes;
  call.v_block = a.v.block_stride * bytes, call.v_head = a.v.head_stride * bytes;
  call.k_slot = static_cast<int32_t>(a.k.slot_outer * bytes);
  call.v_slot = static_cast<int32_t>(a.v.slot_outer * bytes);
  call.page_shift = power_of_two(p.page_size) ? __builtin_ctz(static_cast<uint32_t>(p.page_size)) : -1;
  if (call.page_shift < 0)
    call.page_magic = static_cast<uint32_t>((uint64_t{1} << 32) / (p.page_size / kDecodeTile)) + 1;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  if (const int bad = supports(self, p, t, nullptr, error, size)) return bad;
  assay_kernels::Operands a{};
  if (!assay_kernels::make_operands(p, t, &a, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->total_q == 0) return ASSAY_OK;
  const DecodeShape shape = shape_of(*p);
  const int64_t needed = decode_state_bytes(shape, grid());
  if (t->workspace.data == nullptr || t->workspace.shape[0] < needed) {
    char text[64];
    std::snprintf(text, sizeof text, "workspace of %lld bytes expected", static_cast<long long>(needed));
    return invalid(error, size, text);
  }
  DecodeCall call{};
  place_batch(*p, *t, a, call);
  call.q = reinterpret_cast<const uint16_t*>(a.q);
  call.q_row = a.q_stride[0], call.q_head = a.q_stride[1];
  place_pages(*p, a, call);
  place_key_scale(a.k_scale, call.k_keys, call.k_scale, call.k_scale_request, call.k_scale_head,
                  call.k_scale_host);
  place_key_scale(a.v_scale, call.v_keys, call.v_scale, call.v_scale_request, call.v_scale_head,
                  call.v_scale_host);
  call.parts = static_cast<float*>(t->workspace.data);
  call.heads_kv = p->heads_kv, call.group = p->heads_q / p->heads_kv;
  call.group_magic = 65536u / static_cast<uint32_t>(call.group) + 1;
  call.scale = p->softmax_scale, call.cap = p->softcap;
  call.o_fp32 = p->o_format == ASSAY_FP32;
  const int32_t blocks = decode_blocks(p->requests, p->heads_kv, grid());
  if (const int32_t cluster = cluster_of(*p); cluster > 0) {
    call.cluster = cluster, call.most_rows = p->max_q_len;
    call.table_width = p->table == ASSAY_TABLE_CSR
                           ? INT32_MAX
                           : static_cast<int32_t>(std::min<int64_t>(t->block_table.shape[1], INT32_MAX));
    return assay_gpu::answer(launch_decode_one(call, shape, static_cast<cudaStream_t>(stream)),
                             "decode kernel of few requests", error, size);
  }
  return assay_gpu::answer(launch_decode(call, shape, blocks, static_cast<cudaStream_t>(stream)),
                           "decode kernel", error, size);
}

constexpr assay_kernel kDecode = [] {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = "decode_paged_splitkv_sm90", k.arch = "sm_90a";
  k.description =
      "paged decode of bf16, fp16, e4m3 and int8 caches, all tiles cut evenly over all warps, one launch";
  k.op = ASSAY_OP_PAGED, k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH;
  k.supports = supports, k.arithmetic = arithmetic;
  k.workspace_bytes = state_bytes, k.workspace_zeroed_bytes = state_bytes, k.run = run;
  return k;
}();

}  // namespace

std::vector<const assay_kernel*> decode_kernels() { return {&kDecode}; }

}  // namespace assay_sm90
