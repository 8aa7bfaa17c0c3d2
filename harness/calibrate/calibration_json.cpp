// SPDX-License-Identifier: Apache-2.0
// The calibration file. Numbers are written so that they read back to the same bits; errors of functions also
// as powers of two, because that is how people compare them.
#include <cmath>
#include <fstream>

#include "harness/base/error.hpp"
#include "harness/calibrate/calibration.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

using nlohmann::json;

constexpr int kVersion = 2;  // 1 did not know that groups may be chained before c
constexpr const char* kKinds[] = {"fma", "block", "int32"};
constexpr const char* kOrders[] = {"groups take c and the sum so far", "groups take the sum so far, then c",
                                   "groups apart, then c"};  // as Order
constexpr const char* kFunctions[] = {"none", "exp2", "log2", "tanh", "reciprocal"};

template <size_t kCount>
int32_t index_of(const char* const (&names)[kCount], const std::string& name) {
  for (size_t i = 0; i < kCount; ++i)
    if (name == names[i]) return static_cast<int32_t>(i);
  throw json::other_error::create(501, "unknown name " + name, nullptr);
}

// Infinity (a function that returned NaN) has no JSON number.
json number(double x) { return std::isfinite(x) ? json(x) : json("infinite"); }
double number_from(const json& j) { return j.is_string() ? HUGE_VAL : j.get<double>(); }

json json_of(const CalibratedProducts& p) {
  const ProductsFindings& f = p.findings;
  return {{"name", p.name},
          {"format", name_of(format_names(), p.format)},
          {"products", p.products},
          {"kind", kKinds[f.accumulator.kind]},
          {"block", f.accumulator.block},
          {"fraction_bits", f.accumulator.fraction_bits},
          {"fraction_bits_at_least", f.fraction_bits_at_least},
          {"mantissa_bits", f.accumulator.mantissa_bits},
          {"groups", f.groups},
          {"groups_hidden", f.groups_hidden},
          {"order", kOrders[static_cast<int>(f.order)]},
          {"alignment", f.alignment},
          {"rounding", f.rounding},
          {"rounding_of_last_sum", f.last},
          {"keeps_subnormal_operands", f.keeps_subnormal_operands},
          {"keeps_subnormal_accumulator", f.keeps_subnormal_accumulator},
          {"random_sums_tried", f.tried},
          {"random_sums_explained", f.explained},
          {"flops", p.flops}};
}

CalibratedProducts products_from(const json& j) {
  CalibratedProducts p;
  ProductsFindings& f = p.findings;
  j.at("name").get_to(p.name);
  const auto format = value_of(format_names(), j.at("format").get<std::string>());
  if (!format) throw json::other_error::create(501, "unknown format", nullptr);
  p.format = *format;
  j.at("products").get_to(p.products);
  f.accumulator.kind = index_of(kKinds, j.at("kind").get<std::string>());
  j.at("block").get_to(f.accumulator.block);
  j.at("fraction_bits").get_to(f.accumulator.fraction_bits);
  j.at("fraction_bits_at_least").get_to(f.fraction_bits_at_least);
  j.at("mantissa_bits").get_to(f.accumulator.mantissa_bits);
  j.at("groups").get_to(f.groups);
  j.at("groups_hidden").get_to(f.groups_hidden);
  f.order = static_cast<Order>(index_of(kOrders, j.at("order").get<std::string>()));
  j.at("alignment").get_to(f.alignment);
  j.at("rounding").get_to(f.rounding);
  j.at("rounding_of_last_sum").get_to(f.last);
  j.at("keeps_subnormal_operands").get_to(f.keeps_subnormal_operands);
  j.at("keeps_subnormal_accumulator").get_to(f.keeps_subnormal_accumulator);
  j.at("random_sums_tried").get_to(f.tried);
  j.at("random_sums_explained").get_to(f.explained);
  j.at("flops").get_to(p.flops);
  // Bounds are made of these: nonsense must not pass as a very good device.
  const assay_accumulator& a = f.accumulator;
  const bool block = a.kind == ASSAY_ACC_BLOCK;
  if (a.block < 1 || (block && (a.fraction_bits < 1 || a.mantissa_bits < 1 || a.mantissa_bits > 23)))
    throw json::other_error::create(501, "impossible accumulator", nullptr);
  return p;
}

json json_of(const CalibratedFunction& f) {
  const FunctionFindings& e = f.findings;
  return {{"name", f.name},
          {"function", kFunctions[f.function]},
          {"relative_error", number(e.relative_error)},
          {"relative_error_log2", e.relative_error > 0 ? number(std::log2(e.relative_error)) : json(nullptr)},
          {"relative_error_at", e.relative_at},
          {"absolute_error", number(e.absolute_error)},
          {"absolute_error_at", e.absolute_at},
          {"arguments", e.arguments}};
}

CalibratedFunction function_from(const json& j) {
  CalibratedFunction f;
  j.at("name").get_to(f.name);
  f.function = index_of(kFunctions, j.at("function").get<std::string>());
  f.findings.relative_error = number_from(j.at("relative_error"));
  j.at("relative_error_at").get_to(f.findings.relative_at);
  f.findings.absolute_error = number_from(j.at("absolute_error"));
  j.at("absolute_error_at").get_to(f.findings.absolute_at);
  j.at("arguments").get_to(f.findings.arguments);
  if (!(f.findings.relative_error >= 0) || f.findings.arguments < 1)
    throw json::other_error::create(501, "impossible error", nullptr);
  return f;
}

}  // namespace

json json_of(const Calibration& c) {
  json products = json::array(), functions = json::array();
  for (const CalibratedProducts& p : c.products) products.push_back(json_of(p));
  for (const CalibratedFunction& f : c.functions) functions.push_back(json_of(f));
  return {{"assay_calibration", kVersion},
          {"backend", c.backend},
          {"device", c.device},
          {"arch", c.arch},
          {"uuid", c.uuid},
          {"date", c.date},
          {"build", c.build},
          {"limits",
           {{"read_bytes_per_s", c.limits.read_bytes_per_s},
            {"write_bytes_per_s", c.limits.write_bytes_per_s},
            {"copy_bytes_per_s", c.limits.copy_bytes_per_s},
            {"matrix_flops_fp32", c.limits.matrix_flops_fp32},
            {"matrix_flops_bf16", c.limits.matrix_flops_bf16},
            {"matrix_flops_fp8", c.limits.matrix_flops_fp8},
            {"matrix_flops_int8", c.limits.matrix_flops_int8}}},
          {"instructions", products},
          {"functions", functions},
          {"missing", c.missing}};
}

Calibration read_calibration(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw InputError({path}, "cannot be read; a calibration file is written by `assay calibrate`");
  Calibration c;
  const char* key = "assay_calibration";
  try {
    const json j = json::parse(in);
    if (j.at(key).get<int>() != kVersion)
      throw InputError({path}, fmt::format("is a calibration of version {}, this program reads {}; calibrate "
                                           "the device again",
                                           j.at(key).dump(), kVersion));
    const auto text = [&](const char* name, std::string& to) { j.at(key = name).get_to(to); };
    text("backend", c.backend), text("device", c.device), text("arch", c.arch), text("uuid", c.uuid);
    text("date", c.date), text("build", c.build);
    const json& l = j.at(key = "limits");
    const auto limit = [&](const char* name, double& to) {
      l.at(key = name).get_to(to);
      if (!(to >= 0)) throw json::other_error::create(501, "negative rate", nullptr);
    };
    limit("read_bytes_per_s", c.limits.read_bytes_per_s);
    limit("write_bytes_per_s", c.limits.write_bytes_per_s);
    limit("copy_bytes_per_s", c.limits.copy_bytes_per_s);
    limit("matrix_flops_fp32", c.limits.matrix_flops_fp32);
    limit("matrix_flops_bf16", c.limits.matrix_flops_bf16);
    limit("matrix_flops_fp8", c.limits.matrix_flops_fp8);
    limit("matrix_flops_int8", c.limits.matrix_flops_int8);
    for (const json& p : j.at(key = "instructions")) c.products.push_back(products_from(p));
    for (const json& f : j.at(key = "functions")) c.functions.push_back(function_from(f));
    j.at(key = "missing").get_to(c.missing);
  } catch (const json::exception& e) {
    throw InputError(
        {path}, fmt::format("is no calibration file of this program: {} is missing or impossible ({})", key,
                            e.what()));
  }
  return c;
}

}  // namespace assay
