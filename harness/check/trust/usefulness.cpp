// SPDX-License-Identifier: Apache-2.0
// See usefulness.hpp. The unquantised answer is the softmax written out for a few rows; the stored one is the
// reference's.
#include "harness/check/trust/usefulness.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/input/value_source.hpp"
#include "harness/problem/names.hpp"
#include "reference/attention/operands.hpp"
#include "reference/bounds/bounds_rows.hpp"

namespace assay {
namespace {

// Values of K and V generated per case, one block of request and KV head excepted: about 10 ms.
constexpr int64_t kValueBudget = int64_t{1} << 19;
constexpr int64_t kRowsPerBlock = 4;

bool eight_bits(int32_t format) { return format_is_fp8(format) || format == ASSAY_INT8; }

// K and V of one request and KV head before quantisation.
struct Block {
  int64_t begin = 0, end = 0;  // keys held
  std::vector<double> k, v;
};

Block generate(const Problem& p, const ValueSource& source, int request, int32_t kv_head, int64_t begin,
               int64_t end) {
  Block b{begin, end, {}, {}};
  b.k.resize((end - begin) * p.head_dim_qk);
  b.v.resize((end - begin) * p.head_dim_v);
  for (int64_t j = begin; j < end; ++j) {
    source.k(request, static_cast<int32_t>(j), kv_head, &b.k[(j - begin) * p.head_dim_qk]);
    source.v(request, static_cast<int32_t>(j), kv_head, &b.v[(j - begin) * p.head_dim_v]);
  }
  return b;
}

std::vector<double> attend(const Problem& p, const OperandReader& operands, const Block& block, RowId id,
                           int32_t head) {
  const KeyInterval keys = key_interval(p, id);
  const double slope = p.alibi == ASSAY_ALIBI_NONE ? 0.0 : operands.alibi_slope(head);
  std::vector<double> q(p.head_dim_qk), x, o(p.head_dim_v, 0.0);
  std::vector<int64_t> seen;
  operands.q(id, head, q.data());
  double top = p.sinks ? operands.sink(head) : -std::numeric_limits<double>::infinity();
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    if (p.mask == ASSAY_MASK_TREE && !visible(p, id.request, id.row, static_cast<int32_t>(j))) continue;
    double s = 0;
    for (int32_t d = 0; d < p.head_dim_qk; ++d) s += q[d] * block.k[(j - block.begin) * p.head_dim_qk + d];
    s *= p.softmax_scale;
    if (p.softcap > 0) s = p.softcap * std::tanh(s / p.softcap);
    s += position_bias(p, slope, row_offset(p, id) - key_offset(p, id.request, j));
    seen.push_back(j - block.begin);
    x.push_back(s);
    top = std::max(top, s);
  }
  double sum = p.sinks ? std::exp(operands.sink(head) - top) : 0.0;
  for (size_t i = 0; i < seen.size(); ++i) {
    const double weight = std::exp(x[i] - top);
    sum += weight;
    for (int32_t d = 0; d < p.head_dim_v; ++d) o[d] += weight * block.v[seen[i] * p.head_dim_v + d];
  }
  for (double& value : o) value /= sum;
  return o;
}

}  // namespace

ClassGate class_gate(const BoundedAttention& b, const Problem& p, const assay_arithmetic& a) {
  ClassGate gate;
  if (p.recipe == InputRecipe::kCancelling) return gate;
  const size_t dims = p.head_dim_v;
  for (size_t slot = 0; slot < b.value.lse.size(); ++slot) {
    double squares = 0, width = 0;
    bool realistic = true;
    for (size_t at = slot * dims; at < (slot + 1) * dims; ++at) {
      squares += b.value.o[at] * b.value.o[at];
      width = std::max({width, b.o_high[at] - b.value.o[at], b.value.o[at] - b.o_low[at]});
      realistic &= std::isfinite(b.o_bound_p[at]) || std::isfinite(b.o_bound_r[at]);
    }
    if (!(squares > 0) || !realistic) continue;
    gate.ratio = std::fmax(gate.ratio, width / std::sqrt(squares / static_cast<double>(dims)));
  }
  gate.useless = gate.ratio > (eight_bits(a.p_format) ? kUseful8 : kUseful16);
  return gate;
}

QuantizationError quantization_error(const Problem& p, const HostOperands& host, const BoundedAttention& b) {
  if (!eight_bits(p.k_format) && !eight_bits(p.v_format)) return {};
  const OperandReader operands(p, host);
  const ValueSource source(p);
  const auto& rows = b.value.rows;
  const auto count = static_cast<int64_t>(rows.size());
  int64_t values = 0, elements = 0;
  double squares = 0, size = 0, largest = 0;
  for (int64_t from = 0, to; from < count; from = to) {
    const int request = rows[from].request;
    for (to = from; to < count && rows[to].request == request;) ++to;
    const int64_t step = std::max<int64_t>(1, (to - from) / kRowsPerBlock);
    int64_t begin = p.requests[request].kv_len, end = 0;
    for (int64_t n = from; n < to; n += step) {
      const KeyInterval keys = key_interval(p, rows[n]);
      if (keys.begin >= keys.end) continue;
      begin = std::min(begin, keys.begin);
      end = std::max(end, keys.end);
    }
    if (begin >= end) continue;
    values += (end - begin) * (p.head_dim_qk + p.head_dim_v);
    if (values > kValueBudget && elements > 0) break;
    const int32_t kv_head = request % p.heads_kv;
    const Block block = generate(p, source, request, kv_head, begin, end);
    for (int64_t n = from; n < to; n += step) {
      const KeyInterval keys = key_interval(p, rows[n]);
      if (keys.begin >= keys.end) continue;
      const int32_t head = kv_head * p.group() + static_cast<int32_t>(n % p.group());
      const std::vector<double> o = attend(p, operands, block, rows[n], head);
      for (int32_t d = 0; d < p.head_dim_v; ++d) {
        const double stored = b.value.o_at(n, head, d), off = std::fabs(o[d] - stored);
        if (std::isnan(off)) continue;  // a tree row that sees nothing
        squares += off * off;
        size += stored * stored;
        largest = std::max(largest, off);
        ++elements;
      }
    }
  }
  if (elements == 0 || !(size > 0)) return {};
  const double rms = std::sqrt(size / static_cast<double>(elements));
  return {std::sqrt(squares / static_cast<double>(elements)) / rms, largest / rms};
}

}  // namespace assay
