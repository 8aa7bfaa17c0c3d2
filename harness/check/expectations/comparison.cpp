// SPDX-License-Identifier: Apache-2.0
// The interval test. Rounding is monotone, so a kernel whose result before its output rounding lies within
// low .. high lands within rnd(low) .. rnd(high): the output format needs no slack of its own. The interval
// is what all tiers of the bounds leave; a rejected element is charged to the most rigorous tier that
// rejects it, because that is the strongest statement about the kernel.
#include "harness/check/expectations/comparison.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "harness/base/error.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The most rigorous tier that rejects; some tier does when the intersection does, because rounding is
// monotone.
Tier rejecting_tier(double got, const Widths& w, int32_t format) {
  if (!within(got, w.exact - w.d, w.exact + w.d, format)) return Tier::kD;
  if (!within(got, w.exact - w.p, w.exact + w.p, format)) return Tier::kP;
  return Tier::kR;
}

}  // namespace

Comparison::Comparison(ErrorStats& stats, size_t most) : stats_(stats) {
  stats_ = ErrorStats{};
  ratios_.reserve(most), unrounded_.reserve(most);
}

void Comparison::add(double got, double low, double high, const Widths& w, int32_t format,
                     const ElementPlace& at) {
  ++stats_.checked;
  if (low > high) {
    // Ends that meet to the last bits of the double reference are one point.
    if (low - high > kReferenceError * std::fabs(w.exact)) ++stats_.contradictions;
    low = w.exact - w.d;
    high = w.exact + w.d;
  }
  const bool unbounded = low == -kInf && high == kInf;
  stats_.unbounded += unbounded;
  const bool fine = unbounded || within(got, low, high, format);
  double error = std::fabs(got - w.exact);
  if (got == w.exact || unbounded) error = 0;  // also -inf where -inf is expected
  if (std::isnan(error)) error = kInf;
  const double middle = low == high ? low : low / 2 + high / 2, half = low == high ? 0 : high / 2 - low / 2;
  const double off = got == middle ? 0 : std::fabs(got - middle);
  double ratio = off == 0 ? 0 : off / (half + half_ulp(format, std::max(std::fabs(low), std::fabs(high))));
  if (std::isnan(ratio) || unbounded) ratio = fine ? 0.0 : kInf;
  // In a smaller binade below `low` half an ulp is less than the one divided by, and what is stored at the
  // end of the range lies as far from the middle as that lies past it: the test decides.
  const bool at_end = fine && ratio > 1;
  if (at_end) ratio = 1;
  if (!fine) ratio = std::max(ratio, std::nextafter(1.0, 2.0));
  ratios_.push_back(static_cast<float>(ratio));
  // What was rounded lay on the side of the middle; the steps below a power of two are half those above it.
  const bool farther = std::fabs(middle) > std::fabs(got) && (middle < 0) == (got < 0);
  const double beyond =
      off - half_ulp(format, farther ? std::fabs(got) : std::nextafter(std::fabs(got), 0.0));
  const double unrounded = !(beyond > 0) || unbounded || at_end ? 0
                           : half > 0                           ? beyond / half
                           : fine                               ? 0
                                                                : kInf;
  unrounded_.push_back(static_cast<float>(unrounded));
  stats_.max_unrounded = std::max(stats_.max_unrounded, unrounded);
  stats_.max_error = std::max(stats_.max_error, error);
  const bool worst = stats_.request < 0 || ratio > stats_.max_ratio;
  if (fine && !worst) return;
  const Tier tier = fine ? Tier::kD : rejecting_tier(got, w, format);
  if (!fine) {
    ++stats_.bad;
    ++stats_.bad_by_tier[static_cast<size_t>(tier)];
  }
  if (!worst) return;
  stats_.max_ratio = ratio;
  stats_.request = at.row.request;
  stats_.row = at.row.row;
  stats_.head = at.head;
  stats_.dim = at.dim;
  stats_.got = got;
  stats_.expected = w.exact;
  stats_.low = low;
  stats_.high = high;
  stats_.tier = tier;
}

void Comparison::add(const Comparison& other) {
  const ErrorStats& more = other.stats_;
  ratios_.insert(ratios_.end(), other.ratios_.begin(), other.ratios_.end());
  unrounded_.insert(unrounded_.end(), other.unrounded_.begin(), other.unrounded_.end());
  ErrorStats sum =
      more.request >= 0 && (stats_.request < 0 || more.max_ratio > stats_.max_ratio) ? more : stats_;
  sum.checked = stats_.checked + more.checked;
  sum.bad = stats_.bad + more.bad;
  sum.contradictions = stats_.contradictions + more.contradictions;
  sum.unbounded = stats_.unbounded + more.unbounded;
  for (size_t tier = 0; tier < std::size(sum.bad_by_tier); ++tier)
    sum.bad_by_tier[tier] = stats_.bad_by_tier[tier] + more.bad_by_tier[tier];
  sum.max_error = std::max(stats_.max_error, more.max_error);
  sum.max_unrounded = std::max(stats_.max_unrounded, more.max_unrounded);
  stats_ = sum;
}

void Comparison::finish() {
  if (ratios_.empty()) return;
  const auto median = [](std::vector<float>& all) {
    const auto middle = all.begin() + static_cast<long>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    return static_cast<double>(*middle);
  };
  stats_.median_ratio = median(ratios_), stats_.median_unrounded = median(unrounded_);
}

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
    case Outcome::kImplausible:
      return "implausible";
    case Outcome::kNoisy:
      return "noisy";
  }
  return "?";
}

std::string place_of(const ElementPlace& at) {
  if (at.head == kOfNoHead)
    return at.row.row < 0 ? fmt::format("entry {}", at.dim)
                          : fmt::format("row {} column {}", at.row.row, at.dim);
  std::string text = fmt::format("request {} row {} head {}", at.row.request, at.row.row, at.head);
  if (at.dim >= 0) text += fmt::format(" dim {}", at.dim);
  return text;
}

std::string place_of(const ErrorStats& s) {
  return place_of(ElementPlace{{s.request, s.row}, s.head, s.dim});
}

std::string_view tier_name(Tier tier) {
  switch (tier) {
    case Tier::kD:
      return "D";
    case Tier::kP:
      return "P";
    case Tier::kR:
      return "R";
  }
  return "?";
}

// Called for every element: bits instead of ilogb and ldexp.
double half_ulp(int32_t format, double x) {
  if (format == ASSAY_INT8 || format == ASSAY_INT32) return 0.5;
  const FormatInfo& info = format_info(format);
  constexpr int kBias = 1023, kFraction = 52;
  const int stored = static_cast<int>(std::bit_cast<uint64_t>(std::fabs(x)) >> kFraction);
  if (stored == 2 * kBias + 1) return kInf;
  const int exponent = std::max(stored - kBias, info.min_exponent) - info.mantissa_bits - 1;
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + kBias) << kFraction);
}

bool within(double got, double low, double high, int32_t format) {
  if (low == high && std::isinf(low)) return got == low;
  if (std::isnan(got) || (std::isinf(got) && std::isinf(got > 0 ? high : low))) return false;
  // A representable value inside the interval lies inside the rounded one.
  if (low <= got && got <= high) return true;
  // What lies past the range is stored as the largest value or as an infinity.
  const auto lowest = low > 0 ? Overflow::kSaturate : Overflow::kInfinity;
  const auto highest = high < 0 ? Overflow::kSaturate : Overflow::kInfinity;
  return round_to(format, low, lowest) <= got && got <= round_to(format, high, highest);
}

}  // namespace assay
