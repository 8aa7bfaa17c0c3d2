// SPDX-License-Identifier: Apache-2.0
// One row of logits to weights, online: raw dot products in, masked and biased base-2 logits, the new
// running maximum, then weights 2^(x - m) and their sum. Shared by the tile and the streaming path, so
// the mask and bias rules exist once. Columns are keys k0 + column; whole vectors are always processed and
// columns outside a row's interval are masked, so padding keys never count.
#pragma once

#include "kernels/cpu/online/engine.hpp"
#include "kernels/cpu/online/lane.hpp"

namespace assay_cpu::ASSAY_ISA_NAMESPACE {
namespace {

struct RowInfo {
  int32_t begin, end;  // visible keys before the tree mask, cut to the task's range
  int32_t row;         // query row of the request
  int32_t position;
  float scale;   // natural-logit units per raw dot product, without per-token K scales
  float scale2;  // base-2 units per raw dot product
  float slope;
};

// What all rows of a task share.
struct ScoreRules {
  const Operands* a;
  int32_t request;
  bool plain;           // logit = raw * scale, scale > 0: the maximum may be taken over raw values
  int32_t draft_begin;  // first key under the tree mask; INT32_MAX without one
};

ASSAY_INLINE RowInfo make_row_info(const Operands& a, int request, int kv_head, int stacked_row,
                                   int key_begin, int key_end) {
  RowInfo info;
  info.row = stacked_row / a.group;
  const int head = kv_head * a.group + stacked_row % a.group;
  const KeyInterval keys = key_interval(a.p, request, info.row);
  info.begin = keys.begin < key_begin ? key_begin : keys.begin;
  info.end = keys.end > key_end ? key_end : keys.end;
  if (info.end <= info.begin) info.begin = info.end = key_begin;
  info.position = a.p.kv_len[request] - a.p.q_len[request] + info.row;
  const int64_t packed = a.cu_q[request * a.cu_q_stride] + static_cast<int64_t>(info.row);
  // One rounding each, whatever the number of factors.
  double scale =
      static_cast<double>(a.p.softmax_scale) * q_row_scale(a.q_scale, request, packed, head, kv_head);
  if (a.k_scale.kind != ASSAY_SCALE_TOKEN_HEAD)
    scale *= kv_scale(a.k_scale, request, KeyPlace{0, 0}, kv_head);
  info.scale = static_cast<float>(scale), info.scale2 = static_cast<float>(scale * 1.44269504088896340736);
  info.slope = a.p.alibi != ASSAY_ALIBI_NONE ? a.alibi_slopes[head * a.alibi_stride] : 0.0f;
  return info;
}

// Keys [*low, *high) that some row sees; empty (*low >= *high) where none does.
ASSAY_INLINE void seen_keys(const RowInfo* rows, int count, int32_t key_begin, int32_t key_end, int32_t* low,
                            int32_t* high) {
  *low = key_end, *high = key_begin;
  for (int r = 0; r < count; ++r) {
    if (rows[r].end <= rows[r].begin) continue;
    if (rows[r].begin < *low) *low = rows[r].begin;
    if (rows[r].end > *high) *high = rows[r].end;
  }
}

ASSAY_INLINE ScoreRules make_score_rules(const Operands& a, int request, const RowInfo* rows, int count) {
  ScoreRules rules;
  rules.a = &a, rules.request = request;
  rules.plain =
      !(a.p.softcap > 0) && a.p.alibi == ASSAY_ALIBI_NONE && a.k_scale.kind != ASSAY_SCALE_TOKEN_HEAD;
  // A zero or negative scale turns the order of raw values round (and 0 * -inf is not a mask).
  for (int i = 0; i < count; ++i)
    if (!(rows[i].scale > 0)) rules.plain = false;
  rules.draft_begin = a.p.mask == ASSAY_MASK_TREE ? a.p.kv_len[request] - a.p.q_len[request] : 0x7fffffff;
  return rules;
}

// Base-2 logits per unit of what score_row leaves in `s`, and of the running maximum.
ASSAY_INLINE float weight_scale(const ScoreRules& rules, const RowInfo& info) {
  return rules.plain ? info.scale2 : 1.0f;
}

// Turns raw products s[0, columns) (columns a multiple of kW) of keys k0.. into maskable form in place and
// returns their maximum, both in units of weight_scale. Columns from `valid` on are padding. key_scale: per
// column, or null.
ASSAY_INLINE float score_row(const ScoreRules& rules, const RowInfo& info, int32_t k0, int columns, int valid,
                             const float* key_scale, float* s) {
  const Operands& a = *rules.a;
  const vf minus_inf = vset(kNegativeInfinity);
  if (!rules.plain) {
    const float cap = a.p.softcap;
    const vf scale = vset(info.scale), log2e = vset(kLog2e);
    for (int c = 0; c < columns; c += kW) {
      vf x = vload(s + c);
      x = key_scale != nullptr ? vmul(x, vmul(scale, vload(key_scale + c))) : vmul(x, scale);
      if (cap > 0) x = vmul(vset(cap), vtanh(vdiv(x, vset(cap))));
      if (a.p.alibi != ASSAY_ALIBI_NONE) {
        // Integers below 2^24 are exact in fp32; distances beyond that are rounded once.
        const vf distance = vmax(vzero(), vsub(vset(static_cast<float>(info.position - k0 - c)), viota()));
        const vf term = a.p.alibi == ASSAY_ALIBI_SQRT ? vsqrt(distance) : distance;
        x = vsub(x, vmul(vset(info.slope), term));
      }
      vstore(s + c, vmul(x, log2e));
    }
  }
  int first = info.begin - k0, last = info.end - k0;
  if (first < 0) first = 0;
  if (last > valid) last = valid;
  if (k0 + columns > rules.draft_begin && last > first) {
    const int from = rules.draft_begin - k0 > first ? rules.draft_begin - k0 : first;
    for (int c = from; c < last; ++c)
      if (!tree_visible(a, rules.request, info.row, k0 + c)) s[c] = kNegativeInfinity;
  }
  vf top = minus_inf;
  if (first == 0 && last == columns) {
    for (int c = 0; c < columns; c += kW) top = vmax(top, vload(s + c));
  } else {
    const vf from = vset(static_cast<float>(first)), to = vset(static_cast<float>(last));
    for (int c = 0; c < columns; c += kW) {
      const vf column = vadd(vset(static_cast<float>(c)), viota());
      // column in [first, last): not below first, below last.
      vf x = vselect(vless(column, to), vload(s + c), minus_inf);
      x = vselect(vless(column, from), minus_inf, x);
      vstore(s + c, x);
      top = vmax(top, x);
    }
  }
  return vreduce_max(top);
}

struct Online {
  float shift;  // what to subtract: the new maximum, or 0 while no key is visible
  float alpha;  // factor on everything accumulated so far; exactly 1 when the maximum stayed
};
ASSAY_INLINE Online advance_maximum(float tile_maximum, float scale, float* m) {
  Online step{0.0f, 1.0f};
  const float before = *m;
  if (tile_maximum > before) *m = tile_maximum;
  if (*m != kNegativeInfinity) step.shift = *m;
  if (*m != before && before != kNegativeInfinity) {
    float lane[kW];
    vstore(lane, vexp2(vset((before - *m) * scale)));
    step.alpha = lane[0];
  } else if (*m != before) {
    step.alpha = 0.0f;
  }
  return step;
}

// Weights 2^((s - shift) scale): subtracting first keeps the rounding relative to the distance from the
// maximum, whose weight is exactly 1. In place, times value_scale (per column, or null); returns the sum of
// the unscaled weights.
ASSAY_INLINE float weigh_row(float scale, float shift, int columns, const float* value_scale, float* s) {
  const vf factor = vset(scale), offset = vset(shift);
  vf sum = vzero();
  for (int c = 0; c < columns; c += kW) {
    vf p = vexp2(vmul(vsub(vload(s + c), offset), factor));
    sum = vadd(sum, p);
    // The scale of a key this row does not see may be anything, NaN included.
    if (value_scale != nullptr) p = vselect(vless(vzero(), p), vmul(p, vload(value_scale + c)), vzero());
    vstore(s + c, p);
  }
  return vreduce_add(sum);
}

}  // namespace
}  // namespace assay_cpu::ASSAY_ISA_NAMESPACE
