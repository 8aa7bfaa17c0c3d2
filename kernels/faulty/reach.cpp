// SPDX-License-Identifier: Apache-2.0
// The visible interval of a row once more (the mask rules of assay_kernel.h), and the order of tiles and
// parts that the fault kernels declare.
#include "kernels/faulty/reach.hpp"

namespace assay_faulty::reach {

RowView row_view(const assay_problem& p, int32_t request, int32_t row) {
  RowView v{};
  v.request = request, v.row = row, v.q_len = p.q_len[request], v.kv_len = p.kv_len[request];
  v.position = v.context() + row;
  v.tree = p.mask == ASSAY_MASK_TREE;
  v.end = v.kv_len;
  if (causal(p)) v.end = std::min(v.end, v.position + 1);
  if (p.window_left >= 0) v.begin = std::max<int64_t>(v.begin, v.position - p.window_left);
  if (p.window_right >= 0) v.end = std::min(v.end, v.position + p.window_right + 1);
  if (p.chunk > 0 && v.position >= 0) v.begin = std::max(v.begin, v.position / p.chunk * p.chunk);
  return v;
}

bool any_visible(const assay_problem& p) {
  return any_row(p, [](const RowView& v) { return !v.empty(); });
}

int64_t tiles_seen(const RowView& v) { return v.empty() ? 0 : (v.end - 1) / kTile - v.begin / kTile + 1; }

int32_t part_of(const RowView& v, int64_t key) {
  const int64_t tiles = ceil_div(v.kv_len, kTile), tile = key / kTile;
  int32_t part = 0;
  while (part + 1 < kParts && tiles * (part + 1) / kParts <= tile) ++part;
  return part;
}

int32_t parts_seen(const RowView& v) {
  if (v.empty()) return 0;
  int32_t seen = 0, last = -1;
  for (int64_t tile = v.begin / kTile; tile <= (v.end - 1) / kTile; ++tile) {
    const int32_t part = part_of(v, tile * kTile);
    if (part != last) ++seen;
    last = part;
  }
  return seen;
}

bool several_parts(const assay_problem& p) {
  return any_row(p, [](const RowView& v) { return parts_seen(v) > 1; });
}

bool rescales(const assay_problem& p) {
  return any_row(p, [](const RowView& v) { return tiles_seen(v) > 1; });
}

bool masks_lanes(const RowView& v) {
  const bool shared = v.q_len > 1;
  return v.tree || (v.begin > 0 && (shared || v.begin % kTile != 0)) ||
         (v.end < v.kv_len && (shared || v.end % kTile != 0));
}

float default_scale(int32_t head_dim) { return static_cast<float>(1.0 / std::sqrt(head_dim)); }

}  // namespace assay_faulty::reach
