// SPDX-License-Identifier: Apache-2.0
// What a kernel derives before it touches Q, K or V: where each request's rows begin, how many keys it has,
// and the parts its keys are split into. Wrong metadata is believed by every later stage.
#include <algorithm>

#include "kernels/faulty/call.hpp"

namespace assay_faulty {
namespace {

int32_t key_end_of(const Call& c, int r) {
  const Switches& sw = c.sw;
  const assay_problem& p = c.p();
  int32_t n = p.kv_len[r];
  const int32_t page = p.op == ASSAY_OP_PAGED ? p.page_size : 16;
  if (sw.kv_len_of_first) n = std::min(n, p.kv_len[0]);
  if (sw.kv_len_page_floor) n = n / page * page;
  if (sw.kv_len_tile_floor) n = n / c.arithmetic.tile_keys * c.arithmetic.tile_keys;
  if (sw.kv_len_minus_draft && n > 0) n = std::clamp(n - p.q_len[r] + 1, 1, n);
  if (sw.plan_from_first_call && c.state.requests == p.requests && r < State::kKept)
    n = std::min(n, c.state.kv_len[r]);
  return n;
}

// Row starts of each request, right or wrong; `keys` is the number of keys before the request.
void place_rows(const Call& c, int r, int64_t keys, int32_t& first, int32_t& count) {
  const assay_problem& p = c.p();
  const Switches& sw = c.sw;
  const auto rows = static_cast<int32_t>(p.total_q);
  first = c.ops.cu_q[r * c.ops.cu_q_stride], count = p.q_len[r];
  const bool mixed = p.max_q_len > 1 || p.window_left >= 0;
  if (sw.q_start == QStart::kArange) first = r, count = std::min(count, 1);
  if (sw.q_start == QStart::kEntryShort && mixed && r + 1 == p.requests) count = 0;
  if (sw.q_start == QStart::kUniform) first = r * p.max_q_len;
  if (sw.q_start == QStart::kOfKeys && p.mask == ASSAY_MASK_CROSS && rows > 0)
    first = static_cast<int32_t>(keys % (rows - count + 1));
  if (sw.q_len_cap > 0) count = std::min(count, sw.q_len_cap);
  if (sw.request_cap > 0 && r >= sw.request_cap) count = 0;
  if (first + count > rows) first = std::max(0, rows - count);
}

}  // namespace

void recall_first_call(const Switches& sw, const State& state, assay_problem& p) {
  if (state.requests < 0) return;
  if (sw.scale_from_first_call) p.softmax_scale = state.softmax_scale;
  if (sw.softcap_from_first_call) p.softcap = state.softcap;
  // A tree comes with operands that a call without one does not have.
  if (sw.mask_from_first_call && (p.mask == ASSAY_MASK_TREE || state.mask != ASSAY_MASK_TREE))
    p.mask = state.mask;
}

void remember_first_call(const assay_problem& p, const assay_tensors& t, State& state) {
  const int64_t* shape = t.q.shape;
  const auto known = [&](const State::Launch& l) { return std::equal(shape, shape + 3, l.shape); };
  if (std::none_of(state.launches.begin(), state.launches.end(), known))
    state.launches.push_back({{shape[0], shape[1], shape[2]}, {t.q.stride[0], t.q.stride[1], t.q.stride[2]}});
  if (state.requests >= 0) return;
  state.requests = p.requests, state.mask = p.mask;
  state.softmax_scale = p.softmax_scale, state.softcap = p.softcap;
  for (int r = 0; r < std::min(p.requests, State::kKept); ++r) state.kv_len[r] = p.kv_len[r];
}

void read_metadata(Call& c) {
  const assay_problem& p = c.p();
  c.softmax_scale = static_cast<float>(p.softmax_scale * (1 + c.sw.softmax_scale_error));
  int64_t keys = 0;
  for (int r = 0; r < p.requests; ++r) {
    int32_t first = 0, count = 0;
    place_rows(c, r, keys, first, count);
    c.first_row.push_back(first);
    c.q_len.push_back(count);
    c.kv_len.push_back(p.kv_len[r]);
    c.key_end.push_back(key_end_of(c, r));
    keys += p.kv_len[r];
  }
}

std::vector<Part> parts_of(const Call& c, int request) {
  const Arithmetic& a = c.arithmetic;
  const int32_t extra = c.sw.zero_tail_keys + c.sw.kv_len_delta;
  const int32_t keys = std::max(0, c.kv_len[request] + extra);
  const int32_t tiles = (keys + a.tile_keys - 1) / a.tile_keys;
  std::vector<Part> parts;
  if (a.split_keys > 0) {
    const int32_t step = a.split_keys / a.tile_keys;
    for (int32_t t = 0; t < tiles; t += step) parts.push_back({t, std::min(tiles, t + step)});
    if (parts.empty()) parts.push_back({0, 0});
    return parts;
  }
  // Of the length alone, so that results do not depend on the batch.
  const int32_t splits =
      a.splits_vary
          ? 1 + static_cast<int32_t>(mix(static_cast<uint32_t>(keys), 29) % static_cast<uint32_t>(a.splits))
          : a.splits;
  if (a.interleaved) {
    for (int32_t s = 0; s < splits; ++s) parts.push_back({s, tiles, false, splits});
    return parts;
  }
  const int64_t shared = c.sw.splits_of_longest ? (c.p().max_kv_len + a.tile_keys - 1) / a.tile_keys : tiles;
  for (int64_t s = 0; s < splits; ++s) {
    const auto first = static_cast<int32_t>(shared * s / splits);
    const auto end = static_cast<int32_t>(shared * (s + 1) / splits);
    parts.push_back({std::min(first, tiles), std::min(end, tiles), first < end && first >= tiles});
  }
  return parts;
}

}  // namespace assay_faulty
