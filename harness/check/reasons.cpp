// SPDX-License-Identifier: Apache-2.0
// Walks over outputs. Elements are visited through the views' strides, so the padding of a strided output,
// which a kernel must leave alone but may not be judged by, is never looked at.
#include "harness/check/reasons.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// One element of O (dim >= 0) or LSE (dim = -1) by packed row.
struct Element {
  int64_t row = 0;
  int32_t head = 0, dim = -1;
};

int64_t offset_of(const assay_tensor& t, const Element& e) {
  return e.row * t.stride[0] + e.head * t.stride[1] + (e.dim >= 0 ? e.dim * t.stride[2] : 0);
}

// Calls visit(element, offset) for every element of a view, in order; stops when it returns false.
template <class Visit>
void each(const assay_tensor& t, const Visit& visit) {
  if (t.data == nullptr) return;
  const bool dims = t.rank > 2;
  for (int64_t row = 0; row < t.shape[0]; ++row)
    for (int32_t head = 0; head < t.shape[1]; ++head)
      for (int32_t dim = 0; dim < (dims ? t.shape[2] : 1); ++dim)
        if (const Element e{row, head, dims ? dim : -1}; !visit(e, offset_of(t, e))) return;
}

int64_t count(const assay_tensor& t) {
  if (t.data == nullptr) return 0;
  return t.shape[0] * t.shape[1] * (t.rank > 2 ? t.shape[2] : 1);
}

std::string place(const Problem& p, const Element& e) {
  const std::vector<int32_t> first = p.cu_q();
  const auto request = std::upper_bound(first.begin(), first.end(), e.row) - first.begin() - 1;
  std::string text = fmt::format("request {} row {} head {}", request, e.row - first[request], e.head);
  if (e.dim >= 0) text += fmt::format(" dim {}", e.dim);
  return text;
}

uint32_t bits(const assay_tensor& t, int64_t offset) {
  const int bytes = format_bytes(t.format);
  uint32_t value = 0;
  std::memcpy(&value, static_cast<const std::byte*>(t.data) + offset * bytes, bytes);
  return value;
}

std::string summary(const char* what, const char* is, const Problem& p, const assay_tensor& t, int64_t bad,
                    const Element& first) {
  return fmt::format("{} {} in {} of {} elements, first {}", what, is, bad, count(t), place(p, first));
}

template <class Bad>
std::string scan(const char* what, const char* is, const Problem& p, const assay_tensor& t,
                 const Bad& is_bad) {
  int64_t bad = 0;
  Element first;
  each(t, [&](const Element& e, int64_t at) {
    if (is_bad(at)) {
      if (bad == 0) first = e;
      ++bad;
    }
    return true;
  });
  return bad == 0 ? std::string() : summary(what, is, p, t, bad, first);
}

// The first element that differs; false when none does. The two may lie in memory in different ways: a
// transposed LSE that was captured for more rows has another stride.
bool difference(const assay_tensor& a, const assay_tensor& b, Element& where, double& left, double& right) {
  bool found = false;
  each(a, [&](const Element& e, int64_t at) {
    const int64_t other = offset_of(b, e);
    if (bits(a, at) == bits(b, other)) return true;
    found = true;
    where = e;
    left = load(a.format, a.data, at);
    right = load(b.format, b.data, other);
    return false;
  });
  return found;
}

std::string element_text(const char* what, const ErrorStats& s) {
  return fmt::format(
      "{} wrong in {} of {} elements, worst {}: got {:.5g} expected {:.5g}, accepted {:.6g} .. {:.6g} "
      "(tier {}, ratio {:.3g})",
      what, s.bad, s.checked, place_of(s), s.got, s.expected, s.low, s.high, tier_name(s.tier), s.max_ratio);
}

}  // namespace

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  return text;
}

std::string not_finite(const Problem& p, const Outputs& out) {
  std::string reason = scan("O", "is NaN or infinite", p, out.o,
                            [&](int64_t at) { return !std::isfinite(load(out.o.format, out.o.data, at)); });
  if (!reason.empty()) return reason;
  return scan("LSE", "is NaN or +inf", p, out.lse, [&](int64_t at) {
    const double x = load(out.lse.format, out.lse.data, at);
    return std::isnan(x) || (std::isinf(x) && x > 0);
  });
}

bool same_bits(const Problem& p, const Outputs& a, const Outputs& b) {
  return first_difference(p, a, b).empty();
}

std::string first_difference(const Problem& p, const Outputs& a, const Outputs& b) {
  Element where;
  double left = 0, right = 0;
  const char* what = "O";
  if (!difference(a.o, b.o, where, left, right)) {
    what = "LSE";
    if (!difference(a.lse, b.lse, where, left, right)) return {};
  }
  return fmt::format("{} at {} is {:.9g}, then {:.9g}", what, place(p, where), left, right);
}

std::string inexact(const Problem& p, const Outputs& out, const std::vector<double>& exact_o) {
  int64_t bad = 0, index = 0;
  std::string worst;
  each(out.o, [&](const Element& e, int64_t at) {
    const double expected = round_to(out.o.format, exact_o[index++]),
                 got = load(out.o.format, out.o.data, at);
    if (got == expected) return true;
    if (bad++ == 0) worst = fmt::format("{}: got {:.9g} expected exactly {:.9g}", place(p, e), got, expected);
    return true;
  });
  if (bad == 0) return {};
  return fmt::format("O differs from the exact answer in {} of {} elements, first {}", bad, count(out.o),
                     worst);
}

std::string out_of_bounds(const ErrorStats& o, const ErrorStats& lse) {
  if (o.bad == 0 && lse.bad == 0) return {};
  if (o.bad == 0) return element_text("LSE", lse);
  std::string text = element_text("O", o);
  if (lse.bad > 0)
    text += fmt::format("; LSE wrong in {} of {} (ratio {:.3g})", lse.bad, lse.checked, lse.max_ratio);
  return text;
}

std::string deciding_check(const ErrorStats& o, const ErrorStats& lse) {
  if (o.bad > 0) return fmt::format("tier {}", tier_name(o.tier));
  return lse.bad > 0 ? fmt::format("lse {}", tier_name(lse.tier)) : std::string();
}

std::string contradicting_bounds(const ErrorStats& o, const ErrorStats& lse) {
  if (o.contradictions + lse.contradictions == 0) return {};
  return fmt::format(
      "the tiers of the bounds exclude each other in {} elements of O and {} of the LSE, a defect "
      "of the bounds or of the declared order",
      o.contradictions, lse.contradictions);
}

std::string impossible_arithmetic(const assay_arithmetic& a) {
  const auto accumulator = [](const char* name, const assay_accumulator& acc) -> std::string {
    if (acc.kind < ASSAY_ACC_FMA || acc.kind > ASSAY_ACC_INT32)
      return fmt::format("{}.kind is {}, accepted are 0 (FMA), 1 (BLOCK), 2 (INT32)", name, acc.kind);
    if (acc.kind != ASSAY_ACC_INT32 && acc.block < 1)
      return fmt::format("{}.block is {}, at least 1 expected", name, acc.block);
    if (acc.kind == ASSAY_ACC_BLOCK && (acc.fraction_bits < 1 || acc.mantissa_bits < 1))
      return fmt::format("{} keeps {} fraction and {} mantissa bits, at least 1 expected", name,
                         acc.fraction_bits, acc.mantissa_bits);
    return {};
  };
  if (std::string text = accumulator("qk", a.qk); !text.empty()) return text;
  if (std::string text = accumulator("pv", a.pv); !text.empty()) return text;
  const auto known_float = [](int32_t f) {
    return f == ASSAY_FORMAT_NONE || f == ASSAY_FP32 || format_is_float16(f) || format_is_fp8(f);
  };
  if (!known_float(a.p_format) && a.p_format != ASSAY_INT8)
    return fmt::format("p_format is {}, a float format or int8 expected", a.p_format);
  if (!known_float(a.dequant_format))
    return fmt::format("dequant_format is {}, a float format expected", a.dequant_format);
  if (!known_float(a.partial_format) || !known_float(a.partial_lse_format))
    return fmt::format("partial formats are {} and {}, float formats expected", a.partial_format,
                       a.partial_lse_format);
  if (a.splits < 0 || a.tile_keys < 0 || a.row_sum_chain < 0)
    return fmt::format("splits {}, tile_keys {} and row_sum_chain {} must not be negative", a.splits,
                       a.tile_keys, a.row_sum_chain);
  for (const double error : {a.exp_relative_error, a.tanh_relative_error, a.q_rounding, a.rescale_lag_log2})
    if (!(error >= 0) || std::isinf(error))
      return fmt::format("an error or lag of {} is not a number >= 0", error);
  if (!(a.exp_poly_relative_error >= 0) || std::isinf(a.exp_poly_relative_error) || a.exp_poly_every < 0)
    return fmt::format("exp_poly_every {} and exp_poly_relative_error {}, numbers >= 0 expected",
                       a.exp_poly_every, a.exp_poly_relative_error);
  if (a.split_keys < 0 || (a.split_keys > 0 && (a.tile_keys < 1 || a.split_keys % a.tile_keys != 0)))
    return fmt::format("split_keys is {}, a multiple of tile_keys ({}) expected", a.split_keys, a.tile_keys);
  if (a.order_declared != 0 && a.tile_keys < 1)
    return fmt::format("order_declared without tile_keys (it is {})", a.tile_keys);
  if (!std::isfinite(a.p_offset_log2)) return fmt::format("p_offset_log2 is {}", a.p_offset_log2);
  return {};
}

std::string impossible_block_arithmetic(const assay_arithmetic& a) {
  for (const double error : {a.exp_relative_error, a.scaling_relative_error})
    if (!(error >= 0 && error < 0.5)) return fmt::format("a relative error of {}, 0 to 0.5 expected", error);
  return {};
}

Unwritten::Unwritten(const Problem& problem, const assay_tensors& shapes)
    : problem_(problem), o_(count(shapes.o), 1), lse_(count(shapes.lse), 1) {}

void Unwritten::after_run(const Outputs& got, const Outputs& poison) {
  const auto mark = [](const assay_tensor& got, const assay_tensor& poison, std::vector<uint8_t>& untouched) {
    size_t index = 0;
    each(got, [&](const Element&, int64_t at) {
      untouched[index++] &= bits(got, at) == bits(poison, at);
      return true;
    });
  };
  mark(got.o, poison.o, o_);
  mark(got.lse, poison.lse, lse_);
}

std::string Unwritten::reason() const {
  const auto text = [&](const char* what, const std::vector<uint8_t>& untouched, int32_t per_row) {
    const auto bad = std::count(untouched.begin(), untouched.end(), 1);
    if (bad == 0) return std::string();
    const auto first = std::find(untouched.begin(), untouched.end(), 1) - untouched.begin();
    const int32_t width = per_row / problem_.heads_q;
    Element e{first / per_row, static_cast<int32_t>(first % per_row / width),
              static_cast<int32_t>(first % width)};
    if (width == 1) e.dim = -1;
    return fmt::format("{} not written in {} of {} elements, first {}", what, bad, untouched.size(),
                       place(problem_, e));
  };
  std::string reason = text("O", o_, problem_.heads_q * problem_.head_dim_v);
  return reason.empty() ? text("LSE", lse_, problem_.heads_q) : reason;
}

}  // namespace assay
