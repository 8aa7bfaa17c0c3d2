// SPDX-License-Identifier: Apache-2.0
// The interval test. Rounding is monotone, so a kernel whose result before its output rounding lies within
// o - B .. o + B lands within rnd(o - B) .. rnd(o + B): the output format needs no slack of its own.
#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/base/error.hpp"
#include "harness/check/verdict.hpp"
#include "reference/formats.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Half the distance of neighbours of `format` around |x|.
double half_ulp(int32_t format, double x) {
  const FormatInfo& info = format_info(format);
  if (!(std::fabs(x) < kInf)) return kInf;
  const int exponent = x == 0 ? info.min_exponent : std::max(std::ilogb(x), info.min_exponent);
  return std::ldexp(1.0, exponent - info.mantissa_bits - 1);
}

struct Place {
  RowId row;
  int32_t head = 0, dim = 0;
};

void check_element(double got, double expected, double bound, int32_t format, const Place& at,
                   ErrorStats& stats) {
  ++stats.checked;
  const bool fine = fits(got, expected, bound, format);
  double error = std::fabs(got - expected);
  if (got == expected) error = 0;  // also -inf where -inf is expected
  if (std::isnan(error)) error = kInf;
  double ratio = error == 0 ? 0.0 : error / (bound + half_ulp(format, std::fabs(expected) + bound));
  if (std::isnan(ratio)) ratio = fine ? 0.0 : kInf;
  // In a smaller binade below o - B half an ulp is less than the one divided by: the test decides.
  if (!fine) ratio = std::max(ratio, std::nextafter(1.0, 2.0));
  stats.bad += !fine;
  stats.max_error = std::max(stats.max_error, error);
  if (stats.request >= 0 && ratio <= stats.max_ratio) return;
  stats.max_ratio = std::max(stats.max_ratio, ratio);
  stats.request = at.row.request;
  stats.row = at.row.row;
  stats.head = at.head;
  stats.dim = at.dim;
  stats.got = got;
  stats.expected = expected;
  stats.bound = bound;
}

}  // namespace

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed:
      return "passed";
    case Outcome::kWrong:
      return "wrong";
    case Outcome::kUnsupported:
      return "unsupported";
    case Outcome::kUntrusted:
      return "untrusted";
    case Outcome::kCrashed:
      return "crashed";
    case Outcome::kTimedOut:
      return "timed_out";
    case Outcome::kInvalid:
      return "invalid";
  }
  return "?";
}

std::string place_of(const ErrorStats& stats) {
  std::string text = fmt::format("request {} row {} head {}", stats.request, stats.row, stats.head);
  if (stats.dim >= 0) text += fmt::format(" dim {}", stats.dim);
  return text;
}

bool fits(double got, double expected, double bound, int32_t format) {
  if (std::isinf(expected)) return got == expected;
  if (!std::isfinite(got)) return false;
  // A representable value inside the interval lies inside the rounded one.
  if (std::fabs(got - expected) <= bound) return true;
  return round_to(format, expected - bound) <= got && got <= round_to(format, expected + bound);
}

void compare_outputs(const BoundedAttention& reference, const Problem& problem, const OutputView& out,
                     ErrorStats& o, ErrorStats& lse) {
  o = lse = ErrorStats{};
  const std::vector<int32_t> first = problem.cu_q();
  const AttentionResult& value = reference.value;
  for (size_t n = 0; n < value.rows.size(); ++n) {
    const RowId id = value.rows[n];
    const int64_t row = first[id.request] + id.row;
    for (int32_t h = 0; h < value.heads_q; ++h) {
      const int64_t slot = static_cast<int64_t>(n) * value.heads_q + h;
      if (out.o != nullptr) {
        const int64_t base = row * out.o->stride[0] + h * out.o->stride[1];
        for (int32_t d = 0; d < value.head_dim_v; ++d) {
          const int64_t at = slot * value.head_dim_v + d;
          check_element(load(out.o->format, out.o->data, base + d * out.o->stride[2]), value.o[at],
                        reference.o_bound[at], out.o->format, {id, h, d}, o);
        }
      }
      if (out.lse != nullptr)
        check_element(load(out.lse->format, out.lse->data, row * out.lse->stride[0] + h * out.lse->stride[1]),
                      value.lse[slot], reference.lse_bound[slot], out.lse->format, {id, h, -1}, lse);
    }
  }
}

}  // namespace assay
