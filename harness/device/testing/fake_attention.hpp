// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the fake kernels: one plain attention in double precision over the tensors, with the
// behaviours that are wrong inside of it. What misbehaves around a call stands in fake_backend.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "harness/device/testing/fake_behaviours.hpp"
#include "harness/device/testing/fake_device.hpp"
#include "reference/formats/formats.hpp"

namespace assay_fake {

inline double element(const assay_tensor& t, int64_t a, int64_t b, int64_t c, int64_t d = 0) {
  return assay::load(t.format, t.data, a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3]);
}

// Element of a cache, addressed as badly as the behaviour has it.
inline double cache_element(assay_tensor t, int64_t a, int64_t b, int64_t c, int64_t d, Behaviour behaviour) {
  if (behaviour == Behaviour::kLastPacked) t.stride[3] = 1;
  int64_t at = a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3];
  const int64_t bytes = bytes_of(t.format);
  if (behaviour == Behaviour::kElements32) at &= 0x7fffffff;
  if (behaviour == Behaviour::kBytes32) at = (at * bytes & 0xffffffff) / bytes;
  return assay::load(t.format, t.data, at);
}

// K or V element of one position; NHD [block, slot, head, dim], HND [block, head, slot, dim].
inline double cached(const assay_problem& p, const assay_tensors& ts, const assay_tensor& t, int request,
                     int64_t position, int head, int dim, Behaviour behaviour = Behaviour::kOk) {
  if (p.op == ASSAY_OP_PREFILL) {
    const int64_t first = static_cast<const int32_t*>(ts.cu_kv.data)[request];
    return element(t, first + position, head, dim);
  }
  const int32_t* const table =
      static_cast<const int32_t*>(ts.block_table.data) + request * ts.block_table.stride[0];
  const int64_t step = ts.block_table.stride[1], page = position / p.page_size;
  int64_t block = 0, slot = position % p.page_size;
  if (p.table == ASSAY_TABLE_TOKEN) {
    const bool in_order = behaviour == Behaviour::kSlotsInOrder;
    const int64_t flat = in_order ? table[page * p.page_size * step] + slot : table[position * step];
    block = flat / p.page_size, slot = flat % p.page_size;
  } else {
    block = table[page * step];
  }
  return p.layout == ASSAY_LAYOUT_NHD ? cache_element(t, block, slot, head, dim, behaviour)
                                      : cache_element(t, block, head, slot, dim, behaviour);
}

inline bool sees(const assay_problem& p, int64_t position, int64_t key) {
  if (p.mask == ASSAY_MASK_CAUSAL && key > position) return false;
  if (p.window_left >= 0 && key < position - p.window_left) return false;
  return p.window_right < 0 || key <= position + p.window_right;
}

inline void attend(const assay_problem& p, const assay_tensors& ts, Behaviour behaviour) {
  const auto* cu_q = static_cast<const int32_t*>(ts.cu_q.data);
  const auto* kv_len = static_cast<const int32_t*>(ts.kv_len.data);
  const int32_t page = p.op == ASSAY_OP_PAGED ? p.page_size : 16;
  const bool leans = behaviour == Behaviour::kLean ||
                     (behaviour == Behaviour::kLeanOnce && p.total_q > 0 && element(ts.q, 0, 0, 0) > 0);
  const double size = leans ? 1.0013 : 1.0;
  for (int r = 0; r < p.requests; ++r) {
    const bool frozen = behaviour == Behaviour::kFrozen;
    const int64_t n = frozen ? p.q_len[r] : cu_q[r + 1] - cu_q[r];
    const int64_t m = frozen ? p.kv_len[r] : kv_len[r * ts.kv_len.stride[0]];
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = cu_q[r] + i, position = m - n + i;
      if (behaviour == Behaviour::kSkipRow && row + 1 == p.total_q) continue;
      for (int h = 0; h < p.heads_q; ++h) {
        const int kv = h / (p.heads_q / p.heads_kv);
        int64_t end = m;
        if (behaviour == Behaviour::kDropPage && m > page) end = (m - 1) / page * page;
        if (behaviour == Behaviour::kGridBound) end = std::min<int64_t>(m, p.kv_len[r]);
        std::vector<double> x(end);
        double top = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < end; ++j) {
          double dot = 0;
          for (int d = 0; d < p.head_dim_qk; ++d)
            dot += element(ts.q, row, h, d) * cached(p, ts, ts.k, r, j, kv, d, behaviour);
          x[j] = sees(p, position, j) ? dot * p.softmax_scale : -std::numeric_limits<double>::infinity();
          top = std::max(top, x[j]);
        }
        std::vector<double> lost(end, 1.0);  // factor by which a weight in O is too large
        if (behaviour == Behaviour::kUnscaled) {
          double moving = -std::numeric_limits<double>::infinity();
          for (int64_t j = 0; j < end; ++j) {
            moving = std::max(moving, x[j]);
            if (!std::isinf(x[j])) lost[j] = std::exp(top - moving);
          }
        }
        double sum = 0;
        for (double& value : x) sum += value = std::isinf(top) ? 0.0 : std::exp(value - top);
        const double lse = sum > 0 ? top + std::log(sum) : -std::numeric_limits<double>::infinity();
        for (int d = 0; d < p.head_dim_v; ++d) {
          double o = 0;
          for (int64_t j = 0; j < end; ++j)
            if (x[j] > 0) o += x[j] * lost[j] * cached(p, ts, ts.v, r, j, kv, d, behaviour);
          if (behaviour == Behaviour::kLeak && m % page != 0 && p.op == ASSAY_OP_PAGED) {
            // The classical mistake: the whole last page is multiplied, masked keys with P = 0.
            for (int64_t j = m; j < (m / page + 1) * page; ++j) o += 0.0 * cached(p, ts, ts.v, r, j, kv, d);
          }
          assay::store(
              ts.o.format, ts.o.data, row * ts.o.stride[0] + h * ts.o.stride[1] + d * ts.o.stride[2],
              sum > 0 ? size * (behaviour == Behaviour::kOneBadRow && row == 137 ? 1.5 : 1) * o / sum : 0.0);
        }
        if (behaviour == Behaviour::kNoEmpty && m == 0)
          assay::store(ts.o.format, ts.o.data, row * ts.o.stride[0] + h * ts.o.stride[1],
                       std::numeric_limits<double>::quiet_NaN());
        if (ts.lse.data == nullptr || behaviour == Behaviour::kNoLse) continue;
        int64_t at = row * ts.lse.stride[0] + h * ts.lse.stride[1];
        if (behaviour == Behaviour::kHeadsFirst) at = h * p.total_q + row;
        if (behaviour == Behaviour::kRowsFirst) at = row * p.heads_q + h;
        assay::store(ts.lse.format, ts.lse.data, at,
                     behaviour == Behaviour::kLse2 ? lse * 1.4426950408889634 : lse);
      }
    }
  }
}

// Every element of a view, strides respected.
template <class Value>
void fill(const assay_tensor& t, const Value& value) {
  for (int64_t a = 0; a < t.shape[0]; ++a)
    for (int64_t b = 0; b < t.shape[1]; ++b)
      for (int64_t c = 0; c < (t.rank > 2 ? t.shape[2] : 1); ++c)
        assay::store(t.format, t.data, a * t.stride[0] + b * t.stride[1] + (t.rank > 2 ? c * t.stride[2] : 0),
                     value);
}

}  // namespace assay_fake
