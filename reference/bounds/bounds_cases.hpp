// SPDX-License-Identifier: Apache-2.0
// Inputs for the tests of the bounds: one dense request in host memory, in several families (what the logits
// and values look like), with every kind of scale. A family is one line of make_case().
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "harness/base/random.hpp"
#include "harness/problem/problem.hpp"
#include "reference/attention/attention.hpp"
#include "reference/formats/formats.hpp"

namespace assay::testkit {

// One dense request with operands in host memory. Values are what the formats can hold.
struct DenseCase {
  Problem problem;
  std::vector<double> q, k, v;  // [n, heads_q, d], [m, heads_kv, d], [m, heads_kv, dv]
  std::vector<float> slopes, sinks;
  // Scales of the kinds named in the problem (TENSOR, HEAD, TOKEN_HEAD and CHANNEL); q, k and v hold decoded
  // codes, before scales.
  std::vector<float> q_scale, k_scale, v_scale;
  std::vector<std::byte> stored_q, stored_k, stored_v;
  std::vector<int32_t> cu_q, cu_kv, kv_len;
  std::vector<int64_t> tree_indptr;
  assay_tensors tensors{};
  HostOperands host() const { return {&tensors}; }
  int64_t n() const { return problem.requests[0].q_len; }
  int64_t m() const { return problem.requests[0].kv_len; }

  // Encodes the values and fills the tensors; call after changing anything.
  void store() {
    const auto encode = [](const std::vector<double>& from, int32_t format, std::vector<std::byte>& to) {
      to.resize(from.size() * 4);  // enough for the widest
      encode_span(format, from.data(), static_cast<int64_t>(from.size()), to.data());
    };
    encode(q, problem.q_format, stored_q);
    encode(k, problem.k_format, stored_k);
    encode(v, problem.v_format, stored_v);
    decode_span(problem.q_format, stored_q.data(), static_cast<int64_t>(q.size()), q.data());
    decode_span(problem.k_format, stored_k.data(), static_cast<int64_t>(k.size()), k.data());
    decode_span(problem.v_format, stored_v.data(), static_cast<int64_t>(v.size()), v.data());
    cu_q = problem.cu_q();
    cu_kv = problem.cu_kv();
    kv_len = problem.kv_lens();
    tree_indptr = problem.tree_indptr();
    const Problem& p = problem;
    tensors = {};
    tensors.struct_size = sizeof(tensors);
    view(tensors.q, stored_q.data(), p.q_format, {n(), p.heads_q, p.head_dim_qk});
    view(tensors.k, stored_k.data(), p.k_format, {m(), p.heads_kv, p.head_dim_qk});
    view(tensors.v, stored_v.data(), p.v_format, {m(), p.heads_kv, p.head_dim_v});
    view(tensors.cu_q, cu_q.data(), ASSAY_INT32, {2});
    view(tensors.cu_kv, cu_kv.data(), ASSAY_INT32, {2});
    view(tensors.kv_len, kv_len.data(), ASSAY_INT32, {1});
    view_scale(tensors.q_scale, q_scale, p.q_scale, n(), p.heads_q, p.head_dim_qk);
    view_scale(tensors.k_scale, k_scale, p.k_scale, m(), p.heads_kv, p.head_dim_qk);
    view_scale(tensors.v_scale, v_scale, p.v_scale, m(), p.heads_kv, p.head_dim_v);
    if (p.alibi != ASSAY_ALIBI_NONE) view(tensors.alibi_slopes, slopes.data(), ASSAY_FP32, {p.heads_q});
    if (p.sinks) view(tensors.sinks, sinks.data(), ASSAY_FP32, {p.heads_q});
    if (p.mask == ASSAY_MASK_TREE) {
      view(tensors.tree_mask, problem.tree_mask.data(), ASSAY_UINT8,
           {static_cast<int64_t>(p.tree_mask.size())});
      view(tensors.tree_indptr, tree_indptr.data(), ASSAY_INT64, {2});
    }
  }
  // The same values in the formats and scale kinds that the problem names now, with codes up to `largest`.
  DenseCase rebuilt(double largest) const {
    DenseCase c = *this;
    const Problem& p = c.problem;
    quantise(c.q, c.q_scale, p.q_scale, n(), p.heads_q, p.head_dim_qk, largest);
    quantise(c.k, c.k_scale, p.k_scale, m(), p.heads_kv, p.head_dim_qk, largest);
    quantise(c.v, c.v_scale, p.v_scale, m(), p.heads_kv, p.head_dim_v, largest);
    c.store();
    return c;
  }
  std::vector<RowId> rows() const {
    std::vector<RowId> all;
    for (int32_t i = 0; i < n(); ++i) all.push_back({0, i});
    return all;
  }

  // Divides by a scale per `kind` so that the largest value becomes `largest`, and keeps the scale.
  static void quantise(std::vector<double>& values, std::vector<float>& scales, int32_t kind, int64_t tokens,
                       int64_t heads, int64_t dim, double largest) {
    if (kind == ASSAY_SCALE_NONE) return;
    const int64_t count = kind == ASSAY_SCALE_TENSOR       ? 1
                          : kind == ASSAY_SCALE_HEAD       ? heads
                          : kind == ASSAY_SCALE_TOKEN_HEAD ? tokens * heads
                                                           : heads * dim;
    std::vector<double> tops(count, 0.0);
    for (size_t i = 0; i < values.size(); ++i) {
      double& top = tops[scale_index(kind, static_cast<int64_t>(i), heads, dim)];
      top = std::max(top, std::fabs(values[i]));
    }
    scales.clear();
    for (double top : tops) scales.push_back(static_cast<float>(top > 0 ? 1.037 * top / largest : 1));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] /= scales[scale_index(kind, static_cast<int64_t>(i), heads, dim)];
  }
  // Of element i of [tokens, heads, dim].
  static int64_t scale_index(int32_t kind, int64_t i, int64_t heads, int64_t dim) {
    switch (kind) {
      case ASSAY_SCALE_HEAD:
        return i / dim % heads;
      case ASSAY_SCALE_TOKEN_HEAD:
        return i / dim;
      case ASSAY_SCALE_CHANNEL:
        return i % (heads * dim);
      default:
        return 0;
    }
  }

 private:
  static void view_scale(assay_tensor& t, std::vector<float>& scales, int32_t kind, int64_t tokens,
                         int64_t heads, int64_t dim) {
    if (kind == ASSAY_SCALE_TENSOR) view(t, scales.data(), ASSAY_FP32, {1});
    if (kind == ASSAY_SCALE_HEAD) view(t, scales.data(), ASSAY_FP32, {heads});
    if (kind == ASSAY_SCALE_TOKEN_HEAD) view(t, scales.data(), ASSAY_FP32, {tokens, heads});
    if (kind == ASSAY_SCALE_CHANNEL) view(t, scales.data(), ASSAY_FP32, {heads, dim});
  }
  static void view(assay_tensor& t, void* data, int32_t format, std::vector<int64_t> shape) {
    t.data = data;
    t.format = format;
    t.rank = static_cast<int32_t>(shape.size());
    int64_t stride = 1;
    for (int i = t.rank; i-- > 0;) {
      t.shape[i] = shape[i];
      t.stride[i] = stride;
      stride *= shape[i];
    }
  }
};

// Draws of a case, one after the other; a stream for each test.
class CaseDraw {
 public:
  CaseDraw(uint64_t seed, uint64_t stream) : random_(seed, stream) {}
  int32_t below(uint64_t n) { return static_cast<int32_t>(random_.below(at_++, n)); }
  double uniform(double low, double high) { return low + (high - low) * random_.uniform(at_++); }

 private:
  CounterRng random_;
  uint64_t at_ = 0;
};

// What the test inputs look like.
enum class Family {
  kNormal,
  kPeaked,
  kCancelling,
  kOutlier,
  kOneHot,
  kFlat,
  kAscending,
  kPositive,
  kEqualKeys,
  kHeavyTail,
  kUltraFlat,  // logits of standard deviation 0.0015 and V > 0: all P in a few cells of its grid
  kNeedle,     // equal keys but one: a single weight stands out late
  kCount
};

inline DenseCase make_case(Family family, int32_t n, int32_t m, int32_t d, uint64_t seed,
                           int32_t format = ASSAY_BF16) {
  DenseCase c;
  Problem& p = c.problem;
  p.op = ASSAY_OP_PREFILL;
  p.heads_q = 2;
  p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = d;
  p.q_format = p.k_format = p.v_format = p.o_format = format;
  p.softmax_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
  p.table = ASSAY_TABLE_NONE;
  p.requests = {{n, m}};
  const CounterRng rq(seed, 1), rk(seed, 2), rv(seed, 3);
  c.q.resize(static_cast<size_t>(n) * 2 * d);
  c.k.resize(static_cast<size_t>(m) * d);
  c.v.resize(static_cast<size_t>(m) * d);
  const double spread = family == Family::kPeaked      ? 12
                        : family == Family::kOneHot    ? 40
                        : family == Family::kFlat      ? 0.01
                        : family == Family::kUltraFlat ? 0.0015
                                                       : 1;
  const bool equal = family == Family::kEqualKeys || family == Family::kNeedle;
  for (size_t i = 0; i < c.q.size(); ++i) c.q[i] = spread * rq.normal(i);
  for (size_t i = 0; i < c.k.size(); ++i) c.k[i] = rk.normal(equal ? i % d : i);
  for (size_t i = 0; i < c.v.size(); ++i) c.v[i] = rv.normal(i);
  if (family == Family::kCancelling)
    for (size_t i = 0; i < c.v.size(); ++i) c.v[i] = (i / d % 2 == 0 ? 1 : -1) * (100 + c.v[i]);
  if (family == Family::kPositive || family == Family::kUltraFlat)
    for (double& value : c.v) value = 0.5 + std::fabs(value);
  if (family == Family::kNeedle)
    for (int32_t t = 0; t < d; ++t) c.k[static_cast<size_t>(m * 3 / 4) * d + t] += 0.35 * c.q[t];
  if (family == Family::kHeavyTail) {
    const CounterRng ru(seed, 4);
    for (size_t i = 0; i < c.k.size(); ++i)
      c.k[i] /= std::sqrt(0.3 + 3 * ru.uniform(2 * i) * ru.uniform(2 * i));
    for (size_t i = 0; i < c.v.size(); ++i) c.v[i] /= 0.05 + ru.uniform(2 * i + 1);
  }
  if (family == Family::kOutlier)
    for (int channel : {1, d / 3, d - 2}) {
      for (size_t i = channel; i < c.k.size(); i += d) c.k[i] = 0.3 * c.k[i] + 10;
      for (size_t i = channel; i < c.v.size(); i += d) c.v[i] *= 30;
    }
  if (family == Family::kAscending)
    for (int32_t j = 0; j < m; ++j)
      for (int32_t t = 0; t < d; ++t) c.k[static_cast<size_t>(j) * d + t] += 12.0 * j / m * c.q[t];
  c.store();
  return c;
}

}  // namespace assay::testkit
