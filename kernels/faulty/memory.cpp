// SPDX-License-Identifier: Apache-2.0
// A device reads garbage and goes on; this library may not crash, so a wild fetch is a status here and every
// address is one that exists.
#include "kernels/faulty/memory.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/common/formats.hpp"
#include "kernels/faulty/cache.hpp"

namespace assay_faulty {
namespace {

void leak_row(const Call& c, KeyPlace at, int32_t kv_head, float* o) {
  std::vector<float> v(c.p().head_dim_v);
  load_v_at(c, at, kv_head, v.data());
  for (int d = 0; d < c.p().head_dim_v; ++d)
    if (!std::isfinite(v[d])) o[d] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

void leak_values(const Call& c, int request, int32_t kv_head, const Stream& stream, float* o) {
  const Switches& sw = c.sw;
  const assay_problem& p = c.p();
  if (p.op != ASSAY_OP_PAGED || stream.seen.begin >= stream.seen.end) return;
  const int32_t keys = p.kv_len[request], tile = c.arithmetic.tile_keys;
  const int32_t tile_end = (keys + tile - 1) / tile * tile;
  const bool last_tile = stream.seen.end > tile_end - tile;
  if (sw.reads_unused_slots && last_tile) {
    KeyPlace at = place_of(c, request, keys - 1, true);
    for (int32_t key = keys; key < tile_end && key % p.page_size != 0; ++key) {
      ++at.slot;
      leak_row(c, at, kv_head, o);
    }
  }
  if (sw.reads_block_zero && last_tile)
    for (int32_t key = keys; key < tile_end; ++key) leak_row(c, {0, key % p.page_size}, kv_head, o);
  if (sw.reads_before_window)
    for (int32_t key = stream.seen.begin / tile * tile; key < stream.seen.begin; ++key)
      leak_row(c, place_of(c, request, key, true), kv_head, o);
}

bool fetch_faults(const Call& c, int request) {
  const assay_problem& p = c.p();
  if (!c.sw.reads_past_table || p.op != ASSAY_OP_PAGED || p.kv_len[request] == 0 || p.q_len[request] == 0)
    return false;
  const Operands& ops = c.ops;
  const int32_t pages = (p.kv_len[request] + p.page_size - 1) / p.page_size;
  if (p.table == ASSAY_TABLE_CSR) {
    const int64_t entry = ops.indptr[request * ops.indptr_stride] + int64_t{pages};
    if (entry >= c.tensors->indices.shape[0]) return true;
    const int32_t id = ops.indices[entry * ops.indices_stride];
    return id < 0 || id >= c.blocks;
  }
  const assay_tensor& table = c.tensors->block_table;
  const bool by_token = p.table == ASSAY_TABLE_TOKEN;
  const int64_t column = by_token ? p.kv_len[request] : pages;
  const int64_t last = (table.shape[0] - 1) * table.stride[0] + (table.shape[1] - 1) * table.stride[1];
  const int64_t at = request * table.stride[0] + column * table.stride[1];
  if (at > last) return true;
  const int32_t id = by_token ? ops.block_table[at] / p.page_size : ops.block_table[at];
  return id < 0 || id >= c.blocks;
}

void spoil_memory(const Call& c) {
  const assay_problem& p = c.p();
  const assay_tensor& o = c.tensors->o;
  if (p.total_q == 0) return;
  if (c.sw.writes_guard) {
    int64_t last = 0;
    for (int i = 0; i < o.rank; ++i) last += (o.shape[i] - 1) * o.stride[i];
    memset(static_cast<char*>(o.data) + (last + 1) * assay_kernels::element_bytes(o.format), 0x3c, 2);
  }
  if (c.sw.writes_input) *static_cast<unsigned char*>(c.tensors->q.data) ^= 1u;
  if (!c.sw.empty_request_clears_next) return;
  for (int r = 0; r < p.requests; ++r) {
    if (p.kv_len[r] > 0 || p.q_len[r] == 0) continue;
    const int64_t end = std::min<int64_t>(p.total_q, c.first_row[r] + int64_t{16});
    for (int64_t row = c.first_row[r]; row < end; ++row)
      for (int32_t h = 0; h < p.heads_q; ++h)
        for (int32_t d = 0; d < p.head_dim_v; ++d)
          assay_kernels::store_element(c.ops.o, row * o.stride[0] + h * o.stride[1] + d * o.stride[2],
                                       p.o_format, 0.0f);
  }
}

}  // namespace assay_faulty
