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
#include "reference/formats/round_inside.hpp"

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

bool Comparison::add(double got, double low, double high, const Widths& w, int32_t format,
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
  if (fine && !worst) return false;
  const Tier tier = fine ? Tier::kD : rejecting_tier(got, w, format);
  if (!fine) {
    ++stats_.bad;
    ++stats_.bad_by_tier[static_cast<size_t>(tier)];
  }
  if (!worst) return false;
  stats_.max_ratio = ratio;
  stats_.request = at.row.request;
  stats_.row = at.row.row;
  stats_.head = at.head;
  stats_.dim = at.dim;
  stats_.got = got;
  stats_.expected = w.exact;
  // Codes are read beside the codes that are right; of floats the ends say more than their neighbours.
  const bool codes = format_is_quantized(format);
  stats_.low = codes ? round_to(format, low, Overflow::kSaturate) : low;
  stats_.high = codes ? round_to(format, high, Overflow::kSaturate) : high;
  stats_.tier = tier;
  return true;
}

// The formulas of add(), for ends, results and ratios that need none of its exceptions.
bool Comparison::add_inside(const double* got, const double* low, const double* high, const double* exact,
                            int64_t count, int32_t format, const ElementPlace& place) {
  if (format == ASSAY_INT8 || format == ASSAY_INT32) return false;
  ASSAY_CHECK(count > 0 && count <= kBeside, "{} elements at once", count);
  const FormatInfo& info = format_info(format);
  const double most = info.max_finite;
  double ratio[kBeside], unrounded[kBeside];
  double most_ratio = 0, most_unrounded = 0, most_error = 0;
  int64_t odd = 0;
#pragma omp simd reduction(| : odd) reduction(max : most_ratio, most_unrounded, most_error)
  for (int64_t i = 0; i < count; ++i) {
    const double x = got[i], from = low[i], to = high[i];
    // What is divided or added is so in every element: a loop with none left out vectorises.
    const double mean = from / 2 + to / 2, half = to / 2 - from / 2;  // 0 where the ends are one
    const double middle = from == to ? from : mean;
    const double off = std::fabs(x - middle), size = std::fabs(x);
    const double ends = std::fabs(from) < std::fabs(to) ? std::fabs(to) : std::fabs(from);
    ratio[i] = off / (half + half_spacing(info, ends));
    const bool farther = (std::fabs(middle) > size) & ((middle < 0) == (x < 0));
    const double beyond = off - half_spacing(info, farther ? size : next_below(size));
    const double part = beyond / (half > 0 ? half : 1.0);
    const double before = (beyond > 0) & (half > 0) ? part : 0;
    const double error = std::fabs(x - exact[i]);
    // As within() has it.
    const bool inside = (rounded_inside(info, from) <= x) & (x <= rounded_inside(info, to));
    odd |= (from <= to) & (ends <= most) & inside & (error <= most) & (ratio[i] <= 1) ? 0 : 1;
    unrounded[i] = before;
    most_ratio = most_ratio < ratio[i] ? ratio[i] : most_ratio;
    most_unrounded = most_unrounded < before ? before : most_unrounded;
    most_error = most_error < error ? error : most_error;
  }
  if (odd != 0) return false;
  ratios_.insert(ratios_.end(), ratio, ratio + count);
  unrounded_.insert(unrounded_.end(), unrounded, unrounded + count);
  stats_.checked += count;
  stats_.max_unrounded = std::max(stats_.max_unrounded, most_unrounded);
  stats_.max_error = std::max(stats_.max_error, most_error);
  if (stats_.request >= 0 && !(most_ratio > stats_.max_ratio)) return true;
  const int64_t at = std::find(ratio, ratio + count, most_ratio) - ratio;  // the first of equals
  stats_.max_ratio = most_ratio;
  stats_.request = place.row.request, stats_.row = place.row.row;
  stats_.head = place.head, stats_.dim = place.dim + static_cast<int32_t>(at);
  stats_.got = got[at], stats_.expected = exact[at];
  stats_.low = low[at], stats_.high = high[at];
  stats_.tier = Tier::kD;
  return true;
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

double half_ulp(int32_t format, double x) {
  if (format == ASSAY_INT8 || format == ASSAY_INT32) return 0.5;
  return half_spacing(format_info(format), x);
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
