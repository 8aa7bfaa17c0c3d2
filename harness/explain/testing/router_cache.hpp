// SPDX-License-Identifier: Apache-2.0
// The cache of planted_router.cpp: where a slot's numbers lie, what is written of a new key, which slot holds
// a key. Wrong where router_faults.hpp says so.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "harness/check/testing/step_operands.hpp"
#include "harness/explain/testing/router_faults.hpp"

namespace planted_router {

using namespace assay_kernels;
using namespace step_operands;

class Cache {
 public:
  Cache(const assay_problem& problem, const assay_tensors& tensors, Fault f)
      : p(problem), t(tensors), fault(f) {}

 protected:
  bool is(Fault f) const { return fault == f; }
  int rows(int r) const { return whole(t.cu_q, r + 1) - whole(t.cu_q, r); }
  int keys(int r) const { return whole(t.kv_len, r); }
  int context(int r) const { return keys(r) - rows(r); }
  bool decodes(int r) const { return rows(r) <= (is(kThresholdBelow) ? p.threshold - 1 : p.threshold); }
  bool extends(int r) const { return !decodes(r) && context(r) > 0; }
  bool latent() const { return p.layout == ASSAY_LAYOUT_MLA; }

  int64_t element(bool v, int64_t slot, int h, int d) const {
    const assay_tensor& c = v ? t.v : t.k;
    const int64_t block = slot / p.page_size, at = slot % p.page_size;
    if (latent()) return offset(c, block, at, d);
    return p.layout == ASSAY_LAYOUT_HND ? offset(c, block, h, at, d) : offset(c, block, at, h, d);
  }
  double stored(bool v, int64_t slot, int h, int d) const {
    const assay_tensor& c = v ? t.v : t.k;
    return load_element(static_cast<const unsigned char*>(c.data), element(v, slot, h, d), c.format);
  }
  double scale(bool v, int64_t slot, int h) const {
    const assay_tensor& s = v ? t.v_scale : t.k_scale;
    const int32_t kind = v ? p.v_scale_kind : p.k_scale_kind;
    if (kind == ASSAY_SCALE_TOKEN_HEAD) return real(s, slot / p.page_size, h, slot % p.page_size);
    if (kind == ASSAY_SCALE_HOST) return v ? p.v_scale_host : p.k_scale_host;
    return kind == ASSAY_SCALE_HEAD ? real(s, h) : kind == ASSAY_SCALE_TENSOR ? real(s, 0) : 1.0f;
  }
  void write() {
    if (p.no_write != 0) return;
    const auto* slots = static_cast<const int64_t*>(t.slot_mapping.data);
    const int64_t most = t.k.shape[0] * p.page_size;
    for (int r = 0; r < p.requests; ++r)
      for (int i = 0; i < rows(r); ++i) {
        const int64_t first = whole(t.cu_q, r), row = first + i;
        int64_t slot = slots[row];
        if (is(kSlotsFollow)) slot = std::min(most - 1, slots[first] + i);
        if (is(kSlotsPageOn)) slot = (slot + p.page_size) % most;
        if (is(kFirstOfPage)) slot = slot / p.page_size * p.page_size;
        if (is(kLastRowOnly) && i + 1 < rows(r)) continue;
        if (is(kEvenRowsOnly) && i % 2 == 1) continue;
        for (int h = 0; h < p.heads_kv; ++h) {
          write_vector(false, r, i, slot, h);
          if (!latent()) write_vector(true, r, i, slot, h);
        }
      }
    for (int r = 0; r < p.requests; ++r) {
      int key = -1;
      if (is(kLastContextZeroed)) key = context(r) - 1;
      if (is(kOldestZeroed)) key = keys(r) - 1 - p.window_left - rows(r);
      for (int h = 0; key >= 0 && h < p.heads_kv; ++h)
        for (int d = 0; d < p.head_dim_v; ++d) put(true, slot_of(r, key, false), h, d, 0);
    }
  }
  // `routed`: as attention follows the table. A request's entry beyond the cache is the last block.
  int64_t slot_of(int r, int key, bool routed, bool of_context = false) const {
    int n = key / p.page_size;
    const int encoder = t.encoder_len.data == nullptr || is(kEncoderSeen) ? 0 : whole(t.encoder_len, r);
    n += (encoder + p.page_size - 1) / p.page_size;
    if (is(kOtherBlockOfTwo) && routed && n % 2 == 1) n -= 1;
    int64_t block = entry(r, n);
    if (is(kPagesFollow) && of_context && extends(r)) block = entry(r, 0) + n;
    return std::min(block, t.k.shape[0] - 1) * p.page_size + key % p.page_size;
  }

  const assay_problem& p;
  const assay_tensors& t;
  Fault fault;

 private:
  int entry(int r, int n) const {
    if (p.table != ASSAY_TABLE_CSR) return whole(t.block_table, r, n);
    int at = whole(t.indptr, is(kIndptrNext) ? std::min(r + 1, p.requests - 1) : r) + n;
    if (is(kIndptrOneLate)) at = std::min(at + 1, whole(t.indptr, p.requests) - 1);
    return whole(t.indices, at);
  }
  void put(bool v, int64_t slot, int h, int d, float x) {
    auto* data = static_cast<unsigned char*>((v ? t.v : t.k).data);
    const int32_t format = (v ? t.v : t.k).format;
    const int64_t at = element(v, slot, h, d);
    if (format == ASSAY_INT8) {
      if (is(kFourBits)) x = std::clamp(x, -8.0f, 7.0f);
      data[at] = static_cast<unsigned char>(int8_from_float(x) ^ (is(kUnsigned) ? 0x80 : 0));
    } else if (element_bytes_of(format) == 1) {
      data[at] = fp8_from_float(is(kClampsAt240) ? std::clamp(x, -240.0f, 240.0f) : x, format);
    } else {
      if (is(kTruncated) && format == ASSAY_BF16) {
        uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        bits &= 0xffff0000;
        std::memcpy(&x, &bits, sizeof bits);
      }
      store_element(data, at, format, x);
    }
  }
  float source(bool v, int64_t row, int h, int d) const {
    return real(v ? t.dense_v : t.dense_k, row, is(kFirstHeadForAll) ? 0 : h, d);
  }
  // What is made of a row's key or value before it is stored.
  void change(bool v, int r, int i, int h, std::vector<float>& x) const {
    const auto dims = static_cast<int>(x.size());
    if (!v && is(kKeyNormalised)) {
      const float squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0f);
      for (float& n : x) n /= std::sqrt(squares / static_cast<float>(dims) + 1e-6f);
    }
    if (!v && is(kKeyMeanLess)) {
      const float mean = std::accumulate(x.begin(), x.end(), 0.0f) / static_cast<float>(dims);
      for (float& n : x) n -= mean;
    }
    for (int d = 0; !v && is(kKeyTurned) && d < dims / 2; ++d) {
      const double angle = (context(r) + i) * std::pow(10000.0, -2.0 * d / dims);
      float &a = x[static_cast<size_t>(d)], &b = x[static_cast<size_t>(d + dims / 2)];
      const double first = a * std::cos(angle) - b * std::sin(angle);
      b = static_cast<float>(b * std::cos(angle) + a * std::sin(angle)), a = static_cast<float>(first);
    }
    for (float& n : x) {
      if (is(kFirstNewZero) && i == 0) n = 0;
      if (is(kKeyTimesScale) && !v) n *= p.softmax_scale;
      if (is(kVNegative) && v) n = -n;
    }
    for (int d = 0; is(kNewAddedToNext) && i > 0 && d < dims; ++d)
      x[static_cast<size_t>(d)] += source(v, whole(t.cu_q, r) + i - 1, h, d);
  }
  void write_vector(bool v, int r, int i, int64_t slot, int h) {
    std::vector<float> x(static_cast<size_t>(v ? p.head_dim_v : p.head_dim_qk));
    for (size_t d = 0; d < x.size(); ++d) x[d] = source(v, whole(t.cu_q, r) + i, h, static_cast<int>(d));
    change(v, r, i, h, x);
    double by = (v ? p.v_scale_kind : p.k_scale_kind) == ASSAY_SCALE_TOKEN_HEAD ? 0 : scale(v, slot, h);
    if (by == 0) {  // computed here
      for (const float n : x) by = std::max(by, std::fabs(double{n}) / 127);
      const assay_tensor& s = v ? t.v_scale : t.k_scale;
      const int64_t at = slot % p.page_size - (is(kScaleOfSlotBefore) && slot % p.page_size > 0 ? 1 : 0);
      static_cast<float*>(s.data)[offset(s, slot / p.page_size, h, at)] = static_cast<float>(by);
    }
    for (size_t d = 0; d < x.size(); ++d)
      put(v, slot, h, static_cast<int>(d), by > 0 ? static_cast<float>(x[d] / by) : 0);
  }
};

}  // namespace planted_router
