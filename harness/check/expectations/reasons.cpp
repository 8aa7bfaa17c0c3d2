// SPDX-License-Identifier: Apache-2.0
// See reasons.hpp.
#include "harness/check/expectations/reasons.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/base/error.hpp"
#include "harness/check/expectations/comparison.hpp"
#include "harness/ops/packed_rows.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// More than any unit has, and than fp32 can be scaled by.
constexpr int32_t kMostBits = 64, kMostProducts = 1 << 20;
constexpr double kMostLog2 = 126;

// Past a million bounds it says no more how far.
std::string ratio_text(double ratio) {
  return ratio < 1e6 ? fmt::format("ratio {:.3g}", ratio) : "ratio above 1e6";
}

std::string element_text(const char* what, const ErrorStats& s) {
  // What is accepted lies about the replayed result there, which may be far from the exact one.
  if (s.tier == Tier::kR)
    return fmt::format(
        "{} wrong in {} of {} elements, worst {}: got {:.5g}, exact {:.5g}, accepted about the replayed "
        "result "
        "{:.6g} .. {:.6g} (tier R, {})",
        what, s.bad, s.checked, place_of(s), s.got, s.expected, s.low, s.high, ratio_text(s.max_ratio));
  return fmt::format(
      "{} wrong in {} of {} elements, worst {}: got {:.5g} expected {:.5g}, accepted {:.6g} .. {:.6g} "
      "(tier {}, {})",
      what, s.bad, s.checked, place_of(s), s.got, s.expected, s.low, s.high, tier_name(s.tier),
      ratio_text(s.max_ratio));
}

bool known_lse(int32_t format) {
  return format == ASSAY_FORMAT_NONE || format == ASSAY_FP32 || format_is_float16(format);
}

}  // namespace

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  return text;
}

std::string inexact(const Problem& p, const assay_tensor& o, const std::vector<double>& exact_o) {
  int64_t bad = 0, index = 0;
  std::string worst;
  const std::vector<PackedRow> rows = packed_rows(p);
  for (size_t row = 0; row < rows.size(); ++row)
    for (int32_t head = 0; head < p.heads_q; ++head)
      for (int32_t dim = 0; dim < p.head_dim_v; ++dim) {
        const int64_t at = static_cast<int64_t>(row) * o.stride[0] + head * o.stride[1] + dim * o.stride[2];
        const double expected = round_to(o.format, exact_o[index++]), got = load(o.format, o.data, at);
        if (got == expected || bad++ > 0) continue;
        const ElementPlace place{{rows[row].request, rows[row].row}, head, dim};
        worst = fmt::format("{}: got {:.9g} expected exactly {:.9g}", place_of(place), got, expected);
      }
  if (bad == 0) return {};
  return fmt::format("O differs from the exact answer in {} of {} elements, first {}", bad, index, worst);
}

std::string out_of_bounds(const char* value, const ErrorStats& values, const char* mark,
                          const ErrorStats& marks) {
  if (values.bad == 0 && marks.bad == 0) return {};
  if (values.bad == 0) return element_text(mark, marks);
  std::string text = element_text(value, values);
  if (marks.bad > 0)
    text += fmt::format("; {} wrong in {} of {} ({})", mark, marks.bad, marks.checked,
                        ratio_text(marks.max_ratio));
  return text;
}

std::string beside_marks(const char* value, const ErrorStats& values) {
  if (values.checked == 0) return {};
  return values.bad == 0 ? fmt::format("; {} right in all {}", value, values.checked)
                         : fmt::format("; {} wrong in {} of {}", value, values.bad, values.checked);
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

std::string unbounded_elements(const ErrorStats& values, const ErrorStats& marks) {
  const int64_t count = values.unbounded + marks.unbounded;
  if (count == 0) return {};
  return fmt::format(
      "the declared arithmetic bounds nothing (scores too large for an exponential, their factors too small "
      "for "
      "fp32, or sums too long) in {} of {} elements",
      count, values.checked + marks.checked);
}

std::string impossible_arithmetic(const assay_arithmetic& a) {
  const auto accumulator = [](const char* name, const assay_accumulator& acc) -> std::string {
    if (acc.kind < ASSAY_ACC_FMA || acc.kind > ASSAY_ACC_INT32)
      return fmt::format("{}.kind is {}, accepted are 0 (FMA), 1 (BLOCK), 2 (INT32)", name, acc.kind);
    if (acc.kind != ASSAY_ACC_INT32 && acc.block < 1)
      return fmt::format("{}.block is {}, at least 1 expected", name, acc.block);
    if (acc.block > kMostProducts || acc.fraction_bits > kMostBits || acc.mantissa_bits > kMostBits)
      return fmt::format("{} says block {}, {} fraction and {} mantissa bits, at most {}, {} and {} expected",
                         name, acc.block, acc.fraction_bits, acc.mantissa_bits, kMostProducts, kMostBits,
                         kMostBits);
    if (acc.kind == ASSAY_ACC_BLOCK && (acc.fraction_bits < 1 || acc.mantissa_bits < 1))
      return fmt::format("{} keeps {} fraction and {} mantissa bits, at least 1 expected", name,
                         acc.fraction_bits, acc.mantissa_bits);
    return {};
  };
  if (std::string text = accumulator("qk", a.qk); !text.empty()) return text;
  if (std::string text = accumulator("pv", a.pv); !text.empty()) return text;
  if (a.row_sum.kind != ASSAY_ACC_FMA || a.row_sum.block != 0)
    if (std::string text = accumulator("row_sum", a.row_sum); !text.empty()) return text;
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
  for (const double error :
       {a.exp_relative_error, a.tanh_relative_error, a.tanh_absolute_error, a.log_absolute_error,
        a.log_relative_error, a.q_rounding, a.q_rounding_absolute, a.rescale_lag_log2})
    if (!(error >= 0) || std::isinf(error))
      return fmt::format("an error or lag of {} is not a number >= 0", error);
  if (!(a.exp_poly_relative_error >= 0) || std::isinf(a.exp_poly_relative_error) || a.exp_poly_every < 0)
    return fmt::format("exp_poly_every {} and exp_poly_relative_error {}, numbers >= 0 expected",
                       a.exp_poly_every, a.exp_poly_relative_error);
  if (a.split_keys < 0 || (a.split_keys > 0 && (a.tile_keys < 1 || a.split_keys % a.tile_keys != 0)))
    return fmt::format("split_keys is {}, a multiple of tile_keys ({}) expected", a.split_keys, a.tile_keys);
  if (a.split_interleaved != 0 && (a.split_keys > 0 || a.tile_keys < 1))
    return fmt::format("split_interleaved with split_keys {} and tile_keys {}: 0 and at least 1 expected",
                       a.split_keys, a.tile_keys);
  if (std::min({a.item_rows, a.shares, a.share_tiles, a.share_turns}) < 0)
    return fmt::format("item_rows {}, shares {}, share_tiles {} and share_turns {} must not be negative",
                       a.item_rows, a.shares, a.share_tiles, a.share_turns);
  if (a.item_rows > 0 && (a.tile_keys < 1 || a.split_keys > 0 || a.split_interleaved != 0))
    return fmt::format(
        "item_rows with tile_keys {}, split_keys {} and split_interleaved {}: at least 1, 0, 0", a.tile_keys,
        a.split_keys, a.split_interleaved);
  if ((a.shares > 0 && a.item_rows == 0) || (std::max(a.share_tiles, a.share_turns) > 0 && a.shares == 0))
    return fmt::format("shares {}, share_tiles {} and share_turns {} need what they cut: item_rows, shares",
                       a.shares, a.share_tiles, a.share_turns);
  if (a.p_roundings < 0 || a.partial_roundings < 0 || a.promote_every < 0)
    return fmt::format("p_roundings {}, partial_roundings {} and promote_every {} must not be negative",
                       a.p_roundings, a.partial_roundings, a.promote_every);
  if (a.promote_every > 1 && (a.promote_pv == 0 || a.tile_keys < 1))
    return fmt::format("promote_every is {} without promote_pv or without tile_keys", a.promote_every);
  if (a.bias_form != ASSAY_BIAS_DISTANCE && a.bias_form != ASSAY_BIAS_COLUMN)
    return fmt::format("bias_form is {}, accepted are 0 (distance) and 1 (column)", a.bias_form);
  if (!known_float(a.q_replayed_format))
    return fmt::format("q_replayed_format is {}, a float format expected", a.q_replayed_format);
  if (a.q_replayed_format != ASSAY_FORMAT_NONE &&
      !(std::isfinite(a.q_replayed_factor) && a.q_replayed_factor != 0))
    return fmt::format("q_replayed_factor is {}, a number other than 0 expected", a.q_replayed_factor);
  if (a.q_replayed_scales != 0 && (a.q_replayed_format == ASSAY_FORMAT_NONE ||
                                   a.dequant_format != ASSAY_FORMAT_NONE || a.q_rounding_absolute > 0))
    return "q_replayed_scales with no q_replayed_format, with a dequant_format or with q_rounding_absolute: "
           "keys are multiplied as codes then, and every rounding of Q is repeated";
  if (a.order_declared != 0 && a.tile_keys < 1)
    return fmt::format("order_declared without tile_keys (it is {})", a.tile_keys);
  if (!(std::fabs(a.p_offset_log2) <= kMostLog2) || a.rescale_lag_log2 > kMostLog2)
    return fmt::format("p_offset_log2 {} and rescale_lag_log2 {}: no more than {} expected, fp32 ends there",
                       a.p_offset_log2, a.rescale_lag_log2, kMostLog2);
  for (const auto& [name, error] : {std::pair{"exp_relative_error", a.exp_relative_error},
                                    {"exp_poly_relative_error", a.exp_poly_relative_error},
                                    {"tanh_relative_error", a.tanh_relative_error},
                                    {"log_relative_error", a.log_relative_error},
                                    {"q_rounding", a.q_rounding}})
    if (error >= 1)
      return fmt::format("{} is {}, less than 1 expected: the result may be anything", name, error);
  if (a.chained_requests < 0 || a.chained_requests > ASSAY_REQUEST_ANY)
    return fmt::format("chained_requests is {}, bits of enum assay_request_class expected",
                       a.chained_requests);
  if (a.chained_requests != 0 && a.splits_vary == 0)
    return "chained_requests without splits_vary: requests are cut as their contexts are";
  if (!known_lse(a.weights_lse_format) || !known_lse(a.merge_lse_format))
    return fmt::format("weights_lse_format is {} and merge_lse_format {}, none, fp32, bf16 or fp16 expected",
                       a.weights_lse_format, a.merge_lse_format);
  if (a.weights_lse_format != ASSAY_FORMAT_NONE && (a.order_declared != 0 || a.row_sum_from_rounded_p != 0))
    return "weights_lse_format with order_declared or row_sum_from_rounded_p: nothing replays a P that "
           "stands "
           "against an LSE, and no row sum takes it";
  for (const auto& [name, flag] : {std::pair{"promote_pv", a.promote_pv},
                                   {"tile_reverse", a.tile_reverse},
                                   {"p_truncated", a.p_truncated},
                                   {"row_sum_from_rounded_p", a.row_sum_from_rounded_p},
                                   {"order_declared", a.order_declared},
                                   {"sink_first", a.sink_first},
                                   {"p_int8_tile_max", a.p_int8_tile_max},
                                   {"dequant_replayed", a.dequant_replayed},
                                   {"split_interleaved", a.split_interleaved},
                                   {"splits_vary", a.splits_vary},
                                   {"q_replayed_scales", a.q_replayed_scales},
                                   {"rescale_inexact", a.rescale_inexact}})
    if (flag != 0 && flag != 1) return fmt::format("{} is {}, 0 or 1 expected", name, flag);
  return {};
}

std::string impossible_block_arithmetic(const assay_arithmetic& a) {
  if (!known_lse(a.merge_lse_format))
    return fmt::format("merge_lse_format is {}, none, fp32, bf16 or fp16 expected", a.merge_lse_format);
  for (const double error : {a.exp_relative_error, a.scaling_relative_error})
    if (!(error >= 0 && error < 0.5)) return fmt::format("a relative error of {}, 0 to 0.5 expected", error);
  return {};
}

}  // namespace assay
