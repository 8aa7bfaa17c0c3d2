// SPDX-License-Identifier: Apache-2.0
// Hypotheses about roundings: right in exact arithmetic, but coarser than declared somewhere. Where the order
// is declared the roundings are repeated, so that a true one fits bit for bit.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "harness/explain/hypothesis.hpp"
#include "harness/explain/rounding.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// 2^x from the exponent and a simple curve between powers of two. The line is that of the bit pattern of a
// float (Schraudolph 1999), moved by the constants in use so that its error is spread.
double line(double argument, double moved) {
  const double x = argument * std::numbers::log2e - moved, whole = std::floor(x);
  return std::ldexp(1 + (x - whole), static_cast<int>(std::max(whole, -1000.0)));
}
double parabola(double argument) {
  const double x = argument * std::numbers::log2e, whole = std::floor(x), f = x - whole;
  return std::ldexp(1 + f * (0.65617 + 0.34383 * f), static_cast<int>(std::max(whole, -1000.0)));
}
double taylor(double argument, int terms) {  // of e^x, around the nearest power of two
  const double x = argument * std::numbers::log2e, whole = std::nearbyint(x);
  const double t = (x - whole) * std::numbers::ln2;
  double sum = 1, term = 1;
  for (int i = 1; i <= terms; ++i) sum += term *= t / i;
  return std::ldexp(sum, static_cast<int>(std::max(whole, -1000.0)));
}
struct Curve {
  const char* name;
  double (*of)(double);
};
constexpr Curve kCurves[] = {
    {"a straight line between powers of two", [](double x) { return line(x, 0); }},
    {"a straight line between powers of two, moved by 0.0430", [](double x) { return line(x, 0.0430); }},
    {"a straight line between powers of two, moved by 0.0573", [](double x) { return line(x, 0.0573); }},
    {"a straight line between powers of two, moved by 0.0580", [](double x) { return line(x, 0.0579848); }},
    {"a straight line between powers of two, moved by 0.0430, but 1 at the maximum",
     [](double x) { return x < 0 ? line(x, 0.0430) : 1; }},
    {"a straight line between powers of two, moved by 0.0580, but 1 at the maximum",
     [](double x) { return x < 0 ? line(x, 0.0579848) : 1; }},
    // The constants for the least mean and the least largest error of that pattern.
    {"a straight line between powers of two, moved by 0.0437", [](double x) { return line(x, 0.0436774); }},
    {"a straight line between powers of two, moved by 0.0651", [](double x) { return line(x, 0.0650821); }},
    {"a straight line between powers of two, moved by 0.0861", [](double x) { return line(x, 0.0860713); }},
    {"a parabola between powers of two", [](double x) { return parabola(x); }},
    {"a series of one term", [](double x) { return taylor(x, 1); }},
    {"a series of two terms", [](double x) { return taylor(x, 2); }},
    {"a series of three terms", [](double x) { return taylor(x, 3); }},
};

}  // namespace

void precision_family(const Clues& clues, Hypotheses& out) {
  const assay_arithmetic& a = clues.predictor.declared();
  const auto add = [&](std::string_view cause, std::string text, double cost,
                       const std::function<void(Rules&)>& set) {
    Hypothesis h = propose(clues, cause, std::move(text), cost);
    set(h.rules);
    out.push_back(std::move(h));
  };
  const auto name = [](int32_t format) { return std::string(name_of(format_names(), format)); };
  // P follows the running maximum, so a rounding of it depends on the tiles where they are not declared.
  std::vector<Layout> tilings = clues.tilings;
  if (a.tile_keys == 0) tilings.insert(tilings.begin(), Layout{});
  const auto in_tiles = [&](std::string_view cause, const std::string& text, double cost,
                            const std::function<void(Rules&)>& set) {
    for (const Layout& l : tilings)
      add(cause, text + l.words, cost + l.cost, [&](Rules& r) {
        l.apply(r);
        set(r);
      });
  };
  for (int32_t format : {ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2}) {
    if (format == a.p_format) continue;
    add("precision.p_coarse", "P in " + name(format), 0.1,
        [format](Rules& r) { r.arithmetic.p_format = format; });
    if (format == ASSAY_FP8_E4M3)
      add("precision.p_coarse", "P in " + name(format) + " times 2^8", 0.2, [format](Rules& r) {
        r.arithmetic.p_format = format;
        r.arithmetic.p_offset_log2 = 8;
      });
  }
  add("precision.p_coarse", "P in int8, 1/127", 0.2, [](Rules& r) { r.arithmetic.p_format = ASSAY_INT8; });
  // Where no order is declared the format of P may be all the same.
  in_tiles("precision.p_truncated", "P rounded towards zero", 0,
           [of = clues.evidence.declared.p_format](Rules& r) {
             int32_t& format = r.arithmetic.p_format;
             r.arithmetic.p_truncated = !r.arithmetic.p_truncated;
             if (format == ASSAY_FP32 || format == ASSAY_FORMAT_NONE)
               format = of == ASSAY_FP16 ? ASSAY_FP16 : ASSAY_BF16;
           });
  add("precision.row_sum_from_rounded_p",
      a.row_sum_from_rounded_p ? "row sum of exact weights" : "row sum of rounded weights", 0.05,
      [](Rules& r) { r.arithmetic.row_sum_from_rounded_p = !r.arithmetic.row_sum_from_rounded_p; });
  for (int32_t format : {ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2}) {
    if (format == clues.problem().o_format) continue;
    for (const bool cut : {false, true})
      add("precision.output", fmt::format("O {} to {}", cut ? "cut" : "rounded", name(format)),
          0.1 + 0.02 * cut, [format, cut](Rules& r) {
            r.finish = [format, cut](const Scene&, std::vector<double>& o, double&) {
              for (double& x : o) x = round_step(cut ? format | kCut : format, x);
            };
          });
  }
  for (int32_t bits = 1; bits <= 7; ++bits)
    add("precision.operand", fmt::format("Q with {} bits after the first", bits), 0.2, [bits](Rules& r) {
      r.edit_q = [bits](const Scene& s, double* q) {
        for (int32_t d = 0; d < s.problem.head_dim_qk; ++d)
          q[d] = std::copysign(coarsened(std::fabs(q[d]), 0, bits), q[d]);
      };
    });
  for (int32_t bits = 1; bits <= 7; ++bits)
    add("precision.operand", fmt::format("Q cut after {} bits behind the first", bits), 0.2,
        [bits](Rules& r) {
          r.edit_q = [bits](const Scene& s, double* q) {
            for (int32_t d = 0; d < s.problem.head_dim_qk; ++d) {
              if (q[d] == 0) continue;
              const double unit = std::ldexp(1.0, std::ilogb(q[d]) - bits);
              q[d] = std::trunc(q[d] / unit) * unit;
            }
          };
        });
  add("precision.output_truncated", "O rounded towards zero", 0, [](Rules& r) { r.truncate_output = true; });
  // To nearest, or toward zero.
  for (const int32_t cut : {0, kCut}) {
    const char* how = cut ? "cut to " : "in ";
    const double more = cut ? 0.02 : 0;
    for (const int32_t format : {ASSAY_BF16, ASSAY_FP16}) {
      const std::string to = how + name(format);
      const int32_t step = format | cut;
      add("precision.o_accumulator", "O " + to + " between tiles", 0.1 + more,
          [=](Rules& r) { r.accumulator_format = step; });
      if (a.tile_keys == 0)
        in_tiles("precision.o_accumulator", "O " + to, 0.1 + more,
                 [=](Rules& r) { r.accumulator_format = step; });
      in_tiles("precision.o_accumulator", "O " + to + " after every key", 0.15 + more, [=](Rules& r) {
        r.accumulator_format = step;
        r.accumulator_per_key = true;
      });
      add("precision.scores", "scores " + to, 0.1 + more, [=](Rules& r) { r.score_format = step; });
      add("precision.scores", "scaled scores " + to, 0.15 + more,
          [=](Rules& r) { r.scaled_score_format = step; });
      add("precision.scale", "softmax scale " + to, 0.05 + more, [=](Rules& r) { r.scale_format = step; });
      for (bool per_key : {true, false})
        in_tiles("precision.row_sum", "row sum " + to + (per_key ? " after every key" : ""), 0.2 + more,
                 [=](Rules& r) { r.sum_format = step, r.sum_per_key = per_key; });
      if (a.splits <= 1 && a.split_keys == 0) continue;
      // What is declared is rounded to nearest.
      if (a.partial_format != step)
        add("precision.partials", "partial outputs " + to, 0.1 + more,
            [=](Rules& r) { r.arithmetic.partial_format = step; });
      if (a.partial_lse_format != step)
        add("precision.partial_lse", "partial LSEs " + to, 0.1 + more,
            [=](Rules& r) { r.arithmetic.partial_lse_format = step; });
    }
  }
  for (int32_t format : {ASSAY_BF16, ASSAY_FP16}) {
    for (int32_t tile : {16, 32, 64, 128})
      if (tile != a.tile_keys)
        add("precision.o_accumulator", fmt::format("O in {} every {} keys", name(format), tile), 0.3,
            [format, tile](Rules& r) {
              r.accumulator_format = format;
              r.arithmetic.tile_keys = tile;
            });
    add("precision.scores", "scores accumulated in " + name(format), 0.15,
        [format](Rules& r) { r.dot_format = format; });
  }
  for (double steps : {127.0, 255.0, 128.0, 256.0, 15.0, 16.0, 7.0})
    for (bool in_sum : {false, true})
      in_tiles("precision.p_coarse",
               fmt::format("P in steps of 1/{:g}{}", steps, in_sum ? ", in the row sum too" : ""), 0.25,
               [=](Rules& r) {
                 r.p_step = 1 / steps;
                 r.arithmetic.row_sum_from_rounded_p = in_sum;
               });
  for (int bits = 1; bits <= 10; ++bits)
    for (bool in_sum : {false, true})
      in_tiles("precision.p_coarse",
               fmt::format("P with {} bits after the first{}", bits, in_sum ? ", in the row sum too" : ""),
               0.25, [=, format = clues.evidence.declared.p_format](Rules& r) {
                 r.p_mantissa = bits;
                 r.arithmetic.row_sum_from_rounded_p = in_sum;
                 // Rounded to what is declared first, whatever the order.
                 if (format == ASSAY_BF16 || format == ASSAY_FP16) r.arithmetic.p_format = format;
               });
  if (a.p_format != ASSAY_FP32)
    for (int bits = 1; bits <= 6; ++bits)
      in_tiles("precision.p_coarse", fmt::format("exponentials with {} bits after the first", bits), 0.25,
               [bits](Rules& r) { r.exp_of = [=](double x) { return coarsened(std::exp(x), 0, bits); }; });
  // A rounding before the declared one, for the row sum and the output alike.
  if (a.p_format != ASSAY_FP32)
    for (int32_t format : {ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2})
      if (format != a.p_format)
        in_tiles("precision.p_coarse", "exponentials in " + name(format) + " before P is made of them", 0.15,
                 [format](Rules& r) { r.exp_of = [=](double x) { return round_to(format, std::exp(x)); }; });
  if (tilings.size() > 1 || a.tile_keys == 0)
    for (int32_t format : {ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2})
      in_tiles("precision.p_coarse", "P in " + name(format), 0.1,
               [=](Rules& r) { r.arithmetic.p_format = format; });
  for (int32_t format : {ASSAY_BF16, ASSAY_FP16}) {
    for (int32_t step : {1, 2, 4, 8, 32, 64})
      add("precision.scores",
          fmt::format("scores accumulated in {}, {} dimensions at a time", name(format), step), 0.2,
          [=](Rules& r) { r.dot_format = format, r.dot_step = step; });
    const double scale = clues.problem().softmax_scale;
    for (bool base2 : {false, true})
      for (const bool cut : {false, true})
        add("precision.query",
            fmt::format("Q times the softmax scale{} {} {}", base2 ? " and log2(e)" : "",
                        cut ? "cut to" : "in", name(format)),
            0.1 + 0.02 * cut, [=, factor = base2 ? scale * std::numbers::log2e : scale](Rules& r) {
              r.edit_q = [=](const Scene& s, double* q) {
                for (int32_t d = 0; d < s.problem.head_dim_qk; ++d)
                  q[d] = round_step(cut ? format | kCut : format, q[d] * factor) / factor;
              };
            });
  }
  // A curve depends on the maximum that its argument is relative to, and so on the tiles.
  for (const Curve& curve : kCurves)
    for (const bool everywhere : {false, true})
      in_tiles("precision.exp",
               fmt::format("weights{} by {}", everywhere ? ", rescaling and merge" : "", curve.name),
               0.2 + 0.02 * everywhere, [&curve, everywhere](Rules& r) {
                 r.exp_of = curve.of;
                 r.exp_everywhere = everywhere;
               });
  for (int32_t n : {4, 8, 16, 32, 64, 128, 256, 1024})
    in_tiles("precision.exp", fmt::format("weights by (1 + x/{})^{}", n, n), 0.25,
             [n](Rules& r) { r.exp_of = [n](double x) { return std::pow(std::max(0.0, 1 + x / n), n); }; });
  for (int32_t format : {ASSAY_BF16, ASSAY_FP16})
    for (bool truncated : {false, true})
      add("precision.lse", fmt::format("LSE {} to {}", truncated ? "truncated" : "rounded", name(format)),
          0.1, [format, truncated](Rules& r) {
            r.lse = [=](const Scene&, const LseParts& l) {
              if (!std::isfinite(l.lse)) return l.lse;
              const double rounded = round_to(format, l.lse);
              if (!truncated || std::fabs(rounded) <= std::fabs(l.lse)) return rounded;
              const double step = std::fabs(l.lse) * std::ldexp(1.0, -format_info(format).mantissa_bits);
              return round_to(format, l.lse - std::copysign(step / 2, l.lse));
            };
          });
  // The argument of the exponential, natural or in base 2.
  for (const int32_t format : {ASSAY_FP16, ASSAY_BF16})
    for (const double base : {std::numbers::log2e, 1.0})
      in_tiles(
          "precision.exp",
          fmt::format("argument of the exponential{} in {}", base == 1 ? "" : " in base 2", name(format)),
          0.2, [=](Rules& r) {
            r.exp_of = [=](double x) { return std::exp(round_to(format, x * base) / base); };
          });
  // One over the row sum. The sum is relative to the maximum, so a power of two of it may be off, which no
  // rounding sees.
  const auto reciprocal = [&](std::string text, double cost, std::function<double(double)> of) {
    add("precision.reciprocal", std::move(text), cost, [of = std::move(of)](Rules& r) {
      const auto sum = std::make_shared<double>(1);
      r.lse = [sum](const Scene&, const LseParts& l) { return *sum = l.sum, l.lse; };
      r.finish = [sum, of](const Scene&, std::vector<double>& o, double&) {
        if (!(*sum > 0) || !std::isfinite(*sum)) return;
        for (double& x : o) x *= of(1 / *sum) * *sum;
      };
    });
  };
  for (const int32_t format : {ASSAY_BF16, ASSAY_FP16})
    reciprocal("reciprocal of the row sum in " + name(format), 0.1,
               [format](double x) { return round_to(format, x); });
  for (int bits = 3; bits <= 14; ++bits)
    for (const bool cut : {true, false})
      reciprocal(fmt::format("reciprocal of the row sum {} {} bits after the first",
                             cut ? "cut after" : "rounded to", bits),
                 0.2, [=](double x) {
                   const double unit = std::ldexp(1.0, std::ilogb(x) - bits);
                   return (cut ? std::floor(x / unit) : std::nearbyint(x / unit)) * unit;
                 });
  // Weights with random relative errors: nobody can repeat them, so they count as noise of a fitted size.
  for (int bits = 3; bits <= 16; ++bits)
    add("precision.exp", fmt::format("weights off by about 2^-{}", bits), 0.3,
        [bits](Rules& r) { r.weight_noise = std::exp2(-bits); });
}

}  // namespace assay
