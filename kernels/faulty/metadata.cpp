// SPDX-License-Identifier: Apache-2.0
// What a kernel derives before it touches Q, K or V: where each request's rows begin, how many keys it has,
// and the parts its keys are split into. Wrong metadata is believed by every later stage.
#include <algorithm>

#include "kernels/faulty/call.hpp"

namespace assay_faulty {
namespace {

int32_t kv_len_of(const Call& c, int r) {
  const Switches& sw = c.sw;
  const assay_problem& p = c.p();
  int32_t n = p.kv_len[r];
  if (sw.kv_len_of_first) n = std::min(n, p.kv_len[0]);
  if (sw.kv_len_page_floor)
    n = n / (p.op == ASSAY_OP_PAGED ? p.page_size : 16) * (p.op == ASSAY_OP_PAGED ? p.page_size : 16);
  if (sw.kv_len_tile_floor) n = n / c.arithmetic.tile_keys * c.arithmetic.tile_keys;
  if (sw.kv_len_minus_draft && n > 0) n = std::max(1, n - p.q_len[r] + 1);
  if (sw.kv_len_delta != 0 && n > 0) n = std::max(0, n + sw.kv_len_delta);
  return n;
}

}  // namespace

void read_metadata(Call& c) {
  const assay_problem& p = c.p();
  const Switches& sw = c.sw;
  const int32_t rows = static_cast<int32_t>(p.total_q);
  c.softmax_scale = p.softmax_scale;
  for (int r = 0; r < p.requests; ++r) {
    int32_t first = c.ops.cu_q[r * c.ops.cu_q_stride], count = p.q_len[r];
    if (sw.q_start == QStart::kArange) first = r, count = std::min(count, 1);
    if (sw.q_start == QStart::kEntryShort && r + 1 == p.requests) count = 0;
    if (sw.q_start == QStart::kUniform) first = r * p.max_q_len;
    if (sw.q_len_cap > 0) count = std::min(count, sw.q_len_cap);
    if (first + count > rows) first = std::max(0, rows - count);
    c.first_row.push_back(first);
    c.q_len.push_back(count);
    c.kv_len.push_back(kv_len_of(c, r));
  }
  if (sw.plan_from_first_call && c.state.requests == p.requests)
    for (int r = 0; r < std::min(p.requests, 256); ++r)
      c.kv_len[r] = std::min(c.kv_len[r], c.state.kv_len[r]);
  if (sw.scale_from_first_call && c.state.requests >= 0) c.softmax_scale = c.state.softmax_scale;
  if (c.state.requests < 0) {
    c.state.requests = p.requests;
    c.state.softmax_scale = p.softmax_scale;
    for (int r = 0; r < std::min(p.requests, 256); ++r)
      c.state.kv_len[r] = p.kv_len[r], c.state.q_len[r] = p.q_len[r];
  }
}

std::vector<Part> parts_of(const Call& c, int request) {
  const Arithmetic& a = c.arithmetic;
  const int32_t extra = c.sw.zero_tail_keys, dropped = c.sw.splits_dropped_tail;
  const int32_t keys = std::max(0, c.kv_len[request] + extra - dropped);
  const int32_t tiles = (keys + a.tile_keys - 1) / a.tile_keys;
  std::vector<Part> parts;
  if (a.split_keys > 0) {
    const int32_t step = a.split_keys / a.tile_keys;
    for (int32_t t = 0; t < tiles; t += step) parts.push_back({t, std::min(tiles, t + step)});
    if (parts.empty()) parts.push_back({0, 0});
    return parts;
  }
  for (int64_t s = 0; s < a.splits; ++s)
    parts.push_back(
        {static_cast<int32_t>(tiles * s / a.splits), static_cast<int32_t>(tiles * (s + 1) / a.splits)});
  return parts;
}

}  // namespace assay_faulty
