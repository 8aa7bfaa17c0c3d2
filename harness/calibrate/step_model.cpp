// SPDX-License-Identifier: Apache-2.0
// See step_model.hpp. Doubles suffice: a term has at most F + 2 bits after alignment, and 32 of them add
// five.
#include "harness/calibrate/step_model.hpp"

#include <algorithm>
#include <cmath>

#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr int kNoExponent = -100000;

double rounded(double x, int exponent, int bits, Rounding how) {
  const double scaled = std::ldexp(x, bits - exponent);
  const double whole = how == Rounding::kNearest      ? std::nearbyint(scaled)
                       : how == Rounding::kTowardZero ? std::trunc(scaled)
                                                      : std::floor(scaled);
  return std::ldexp(whole, exponent - bits);
}

int exponent_of(double x) { return x == 0 ? kNoExponent : std::ilogb(x); }

class Step {
 public:
  explicit Step(const BlockModel& m) : m_(m) {}
  void add(double term, int exponent) {
    if (term == 0) return;
    terms_.push_back(term);
    top_ = std::max(top_, exponent);
  }
  void add(double term) { add(term, exponent_of(term)); }
  double sum() const {
    double total = 0;
    for (const double term : terms_) total += rounded(term, top_, m_.fraction_bits, m_.alignment);
    return total == 0 ? 0 : rounded(total, exponent_of(total), m_.mantissa_bits, m_.accumulator);
  }

 private:
  const BlockModel& m_;
  std::vector<double> terms_;
  int top_ = kNoExponent;
};

}  // namespace

float run_model(const BlockModel& m, const Dot& dot) {
  const int smallest = format_info(m.format).min_exponent;
  const auto operand = [&](float x) { return std::max(exponent_of(x), smallest); };
  double running = m.order == Order::kWithC ? dot.c : 0;
  double total = dot.c;
  for (const std::vector<int32_t>& group : m.groups) {
    Step step(m);
    if (m.order != Order::kParallel) step.add(running);
    for (const int32_t j : group)
      step.add(static_cast<double>(dot.a[j]) * dot.b[j], operand(dot.a[j]) + operand(dot.b[j]));
    running = step.sum();
    total += running;
  }
  if (m.order == Order::kWithC) return static_cast<float>(running);
  if (m.order == Order::kThenC) total = running + dot.c;
  return total == 0 ? 0 : static_cast<float>(rounded(total, exponent_of(total), m.mantissa_bits, m.last));
}

}  // namespace assay
