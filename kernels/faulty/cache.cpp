// SPDX-License-Identifier: Apache-2.0
// Addressing, decoding and dequantisation, with the ways to get an index, a format or a scale wrong. Layouts
// and strides come from kernels/common/operands; what is stated here is what a kernel does with them.
#include "kernels/faulty/cache.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/common/formats.hpp"
#include "kernels/faulty/rounding.hpp"

namespace assay_faulty {
namespace {

using assay_kernels::KvView;
using assay_kernels::ScaleView;

int32_t wrapped(int64_t index, int64_t count) {
  return count <= 0 ? 0 : static_cast<int32_t>(((index % count) + count) % count);
}

// ---- decoding

struct ByteTable {
  float value[256];
  explicit ByteTable(int32_t format) {
    for (int code = 0; code < 256; ++code)
      value[code] = assay_kernels::float_from_byte(static_cast<uint8_t>(code), format);
  }
};

const float* byte_table(int32_t format) {
  static const ByteTable tables[] = {ByteTable(ASSAY_FP8_E4M3), ByteTable(ASSAY_FP8_E5M2),
                                     ByteTable(ASSAY_FP8_E4M3FNUZ), ByteTable(ASSAY_FP8_E5M2FNUZ),
                                     ByteTable(ASSAY_INT8)};
  return tables[format - ASSAY_FP8_E4M3].value;
}

inline float value_of_fp16(uint16_t code) {
  const uint32_t magnitude = code & 0x7fffu;
  const float finite = std::bit_cast<float>(magnitude << 13) * 0x1p112f;  // subnormals come out exact
  const float special = std::bit_cast<float>(magnitude << 13 | 0x7f800000u);
  const float value = magnitude >= 0x7c00u ? special : finite;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | static_cast<uint32_t>(code & 0x8000u) << 16);
}

template <class Code, class Value>
inline void decode_codes(const unsigned char* from, int64_t stride, int count, float* out, Value value) {
  Code code;
  if (stride == 1)
    for (int i = 0; i < count; ++i) {
      memcpy(&code, from + i * sizeof(Code), sizeof(Code));
      out[i] = value(code);
    }
  else
    for (int i = 0; i < count; ++i) {
      memcpy(&code, from + i * stride * static_cast<int64_t>(sizeof(Code)), sizeof(Code));
      out[i] = value(code);
    }
}

void decode(const unsigned char* from, int32_t format, int64_t stride, int count, float* out) {
  switch (format) {
    case ASSAY_FP32:
      return decode_codes<float>(from, stride, count, out, [](float x) { return x; });
    case ASSAY_BF16:
      return decode_codes<uint16_t>(from, stride, count, out, [](uint16_t code) {
        return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
      });
    case ASSAY_FP16:
      return decode_codes<uint16_t>(from, stride, count, out, value_of_fp16);
    default: {
      const float* table = byte_table(format);
      return decode_codes<uint8_t>(from, stride, count, out, [table](uint8_t code) { return table[code]; });
    }
  }
}

int32_t format_as_read(const Switches& sw, int32_t format) {
  if (sw.fnuz_as_fn && format == ASSAY_FP8_E4M3FNUZ) return ASSAY_FP8_E4M3;
  if (sw.fnuz_as_fn && format == ASSAY_FP8_E5M2FNUZ) return ASSAY_FP8_E5M2;
  return format;
}

bool has_ieee_top(int32_t format) { return format == ASSAY_FP16 || format == ASSAY_FP8_E5M2; }

// What a fault of codes makes of values of that format.
float misread(Codes fault, int32_t format, float x) {
  const float size = std::fabs(x);
  if (format == ASSAY_INT8) {
    if (fault == Codes::kSmallestLost && size == 1) return 0.0f;
    if (fault == Codes::kTopLost && size == 127) return std::copysign(126.0f, x);
    if (fault == Codes::kTopClipped && size > 64) return std::copysign(64.0f, x);
    return x;
  }
  const Format f = format_of(format);
  const bool subnormal = size > 0 && std::ilogb(size) < f.smallest_exponent;
  switch (fault) {
    case Codes::kSmallestLost:
      return subnormal ? 0.0f : x;
    case Codes::kSmallestRaised:
      return subnormal ? std::copysign(std::ldexp(1.0f, f.smallest_exponent - 1) + size / 2, x) : x;
    case Codes::kSmallestHalved:
      return subnormal ? x / 2 : x;
    case Codes::kTopIsNaN:
      return has_ieee_top(format) || size < std::ldexp(1.0f, std::ilogb(f.largest)) ? x : NAN;
    case Codes::kTopLost: {
      const auto below =
          static_cast<float>(f.largest - std::ldexp(1.0, std::ilogb(f.largest) - f.mantissa_bits));
      return size > below ? std::copysign(below, x) : x;
    }
    case Codes::kTopClipped: {
      const auto half = static_cast<float>(f.largest / 2);
      return size > half ? std::copysign(half, x) : x;
    }
    case Codes::kMinusZeroIsNaN:
      return x == 0 && std::signbit(x) ? NAN : x;
    case Codes::kRight:
      break;
  }
  return x;
}

// Every format has codes but fp32, which is what a kernel computes in.
void misread_row(const Switches& sw, Sides side, int32_t format, int count, float* values) {
  if ((sw.codes_of & side) == 0 || format == ASSAY_FP32) return;
  for (int i = 0; i < count; ++i) values[i] = misread(sw.codes, format, values[i]);
}

// Where a kernel that takes strides from shapes looks: never beyond the true place.
int64_t dense_offset(const assay_problem& p, KvView view, KeyPlace at, int32_t head, int64_t dims) {
  if (p.op == ASSAY_OP_PREFILL) {
    view.block_stride = p.heads_kv * dims, view.head_stride = dims;
  } else if (p.layout == ASSAY_LAYOUT_MLA) {
    view.slot_outer = p.head_dim_qk, view.block_stride = int64_t{p.page_size} * p.head_dim_qk;
  } else {
    view.block_stride = int64_t{p.page_size} * p.heads_kv * dims;
    if (p.layout == ASSAY_LAYOUT_NHD) view.slot_outer = p.heads_kv * dims, view.head_stride = dims;
    if (p.layout == ASSAY_LAYOUT_HND) view.head_stride = p.page_size * dims, view.slot_outer = dims;
  }
  return assay_kernels::token_offset(view, at) + head * view.head_stride;
}

// One cache row: dims elements of a token and a head.
void decode_row(const Call& c, Sides side, const KvView& view, KeyPlace at, int32_t head, int dims,
                float* out) {
  int64_t offset = assay_kernels::token_offset(view, at) + head * view.head_stride;
  if (c.sw.kv_stride_dense) offset = dense_offset(c.p(), view, at, head, dims);
  if (c.sw.mla_v_from_end && c.p().layout == ASSAY_LAYOUT_MLA && dims == c.p().head_dim_v)
    offset += (c.p().head_dim_qk - dims) * view.dim_inner;
  if (c.sw.offset_bits > 0) offset &= (int64_t{1} << c.sw.offset_bits) - 1;
  const int32_t format = format_as_read(c.sw, view.format);
  for (int d = 0; d < dims; d += view.dim_pack) {
    const int count = std::min<int64_t>(dims - d, view.dim_pack);
    const int64_t element = offset + d / view.dim_pack * view.dim_outer;
    decode(view.data + element * view.element_bytes, format, view.dim_inner, count, out + d);
    if (view.dim_pack >= dims) break;
  }
  misread_row(c.sw, side, format, dims, out);
}

// ---- scales

// Where the pages of a request end; prefill caches count as pages of sixteen keys.
int32_t page_keys(const Call& c) { return c.p().op == ASSAY_OP_PAGED ? c.p().page_size : 16; }

struct ScaleFault {
  bool missing;
  int32_t head, token, request, channel;
};
ScaleFault k_fault(const Call& c) {
  const Switches& s = c.sw;
  const int32_t q = c.p().q_format;
  const bool lost = s.k_scale_missing_fp8_q && q >= ASSAY_FP8_E4M3 && q <= ASSAY_FP8_E5M2FNUZ;
  return {s.k_scale_missing || lost, s.k_scale_head, s.k_scale_token, s.k_scale_request, s.k_scale_channel};
}
ScaleFault v_fault(const Switches& s) {
  return {s.v_scale_missing, s.v_scale_head, s.v_scale_token, s.v_scale_request, s.v_scale_channel};
}

float kv_scale(const Call& c, const ScaleView& view, const ScaleFault& fault, int request, int32_t key,
               int32_t kv_head, bool is_v) {
  if (fault.missing) return 1.0f;
  const assay_problem& p = c.p();
  const int32_t head = wrapped(kv_head + fault.head, p.heads_kv);
  const int32_t token =
      fault.token == 0 ? key : std::clamp(key + fault.token, 0, std::max(0, c.kv_len[request] - 1));
  const KeyPlace at =
      view.kind == ASSAY_SCALE_TOKEN_HEAD ? place_of(c, request, token, is_v) : KeyPlace{0, 0};
  ScaleView read = view;
  if (c.sw.scale_stride_dense && view.kind == ASSAY_SCALE_TOKEN_HEAD) {
    read.stride[2] = 1, read.stride[1] = page_keys(c), read.stride[0] = p.heads_kv * read.stride[1];
    if (p.op == ASSAY_OP_PREFILL) read.stride[0] = p.heads_kv, read.stride[1] = 1;
  }
  const float scale = assay_kernels::kv_scale(read, wrapped(request + fault.request, p.requests), at, head);
  return static_cast<float>(rounded(scale, is_v ? c.sw.v_scale_format : c.sw.k_scale_format));
}

float channel_of(const Call& c, const ScaleView& view, const ScaleFault& fault, int32_t kv_head, int32_t dim,
                 int32_t dims) {
  if (fault.missing || view.kind != ASSAY_SCALE_CHANNEL) return 1.0f;
  return assay_kernels::channel_scale(view, wrapped(kv_head + fault.head, c.p().heads_kv),
                                      wrapped(dim + fault.channel, dims));
}

// code * scale of a whole row, rounded once to the dequantised format.
void dequantise(const Call& c, const ScaleView& view, const ScaleFault& fault, int request, int32_t key,
                int32_t kv_head, bool is_v, int dims, float* values) {
  const double whole = kv_scale(c, view, fault, request, key, kv_head, is_v);
  if (view.kind != ASSAY_SCALE_CHANNEL || fault.missing)
    return scale_and_round(values, dims, whole, nullptr, c.how.dequant_format);
  float each[assay_kernels::kMaxHeadDim];
  for (int d = 0; d < dims; ++d) each[d] = channel_of(c, view, fault, kv_head, d, dims);
  scale_and_round(values, dims, whole, each, c.how.dequant_format);
}

float q_row_scale(const Call& c, int request, int32_t row, int32_t head, int32_t kv_head) {
  const Switches& sw = c.sw;
  if (sw.q_scale_missing) return 1.0f;
  const assay_problem& p = c.p();
  ScaleView read = c.ops.q_scale;
  if (sw.scale_stride_dense && read.kind == ASSAY_SCALE_TOKEN_HEAD)
    read.stride[0] = p.heads_q, read.stride[1] = 1;
  return assay_kernels::q_row_scale(
      read, wrapped(request + sw.q_scale_request, p.requests), c.first_row[request] + int64_t{row},
      wrapped(head + sw.q_scale_head, p.heads_q), wrapped(kv_head + sw.q_scale_head, p.heads_kv));
}

float softmax_scale(const Call& c) {
  const Switches& sw = c.sw;
  float scale = c.softmax_scale;
  if (sw.softmax_scale_default) scale = static_cast<float>(1.0 / std::sqrt(c.p().head_dim_qk));
  if (sw.softmax_scale_of_v) scale = static_cast<float>(1.0 / std::sqrt(c.p().head_dim_v));
  return static_cast<float>(rounded(scale, sw.softmax_scale_format));
}

// The part of Q's and the softmax's scale that is not in Q.
float query_scale(const Call& c, int request, int32_t row, int32_t head, int32_t kv_head) {
  return softmax_scale(c) * q_row_scale(c, request, row, head, kv_head);
}

}  // namespace

KeyPlace place_of(const Call& c, int request, int32_t key, bool is_v) {
  const Switches& sw = c.sw;
  const assay_problem& p = c.p();
  const int32_t keys = c.p().kv_len[request], page = page_keys(c);
  if (keys <= 0) return {0, 0};
  const int32_t pages = (keys + page - 1) / page;
  if (key == picked(sw.key_stale, keys, mix(static_cast<uint32_t>(request), 3)))
    key = (key + (keys + 1) / 2) % keys;
  if (const int32_t context = keys - p.q_len[request];
      sw.new_keys_from_start && context > 0 && key >= context)
    key -= context;
  int32_t logical = std::min(key / page, pages - 1), slot = key % page;

  const auto swap = [&](Pick pick) {
    const int32_t one = picked(pick, pages - 1, mix(static_cast<uint32_t>(request), 7));
    if (one < 0 || pages < 2) return;
    if (logical == one)
      logical = one + 1;
    else if (logical == one + 1)
      logical = one;
  };
  swap(sw.page_swapped);
  if (is_v) swap(sw.page_v_swapped);
  if (const int32_t bad = picked(sw.page_wrong, pages, mix(static_cast<uint32_t>(request), 9));
      logical == bad)
    logical = bad == 0 ? std::min(1, pages - 1) : 0;
  const int32_t tile = c.arithmetic.tile_keys;
  if (sw.page_of_tile_start && page > tile) logical = key / tile * tile / page;
  if (sw.page_index_per_token && p.table != ASSAY_TABLE_TOKEN) logical = key;
  if (sw.page_index_halved) logical = key / (2 * page);
  if (is_v && sw.page_v_of_previous_tile && key >= tile) logical = (key - tile) / page;
  int source = sw.page_of_next_request ? wrapped(request + 1, p.requests) : request;
  if (sw.last_page_of_previous && request > 0 && logical == pages - 1) source = request - 1;

  if (p.op == ASSAY_OP_PREFILL) {
    const int32_t row = std::min(logical * page + slot, keys - 1);
    return {wrapped(c.ops.cu_kv[source * c.ops.cu_kv_stride] + int64_t{row}, p.total_kv), 0};
  }
  const Operands& ops = c.ops;
  const int64_t id_unit = sw.page_id_times_page ? page : 1;
  const assay_tensor& table = c.tensors->block_table;
  const int64_t row_stride =
      sw.page_table_dense && p.table != ASSAY_TABLE_CSR
          ? (int64_t{p.max_kv_len} + page - 1) / page * (p.table == ASSAY_TABLE_TOKEN ? page : 1)
          : ops.block_table_stride[0];
  const int64_t last = p.table == ASSAY_TABLE_CSR
                           ? 0
                           : (table.shape[0] - 1) * table.stride[0] + (table.shape[1] - 1) * table.stride[1];
  if (p.table == ASSAY_TABLE_TOKEN) {
    const int64_t token = std::min<int64_t>(int64_t{logical} * page + slot, table.shape[1] - 1);
    const int32_t flat =
        ops.block_table[std::min(source * row_stride + token * ops.block_table_stride[1], last)];
    return {wrapped(flat / page, c.blocks), wrapped(flat % page, page)};
  }
  if (p.table == ASSAY_TABLE_CSR) {
    const int64_t entry = ops.indptr[source * ops.indptr_stride] + int64_t{logical};
    const int64_t known =
        std::clamp<int64_t>(entry, 0, std::max<int64_t>(0, c.tensors->indices.shape[0] - 1));
    return {wrapped(ops.indices[known * ops.indices_stride] * id_unit, c.blocks), slot};
  }
  const int64_t column = std::min<int64_t>(logical, table.shape[1] - 1);
  const int64_t at = std::min(source * row_stride + column * ops.block_table_stride[1], last);
  return {wrapped(ops.block_table[at] * id_unit, c.blocks), slot};
}

void load_q(const Call& c, int request, int32_t row, int32_t head, float* out) {
  const Switches& sw = c.sw;
  const assay_problem& p = c.p();
  const int dims = p.head_dim_qk;
  const int32_t kv_head = kv_head_of(c, head);
  int32_t from_row = row, from_head = head;
  if (sw.q_row_shift != 0) from_row = wrapped(row + sw.q_row_shift, c.q_len[request]);
  if (sw.q_heads_swapped && (head ^ 1) < p.heads_q) from_head = head ^ 1;
  const int64_t packed = c.first_row[request] + int64_t{from_row};
  int64_t offset = packed * c.ops.q_stride[0] + from_head * c.ops.q_stride[1];
  int64_t stride = c.ops.q_stride[2];
  if (sw.q_stride_dense) offset = (packed * p.heads_q + from_head) * dims, stride = 1;
  if (sw.strides_from_first_call) {
    const int64_t *shape = c.tensors->q.shape, *now = c.ops.q_stride;
    const int64_t span = (shape[0] - 1) * now[0] + (shape[1] - 1) * now[1] + 1;
    for (const State::Launch& kept : c.state.launches)
      if (std::equal(shape, shape + 3, kept.shape))
        offset = (packed * kept.stride[0] + from_head * kept.stride[1]) % span;
  }
  decode(c.ops.q + offset * c.ops.q_element_bytes, format_as_read(sw, p.q_format), stride, dims, out);
  misread_row(sw, kOfQ, p.q_format, dims, out);
  if (!c.how.q_rounded()) return;
  if (c.how.q_factor != 0) {
    for (int d = 0; d < dims; ++d) out[d] *= c.how.q_factor;
    round_all(out, dims, c.how.q_format);
    return;
  }

  float each[assay_kernels::kMaxHeadDim];
  const bool q_channel = c.how.q_takes_q_channel && !sw.q_scale_missing;
  for (int d = 0; d < dims; ++d) {
    each[d] = q_channel
                  ? assay_kernels::channel_scale(c.ops.q_scale, wrapped(head + sw.q_scale_head, p.heads_q), d)
                  : 1.0f;
    if (c.how.q_takes_k_channel) each[d] *= channel_of(c, c.ops.k_scale, k_fault(c), kv_head, d, dims);
  }
  if (c.how.q_takes_channels) {
    for (int d = 0; d < dims; ++d) out[d] *= each[d];
    round_all(out, dims, c.how.q_format);
    return;
  }
  const double whole = c.how.q_takes_scale ? query_scale(c, request, row, head, kv_head) : 1.0;
  scale_and_round(out, dims, whole, each, c.how.q_format);
}

bool behind_last_key_is_zero(const Call& c, int request, int32_t key) {
  return key >= c.kv_len[request] && (c.sw.zero_tail_keys > 0 || c.sw.zero_tail_to_tile > 0);
}

void load_k(const Call& c, int request, int32_t key, int32_t kv_head, float* out) {
  const int dims = c.p().head_dim_qk;
  if (behind_last_key_is_zero(c, request, key)) {
    memset(out, 0, sizeof(float) * dims);
    return;
  }
  decode_row(c, kOfK, c.ops.k, place_of(c, request, key, false), kv_head, dims, out);
  if (c.how.dequant_k) dequantise(c, c.ops.k_scale, k_fault(c), request, key, kv_head, false, dims, out);
  int first = c.sw.qk_first_half_lost ? dims / 2 : 0, end = dims - c.sw.qk_dims_dropped;
  if (c.sw.qk_dims_limit > 0) end = std::min(end, c.sw.qk_dims_limit);
  for (int d = 0; d < dims; ++d)
    if (d < first || d >= end) out[d] = 0;
}

void load_v(const Call& c, int request, int32_t key, int32_t kv_head, float* out) {
  const Switches& sw = c.sw;
  const int dims = c.p().head_dim_v;
  if (behind_last_key_is_zero(c, request, key)) {
    memset(out, 0, sizeof(float) * dims);
    return;
  }
  decode_row(c, kOfV, c.ops.v, place_of(c, request, key, true), kv_head, dims, out);
  if (c.how.dequant_v) dequantise(c, c.ops.v_scale, v_fault(sw), request, key, kv_head, true, dims, out);
  if (sw.v_bits > 0) round_bits(out, dims, sw.v_bits);
  if (sw.v_dim_shift != 0) std::rotate(out, out + wrapped(sw.v_dim_shift, dims), out + dims);
  int kept = dims;
  if (sw.v_dims_of_qk) kept = std::min(kept, c.p().head_dim_qk);
  if (sw.v_dims_floor > 0) kept = kept / sw.v_dims_floor * sw.v_dims_floor;
  for (int d = std::max(0, kept); d < dims; ++d) out[d] = 0;
}

void load_v_at(const Call& c, KeyPlace at, int32_t kv_head, float* out) {
  decode_row(c, kOfV, c.ops.v, at, kv_head, c.p().head_dim_v, out);
}

float score_scale(const Call& c, int request, int32_t row, int32_t head, int32_t kv_head) {
  float scale = c.how.q_factor != 0   ? softmax_scale(c) / c.how.q_factor
                : c.how.q_takes_scale ? 1.0f
                                      : query_scale(c, request, row, head, kv_head);
  if (!c.how.dequant_k && !scores_scaled_by_key(c))
    scale *= kv_scale(c, c.ops.k_scale, k_fault(c), request, 0, kv_head, false);
  if (c.sw.k_scale_factor != 0 && c.p().k_scale_kind != ASSAY_SCALE_NONE) scale *= c.sw.k_scale_factor;
  return scale;
}

bool scores_scaled_by_key(const Call& c) {
  return c.p().k_scale_kind == ASSAY_SCALE_TOKEN_HEAD && !c.how.dequant_k;
}

float key_scale(const Call& c, int request, int32_t key, int32_t kv_head) {
  return kv_scale(c, c.ops.k_scale, k_fault(c), request, key, kv_head, false);
}

float value_scale(const Call& c, int request, int32_t key, int32_t kv_head) {
  return kv_scale(c, c.ops.v_scale, v_fault(c.sw), request, key, kv_head, true);
}

bool results_scaled_by_channel(const Call& c) {
  return c.p().v_scale_kind == ASSAY_SCALE_CHANNEL && !c.how.dequant_v;
}

float result_scale(const Call& c, int request, int32_t kv_head, int32_t dim) {
  float scale = 1.0f;
  if (!c.how.dequant_v && !c.how.v_scale_in_p) {
    const ScaleFault fault = v_fault(c.sw);
    scale = results_scaled_by_channel(c) ? channel_of(c, c.ops.v_scale, fault, kv_head, dim, c.p().head_dim_v)
                                         : kv_scale(c, c.ops.v_scale, fault, request, 0, kv_head, true);
  }
  if (c.sw.v_scale_factor != 0 && c.p().v_scale_kind != ASSAY_SCALE_NONE) scale *= c.sw.v_scale_factor;
  return scale;
}

int32_t kv_head_of(const Call& c, int32_t head) {
  const assay_problem& p = c.p();
  const int32_t group = p.heads_q / p.heads_kv;
  switch (c.sw.kv_head_map) {
    case HeadMap::kModulo:
      return head % p.heads_kv;
    case HeadMap::kPowerOfTwo:
      return std::min<int32_t>(head / static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(group))),
                               p.heads_kv - 1);
    default:
      return head / group;
  }
}

}  // namespace assay_faulty
