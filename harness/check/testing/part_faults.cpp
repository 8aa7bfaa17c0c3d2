// SPDX-License-Identifier: Apache-2.0
// decode_splitkv for the tests of the judge: one row, head and part after the other, in doubles, with the
// fault that is asked for.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "harness/check/testing/data_op_faults.hpp"
#include "kernels/common/formats.hpp"

namespace data_op_faults {
namespace {

using namespace assay_kernels;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

KeyInterval keys_of(const assay_problem& p, int request, int32_t part, Fault fault) {
  const int32_t n = p.kv_len[request];
  KeyInterval own = part_interval(p, n, part);
  if (fault == kWholeContext) own = {0, n};
  if (fault == kPartOfTokens && p.part_tokens == 0)
    own = {static_cast<int32_t>(int64_t{n} * part / p.states),
           static_cast<int32_t>(int64_t{n} * (part + 1) / p.states)};
  if (fault == kNextKey) own.end = std::min(own.end + 1, n);
  if (fault == kDropsKey && own.begin < own.end) --own.end;
  const KeyInterval seen = key_interval(p, request, 0);
  return {std::max(seen.begin, own.begin), std::min(seen.end, own.end)};
}

struct Row {
  double sum = 0, top = -kInfinity;
  std::vector<double> o;
};

Row attend(const Operands& a, int request, int64_t row, int32_t head, int32_t part, Fault fault) {
  const assay_problem& p = a.p;
  const int32_t kv_head = head / a.group;
  const KeyInterval keys = keys_of(p, request, part, fault);
  const auto k_at = [&](KeyPlace at, int32_t d) {
    return load_element(a.k.data, token_offset(a.k, at) + kv_head * a.k.head_stride + dim_offset(a.k, d),
                        a.k.format) *
           double{channel_scale(a.k_scale, kv_head, d)} * kv_scale(a.k_scale, request, at, kv_head);
  };
  const auto v_at = [&](KeyPlace at, int32_t d) {
    return load_element(a.v.data, token_offset(a.v, at) + kv_head * a.v.head_stride + dim_offset(a.v, d),
                        a.v.format) *
           double{channel_scale(a.v_scale, kv_head, d)} * kv_scale(a.v_scale, request, at, kv_head);
  };
  Row out;
  out.o.assign(p.head_dim_v, 0.0);
  std::vector<double> scores;
  for (int32_t j = keys.begin; j < keys.end; ++j) {
    const KeyPlace at = place_key(a, request, j);
    double dot = 0;
    for (int32_t d = 0; d < p.head_dim_qk; ++d)
      dot += load_element(a.q, row * a.q_stride[0] + head * a.q_stride[1] + d * a.q_stride[2], p.q_format) *
             double{channel_scale(a.q_scale, head, d)} * k_at(at, d);
    double x = dot * p.softmax_scale * q_row_scale(a.q_scale, request, row, head, kv_head);
    if (p.softcap > 0) x = p.softcap * std::tanh(x / p.softcap);
    if (p.alibi != ASSAY_ALIBI_NONE) {
      const int32_t end = fault == kPartPosition ? keys.end : p.kv_len[request];
      const double distance = end - 1 - j;
      x -= a.alibi_slopes[head * a.alibi_stride] *
           (p.alibi == ASSAY_ALIBI_SQRT ? std::sqrt(distance) : distance);
    }
    scores.push_back(x);
    out.top = std::max(out.top, x);
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - out.top);
    out.sum += weight;
    const KeyPlace at = place_key(a, request, keys.begin + static_cast<int32_t>(i));
    for (int32_t d = 0; d < p.head_dim_v; ++d) out.o[d] += weight * v_at(at, d);
  }
  return out;
}

}  // namespace

void attend_parts(const Operands& a, Fault fault) {
  const assay_problem& p = a.p;
  int64_t row = 0;
  for (int r = 0; r < p.requests; ++r)
    for (int32_t i = 0; i < p.q_len[r]; ++i, ++row)
      for (int32_t head = 0; head < p.heads_q; ++head)
        for (int32_t part = 0; part < p.states; ++part) {
          const Row got = attend(a, r, row, head, part, fault);
          const int64_t place = fault == kNextState ? (part + 1) % p.states : part;
          float& lse = a.lse[place * a.lse_part + row * a.lse_stride[0] + head * a.lse_stride[1]];
          if (got.sum == 0) {
            if (fault == kEmptyZero) lse = 0;
            if (fault != kEmptyZero && fault != kEmptyHeld) lse = -std::numeric_limits<float>::infinity();
            continue;  // O stays what it was: nobody may look at it
          }
          double sum = got.sum;
          if (fault == kSumOfHeads) sum = attend(a, r, row, (head + 1) % p.heads_q, part, fault).sum;
          if (fault == kUnnormalised) sum = 1;
          for (int32_t d = 0; d < p.head_dim_v; ++d)
            store_element(a.o,
                          place * a.o_part + row * a.o_stride[0] + head * a.o_stride[1] + d * a.o_stride[2],
                          p.o_format, static_cast<float>(got.o[d] / sum));
          const double natural = fault == kMaximumOnly ? got.top : got.top + std::log(got.sum);
          lse = static_cast<float>(fault == kPartBase2 ? natural / std::log(2.0) : natural);
        }
}

}  // namespace data_op_faults
