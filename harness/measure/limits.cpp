// SPDX-License-Identifier: Apache-2.0
// See limits.hpp.
#include "harness/measure/limits.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr int64_t kBytes = int64_t{512} << 20;
constexpr int32_t kRead = 0, kCopy = 1, kWrite = 2;  // op of measure_bandwidth

template <class Call>
double measured(const char* what, const char* function, const assay_backend& b, bool present,
                MeasuredLimits& out, const Call& call) {
  if (!present) {
    out.missing.push_back(fmt::format("{}: backend {} has no {}", what, b.name, function));
    return 0;
  }
  double value = 0;
  char error[256] = "";
  const int status = call(&value, error, sizeof error);
  if (status == ASSAY_OK && value > 0 && std::isfinite(value)) return value;
  out.missing.push_back(fmt::format("{}: {} of backend {} answered status {}{}{}{}", what, function, b.name,
                                    status, status == ASSAY_OK ? fmt::format(" and {:g}", value) : "",
                                    *error ? ": " : "", error));
  return 0;
}

}  // namespace

MeasuredLimits measure_limits(const assay_backend& b, const assay_device& device) {
  MeasuredLimits out;
  const int64_t bytes = device.memory_bytes > 0 ? std::min(kBytes, device.memory_bytes / 8) : kBytes;
  const auto bandwidth = [&](int32_t op) {
    return [&b, op, bytes](double* value, char* error, size_t size) {
      return b.measure_bandwidth(op, bytes, value, error, size);
    };
  };
  const auto rate = [&](int32_t format) {
    return [&b, format](double* value, char* error, size_t size) {
      return b.measure_matrix_rate(format, value, error, size);
    };
  };
  const bool has_bandwidth = b.measure_bandwidth != nullptr, has_rate = b.measure_matrix_rate != nullptr;
  Limits& l = out.limits;
  l.read_bytes_per_s =
      measured("read_bytes_per_s", "measure_bandwidth", b, has_bandwidth, out, bandwidth(kRead));
  l.copy_bytes_per_s =
      measured("copy_bytes_per_s", "measure_bandwidth", b, has_bandwidth, out, bandwidth(kCopy));
  l.write_bytes_per_s =
      measured("write_bytes_per_s", "measure_bandwidth", b, has_bandwidth, out, bandwidth(kWrite));
  l.matrix_flops_fp32 =
      measured("matrix_flops_fp32", "measure_matrix_rate", b, has_rate, out, rate(ASSAY_FP32));
  l.matrix_flops_bf16 =
      measured("matrix_flops_bf16", "measure_matrix_rate", b, has_rate, out, rate(ASSAY_BF16));
  return out;
}

LimitTime limit_time(const Work& work, const Problem& p, const Limits& limits) {
  LimitTime t;
  if (!op_of(p).attends_rows) {  // as many bytes out as in, and no products
    if (limits.copy_bytes_per_s > 0) t = {work.total_bytes / limits.copy_bytes_per_s, "copy"};
    return t;
  }
  if (limits.read_bytes_per_s > 0) t = {work.total_bytes / limits.read_bytes_per_s, "read"};
  // fp32 operands cannot use the 16-bit matrix units; everything narrower can.
  const bool fp32 = p.q_format == ASSAY_FP32 || p.k_format == ASSAY_FP32 || p.v_format == ASSAY_FP32;
  const auto all = [&](bool (*is)(int32_t)) { return is(p.q_format) && is(p.k_format) && is(p.v_format); };
  double rate = fp32 ? limits.matrix_flops_fp32 : limits.matrix_flops_bf16;
  // A unit for 8-bit operands is the limit of all-8-bit cases, whether or not a kernel uses it.
  if (all(format_is_fp8)) rate = std::max(rate, limits.matrix_flops_fp8);
  if (all([](int32_t f) { return f == ASSAY_INT8; })) rate = std::max(rate, limits.matrix_flops_int8);
  if (rate > 0 && work.flops / rate > t.seconds) t = {work.flops / rate, "matrix"};
  return t;
}

int64_t host_cache_bytes(const assay_device& device) {
  constexpr int64_t kUnknown = int64_t{512} << 20;  // larger than what processors have
  const long shared = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return (shared > 0 ? shared : kUnknown) + device.cache_bytes * std::max<int64_t>(device.multiprocessors, 1);
}

std::string too_fast(const Work& work, const Problem& p, const Limits& limits, int64_t cache_bytes,
                     bool shares_host, double us) {
  const double slack = shares_host ? 4 : 1.5;
  constexpr double kNoCache = 100;
  const auto says = [us](const char* what, double least_us) {
    return least_us > us ? fmt::format(
                               "{:.3g} us, and {} alone takes {:.3g} us at the measured limits with "
                               "every allowance",
                               us, what, least_us)
                         : std::string();
  };
  // 32 bits on 16-bit units is no less work; a unit for shorter formats may be faster than what was measured.
  double rate = std::max(limits.matrix_flops_fp32, limits.matrix_flops_bf16);
  const auto any_short = [&] {
    for (const int32_t f : {p.q_format, p.k_format, p.v_format})
      if (format_is_fp8(f) || f == ASSAY_INT8) return true;
    return false;
  };
  if (any_short()) rate = std::max({4 * rate, limits.matrix_flops_fp8, limits.matrix_flops_int8});
  if (rate > 0 && op_of(p).attends_rows)
    if (std::string why = says("the arithmetic", 1e6 * work.flops / (slack * rate)); !why.empty()) return why;
  const double memory =
      std::max({limits.read_bytes_per_s, limits.copy_bytes_per_s, limits.write_bytes_per_s});
  if (!(memory > 0)) return "";
  const double beyond = std::max(0.0, work.total_bytes - static_cast<double>(cache_bytes));
  if (std::string why = says("reading what no cache holds", 1e6 * beyond / (slack * memory)); !why.empty())
    return why;
  return says("touching every operand once", 1e6 * work.total_bytes / (kNoCache * memory));
}

}  // namespace assay
