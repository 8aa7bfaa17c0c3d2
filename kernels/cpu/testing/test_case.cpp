// SPDX-License-Identifier: Apache-2.0
// Building, placing and answering the random problems of test_case.hpp. The four stages are in order:
// draw_values (logical codes and scales), store (physical planes with poison around), expect (double).
#include "kernels/cpu/testing/test_case.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace assay_cpu::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double small_float(uint32_t code, int exponent_bits, int mantissa_bits, int bias) {
  const uint32_t fraction = code & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>(code >> mantissa_bits & ((1u << exponent_bits) - 1));
  const double sign = code >> (exponent_bits + mantissa_bits) & 1 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa_bits);
  return sign * std::ldexp(1.0 + std::ldexp(fraction, -mantissa_bits), exponent - bias);
}

}  // namespace

int format_bytes(int32_t format) {
  if (format == ASSAY_FP32 || format == ASSAY_INT32) return 4;
  if (format == ASSAY_BF16 || format == ASSAY_FP16) return 2;
  return format == ASSAY_INT64 ? 8 : 1;
}

double decode(uint32_t code, int32_t format) {
  float single;
  switch (format) {
    case ASSAY_FP32:
      memcpy(&single, &code, 4);
      return single;
    case ASSAY_BF16:
      code <<= 16, memcpy(&single, &code, 4);
      return single;
    case ASSAY_FP16:
      return small_float(code, 5, 10, 15);
    case ASSAY_FP8_E4M3:
      return small_float(code, 4, 3, 7);
    case ASSAY_FP8_E5M2:
      return small_float(code, 5, 2, 15);
    case ASSAY_FP8_E4M3FNUZ:
      return small_float(code, 4, 3, 8);
    case ASSAY_FP8_E5M2FNUZ:
      return small_float(code, 5, 2, 16);
    default:
      return static_cast<int8_t>(code);
  }
}

uint32_t nan_code(int32_t format) {
  switch (format) {
    case ASSAY_FP32:
      return 0x7fc01234u;
    case ASSAY_BF16:
    case ASSAY_FP16:
      return 0x7fffu;
    case ASSAY_FP8_E4M3:
    case ASSAY_FP8_E5M2:
      return 0x7fu;
    default:
      return 0x80u;  // fnuz NaN; int8 has none, -128 is never produced
  }
}

std::string Spec::text() const {
  auto number = [](int64_t x) { return std::to_string(x); };
  std::string s = op == ASSAY_OP_PAGED ? "paged" : "prefill";
  s += " seed=" + number(seed) + " mask=" + number(mask) + " h=" + number(heads_q) + "/" + number(heads_kv) +
       " d=" + number(head_dim_qk) + "/" + number(head_dim_v) + " formats=" + number(q_format) + "," +
       number(k_format) + "," + number(v_format) + "," + number(o_format) + " scales=" + number(q_scale) +
       "," + number(k_scale) + "," + number(v_scale) + " cap=" + std::to_string(softcap) +
       " window=" + number(window_left) + "," + number(window_right) + " chunk=" + number(chunk) +
       " alibi=" + number(alibi) + " sinks=" + number(sinks) + " layout=" + number(layout) +
       " page=" + number(page_size) + " table=" + number(table) + " padding=" + number(stride_padding) +
       " batch=";
  for (const Lengths& r : requests) s += number(r.q_len) + "q" + number(r.kv_len) + "_";
  return s;
}

Spec random_spec(uint64_t seed, int32_t op) {
  std::mt19937_64 rng(seed * 7919 + op);
  auto below = [&](int n) { return static_cast<int>(rng() % n); };
  auto pick = [&](std::initializer_list<int> list) { return list.begin()[below(list.size())]; };
  Spec s;
  s.op = op, s.seed = seed;
  s.mask = pick({ASSAY_MASK_CAUSAL, ASSAY_MASK_CAUSAL, ASSAY_MASK_FULL, ASSAY_MASK_CROSS, ASSAY_MASK_TREE});
  s.heads_kv = pick({1, 2, 3}), s.heads_q = s.heads_kv * pick({1, 2, 4, 5});
  s.head_dim_qk = pick({1, 7, 16, 32, 64, 80, 129}),
  s.head_dim_v = below(2) ? s.head_dim_qk : pick({3, 16, 40, 64});
  const std::initializer_list<int> all = {ASSAY_FP32,         ASSAY_BF16,         ASSAY_FP16,
                                          ASSAY_BF16,         ASSAY_FP8_E4M3,     ASSAY_FP8_E5M2,
                                          ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ, ASSAY_INT8};
  s.q_format = pick(all), s.k_format = pick(all), s.v_format = below(2) ? s.k_format : pick(all);
  s.o_format = pick({ASSAY_FP32, ASSAY_BF16, ASSAY_FP16});
  s.q_scale = below(2) ? 0 : below(7), s.k_scale = below(2) ? 0 : below(7),
  s.v_scale = below(2) ? 0 : below(7);
  if (below(4) == 0) s.softcap = 5.0f;
  if (below(3) == 0) s.window_left = below(40), s.window_right = below(2) ? -1 : below(10);
  if (below(5) == 0) s.chunk = 1 + below(50);
  s.alibi = below(4) ? 0 : 1 + below(2);
  s.sinks = below(4) == 0;
  s.stride_padding = below(3);
  if (op == ASSAY_OP_PAGED) {
    s.layout = below(5), s.table = pick({ASSAY_TABLE_BLOCK, ASSAY_TABLE_CSR, ASSAY_TABLE_TOKEN});
    s.page_size = pick({1, 8, 16, 24, 64});
    if (s.layout == ASSAY_LAYOUT_X || s.layout == ASSAY_LAYOUT_SHUFFLED) {
      const int x = 16 / format_bytes(s.k_format);
      s.head_dim_qk = (s.head_dim_qk + x - 1) / x * x;
      if (s.layout == ASSAY_LAYOUT_SHUFFLED) s.page_size = (s.page_size + x - 1) / x * x;
    }
    if (s.layout == ASSAY_LAYOUT_MLA) {
      s.heads_q /= s.heads_kv, s.heads_kv = 1, s.v_format = s.k_format, s.v_scale = s.k_scale;
      s.head_dim_v = std::min(s.head_dim_v, s.head_dim_qk);
    }
  }
  const int requests = 1 + below(4);
  for (int r = 0; r < requests; ++r) {
    Lengths l{pick({0, 1, 1, 2, 5, 17, 40}), pick({0, 1, 3, 16, 33, 100, 300})};
    s.requests.push_back(l);
  }
  return s;
}

int64_t Case::Plane::at(std::initializer_list<int64_t> index) const {
  int64_t offset = 0, axis = 0;
  for (int64_t i : index) offset += i * stride[axis++];
  return offset;
}
void Case::Plane::write(int64_t index, uint32_t code) {
  memcpy(&bytes[index * format_bytes(format)], &code, std::min(4, format_bytes(format)));
}
uint32_t Case::Plane::read(int64_t index) const {
  uint32_t code = 0;
  memcpy(&code, &bytes[index * format_bytes(format)], std::min(4, format_bytes(format)));
  return code;
}
void Case::Plane::fill(uint32_t code) {
  const int64_t n = static_cast<int64_t>(bytes.size()) / format_bytes(format);
  for (int64_t i = 0; i < n; ++i) write(i, code);
}
assay_tensor Case::Plane::view() {
  assay_tensor t{};
  if (shape.empty()) return t;
  t.data = bytes.data(), t.format = format, t.rank = static_cast<int32_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) t.shape[i] = shape[i], t.stride[i] = stride[i];
  return t;
}

Case::Plane Case::make_plane(int32_t format, std::vector<int64_t> shape, int padding) const {
  Plane plane;
  plane.format = format, plane.shape = shape, plane.stride.resize(shape.size());
  int64_t step = padding == 2 ? 2 : 1;
  for (size_t i = shape.size(); i-- > 0;) {
    plane.stride[i] = step;
    step *= shape[i];
    step += padding * (i > 0 ? 3 : 0);
  }
  plane.bytes.assign((step + 8) * format_bytes(format), 0);
  return plane;
}

Case::Case(const Spec& spec) : spec_(spec), rng_(spec.seed) {
  draw_values();
  store();
  expect();
}

// Slices the logical operands of one request out of a batch and stores them afresh.
Case::Case(const Case& batch, int request) : spec_(batch.spec_), rng_(batch.spec_.seed + 17) {
  const Lengths l = batch.spec_.requests[request];
  spec_.requests = {l};
  cu_q_ = {0, l.q_len}, cu_kv_ = {0, l.kv_len}, tree_start_ = {0, int64_t{l.q_len} * l.q_len};
  auto rows = [](const auto& all, int64_t first, int64_t count, int64_t width) {
    return std::decay_t<decltype(all)>(all.begin() + first * width, all.begin() + (first + count) * width);
  };
  const int64_t q0 = batch.cu_q_[request], k0 = batch.cu_kv_[request];
  q_ = rows(batch.q_, q0, l.q_len, spec_.heads_q * spec_.head_dim_qk);
  k_ = rows(batch.k_, k0, l.kv_len, spec_.heads_kv * spec_.head_dim_qk);
  v_ = rows(batch.v_, k0, l.kv_len, spec_.heads_kv * spec_.head_dim_v);
  auto scale = [&](const std::vector<double>& all, int32_t kind, int64_t first, int64_t count, int heads) {
    if (kind == ASSAY_SCALE_REQUEST_HEAD) return rows(all, request, 1, spec_.heads_kv);
    if (kind == ASSAY_SCALE_TOKEN_HEAD) return rows(all, first, count, heads);
    return all;
  };
  q_scale_ = scale(batch.q_scale_, spec_.q_scale, q0, l.q_len, spec_.heads_q);
  k_scale_ = scale(batch.k_scale_, spec_.k_scale, k0, l.kv_len, spec_.heads_kv);
  v_scale_ = scale(batch.v_scale_, spec_.v_scale, k0, l.kv_len, spec_.heads_kv);
  slopes_ = batch.slopes_, sinks_ = batch.sinks_, softmax_scale_ = batch.softmax_scale_;
  if (spec_.mask == ASSAY_MASK_TREE) tree_ = rows(batch.tree_, batch.tree_start_[request], tree_start_[1], 1);
  store();
  expect();
}

void Case::draw_values() {
  const Spec& s = spec_;
  cu_q_ = {0}, cu_kv_ = {0}, tree_start_ = {0};
  for (const Lengths& l : s.requests) {
    cu_q_.push_back(cu_q_.back() + l.q_len), cu_kv_.push_back(cu_kv_.back() + l.kv_len);
    tree_start_.push_back(tree_start_.back() + int64_t{l.q_len} * l.q_len);
  }
  std::normal_distribution<float> normal;
  // Codes around 1 in magnitude for every format; int8 uses its whole range.
  auto draw = [&](int32_t format) -> uint32_t {
    const uint32_t sign = rng_() & 1, bits = static_cast<uint32_t>(rng_());
    const float value = normal(rng_);
    uint32_t code;
    memcpy(&code, &value, 4);
    switch (format) {
      case ASSAY_FP32:
        return code;
      case ASSAY_BF16:
        return code >> 16;
      case ASSAY_FP16:
        return sign << 15 | (12 + bits % 4) << 10 | (bits >> 8 & 0x3ff);
      case ASSAY_INT8:
        return static_cast<uint8_t>(static_cast<int8_t>(bits % 255) - 127);
      case ASSAY_FP8_E4M3:
      case ASSAY_FP8_E4M3FNUZ:
        return std::max(1u, bits % 72) | sign << 7;  // subnormals included
      default:
        return std::max(1u, bits % 68) | sign << 7;
    }
  };
  q_.resize(cu_q_.back() * s.heads_q * s.head_dim_qk);
  k_.resize(cu_kv_.back() * s.heads_kv * s.head_dim_qk);
  v_.resize(cu_kv_.back() * s.heads_kv * s.head_dim_v);
  for (auto& x : q_) x = draw(s.q_format);
  for (auto& x : k_) x = draw(s.k_format);
  for (auto& x : v_) x = draw(s.v_format);
  auto scales = [&](int32_t kind, int64_t tokens, int heads, int dims) {
    size_t n = 1;
    if (kind == ASSAY_SCALE_HEAD) n = heads;
    if (kind == ASSAY_SCALE_REQUEST_HEAD) n = s.requests.size() * s.heads_kv;
    if (kind == ASSAY_SCALE_TOKEN_HEAD) n = tokens * heads;
    if (kind == ASSAY_SCALE_CHANNEL) n = size_t(heads) * dims;
    std::vector<double> out(n, 1.0);
    std::uniform_real_distribution<float> spread(0.4f, 1.6f);
    if (kind != ASSAY_SCALE_NONE)
      for (double& x : out) x = spread(rng_);
    return out;
  };
  q_scale_ = scales(s.q_scale, cu_q_.back(), s.heads_q, s.head_dim_qk);
  k_scale_ = scales(s.k_scale, cu_kv_.back(), s.heads_kv, s.head_dim_qk);
  v_scale_ = scales(s.v_scale, cu_kv_.back(), s.heads_kv, s.head_dim_v);
  if (s.layout == ASSAY_LAYOUT_MLA && s.op == ASSAY_OP_PAGED) {
    v_scale_ = k_scale_;
    if (s.v_scale == ASSAY_SCALE_CHANNEL) v_scale_.resize(s.head_dim_v);
    for (int64_t t = 0; t < cu_kv_.back(); ++t)
      for (int d = 0; d < s.head_dim_v; ++d) v_[t * s.head_dim_v + d] = k_[t * s.head_dim_qk + d];
  }
  for (int h = 0; h < s.heads_q; ++h) {
    slopes_.push_back(std::ldexp(1.0f, -1 - h % 6));
    sinks_.push_back(normal(rng_) * 2);
  }
  if (s.mask == ASSAY_MASK_TREE) {
    tree_.resize(tree_start_.back());
    for (auto& x : tree_) x = rng_() % 3 == 0;  // the diagonal is not special
  }
  auto spread = [&](const std::vector<uint32_t>& codes, int32_t format) {
    double sum = 0;
    for (uint32_t c : codes) sum += decode(c, format) * decode(c, format);
    return codes.empty() || sum == 0 ? 1.0 : std::sqrt(sum / codes.size());
  };
  softmax_scale_ = static_cast<float>(
      s.logit_deviation / (spread(q_, s.q_format) * spread(k_, s.k_format) * std::sqrt(s.head_dim_qk)));
}

// Scale of token `token` (row of the packed keys).
double Case::key_scale(const std::vector<double>& scale, int32_t kind, int request, int64_t token, int head,
                       int dims, int dim) const {
  switch (kind) {
    case ASSAY_SCALE_HEAD:
      return scale[head];
    case ASSAY_SCALE_REQUEST_HEAD:
      return scale[request * spec_.heads_kv + head];
    case ASSAY_SCALE_TOKEN_HEAD:
      return scale[token * spec_.heads_kv + head];
    case ASSAY_SCALE_CHANNEL:
      return scale[head * dims + dim];
    default:
      return scale[0];
  }
}
double Case::query_scale(int request, int64_t row, int head, int dim) const {
  switch (spec_.q_scale) {
    case ASSAY_SCALE_HEAD:
      return q_scale_[head];
    case ASSAY_SCALE_REQUEST_HEAD:
      return q_scale_[request * spec_.heads_kv + head / (spec_.heads_q / spec_.heads_kv)];
    case ASSAY_SCALE_TOKEN_HEAD:
      return q_scale_[row * spec_.heads_q + head];
    case ASSAY_SCALE_CHANNEL:
      return q_scale_[head * spec_.head_dim_qk + dim];
    default:
      return q_scale_[0];
  }
}

bool Case::visible(int request, int row, int key) const {
  const Lengths l = spec_.requests[request];
  const int p = l.kv_len - l.q_len + row;
  bool yes = spec_.mask != ASSAY_MASK_CAUSAL || key <= p;
  if (spec_.mask == ASSAY_MASK_TREE && key >= l.kv_len - l.q_len)
    yes = tree_[tree_start_[request] + int64_t{row} * l.q_len + (key - (l.kv_len - l.q_len))] != 0;
  if (spec_.window_left >= 0 && key < p - spec_.window_left) yes = false;
  if (spec_.window_right >= 0 && key > p + spec_.window_right) yes = false;
  if (spec_.chunk > 0 && (key > p || p < 0 || key / spec_.chunk != p / spec_.chunk)) yes = false;
  return yes;
}

void Case::expect() {
  const Spec& s = spec_;
  o_.assign(cu_q_.back() * s.heads_q * s.head_dim_v, 0.0);
  magnitude_.assign(o_.size(), 0.0);
  lse_.assign(cu_q_.back() * s.heads_q, -kInfinity);
  auto values = [](const std::vector<uint32_t>& codes, int32_t format) {
    std::vector<double> out;
    for (uint32_t code : codes) out.push_back(decode(code, format));
    return out;
  };
  std::vector<double> q = values(q_, s.q_format), k = values(k_, s.k_format), v = values(v_, s.v_format);
  for (int r = 0; r < static_cast<int>(s.requests.size()); ++r) {
    for (int64_t t = cu_q_[r]; t < cu_q_[r + 1]; ++t)
      for (int n = 0; n < s.heads_q * s.head_dim_qk; ++n)
        q[t * s.heads_q * s.head_dim_qk + n] *= query_scale(r, t, n / s.head_dim_qk, n % s.head_dim_qk);
    for (int64_t t = cu_kv_[r]; t < cu_kv_[r + 1]; ++t) {
      for (int n = 0; n < s.heads_kv * s.head_dim_qk; ++n)
        k[t * s.heads_kv * s.head_dim_qk + n] *=
            key_scale(k_scale_, s.k_scale, r, t, n / s.head_dim_qk, s.head_dim_qk, n % s.head_dim_qk);
      for (int n = 0; n < s.heads_kv * s.head_dim_v; ++n)
        v[t * s.heads_kv * s.head_dim_v + n] *=
            key_scale(v_scale_, s.v_scale, r, t, n / s.head_dim_v, s.head_dim_v, n % s.head_dim_v);
    }
  }
  for (size_t r = 0; r < s.requests.size(); ++r)
    for (int i = 0; i < s.requests[r].q_len; ++i)
      for (int h = 0; h < s.heads_q; ++h) {
        const int64_t row = cu_q_[r] + i, out = row * s.heads_q + h;
        const int kv = h / (s.heads_q / s.heads_kv), m = s.requests[r].kv_len;
        std::vector<double> logit(m, -kInfinity);
        double top = s.sinks ? sinks_[h] : -kInfinity;
        for (int j = 0; j < m; ++j) {
          if (!visible(static_cast<int>(r), i, j)) continue;
          const int64_t token = cu_kv_[r] + j;
          double dot = 0;
          for (int d = 0; d < s.head_dim_qk; ++d)
            dot += q[out * s.head_dim_qk + d] * k[(token * s.heads_kv + kv) * s.head_dim_qk + d];
          double x = dot * softmax_scale_;
          if (s.softcap > 0) x = s.softcap * std::tanh(x / s.softcap);
          const int distance = m - s.requests[r].q_len + i - j;
          if (s.alibi != ASSAY_ALIBI_NONE && distance > 0)
            x -= slopes_[h] * (s.alibi == ASSAY_ALIBI_SQRT ? std::sqrt(double(distance)) : distance);
          logit[j] = x, top = std::max(top, x);
        }
        if (top == -kInfinity) continue;
        double sum = s.sinks ? std::exp(sinks_[h] - top) : 0;
        for (double x : logit) sum += std::exp(x - top);
        lse_[out] = top + std::log(sum);
        for (int j = 0; j < m; ++j) {
          if (logit[j] == -kInfinity) continue;
          const double p = std::exp(logit[j] - top) / sum;
          for (int d = 0; d < s.head_dim_v; ++d) {
            const int64_t token = cu_kv_[r] + j;
            const double value = v[(token * s.heads_kv + kv) * s.head_dim_v + d];
            o_[out * s.head_dim_v + d] += p * value;
            magnitude_[out * s.head_dim_v + d] += p * std::abs(value);
          }
        }
      }
}

}  // namespace assay_cpu::testing
