// SPDX-License-Identifier: Apache-2.0
// See calibration.hpp: the order of measuring, and what is taken over.
#include "harness/calibrate/calibration.hpp"

#include <algorithm>
#include <cctype>

#include "harness/base/error.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

std::vector<const assay_instruction*> instructions_of(const Backend& backend,
                                                      const std::function<bool(const std::string&)>& wanted) {
  const assay_backend& table = *backend.table();
  if (table.instructions == nullptr || table.run_products == nullptr || table.run_function == nullptr)
    throw InfrastructureError(
        fmt::format("backend {}: it has nothing to probe (no `instructions` in its table)", backend.name()));
  const assay_instruction* const* list = nullptr;
  int32_t count = 0;
  char error[512] = "";
  if (table.instructions(&list, &count, error, sizeof error) != ASSAY_OK)
    throw InfrastructureError(fmt::format("backend {}: its instructions: {}", backend.name(), error));
  std::vector<const assay_instruction*> chosen;
  std::string names;
  for (int32_t i = 0; i < count; ++i) {
    names += (names.empty() ? "" : ", ") + std::string(list[i]->name);
    if (wanted(list[i]->name)) chosen.push_back(list[i]);
  }
  if (chosen.empty())
    throw InfrastructureError(
        fmt::format("backend {}: no instruction of that name; it has: {}", backend.name(), names));
  return chosen;
}

void require(int status, const char* name, const char* error) {
  if (status != ASSAY_OK)
    throw InfrastructureError(
        fmt::format("{}: {}", name, *error ? error : fmt::format("status {} without a text", status)));
}

ProductsFindings products_of(const assay_backend& table, const assay_instruction& i) {
  return find_products(i.format, i.products, [&](const std::vector<Dot>& dots) {
    std::vector<float> a, b, c, d(dots.size());
    for (const Dot& dot : dots) {
      a.insert(a.end(), dot.a.begin(), dot.a.end());
      b.insert(b.end(), dot.b.begin(), dot.b.end());
      c.push_back(dot.c);
    }
    char error[512] = "";
    require(table.run_products(&i, static_cast<int64_t>(dots.size()), a.data(), b.data(), c.data(), d.data(),
                               error, sizeof error),
            i.name, error);
    return d;
  });
}

FunctionFindings function_of(const assay_backend& table, const assay_instruction& i) {
  return find_function(
      i.function,
      [&](uint32_t first, int64_t count, float* out) {
        char error[512] = "";
        require(table.run_function(&i, first, count, out, error, sizeof error), i.name, error);
      },
      arguments_of(i.function));
}

double rate_of(const assay_backend& table, const assay_instruction& i, Calibration& out) {
  double flops = 0;
  char error[512] = "";
  if (table.measure_rate != nullptr && table.measure_rate(&i, &flops, error, sizeof error) == ASSAY_OK &&
      flops > 0)
    return flops;
  out.missing.push_back(fmt::format("rate of {}: {}", i.name,
                                    table.measure_rate == nullptr ? "the backend has no measure_rate"
                                    : *error                      ? error
                                                                  : "no reason given"));
  return 0;
}

}  // namespace

Calibration calibrate(const Backend& backend, const assay_device& device,
                      const std::function<bool(const std::string&)>& wanted,
                      const std::function<void(const std::string&)>& say) {
  const assay_backend& table = *backend.table();
  Calibration out;
  out.backend = backend.name(), out.device = device.name, out.arch = device.arch, out.uuid = device.uuid;
  const std::vector<const assay_instruction*> chosen = instructions_of(backend, wanted);
  say("limits of the memory and of multiply-adds");
  MeasuredLimits measured = measure_limits(table, device);
  out.limits = measured.limits;
  out.missing = measured.missing;
  for (const assay_instruction* i : chosen) {
    say(i->name);
    try {
      if (i->kind == ASSAY_INSTRUCTION_PRODUCTS) {
        CalibratedProducts p{i->name, i->format, i->products, products_of(table, *i), 0};
        p.flops = rate_of(table, *i, out);
        double& limit = i->format == ASSAY_INT8        ? out.limits.matrix_flops_int8
                        : format_is_fp8(i->format)     ? out.limits.matrix_flops_fp8
                        : format_is_float16(i->format) ? out.limits.matrix_flops_bf16
                                                       : out.limits.matrix_flops_fp32;
        limit = std::max(limit, p.flops);
        out.products.push_back(std::move(p));
      } else {
        out.functions.push_back({i->name, i->function, function_of(table, *i)});
      }
    } catch (const InfrastructureError& e) {
      out.missing.push_back(fmt::format("{}: {}", i->name, e.what()));
    }
  }
  return out;
}

bool fits(const Calibration& c, const std::string& backend, const assay_device& device) {
  return c.backend == backend && c.device == device.name && c.arch == device.arch;
}

MeasuredArithmetic measured_arithmetic(const Calibration& c) {
  MeasuredArithmetic m;
  for (const CalibratedProducts& p : c.products) m.accumulators[p.name] = p.findings.accumulator;
  for (const CalibratedFunction& f : c.functions)
    if (f.function == ASSAY_FUNCTION_EXP2 || f.function == ASSAY_FUNCTION_TANH)
      m.relative_errors[f.name] = f.findings.relative_error;
  return m;
}

std::string device_slug(const std::string& device) {
  std::string slug;
  for (const char c : device) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      slug += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!slug.empty() && slug.back() != '-')
      slug += '-';
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug.empty() ? "device" : slug;
}

}  // namespace assay
