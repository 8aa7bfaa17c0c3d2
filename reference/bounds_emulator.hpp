// SPDX-License-Identifier: Apache-2.0
// An attention kernel in slow motion, for the tests of the bounds: tiled online softmax in fp32 with every
// choice of assay_arithmetic (lanes or tensor-core blocks, order, splits, rounding of P, lazy rescale,
// an inexact exponential), and with planted mistakes. It shares no code with the reference or the bounds.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "harness/base/random.hpp"
#include "harness/problem/problem.hpp"
#include "reference/attention.hpp"
#include "reference/formats.hpp"

namespace assay::testing {

// One dense request with operands in host memory. Values are what the formats can hold.
struct DenseCase {
  Problem problem;
  std::vector<double> q, k, v;  // [n, heads_q, d], [m, heads_kv, d], [m, heads_kv, dv]
  std::vector<float> slopes, sinks;
  std::vector<uint16_t> stored_q, stored_k, stored_v;
  std::vector<int32_t> cu_q, cu_kv, kv_len;
  std::vector<int64_t> tree_indptr;
  assay_tensors tensors{};
  HostOperands host() const { return {&tensors}; }
  int64_t n() const { return problem.requests[0].q_len; }
  int64_t m() const { return problem.requests[0].kv_len; }

  // Encodes the values and fills the tensors; call after changing anything.
  void store() {
    const auto encode = [](const std::vector<double>& from, int32_t format, std::vector<uint16_t>& to) {
      to.resize(from.size());
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
    if (p.alibi != ASSAY_ALIBI_NONE) view(tensors.alibi_slopes, slopes.data(), ASSAY_FP32, {p.heads_q});
    if (p.sinks) view(tensors.sinks, sinks.data(), ASSAY_FP32, {p.heads_q});
    if (p.mask == ASSAY_MASK_TREE) {
      view(tensors.tree_mask, problem.tree_mask.data(), ASSAY_UINT8,
           {static_cast<int64_t>(p.tree_mask.size())});
      view(tensors.tree_indptr, tree_indptr.data(), ASSAY_INT64, {2});
    }
  }
  std::vector<RowId> rows() const {
    std::vector<RowId> all;
    for (int32_t i = 0; i < n(); ++i) all.push_back({0, i});
    return all;
  }

 private:
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
  const double spread = family == Family::kPeaked   ? 12
                        : family == Family::kOneHot ? 40
                        : family == Family::kFlat   ? 0.01
                                                    : 1;
  for (size_t i = 0; i < c.q.size(); ++i) c.q[i] = spread * rq.normal(i);
  for (size_t i = 0; i < c.k.size(); ++i) c.k[i] = rk.normal(family == Family::kEqualKeys ? i % d : i);
  for (size_t i = 0; i < c.v.size(); ++i) c.v[i] = rv.normal(i);
  if (family == Family::kCancelling)
    for (size_t i = 0; i < c.v.size(); ++i) c.v[i] = (i / d % 2 == 0 ? 1 : -1) * (100 + c.v[i]);
  if (family == Family::kPositive)
    for (double& value : c.v) value = 0.5 + std::fabs(value);
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

enum class Mutant {
  kNone,
  kDropKey,
  kStaleToken,
  kScale,
  kWindowShort,
  kNoRescale,
  kLse2,
  kSwapV,
  kLastDim,
  kTailKeys
};

struct Emulation {
  std::vector<double> o;    // before the output rounding, [n, heads_q, dv]
  std::vector<double> lse;  // [n, heads_q]
};

class Emulator {
 public:
  Emulator(const DenseCase& c, const assay_arithmetic& a, Mutant mutant = Mutant::kNone, uint64_t seed = 1)
      : c_(c), p_(c.problem), a_(a), mutant_(mutant), random_(seed, 77) {
    victim_ = static_cast<int64_t>(random_.below(0, c.m()));
  }

  Emulation run() {
    Emulation out;
    for (int64_t i = 0; i < c_.n(); ++i)
      for (int32_t h = 0; h < p_.heads_q; ++h) row(i, h, out);
    return out;
  }

 private:
  static constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

  // Truncation toward zero to `bits` fraction bits relative to 2^exponent.
  static double chop(double x, int exponent, int bits) {
    return std::ldexp(std::trunc(std::ldexp(x, bits - exponent)), exponent - bits);
  }
  static int exponent(double x) { return x == 0 ? -100000 : std::ilogb(x); }

  // c + sum a b the way the declared unit does it.
  double block_step(double c, const double* a, const double* b, int count,
                    const assay_accumulator& acc) const {
    int top = exponent(c);
    for (int t = 0; t < count; ++t)
      if (a[t] != 0 && b[t] != 0) top = std::max(top, exponent(a[t]) + exponent(b[t]));
    if (top <= -100000) return 0;
    double sum = chop(c, top, acc.fraction_bits);
    for (int t = 0; t < count; ++t) sum += chop(a[t] * b[t], top, acc.fraction_bits);
    return sum == 0 ? 0 : chop(sum, exponent(sum), acc.mantissa_bits);
  }
  // Sum of products, `start` included.
  double dot(double start, const std::vector<double>& a, const std::vector<double>& b,
             const assay_accumulator& acc) const {
    const int n = static_cast<int>(a.size());
    if (acc.kind == ASSAY_ACC_INT32) {
      double sum = start;
      for (int t = 0; t < n; ++t) sum += a[t] * b[t];
      return sum;
    }
    if (acc.kind == ASSAY_ACC_BLOCK) {
      double c = start;
      for (int t = 0; t < n; t += acc.block) c = block_step(c, &a[t], &b[t], std::min(acc.block, n - t), acc);
      return c;
    }
    std::vector<float> lanes(std::max(1, acc.block), 0.0f);
    lanes[0] = static_cast<float>(start);
    for (int t = 0; t < n; ++t) {
      float& lane = lanes[t % lanes.size()];
      lane = std::fmaf(static_cast<float>(a[t]), static_cast<float>(b[t]), lane);
    }
    for (size_t width = lanes.size(); width > 1; width = (width + 1) / 2)
      for (size_t i = 0; i < width / 2; ++i) lanes[i] += lanes[width - 1 - i];
    return lanes[0];
  }
  float exponential(float x) const {  // natural, with the declared relative error
    if (x < -87.0f) return 0.0f;
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const double noise = 2 * random_.uniform(bits) - 1;
    return static_cast<float>(std::exp(static_cast<double>(x)) *
                              (1 + (x == 0 ? 0 : 0.9) * a_.exp_relative_error * noise));
  }
  float capped(float x) const {
    if (p_.softcap <= 0) return x;
    const double noise = 2 * random_.uniform(std::bit_cast<uint32_t>(x)) - 1;
    return p_.softcap * static_cast<float>(std::tanh(static_cast<double>(x / p_.softcap)) *
                                           (1 + 0.9 * a_.tanh_relative_error * noise));
  }
  double round_p(float x) const {
    if (a_.p_format == ASSAY_FP32 || a_.p_format == ASSAY_FORMAT_NONE) return x;
    if (a_.p_format == ASSAY_INT8) return std::nearbyint(127.0 * x) / 127.0;
    if (!a_.p_truncated) return round_to(a_.p_format, x);
    const FormatInfo& f = format_info(a_.p_format);
    return x == 0 ? 0 : chop(x, std::max(exponent(x), f.min_exponent), f.mantissa_bits);
  }

  bool sees(int64_t i, int64_t j) const {
    const int64_t position = c_.m() - c_.n() + i;
    if (mutant_ == Mutant::kDropKey && j == std::min(victim_, position)) return false;
    const int shortened = mutant_ == Mutant::kWindowShort ? 1 : 0;
    if (p_.window_left >= 0 && j < position - p_.window_left + shortened) return false;
    return p_.mask != ASSAY_MASK_CAUSAL || j <= position;
  }

  struct State {
    float m = kMinusInf;
    std::vector<float> l;  // chains of the row sum
    std::vector<double> o;
    int rescales = 0;
  };

  void row(int64_t i, int32_t h, Emulation& out) const {
    const int32_t d = p_.head_dim_qk, dv = p_.head_dim_v;
    const int64_t m = c_.m();
    const float scale = p_.softmax_scale * (mutant_ == Mutant::kScale ? 1.01f : 1.0f);
    std::vector<double> q(c_.q.begin() + (i * p_.heads_q + h) * d,
                          c_.q.begin() + (i * p_.heads_q + h + 1) * d);
    const int64_t tile = std::max(1, a_.tile_keys), tiles = (m + tile - 1) / tile;
    const int64_t splits = std::clamp<int64_t>(a_.splits, 1, std::max<int64_t>(1, tiles));
    std::vector<double> weights_lse;
    std::vector<std::vector<double>> parts;
    for (int64_t s = 0; s < splits; ++s) {
      State state;
      state.l.assign(4, 0.0f);
      state.o.assign(dv, 0.0);
      const int64_t from = tiles * s / splits, to = tiles * (s + 1) / splits;
      for (int64_t n = 0; n < to - from; ++n)
        step(i, q, scale, (a_.tile_reverse ? to - 1 - n : from + n) * tile, tile, state);
      const float l = (state.l[0] + state.l[1]) + (state.l[2] + state.l[3]);
      double lse = kMinusInf;
      if (l > 0) {
        const float inverse = 1.0f / l;
        for (double& x : state.o) x = static_cast<float>(x) * inverse;
        lse = static_cast<float>(state.m + std::log(l) - static_cast<float>(a_.p_offset_log2 * M_LN2));
      }
      if (splits > 1) {
        const auto store = [](int32_t format, double x) {
          return format == ASSAY_FORMAT_NONE || std::isinf(x) ? x : round_to(format, x);
        };
        for (double& x : state.o) x = store(a_.partial_format, x);
        lse = store(a_.partial_lse_format, lse);
      }
      weights_lse.push_back(lse);
      parts.push_back(state.o);
    }
    std::vector<double> o(dv, 0.0);
    double lse = weights_lse[0];
    if (splits == 1) {
      o = parts[0];
    } else {
      float top = kMinusInf, sum = 0;
      for (double x : weights_lse) top = std::max(top, static_cast<float>(x));
      std::vector<float> w;
      for (double x : weights_lse) {
        w.push_back(std::isinf(x) ? 0.0f : exponential(static_cast<float>(x) - top));
        sum += w.back();
      }
      lse = sum > 0 ? top + std::log(sum) : kMinusInf;
      for (size_t s = 0; s < parts.size() && sum > 0; ++s)
        for (int32_t t = 0; t < dv; ++t)
          o[t] = std::fmaf(w[s] * (1.0f / sum), static_cast<float>(parts[s][t]), static_cast<float>(o[t]));
    }
    if (mutant_ == Mutant::kLse2) lse = static_cast<float>(lse * M_LOG2E);
    out.o.insert(out.o.end(), o.begin(), o.end());
    out.lse.push_back(static_cast<float>(lse));
  }

  void step(int64_t i, const std::vector<double>& q, float scale, int64_t first, int64_t tile,
            State& state) const {
    const int32_t d = p_.head_dim_qk, dv = p_.head_dim_v;
    const int64_t m = c_.m(), last = std::min(m, first + tile);
    const bool extra = mutant_ == Mutant::kTailKeys && last == m;  // sixteen zero keys behind the end
    std::vector<float> x;
    std::vector<std::vector<double>> values;
    for (int64_t j = first; j < last + (extra ? 16 : 0); ++j) {
      std::vector<double> k(d, 0.0), v(dv, 0.0);
      if (j < m) {
        if (!sees(i, j)) continue;
        const int64_t key = mutant_ == Mutant::kStaleToken && j == victim_ ? (j + m / 2) % m : j;
        int64_t value = key;
        if (mutant_ == Mutant::kSwapV && m >= 32) value = j < 16 ? j + 16 : j < 32 ? j - 16 : j;
        std::copy_n(c_.k.begin() + key * d, d, k.begin());
        std::copy_n(c_.v.begin() + value * dv, dv, v.begin());
        if (mutant_ == Mutant::kLastDim) k[d - 1] = 0;
      }
      x.push_back(capped(static_cast<float>(dot(0, q, k, a_.qk)) * scale));
      values.push_back(v);
    }
    if (x.empty()) return;
    const float tile_top = *std::max_element(x.begin(), x.end());
    float top = std::max(state.m, tile_top);
    float rescale = 1;
    if (state.m != kMinusInf && top > state.m) {
      if ((top - state.m) * M_LOG2E <= a_.rescale_lag_log2)
        top = state.m;
      else
        rescale = exponential(state.m - top);
    }
    state.m = top;
    if (rescale != 1) {
      for (float& l : state.l) l *= rescale;
      if (!(mutant_ == Mutant::kNoRescale && state.rescales == 0))
        for (double& o : state.o) o = static_cast<float>(o) * rescale;
      ++state.rescales;
    }
    const float offset = static_cast<float>(a_.p_offset_log2 * M_LN2);
    std::vector<double> p;
    for (size_t j = 0; j < x.size(); ++j) {
      const float e = exponential(x[j] - top + offset);
      p.push_back(round_p(e));
      state.l[j % state.l.size()] += a_.row_sum_from_rounded_p ? static_cast<float>(p.back()) : e;
    }
    std::vector<double> column(x.size());
    for (int32_t t = 0; t < dv; ++t) {
      for (size_t j = 0; j < x.size(); ++j) column[j] = values[j][t];
      if (a_.promote_pv)
        state.o[t] = static_cast<float>(state.o[t]) + static_cast<float>(dot(0, p, column, a_.pv));
      else
        state.o[t] = dot(state.o[t], p, column, a_.pv);
    }
  }

  const DenseCase& c_;
  const Problem& p_;
  assay_arithmetic a_;
  Mutant mutant_;
  CounterRng random_;
  int64_t victim_ = 0;
};

}  // namespace assay::testing
