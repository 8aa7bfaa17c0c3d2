// SPDX-License-Identifier: Apache-2.0
// The memory one thread works in while it attends to a block or streams keys: one pass over `Arena` lays out
// all arrays, once with a null base to learn the size and once for real, so size and use cannot disagree.
// Contents are undefined at the start of every task.
#pragma once

#include "kernels/cpu/online/convert.hpp"
#include "kernels/cpu/online/engine.hpp"
#include "kernels/cpu/online/softmax.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

ASSAY_INLINE int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

struct Arena {
  unsigned char* base;
  int64_t used = 0;
  template <class T>
  __attribute__((always_inline)) T* take(int64_t count) {
    T* at = base == nullptr ? nullptr : reinterpret_cast<T*>(base + used);
    used += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return at;
  }
};

// Keys of one chunk (or streaming step): where they are and what scales them. Padded to whole vectors.
struct KeyList {
  int32_t first, count;
  int64_t *k_offset, *v_offset;  // without the head part
  int64_t *k_touch, *v_touch;    // the same as places to prefetch, in the order to do it
  KeyPlace* place;
  float *k_scale, *v_scale;
  bool scaled_k, scaled_v;
};

constexpr int kRowTile = 32;                   // rows per softmax step
constexpr int kScoreStride = kChunkKeys + 16;  // floats; not a power of two, to spread over cache sets

struct Scratch {
  ByteTables *q_tables, *k_tables, *v_tables;
  KeyList keys;
  unsigned char* codes;  // one gathered row
  // Tile path. Element types differ between the fp32 and the bf16 engine; sizes are those of fp32.
  RowInfo* rows;
  float *m, *l, *o;
  void *q, *k, *v;
  float *scores, *staging;
  uint16_t* weights;
  uint8_t* v_not_finite;  // per key of the chunk
  // Streaming path.
  float *stream_q, *stream_o, *stream_m, *stream_l, *stream_k, *stream_v, *stream_s;
  RowInfo* stream_rows;
  int64_t bytes;
};

ASSAY_INLINE int64_t padded_dim(int32_t dim) { return round_up(dim, 64); }

ASSAY_INLINE Scratch lay_out(const assay_problem* p, void* base) {
  Arena arena{static_cast<unsigned char*>(base)};
  Scratch s{};
  const int64_t qk = padded_dim(p->head_dim_qk), dv = padded_dim(p->head_dim_v);
  const int64_t group = p->heads_q / p->heads_kv;
  const int64_t most =
      round_up(p->max_q_len * group < kBlockRows ? p->max_q_len * group : kBlockRows, kRowTile);
  s.q_tables = arena.take<ByteTables>(1);
  s.k_tables = arena.take<ByteTables>(1), s.v_tables = arena.take<ByteTables>(1);
  s.keys.k_offset = arena.take<int64_t>(kChunkKeys), s.keys.v_offset = arena.take<int64_t>(kChunkKeys);
  s.keys.k_touch = arena.take<int64_t>(kChunkKeys), s.keys.v_touch = arena.take<int64_t>(kChunkKeys);
  s.keys.place = arena.take<KeyPlace>(kChunkKeys);
  s.keys.k_scale = arena.take<float>(kChunkKeys), s.keys.v_scale = arena.take<float>(kChunkKeys);
  s.codes = arena.take<unsigned char>(4 * (qk > dv ? qk : dv));
  s.rows = arena.take<RowInfo>(most);
  s.m = arena.take<float>(most), s.l = arena.take<float>(most), s.o = arena.take<float>(most * dv);
  s.q = arena.take<float>(most * qk);
  s.k = arena.take<float>(kChunkKeys * qk), s.v = arena.take<float>(kChunkKeys * dv);
  s.scores = arena.take<float>(kRowTile * kScoreStride);
  s.staging = arena.take<float>(16 * (qk > dv ? qk : dv) + 1024);
  s.weights = arena.take<uint16_t>(kRowTile * kChunkKeys);
  s.v_not_finite = arena.take<uint8_t>(kChunkKeys);
  const int64_t rows = kStreamRows, heads = p->heads_kv;
  s.stream_q = arena.take<float>(heads * rows * qk), s.stream_o = arena.take<float>(heads * rows * dv);
  s.stream_m = arena.take<float>(heads * rows), s.stream_l = arena.take<float>(heads * rows);
  s.stream_k = arena.take<float>(kStreamKeys * qk), s.stream_v = arena.take<float>(kStreamKeys * dv);
  s.stream_s = arena.take<float>(rows * kStreamKeys), s.stream_rows = arena.take<RowInfo>(heads * rows);
  s.bytes = arena.used;
  return s;
}

int64_t scratch_bytes(const assay_problem* p) { return lay_out(p, nullptr).bytes; }

ASSAY_INLINE void prepare_tables(const Operands& a, const Scratch& s) {
  if (a.q_element_bytes == 1) fill_byte_tables(*s.q_tables, a.p.q_format);
  if (a.k.element_bytes == 1) fill_byte_tables(*s.k_tables, a.p.k_format);
  if (a.v.element_bytes == 1) fill_byte_tables(*s.v_tables, a.p.v_format);
}

// A token of one head is one piece of memory.
ASSAY_INLINE bool token_in_one_piece(const KvView& view, int32_t dims) {
  return view.dim_inner == 1 && dims <= view.dim_pack;
}

// Looks up `count` keys from `first`; offsets exclude the head. Layouts that spread a token over the page
// of its head have no memory of one token: the page is dealt out to its tokens in equal shares.
ASSAY_INLINE void find_keys(const Operands& a, int request, int32_t first, int32_t count, KeyList* keys) {
  keys->first = first, keys->count = count;
  keys->scaled_k = a.k_scale.kind == ASSAY_SCALE_TOKEN_HEAD;
  keys->scaled_v = a.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD;
  const bool k_whole = token_in_one_piece(a.k, a.p.head_dim_qk),
             v_whole = token_in_one_piece(a.v, a.p.head_dim_v);
  // Within a page only the slot moves; looking up every key would divide by the page size every time.
  const bool pages = a.p.op == ASSAY_OP_PAGED && a.p.table != ASSAY_TABLE_TOKEN;
  KeyPlace place{};
  for (int32_t i = 0; i < count; ++i) {
    if (i > 0 && pages && place.slot + 1 < a.p.page_size)
      ++place.slot;
    else
      place = place_key(a, request, first + i);
    keys->place[i] = place;
    keys->k_offset[i] = token_offset(a.k, place), keys->v_offset[i] = token_offset(a.v, place);
    // The two halves in turns: two pages at once keep the hardware's prefetchers further ahead.
    const int turn = count % 2 != 0 ? i : i < count / 2 ? 2 * i : 2 * i - count + 1;
    keys->k_touch[turn] =
        k_whole ? keys->k_offset[i] : place.block * a.k.block_stride + int64_t{place.slot} * a.p.head_dim_qk;
    keys->v_touch[turn] =
        v_whole ? keys->v_offset[i] : place.block * a.v.block_stride + int64_t{place.slot} * a.p.head_dim_v;
  }
}

// Per-token scales of one head, padded with zeros to whole vectors.
ASSAY_INLINE void find_scales(const Operands& a, int request, int kv_head, int padded, KeyList* keys) {
  for (int32_t i = 0; keys->scaled_k && i < padded; ++i)
    keys->k_scale[i] = i < keys->count ? kv_scale(a.k_scale, request, keys->place[i], kv_head) : 0.0f;
  for (int32_t i = 0; keys->scaled_v && i < padded; ++i)
    keys->v_scale[i] = i < keys->count ? kv_scale(a.v_scale, request, keys->place[i], kv_head) : 0.0f;
}

// One Q row in fp32 with the per-channel scales of Q and K folded in (q_rounding of the arithmetic model).
ASSAY_INLINE void load_q_row(const Operands& a, int request, int kv_head, int stacked_row, const Scratch& s,
                             float* out) {
  const int head = kv_head * a.group + stacked_row % a.group;
  const int64_t packed = a.cu_q[request * a.cu_q_stride] + static_cast<int64_t>(stacked_row / a.group);
  const int64_t offset = packed * a.q_stride[0] + head * a.q_stride[1];
  const int dims = a.p.head_dim_qk;
  KvView view{};  // Q has the address rule of a cache with one token axis
  view.data = a.q, view.format = a.p.q_format, view.element_bytes = a.q_element_bytes;
  view.dim_inner = a.q_stride[2], view.dim_pack = 0x7fffffff;
  codes_to_float(*s.q_tables, row_codes(view, offset, dims, s.codes), a.p.q_format, dims, out);
  if (a.q_scale.kind == ASSAY_SCALE_CHANNEL || a.k_scale.kind == ASSAY_SCALE_CHANNEL)
    for (int d = 0; d < dims; ++d)
      out[d] *= channel_scale(a.q_scale, head, d) * channel_scale(a.k_scale, kv_head, d);
  for (int d = dims; d < padded_dim(dims); ++d) out[d] = 0.0f;
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
