// SPDX-License-Identifier: Apache-2.0
// See opposite.hpp.
#include "harness/check/session/opposite.hpp"

#include <cmath>
#include <cstdint>
#include <iterator>

#include "harness/base/error.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kAgreement = 1.0 / 16;

// Every element of a view, by its address.
template <class Visit>
void each_element(const assay_tensor& t, int64_t offset, int axis, int bytes, const Visit& visit) {
  if (axis >= static_cast<int>(std::size(t.shape))) return;
  for (int64_t i = 0; i < t.shape[axis]; ++i) {
    const int64_t at = offset + i * t.stride[axis];
    if (axis + 1 == t.rank)
      visit(static_cast<uint8_t*>(t.data) + at * bytes);
    else
      each_element(t, at, axis + 1, bytes, visit);
  }
}

// The last byte of a little-endian number holds its sign.
void turn(uint8_t* value, int32_t format, int bytes) {
  uint8_t& last = value[bytes - 1];
  if (format == ASSAY_INT8) {
    last = static_cast<uint8_t>(-last);  // -128 is poison, and stays
  } else if (format == ASSAY_FP8_E4M3FNUZ || format == ASSAY_FP8_E5M2FNUZ) {
    if ((last & 0x7f) != 0) last ^= 0x80;  // zero has no sign; that code is the NaN
  } else {
    last ^= 0x80;
  }
}

}  // namespace

bool turn_values(Inputs& inputs) {
  const Problem& p = inputs.problem;
  const assay_tensor& v = inputs.tensors.v;
  if (!op_of(p).whole_context || v.data == nullptr || v.rank < 1 || p.layout == ASSAY_LAYOUT_MLA)
    return false;
  const int bytes = format_bytes(v.format);
  if (bytes < 1) return false;
  each_element(v, 0, 0, bytes, [&](uint8_t* value) { turn(value, v.format, bytes); });
  return true;
}

std::string not_as_turned(const Inputs& inputs, const Snapshot& before, const Snapshot& after,
                          bool opposite) {
  const Problem& p = inputs.problem;
  const assay_tensor a = before.view(inputs, Operand::kO), b = after.view(inputs, Operand::kO);
  const assay_tensor la = before.view(inputs, Operand::kLse), lb = after.view(inputs, Operand::kLse);
  for (int64_t row = 0; row < p.total_q(); ++row)
    for (int32_t h = 0; h < p.heads_q; ++h) {
      const auto o = [&](const assay_tensor& t, int32_t d) {
        return load(t.format, t.data, row * t.stride[0] + h * t.stride[1] + d * t.stride[2]);
      };
      double squares = 0;
      for (int32_t d = 0; d < p.head_dim_v; ++d)
        if (const double x = o(a, d); std::isfinite(x)) squares += x * x;
      const double rms = std::sqrt(squares / p.head_dim_v);
      for (int32_t d = 0; d < p.head_dim_v; ++d) {
        const double was = o(a, d), is = o(b, d), expected = opposite ? -was : was;
        // What nobody writes holds poison in both.
        if (std::isfinite(was) && !(std::fabs(is - expected) <= kAgreement * (std::fabs(was) + rms)))
          return fmt::format("row {} head {} dim {} is {:g} where {:g} is right", row, h, d, is, expected);
      }
      if (la.data == nullptr || lb.data == nullptr) continue;
      const int64_t at = row * la.stride[0] + h * la.stride[1];
      const double was = load(la.format, la.data, at), is = load(lb.format, lb.data, at);
      if (std::isfinite(was) && !(std::fabs(is - was) <= kAgreement * (1 + std::fabs(was))))
        return fmt::format("the LSE of row {} head {} is {:g} where {:g} is right", row, h, is, was);
    }
  return "";
}

}  // namespace assay
