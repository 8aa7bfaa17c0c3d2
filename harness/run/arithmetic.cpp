// SPDX-License-Identifier: Apache-2.0
// See arithmetic.hpp. Small numbers are shown as powers of two, because that is what roundings are.
#include "harness/run/arithmetic.hpp"

#include <cmath>

#include "harness/base/error.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay {
namespace {

// "2^-13.5"
std::string power(double x) { return x > 0 ? fmt::format("2^{:.4g}", std::log2(x)) : "0"; }

std::string format_word(int32_t format) {
  return format == ASSAY_FORMAT_NONE ? "fp32" : std::string(name_of(format_names(), format));
}

std::string accumulator_words(const assay_accumulator& a) {
  switch (a.kind) {
    case ASSAY_ACC_INT32:
      return "int32, exact";
    case ASSAY_ACC_BLOCK:
      return fmt::format("blocks of {}, {} fraction bits, {} mantissa bits, truncated", a.block,
                         a.fraction_bits, a.mantissa_bits);
    default:
      return a.block > 1 ? fmt::format("fp32 multiply-add, {} lanes", a.block) : "fp32 multiply-add";
  }
}

nlohmann::json accumulator_json(const assay_accumulator& a) {
  constexpr const char* kKinds[] = {"fma", "block", "int32"};
  nlohmann::json j = {{"kind", kKinds[a.kind]}, {"block", a.block}};
  if (a.kind == ASSAY_ACC_BLOCK) {
    j["fraction_bits"] = a.fraction_bits;
    j["mantissa_bits"] = a.mantissa_bits;
  }
  return j;
}

// ", rounded 3 times"
std::string times(int32_t count) { return count > 1 ? fmt::format(", rounded {} times", count) : ""; }

std::string promotion_words(const assay_arithmetic& a) {
  if (a.promote_pv == 0) return "";
  if (promotion_tiles(a) == 1) return ", each tile apart, added in fp32";
  return fmt::format(", every {} tiles apart, added in fp32", a.promote_every);
}

std::string p_words(const assay_arithmetic& a) {
  std::string text = format_word(a.p_format);
  if (a.p_format == ASSAY_INT8) text += a.p_int8_tile_max ? ", 127 = largest of the tile" : ", 127 = 1";
  if (a.p_offset_log2 != 0) text += fmt::format(" x 2^{:g}", a.p_offset_log2);
  if (a.weights_lse_format != ASSAY_FORMAT_NONE)
    text += fmt::format(", relative to the LSE in {}, undivided", format_word(a.weights_lse_format));
  return text + (a.p_truncated ? ", toward zero" : "") + times(a.p_roundings);
}

std::string merge_words(const assay_arithmetic& a) {
  if (a.merge_lse_format == ASSAY_FORMAT_NONE) return "divided by their sum";
  return fmt::format("relative to the LSE in {}, undivided", format_word(a.merge_lse_format));
}

// ", chains of chunks for decodes, extends"
std::string chain_words(const assay_arithmetic& a) {
  std::string text;
  for (const auto& [bit, word] : {std::pair{ASSAY_REQUEST_DECODE, "decodes"},
                                  {ASSAY_REQUEST_EXTEND, "extends"},
                                  {ASSAY_REQUEST_PREFILL, "prefills"}})
    if ((a.chained_requests & bit) != 0) text += fmt::format("{} {}", text.empty() ? "" : ",", word);
  return text.empty() ? "" : ", chains of chunks for" + text;
}

std::string split_words(const assay_arithmetic& a) {
  if (a.split_keys > 0) return fmt::format("parts of {} keys", a.split_keys);
  if (a.splits <= 1) return "none";
  if (a.item_rows > 0)
    return fmt::format("up to {} parts, of items of {} rows{}{}", a.splits, a.item_rows,
                       a.shares > 0 ? fmt::format(", of {} shares of all tiles", a.shares) : "",
                       a.share_turns > 1 ? fmt::format(", tiles dealt to {}", a.share_turns) : "");
  return fmt::format("up to {} parts{}{}{}", a.splits, a.split_interleaved ? ", tiles in turn" : "",
                     a.splits_vary ? ", fewer for some requests" : "", chain_words(a));
}

std::string row_sum_words(const assay_arithmetic& a) {
  std::string text = fmt::format("of {} P, ", a.row_sum_from_rounded_p ? "rounded" : "exact");
  if (a.row_sum.kind != ASSAY_ACC_FMA || a.row_sum.block > 0) return text + accumulator_words(a.row_sum);
  return text + (a.row_sum_chain > 0 ? fmt::format("{} adds in a row", a.row_sum_chain) : "one chain");
}

// "2^-22 and 2^-24 absolute"
std::string with_absolute(double relative, double absolute) {
  return absolute > 0 ? fmt::format("{} and {} absolute", power(relative), power(absolute)) : power(relative);
}

std::string log_words(const assay_arithmetic& a) {
  if (a.log_absolute_error == 0 && a.log_relative_error == 0)
    return power(kLogAbsolute) + " absolute, undeclared";
  return with_absolute(a.log_relative_error, a.log_absolute_error);
}

std::string q_words(const assay_arithmetic& a) {
  std::string text;
  if (a.q_replayed_format != ASSAY_FORMAT_NONE)
    text = fmt::format("times {:.6g}{} rounded to {}, repeated by the reference", a.q_replayed_factor,
                       a.q_replayed_scales != 0 ? " and scales per channel" : "",
                       format_word(a.q_replayed_format));
  if (a.q_rounding > 0 || a.q_rounding_absolute > 0)
    text += (text.empty() ? "" : "; ") +
            ("rounded again by " + with_absolute(a.q_rounding, a.q_rounding_absolute));
  return text.empty() ? "as stored" : text;
}

double growth(const Problem& p, const assay_arithmetic& a) {
  RowShape longest;
  longest.keys = longest.span = p.max_kv_len();
  const ErrorTerms t = ErrorModel(p, a).terms(longest);
  return std::max(t.growth, t.chain_growth);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> arithmetic_words(const Problem& p,
                                                                  const assay_arithmetic& a) {
  std::vector<std::pair<std::string, std::string>> words;
  const auto add = [&](const char* name, std::string text) { words.emplace_back(name, std::move(text)); };
  if (!op_of(p).attends_rows) {
    if (op_of(p).takes_exponentials)
      add("exponential", power(a.exp_relative_error)), add("weights of merges", merge_words(a));
    else
      add("scaling", a.scaling_relative_error > 0 ? power(a.scaling_relative_error) : "rounded correctly");
    return words;
  }
  add("QK product", accumulator_words(a.qk));
  add("PV product", accumulator_words(a.pv) + promotion_words(a));
  add("tiles", a.tile_keys > 0
                   ? fmt::format("{} keys{}", a.tile_keys, a.tile_reverse ? ", last to first" : "")
                   : "undeclared");
  add("splits", split_words(a));
  add("order", a.order_declared ? "declared: the rounding of P is replayed" : "undeclared");
  add("running maximum",
      (a.rescale_lag_log2 > 0 ? fmt::format("rescales beyond 2^{:g}", a.rescale_lag_log2)
                              : std::string("rescales where it rises")) +
          (a.rescale_inexact ? ", at every tile by an exponential that is inexact at 0" : ""));
  add("exponential", power(a.exp_relative_error) + (a.exp_poly_every > 0
                                                        ? fmt::format(", every {}. key {}", a.exp_poly_every,
                                                                      power(a.exp_poly_relative_error))
                                                        : ""));
  if (p.softcap > 0) add("tanh", with_absolute(a.tanh_relative_error, a.tanh_absolute_error));
  add("logarithm", log_words(a));
  if (p.alibi == ASSAY_ALIBI_LINEAR)
    add("position bias", a.bias_form == ASSAY_BIAS_COLUMN ? "slope x column" : "slope x distance");
  add("P", p_words(a));
  add("row sum", row_sum_words(a));
  if (p.sinks) add("sink", a.sink_first ? "in the maximum from the start" : "joined at the end");
  add("partial O, LSE",
      format_word(a.partial_format) + ", " + format_word(a.partial_lse_format) + times(a.partial_roundings));
  if (a.merge_lse_format != ASSAY_FORMAT_NONE) add("weights of merges", merge_words(a));
  add("Q", q_words(a));
  add("K, V", a.dequant_format == ASSAY_FORMAT_NONE
                  ? "as stored"
                  : fmt::format("dequantised to {}{}", format_word(a.dequant_format),
                                a.dequant_replayed ? ", repeated by the reference" : ""));
  const double g = growth(p, a);
  add("growth", fmt::format("{:.2g}{}", g, g > 1 ? ": may lose all it adds up" : ""));
  return words;
}

nlohmann::json arithmetic_json(const Problem& p, const assay_arithmetic& a) {
  const auto format = [](int32_t f) { return format_word(f); };
  const auto or_none = [](int32_t f) { return f == ASSAY_FORMAT_NONE ? "none" : format_word(f); };
  if (!op_of(p).attends_rows)
    return {{"exp_relative_error", a.exp_relative_error},
            {"scaling_relative_error", a.scaling_relative_error},
            {"merge_lse_format", or_none(a.merge_lse_format)}};
  const auto name = [](const char* text) { return text ? nlohmann::json(text) : nlohmann::json(nullptr); };
  return {{"qk", accumulator_json(a.qk)},
          {"pv", accumulator_json(a.pv)},
          {"promote_pv", a.promote_pv != 0},
          {"promote_every", a.promote_every},
          {"tile_keys", a.tile_keys},
          {"tile_reverse", a.tile_reverse != 0},
          {"splits", a.splits},
          {"split_keys", a.split_keys},
          {"split_interleaved", a.split_interleaved != 0},
          {"splits_vary", a.splits_vary != 0},
          {"chained_requests", a.chained_requests},
          {"item_rows", a.item_rows},
          {"shares", a.shares},
          {"share_tiles", a.share_tiles},
          {"share_turns", a.share_turns},
          {"order_declared", a.order_declared != 0},
          {"sink_first", a.sink_first != 0},
          {"row_sum", accumulator_json(a.row_sum)},
          {"row_sum_chain", a.row_sum_chain},
          {"row_sum_from_rounded_p", a.row_sum_from_rounded_p != 0},
          {"rescale_lag_log2", a.rescale_lag_log2},
          {"exp_relative_error", a.exp_relative_error},
          {"exp_poly_every", a.exp_poly_every},
          {"exp_poly_relative_error", a.exp_poly_relative_error},
          {"tanh_relative_error", a.tanh_relative_error},
          {"tanh_absolute_error", a.tanh_absolute_error},
          {"log_absolute_error", a.log_absolute_error},
          {"log_relative_error", a.log_relative_error},
          {"bias_form", a.bias_form == ASSAY_BIAS_COLUMN ? "column" : "distance"},
          {"p_format", format(a.p_format)},
          {"p_truncated", a.p_truncated != 0},
          {"p_roundings", a.p_roundings},
          {"p_offset_log2", a.p_offset_log2},
          {"p_int8_tile_max", a.p_int8_tile_max != 0},
          {"partial_format", format(a.partial_format)},
          {"partial_lse_format", format(a.partial_lse_format)},
          {"partial_roundings", a.partial_roundings},
          {"q_rounding", a.q_rounding},
          {"q_rounding_absolute", a.q_rounding_absolute},
          {"weights_lse_format", or_none(a.weights_lse_format)},
          {"merge_lse_format", or_none(a.merge_lse_format)},
          {"q_replayed_format", or_none(a.q_replayed_format)},
          {"q_replayed_factor", a.q_replayed_factor},
          {"q_replayed_scales", a.q_replayed_scales},
          {"rescale_inexact", a.rescale_inexact != 0},
          {"dequant_format", or_none(a.dequant_format)},
          {"dequant_replayed", a.dequant_replayed != 0},
          {"instructions",
           {{"qk", name(a.qk_instruction)},
            {"pv", name(a.pv_instruction)},
            {"exp", name(a.exp_instruction)},
            {"tanh", name(a.tanh_instruction)}}},
          {"growth", growth(p, a)}};
}

}  // namespace assay
