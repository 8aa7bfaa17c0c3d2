// SPDX-License-Identifier: Apache-2.0
// How a cache write turned numbers into codes, and scales that it computes: another rounding, format, range
// or factor; a largest magnitude of something else. See write_look.hpp.
#include <algorithm>
#include <functional>
#include <map>

#include "harness/explain/rounding.hpp"
#include "harness/explain/stages/write_look.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

struct CodeRule {
  const char* cause;
  std::string how;
  std::function<double(int32_t format, double quotient)> of;
  std::function<bool(int32_t format)> fits;
  // What numbers are multiplied by, of the scale that is due and that of the other side; null: one over the
  // scale.
  double (*factor)(double scale, double other) = nullptr;
};

bool is_int8(int32_t format) { return format == ASSAY_INT8; }
bool any_format(int32_t) { return true; }
bool of_eight_bits(int32_t format) { return is_int8(format) || format_is_fp8(format); }

std::vector<CodeRule> code_rules() {
  std::vector<CodeRule> rules = {
      {"codes_rounded", "toward zero",
       [](int32_t f, double q) { return is_int8(f) ? round_to(f, std::trunc(q)) : truncate_to(f, q); },
       any_format},
      {"codes_rounded", "down", [](int32_t f, double q) { return round_to(f, std::floor(q)); }, is_int8},
      {"codes_rounded", "up", [](int32_t f, double q) { return round_to(f, std::ceil(q)); }, is_int8},
      {"codes_rounded", "halves away from zero",
       [](int32_t f, double q) { return round_to(f, std::round(q)); }, is_int8},
      {"codes_rounded", "halves up", [](int32_t f, double q) { return round_to(f, std::floor(q + 0.5)); },
       is_int8},
      {"codes_rounded", "to bf16 before",
       [](int32_t f, double q) { return round_to(f, round_to(ASSAY_BF16, q)); }, any_format},
      {"codes_rounded", "to fp16 before",
       [](int32_t f, double q) { return round_to(f, round_to(ASSAY_FP16, q)); }, any_format},
      {"codes_wrap", "numbers beyond the largest code taken modulo 256",
       [](int32_t, double q) {
         return static_cast<double>(static_cast<int8_t>(static_cast<int64_t>(std::nearbyint(q)) & 0xff));
       },
       is_int8},
      {"codes_overflow", "numbers beyond the largest code become NaN or infinity",
       [](int32_t f, double q) {
         const double most = format_info(f).max_finite, code = round_to(f, q);
         return std::fabs(q) > most ? std::numeric_limits<double>::quiet_NaN() : code;
       },
       format_is_fp8},
      {"codes_overflow", "numbers that round beyond the largest code become NaN or infinity",
       [](int32_t f, double q) {
         const FormatInfo& info = format_info(f);
         const double most = info.max_finite + half_spacing(info, info.max_finite), code = round_to(f, q);
         return std::fabs(q) >= most ? std::numeric_limits<double>::quiet_NaN() : code;
       },
       format_is_fp8},
      {"format.subnormals", "numbers below the smallest normal code become zero",
       [](int32_t f, double q) {
         return std::fabs(q) < std::ldexp(1, format_info(f).min_exponent) ? 0 : round_to(f, q);
       },
       format_is_fp8},
      {"format.subnormals", "subnormal codes become zero",
       [](int32_t f, double q) {
         const double code = round_to(f, q);
         return std::fabs(code) < std::ldexp(1, format_info(f).min_exponent) ? 0 : code;
       },
       format_is_fp8},
      {"format.zero_point", "codes are 128 more, modulo 256",
       [](int32_t, double q) {
         return static_cast<double>(static_cast<int8_t>(static_cast<int64_t>(round_to(ASSAY_INT8, q)) + 128));
       },
       is_int8},
      {"format.sign", "codes lose their sign", [](int32_t f, double q) { return round_to(f, std::fabs(q)); },
       of_eight_bits},
      {"format.sign", "codes of the other sign", [](int32_t f, double q) { return round_to(f, -q); },
       of_eight_bits},
  };
  for (const double most : {120.0, 126.0, 128.0})
    rules.push_back(
        {"codes_clamped", fmt::format("codes end at {}", most),
         [=](int32_t, double q) { return std::clamp(std::nearbyint(q), -most, std::min(most, 127.0)); },
         is_int8});
  for (const double most : {240.0, 256.0, 416.0, 57344.0 / 2})
    rules.push_back({"codes_clamped", fmt::format("codes end at {}", most),
                     [=](int32_t f, double q) { return round_to(f, std::clamp(q, -most, most)); },
                     format_is_fp8});
  for (const int32_t other : {int32_t{ASSAY_FP8_E4M3}, int32_t{ASSAY_FP8_E5M2}, int32_t{ASSAY_FP8_E4M3FNUZ},
                              int32_t{ASSAY_FP8_E5M2FNUZ}}) {
    const bool four = other == ASSAY_FP8_E4M3 || other == ASSAY_FP8_E4M3FNUZ;
    for (const bool sister : {true, false})
      rules.push_back({sister ? "format.fnuz_as_fn" : "format.other", "codes of another format",
                       [=](int32_t f, double q) { return decode(f, encode(other, q)); },
                       [=](int32_t f) {
                         const bool of_four = f == ASSAY_FP8_E4M3 || f == ASSAY_FP8_E4M3FNUZ;
                         return format_is_fp8(f) && f != other && (of_four == four) == sister;
                       }});
  }
  for (const double by : {2.0, 0.5, 4.0, 0.25, 448.0 / 240, 240.0 / 448, 127.0 / 128, 128.0 / 127, 127.0,
                          1 / 127.0, 448.0, 1 / 448.0, M_LOG2E, M_LN2})
    rules.push_back({"scale_other", fmt::format("codes of {:.6g} times what is due", by),
                     [=](int32_t f, double q) { return round_to(f, q * by); }, any_format});
  const struct {
    const char *cause, *how;
    double (*factor)(double, double);
  } factors[] = {
      {"precision.scale", "one over the scale in bf16",
       [](double s, double) { return round_to(ASSAY_BF16, 1 / s); }},
      {"precision.scale", "one over the scale in fp16",
       [](double s, double) { return round_to(ASSAY_FP16, 1 / s); }},
      {"precision.scale", "the scale in bf16", [](double s, double) { return 1 / round_to(ASSAY_BF16, s); }},
      {"precision.scale", "the scale in fp16", [](double s, double) { return 1 / round_to(ASSAY_FP16, s); }},
      {"scale.inverted", "numbers times the scale", [](double s, double) { return s; }},
      {"scale_twice", "numbers over the scale twice", [](double s, double) { return 1 / (s * s); }},
      {"scale_other", "numbers over the scale of the other one of K and V",
       [](double, double other) { return 1 / other; }},
      {"scale_missing", "numbers as they are", [](double, double) { return 1.0; }},
  };
  for (const auto& f : factors)
    rules.push_back(
        {f.cause, f.how, [](int32_t format, double q) { return round_to(format, q); }, any_format, f.factor});
  return rules;
}

}  // namespace

// Decodes and longer requests may be written by code of their own: where all that is wrong is in rows of one
// of them the rows of the others say nothing.
static std::function<bool(int64_t row)> rows_that_tell(const WriteLook& w, const WriteElements& all) {
  const auto decodes = [&w](int64_t row) {
    const int32_t request = w.request_of(row);
    return request >= 0 && w.reading().rows_of(request) == 1;
  };
  const bool first = decodes(all.wrong.front().row);
  const bool one_kind = std::all_of(all.wrong.begin(), all.wrong.end(),
                                    [&](const WriteElement& e) { return decodes(e.row) == first; });
  return [=](int64_t row) { return !one_kind || decodes(row) == first; };
}

// The codes that there are, as far as they go; none where a range is that of its format.
static std::pair<double, double> range_of(const WriteLook& w, const WriteElements& all) {
  double low = 0, high = 0;
  for (const auto* list : {&all.right, &all.wrong})
    for (const WriteElement& e : *list) {
      const double got = w.left(e.v, w.slot(e.row), e.head, e.d);
      if (std::isfinite(got)) low = std::min(low, got), high = std::max(high, got);
    }
  return {low, high};
}

// What a rule gives where the right code stands must be that.
std::vector<StepRanked> write_codes(const WriteLook& w, const WriteElements& all) {
  std::vector<StepRanked> list;
  const auto tells = rows_that_tell(w, all);
  const auto other = [&](const WriteElement& e) {
    return w.sides().size() < 2 ? std::numeric_limits<double>::quiet_NaN()
                                : w.scale(!e.v, w.slot(e.row), e.head);
  };
  std::vector<CodeRule> rules = code_rules();
  if (const auto [low, high] = range_of(w, all); low < high)
    rules.push_back({"codes_clamped", fmt::format("codes end at {:g} and {:g}", low, high),
                     [=](int32_t f, double q) { return std::clamp(round_to(f, q), low, high); },
                     of_eight_bits});
  for (const CodeRule& rule : rules) {
    const auto given = [&](const WriteElement& e) {
      const int32_t format = w.format(e.v);
      if (!rule.fits(format)) return false;
      const double q = rule.factor == nullptr
                           ? w.quotient(e.v, e.row, w.slot(e.row), e.head, e.d)
                           : w.source(e.v, e.row, e.head, e.d) *
                                 rule.factor(w.scale(e.v, w.slot(e.row), e.head), other(e));
      if (!std::isfinite(q) || std::fabs(q) > 1e15) return false;
      const double got = w.left(e.v, w.slot(e.row), e.head, e.d);
      for (const double by : {1.0, 1 - kSameCodeShare, 1 + kSameCodeShare}) {
        const double due = rule.of(format, q * by);
        if (due == got || (std::isnan(due) && !std::isfinite(got))) return true;
      }
      return false;
    };
    int64_t fits = 0, spoilt = 0;
    for (const WriteElement& e : all.wrong) fits += given(e);
    if (all.share(fits) <= kWriteLeast) continue;
    int64_t of_other = 0;  // of one side alone the other may stay as it is
    for (const WriteElement& e : all.right) {
      if (given(e) || !rule.fits(w.format(e.v)) || !tells(e.row)) continue;
      ++spoilt, of_other += e.v != all.wrong.front().v;
    }
    const bool one_side = std::all_of(all.wrong.begin(), all.wrong.end(),
                                      [&](const WriteElement& e) { return e.v == all.wrong.front().v; });
    put_write(list, rule.cause, rule.how, all.share(fits, one_side ? spoilt - of_other : spoilt));
  }
  return list;
}

std::vector<StepRanked> write_scales(const WriteLook& w) {
  std::vector<StepRanked> list;
  // Of a token's head: what its scale is taken from, as a largest magnitude, and by what it is divided.
  struct Rule {
    const char *cause, *how;
    std::function<double(bool v, int64_t row, int32_t head)> scale;
  };
  const auto largest = [&](bool v, int64_t row, int32_t head, int32_t from, int32_t to, auto size) {
    double most = 0;
    for (int32_t d = from; d < to; ++d) most = std::max(most, size(w.source(v, row, head, d)));
    return most;
  };
  const auto magnitude = [](double x) { return std::fabs(x); };
  const auto own = [&](bool v, int64_t row, int32_t h) {
    return largest(v, row, h, 0, w.dims(v), magnitude);
  };
  const auto code = [&](bool v) { return largest_code(w.format(v)); };
  const auto scaled = [&](double by) {
    return [=](bool v, int64_t row, int32_t h) { return own(v, row, h) / code(v) * by; };
  };
  // The rows of a row's request, in order.
  const auto rows_beside = [&](int64_t row) {
    int64_t begin = row, end = row + 1;
    while (begin > 0 && w.request_of(begin - 1) == w.request_of(row)) --begin;
    while (end < w.rows() && w.request_of(end) == w.request_of(row)) ++end;
    return std::pair{begin, end};
  };
  const auto of_row = [&](const char* cause, const char* how, auto from) {
    return Rule{cause, how, [&, from](bool v, int64_t row, int32_t h) {
                  const auto [begin, end] = rows_beside(row);
                  return own(v, from(row, begin, end), h) / code(v);
                }};
  };
  // Stored for another slot of the page: of a slot that is nobody's the scale lies as before.
  std::map<int64_t, int64_t> row_in;
  for (int64_t n = 0; n < w.rows(); ++n)
    if (w.slot(n) >= 0) row_in[w.slot(n)] = n;
  const auto beside_slot = [&](const char* how, int64_t by) {
    return Rule{"scale_other", how, [&, by](bool v, int64_t row, int32_t h) {
                  const int64_t slot = w.slot(row), from = slot + by;
                  const auto at = row_in.find(from);
                  return at == row_in.end() || from / w.page() != slot / w.page()
                             ? w.scale_before(v, slot, h)
                             : own(v, at->second, h) / code(v);
                }};
  };
  const std::vector<Rule> rules = {
      {"scale_of_one", "a token's scale is that of the largest of its heads",
       [&](bool v, int64_t row, int32_t) {
         double most = 0;
         for (int32_t h = 0; h < w.heads(); ++h) most = std::max(most, own(v, row, h));
         return most / code(v);
       }},
      {"scale_of_one", "a token's scale is that of its first head",
       [&](bool v, int64_t row, int32_t) { return own(v, row, 0) / code(v); }},
      {"scale_of_one", "a head's scale is that of the largest of all rows",
       [&](bool v, int64_t, int32_t h) {
         double most = 0;
         for (int64_t n = 0; n < w.rows(); ++n)
           if (w.slot(n) >= 0) most = std::max(most, own(v, n, h));
         return most / code(v);
       }},
      {"scale_of_one", "a head's scale is that of the first row",
       [&](bool v, int64_t, int32_t h) { return own(v, 0, h) / code(v); }},
      {"scale_other", "a scale of the head beside it",
       [&](bool v, int64_t row, int32_t h) { return own(v, row, (h + 1) % w.heads()) / code(v); }},
      {"scale_other", "a scale of the row before",
       [&](bool v, int64_t row, int32_t h) { return own(v, std::max<int64_t>(0, row - 1), h) / code(v); }},
      of_row("scale_other", "a scale of the row before, of a request's first its own",
             [](int64_t row, int64_t begin, int64_t) { return std::max(begin, row - 1); }),
      of_row("scale_other", "a scale of the next row, of a request's last its own",
             [](int64_t row, int64_t, int64_t end) { return std::min(end - 1, row + 1); }),
      of_row("scale_other", "a scale of the request's rows backwards",
             [](int64_t row, int64_t begin, int64_t end) { return begin + end - 1 - row; }),
      of_row("scale_of_one", "a head's scale is that of its request's first row",
             [](int64_t, int64_t begin, int64_t) { return begin; }),
      of_row("scale_of_one", "a head's scale is that of its request's last row",
             [](int64_t, int64_t, int64_t end) { return end - 1; }),
      {"scale_of_one", "a head's scale is that of the largest of its request's rows",
       [&](bool v, int64_t row, int32_t h) {
         const auto [begin, end] = rows_beside(row);
         double most = 0;
         for (int64_t n = begin; n < end; ++n) most = std::max(most, own(v, n, h));
         return most / code(v);
       }},
      {"scale_other", "a scale of the first half of the dimensions",
       [&](bool v, int64_t row, int32_t h) {
         return largest(v, row, h, 0, w.dims(v) / 2, magnitude) / code(v);
       }},
      {"scale_other", "a scale of the second half of the dimensions",
       [&](bool v, int64_t row, int32_t h) {
         return largest(v, row, h, w.dims(v) / 2, w.dims(v), magnitude) / code(v);
       }},
      {"scale_other", "a scale of the first 32 dimensions",
       [&](bool v, int64_t row, int32_t h) {
         return largest(v, row, h, 0, std::min(32, w.dims(v)), magnitude) / code(v);
       }},
      {"scale_other", "a scale of the largest number, negative ones not looked at",
       [&](bool v, int64_t row, int32_t h) {
         return largest(v, row, h, 0, w.dims(v), [](double x) { return x; }) / code(v);
       }},
      {"scale_other", "a scale of the smallest number, positive ones not looked at",
       [&](bool v, int64_t row, int32_t h) {
         return largest(v, row, h, 0, w.dims(v), [](double x) { return -x; }) / code(v);
       }},
      {"scale_other", "K's scale for V",
       [&](bool, int64_t row, int32_t h) { return own(false, row, h) / code(false); }},
      {"scale_other", "V's scale for K",
       [&](bool, int64_t row, int32_t h) {
         return w.sides().size() < 2 ? 0.0 : own(true, row, h) / code(true);
       }},
      {"scale_other", "the larger one of K and V for both",
       [&](bool v, int64_t row, int32_t h) {
         return w.sides().size() < 2 ? 0.0 : std::max(own(false, row, h), own(true, row, h)) / code(v);
       }},
      {"scale_other", "the largest magnitude over another number: 128", scaled(127.0 / 128)},
      {"scale_other", "the largest magnitude over another number: 240", scaled(448.0 / 240)},
      {"scale_other", "the largest magnitude over another number: 127 in place of 448", scaled(448.0 / 127)},
      {"scale_other", "the largest magnitude over another number: half", scaled(2)},
      {"scale_other", "the largest magnitude over another number: twice", scaled(0.5)},
      {"scale_other", "the largest magnitude itself",
       [&](bool v, int64_t row, int32_t h) { return own(v, row, h); }},
      {"scale_other", "one over the scale",
       [&](bool v, int64_t row, int32_t h) { return own(v, row, h) > 0 ? code(v) / own(v, row, h) : 0.0; }},
      {"precision.scale", "the scale in bf16",
       [&](bool v, int64_t row, int32_t h) { return round_to(ASSAY_BF16, own(v, row, h) / code(v)); }},
      {"precision.scale", "the scale in fp16",
       [&](bool v, int64_t row, int32_t h) { return round_to(ASSAY_FP16, own(v, row, h) / code(v)); }},
      {"scale_other", "1 for all", [](bool, int64_t, int32_t) { return 1.0; }},
      beside_slot("a token's scale lies in the slot before it", 1),
      beside_slot("a token's scale lies in the slot behind it", -1),
      {"scale_unwritten", "scales lie as before",
       [&](bool v, int64_t row, int32_t h) { return w.scale_before(v, w.slot(row), h); }},
  };
  const auto same = [](double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= 3 * kSameCodeShare * std::fabs(b);
  };
  for (const Rule& rule : rules) {
    int64_t wrong = 0, fits = 0, spoilt[2] = {0, 0};
    bool of_side[2] = {false, false};
    for (const bool v : w.sides()) {
      if (w.kind(v) != ASSAY_SCALE_TOKEN_HEAD) continue;
      for (int64_t n = 0; n < w.rows(); ++n)
        for (int32_t h = 0; h < w.heads() && w.slot(n) >= 0; ++h) {
          const double got = w.scale(v, w.slot(n), h), due = own(v, n, h) / code(v);
          const bool given = same(got, rule.scale(v, n, h));
          if (same(got, due))
            spoilt[v] += !given;
          else
            ++wrong, fits += given, of_side[v] = true;
        }
    }
    if (wrong == 0) return list;
    const int64_t lost = (of_side[0] ? spoilt[0] : 0) + (of_side[1] ? spoilt[1] : 0);
    put_write(list, rule.cause, rule.how, static_cast<double>(fits - lost) / static_cast<double>(wrong));
  }
  return list;
}

}  // namespace assay
