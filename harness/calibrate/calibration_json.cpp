// SPDX-License-Identifier: Apache-2.0
// The calibration file. Numbers are written so that they read back to the same bits; errors of functions also
// as powers of two, because that is how people compare them.
#include <cmath>

#include "harness/base/files.hpp"
#include "harness/base/json_fields.hpp"
#include "harness/calibrate/calibration.hpp"
#include "harness/measure/measure_json.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

constexpr int kVersion = 2;  // 1 did not know that groups may be chained before c
constexpr const char* kVersionKey = "assay_calibration";
constexpr int64_t kMaxBytes = 64 << 20;  // a file of every instruction has some 100 KB

constexpr Name kKinds[] = {{"fma", ASSAY_ACC_FMA}, {"block", ASSAY_ACC_BLOCK}, {"int32", ASSAY_ACC_INT32}};
constexpr Name kOrders[] = {{"groups take c and the sum so far", static_cast<int32_t>(Order::kWithC)},
                            {"groups take the sum so far, then c", static_cast<int32_t>(Order::kThenC)},
                            {"groups apart, then c", static_cast<int32_t>(Order::kParallel)}};
constexpr Name kFunctions[] = {{"none", ASSAY_FUNCTION_NONE},
                               {"exp2", ASSAY_FUNCTION_EXP2},
                               {"log2", ASSAY_FUNCTION_LOG2},
                               {"tanh", ASSAY_FUNCTION_TANH},
                               {"reciprocal", ASSAY_FUNCTION_RECIPROCAL}};

}  // namespace

template <>
struct JsonFields<CalibratedProducts> {
  using P = CalibratedProducts;
  static constexpr std::string_view name = "instruction";
  static constexpr auto list = std::tuple(
      JsonField("name", &P::name), JsonWord("format", &P::format, format_names),
      JsonField("products", &P::products),
      JsonWord(
          "kind", [](auto& p) -> auto& { return p.findings.accumulator.kind; },
          [] { return std::span(kKinds); }),
      JsonField(
          "block", [](auto& p) -> auto& { return p.findings.accumulator.block; }),
      JsonField(
          "fraction_bits", [](auto& p) -> auto& { return p.findings.accumulator.fraction_bits; }),
      JsonField(
          "fraction_bits_at_least", [](auto& p) -> auto& { return p.findings.fraction_bits_at_least; }),
      JsonField(
          "mantissa_bits", [](auto& p) -> auto& { return p.findings.accumulator.mantissa_bits; }),
      JsonField(
          "groups", [](auto& p) -> auto& { return p.findings.groups; }),
      JsonField(
          "groups_hidden", [](auto& p) -> auto& { return p.findings.groups_hidden; }),
      JsonWord(
          "order", [](auto& p) -> auto& { return p.findings.order; }, [] { return std::span(kOrders); }),
      JsonField(
          "alignment", [](auto& p) -> auto& { return p.findings.alignment; }),
      JsonField(
          "rounding", [](auto& p) -> auto& { return p.findings.rounding; }),
      JsonField(
          "rounding_of_last_sum", [](auto& p) -> auto& { return p.findings.last; }),
      JsonField(
          "keeps_subnormal_operands", [](auto& p) -> auto& { return p.findings.keeps_subnormal_operands; }),
      JsonField(
          "keeps_subnormal_accumulator",
          [](auto& p) -> auto& { return p.findings.keeps_subnormal_accumulator; }),
      JsonField(
          "random_sums_tried", [](auto& p) -> auto& { return p.findings.tried; }),
      JsonField(
          "random_sums_explained", [](auto& p) -> auto& { return p.findings.explained; }),
      JsonField("flops", &P::flops));
  // Bounds are made of these: nonsense must not pass as a very good device.
  static std::string fault(const P& p) {
    const assay_accumulator& a = p.findings.accumulator;
    const bool block = a.kind == ASSAY_ACC_BLOCK;
    const bool bad =
        a.block < 1 || (block && (a.fraction_bits < 1 || a.mantissa_bits < 1 || a.mantissa_bits > 23));
    return bad ? "impossible accumulator" : "";
  }
};

template <>
struct JsonFields<CalibratedFunction> {
  using F = CalibratedFunction;
  static constexpr std::string_view name = "function";
  static constexpr auto list = std::tuple(
      JsonField("name", &F::name), JsonWord("function", &F::function, [] { return std::span(kFunctions); }),
      JsonField(
          "relative_error", [](auto& f) -> auto& { return f.findings.relative_error; }),
      JsonDerived("relative_error_log2",
                  [](const F& f) {
                    const double e = f.findings.relative_error;
                    return e > 0 ? json_number(std::log2(e)) : nlohmann::json(nullptr);
                  }),
      JsonField(
          "relative_error_at", [](auto& f) -> auto& { return f.findings.relative_at; }),
      JsonField(
          "absolute_error", [](auto& f) -> auto& { return f.findings.absolute_error; }),
      JsonField(
          "absolute_error_at", [](auto& f) -> auto& { return f.findings.absolute_at; }),
      JsonField(
          "arguments", [](auto& f) -> auto& { return f.findings.arguments; }));
  static std::string fault(const F& f) {
    return f.findings.relative_error >= 0 && f.findings.arguments >= 1 ? "" : "impossible error";
  }
};

template <>
struct JsonFields<Calibration> {
  using C = Calibration;
  static constexpr std::string_view name = "calibration";
  static constexpr auto list = std::tuple(
      JsonField("backend", &C::backend), JsonField("device", &C::device), JsonField("arch", &C::arch),
      JsonField("uuid", &C::uuid), JsonField("date", &C::date), JsonField("build", &C::build),
      JsonField("limits", &C::limits), JsonField("instructions", &C::products),
      JsonField("functions", &C::functions), JsonField("missing", &C::missing));
};

nlohmann::json json_of(const Calibration& c) {
  nlohmann::json j = encode(c);
  j[kVersionKey] = kVersion;
  return j;
}

Calibration read_calibration(const std::string& path) {
  const char* whose = "a calibration file, which `assay calibrate` writes";
  return calibration_from(parse_json(read_text_file({path}, path, kMaxBytes, whose), {path, 1, 1}, whose),
                          {path});
}

Calibration calibration_from(const nlohmann::json& j, const SourcePlace& place) {
  const char* whose = "a calibration, which `assay calibrate` makes";
  const JsonPlace at{place, "calibration", ""};
  if (!j.is_object()) json_mistyped(at, j, whose);
  const auto version = j.find(kVersionKey);
  if (version == j.end()) json_missing(at.inside(kVersionKey), whose);
  if (*version != kVersion)
    throw InputError(place, fmt::format("is a calibration of version {}, this program reads {}; calibrate "
                                        "the device again",
                                        json_shown(*version), kVersion));
  Calibration c;
  json_fields::decode_object(j, c, at, kVersionKey);
  return c;
}

}  // namespace assay
