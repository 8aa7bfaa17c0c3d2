// SPDX-License-Identifier: Apache-2.0
// See products.hpp. The order of the experiments matters: bits of the accumulator first, then who is added
// together (with terms as far apart as the format allows), then how far apart terms may be.
#include "harness/calibrate/products.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using Group = std::vector<int32_t>;
constexpr int64_t kRandomDots = 2000;
constexpr int kMostExponent = 60;  // of an operand: products and sums stay within fp32

class Laboratory {
 public:
  Laboratory(int32_t format, int32_t products, const RunProducts& run, uint64_t seed)
      : format_(format), n_(products), run_(run), random_(seed, kStreamRecipe) {}

  ProductsFindings find_integer();
  ProductsFindings find_float();

 private:
  Dot nothing(float c = 0) const { return {std::vector<float>(n_), std::vector<float>(n_), c}; }
  // Puts the product of value factor * 2^exponent at position j.
  void put(Dot& dot, int j, int exponent, float factor = 1) const {
    const int b = std::clamp(exponent / 2, low_, high_);
    dot.a[j] = std::ldexp(factor, exponent - b);
    dot.b[j] = std::ldexp(1.0f, b);
  }
  // Largest t from `first` on for which this and all smaller ones hold; first - 1 when none does.
  template <class Make, class Holds>
  int last_of(int first, int last, const Make& make, const Holds& holds) const {
    std::vector<Dot> dots;
    for (int t = first; t <= last; ++t) dots.push_back(make(t));
    const std::vector<float> got = run_(dots);
    int t = first;
    while (t <= last && holds(t, got[t - first])) ++t;
    return t - 1;
  }
  float one(const Dot& dot) const { return run_({dot}).front(); }

  void require_sums() const;
  void find_subnormals();
  void find_mantissa_bits();
  void find_groups();
  bool adds_in_fp32();
  void find_fraction_bits();
  void find_order_of_c();
  void find_order_of_groups();
  void find_alignment();
  void find_rounding();
  void explain();
  Dot random_dot(uint64_t i) const;

  const int32_t format_, n_;
  const RunProducts& run_;
  const CounterRng random_;
  int low_ = 0, high_ = 0;  // exponents of operands that are powers of two
  ProductsFindings found_;
  BlockModel model_;
};

void Laboratory::require_sums() const {
  std::vector<Dot> dots;
  std::vector<float> expected;
  for (int j = 0; j <= n_; ++j) {
    Dot dot = nothing(3);
    float sum = 3;
    for (int k = 0; k < n_; ++k) {
      dot.a[k] = static_cast<float>((k + j) % 3 + 1), dot.b[k] = k == j ? 2 : k % 2 == 0 ? 1 : -1;
      sum += dot.a[k] * dot.b[k];
    }
    dots.push_back(dot), expected.push_back(sum);
  }
  const std::vector<float> got = run_(dots);
  for (size_t i = 0; i < dots.size(); ++i)
    if (got[i] != expected[i])
      throw InfrastructureError(fmt::format(
          "a sum of {} small whole numbers came out as {}, {} expected: the instruction does not add "
          "products in the order it was given, or the backend hands over its operands wrongly",
          n_ + 1, got[i], expected[i]));
}

void Laboratory::find_subnormals() {
  const FormatInfo& info = format_info(format_);
  Dot dot = nothing();
  const int smallest = info.min_exponent - info.mantissa_bits;
  dot.a[0] = std::ldexp(1.0f, smallest);
  dot.b[0] = std::ldexp(1.0f, std::min(10, high_));
  found_.keeps_subnormal_operands = one(dot) == dot.a[0] * dot.b[0];
  const float c = std::ldexp(1.0f, -140);
  found_.keeps_subnormal_accumulator = one(nothing(c)) == c;
  low_ = std::max(found_.keeps_subnormal_operands ? smallest : info.min_exponent, -kMostExponent);
}

void Laboratory::find_mantissa_bits() {
  const auto c_of = [](int t) { return 1 + std::ldexp(1.0f, -t); };
  model_.mantissa_bits = last_of(
      1, 23, [&](int t) { return nothing(c_of(t)); }, [&](int t, float got) { return got == c_of(t); });
}

// Terms 2^E at i, -2^E at i', and something tiny at j, c = 0: the tiny term survives unless it is aligned to
// the large ones on the way. The pair for which most positions survive is in one group, and that group is
// what does not survive; then the same among the rest.
void Laboratory::find_groups() {
  const int spread = 2 * (high_ - low_);
  std::vector<Dot> dots;
  struct Trial {
    int i, pair, j;
  };
  std::vector<Trial> trials;
  for (int i = 0; i < n_; ++i)
    for (int pair = i + 1; pair < n_; ++pair)
      for (int j = 0; j < n_; ++j) {
        if (j == i || j == pair) continue;
        Dot dot = nothing();
        put(dot, i, 2 * high_), put(dot, pair, 2 * high_, -1), put(dot, j, 2 * high_ - spread);
        dots.push_back(std::move(dot)), trials.push_back({i, pair, j});
      }
  const std::vector<float> got = run_(dots);
  std::vector<std::vector<char>> survives(static_cast<size_t>(n_) * n_, std::vector<char>(n_, 0));
  bool all = true;
  for (size_t t = 0; t < trials.size(); ++t) {
    const bool lives = got[t] == std::ldexp(1.0f, 2 * low_);
    survives[trials[t].i * n_ + trials[t].pair][trials[t].j] = lives;
    all = all && lives;
  }
  Group left(n_);
  std::iota(left.begin(), left.end(), 0);
  found_.groups_hidden = all && n_ > 2;
  while (!left.empty() && !found_.groups_hidden) {
    Group best = left;
    for (const int i : left)
      for (const int pair : left) {
        if (pair <= i) continue;
        Group group;
        for (const int j : left)
          if (!survives[i * n_ + pair][j]) group.push_back(j);
        if (group.size() < best.size()) best = group;
      }
    model_.groups.push_back(best);
    Group rest;
    std::set_difference(left.begin(), left.end(), best.begin(), best.end(), std::back_inserter(rest));
    left = rest;
  }
  if (found_.groups_hidden) model_.groups = {left};
}

// 1 + 1.5 * 2^-24 in a group of two: a chain of rounded adds goes up, a unit that cuts stays.
bool Laboratory::adds_in_fp32() {
  const Group& group = model_.groups.front();
  if (group.size() != 2 || model_.mantissa_bits != 23 || 2 * (high_ - low_) < 26) return false;
  Dot dot = nothing();
  put(dot, group[0], 0), put(dot, group[1], -24, 1.5f);
  return one(dot) == 1 + 0x1p-23f;
}

void Laboratory::find_fraction_bits() {
  const Group& group = model_.groups.front();
  const int spread = std::min(2 * (high_ - low_), 40);
  const bool by_c = group.size() < 3;  // no third product in the group: c is the first term
  const int top = 2 * high_;
  const int bits = last_of(
      1, spread,
      [&](int t) {
        Dot dot = nothing(by_c ? -std::ldexp(1.0f, top) : 0);
        put(dot, group[0], top);
        if (!by_c) put(dot, group[1], top, -1);
        put(dot, group[by_c ? group.size() - 1 : 2], top - t);
        return dot;
      },
      [&](int t, float got) { return got == std::ldexp(1.0f, top - t); });
  model_.fraction_bits = std::max(bits, 1);
  found_.fraction_bits_at_least = bits == spread;
}

// Products of one group, each below the bits that c would leave them, whose sum is one unit of c's last
// place.
void Laboratory::find_order_of_c() {
  const Group& group = model_.groups.front();
  int log = 0;
  while (size_t{2} << log <= group.size()) ++log;
  const int t = model_.mantissa_bits + log;
  if (t <= model_.fraction_bits) return;  // visible either way: taken as joining, which is what it looks like
  Dot dot = nothing(std::ldexp(1.0f, t));
  for (int i = 0; i < 1 << log; ++i) put(dot, group[i], 0);
  if (one(dot) != dot.c) model_.order = Order::kThenC;
}

// c comes last. A large term in one of two groups, in the other one small terms that only their sum brings
// above what the large one leaves: a group that is added first passes its sum on, one that comes later loses
// its terms. If neither is lost the groups do not see each other.
void Laboratory::find_order_of_groups() {
  if (model_.order == Order::kWithC || model_.groups.size() != 2) return;
  const int top = 2 * high_, small = top - model_.fraction_bits - 1;
  const size_t count = size_t{1} << (model_.fraction_bits + 1 - model_.mantissa_bits);
  if (small < 2 * low_) return;
  bool lives[2];  // the small terms, with the large one in the other group
  for (const int where : {0, 1}) {
    const Group &few = model_.groups[1 - where], &many = model_.groups[where];
    if (many.size() < count) return;
    Dot dot = nothing(-std::ldexp(1.0f, top));
    put(dot, few.front(), top);
    for (size_t i = 0; i < count; ++i) put(dot, many[i], small);
    lives[where] = one(dot) != 0;
  }
  if (lives[0] && lives[1]) model_.order = Order::kParallel;
  if (!lives[0] && lives[1]) std::swap(model_.groups[0], model_.groups[1]);
}

std::string name(Rounding r) {
  return r == Rounding::kNearest ? "to nearest" : r == Rounding::kDown ? "down" : "toward zero";
}

// From whether something more than half a unit went up, for a positive and a negative sum.
Rounding rounding_of(bool positive_up, bool negative_up) {
  if (positive_up) return Rounding::kNearest;
  return negative_up ? Rounding::kDown : Rounding::kTowardZero;
}

void Laboratory::find_alignment() {
  const Group& group = model_.groups.front();
  found_.alignment = "not visible";
  if (found_.fraction_bits_at_least || group.size() < 3) return;
  const int top = 2 * high_, unit = top - model_.fraction_bits;
  if (unit < 2 * format_info(format_).min_exponent) return;  // 1.75 units would need a subnormal operand
  bool up[2];
  for (const int negative : {0, 1}) {
    Dot dot = nothing();
    put(dot, group[0], top), put(dot, group[1], top, -1), put(dot, group[2], unit, negative ? -1.75f : 1.75f);
    up[negative] = std::fabs(one(dot)) == std::ldexp(1.0f, unit + 1);
  }
  model_.alignment = rounding_of(up[0], up[1]);
  found_.alignment = name(model_.alignment);
}

void Laboratory::find_rounding() {
  const Group& group = model_.groups.front();
  const int m = model_.mantissa_bits;
  found_.rounding = "not visible";
  const int top = std::min(2 * high_, m);
  if (top - m - 1 < 2 * low_ || group.size() < 2) return;
  // A large term and a unit and a half of its last place: a tie whose even end is up.
  const auto tie = [&](bool large_is_c) {
    bool up[2];
    for (const int negative : {0, 1}) {
      const float sign = negative ? -1 : 1;
      Dot dot = nothing(large_is_c ? sign * std::ldexp(1.0f, top) : 0);
      if (!large_is_c) put(dot, group[2], top, sign);
      put(dot, group[0], top - m, sign), put(dot, group[1], top - m - 1, sign);
      up[negative] = std::fabs(one(dot)) == std::ldexp(1.0f, top) + std::ldexp(1.0f, top - m + 1);
    }
    return rounding_of(up[0], up[1]);
  };
  const bool with_c = model_.order == Order::kWithC;
  if (model_.fraction_bits >= m + 1 && (with_c || group.size() > 2)) {
    model_.accumulator = tie(with_c);
    found_.rounding = name(model_.accumulator);
  }
  if (!with_c) {
    model_.last = tie(true);
    found_.last = name(model_.last);
  }
}

Dot Laboratory::random_dot(uint64_t i) const {
  constexpr int kWidths[] = {2, 6, 14};  // operands alike, usual, far apart
  const int width = kWidths[i % 3];
  const FormatInfo& info = format_info(format_);
  const int top = std::min(6, high_), bottom = std::max(top - width, info.min_exponent);
  uint64_t at = i * static_cast<uint64_t>(2 * n_ + 1) * 2;
  const auto value = [&] {
    const double mantissa = 1 + random_.uniform(at++);
    const uint64_t bits = random_.bits(at++);
    const int e = bottom + static_cast<int>(bits % static_cast<uint64_t>(top - bottom + 1));
    return static_cast<float>(
        round_to(format_, std::ldexp(bits >> 63 ? -mantissa : mantissa, e), Overflow::kSaturate));
  };
  Dot dot = nothing();
  for (int j = 0; j < n_; ++j) dot.a[j] = value(), dot.b[j] = value();
  const double mantissa = 1 + random_.uniform(at++);
  const int e = 2 * top - 10 + static_cast<int>(random_.below(at, 21));
  dot.c = i % 4 == 0 ? 0 : static_cast<float>(std::ldexp(i % 2 ? mantissa : -mantissa, e));
  // A c of more bits than the accumulator keeps would be cut on the way in.
  const int unit = e - model_.mantissa_bits;
  dot.c = static_cast<float>(std::ldexp(std::trunc(std::ldexp(static_cast<double>(dot.c), -unit)), unit));
  return dot;
}

void Laboratory::explain() {
  std::vector<Dot> dots;
  for (int64_t i = 0; i < kRandomDots; ++i) dots.push_back(random_dot(static_cast<uint64_t>(i)));
  const std::vector<float> got = run_(dots);
  found_.tried = kRandomDots;
  for (size_t i = 0; i < dots.size(); ++i) found_.explained += run_model(model_, dots[i]) == got[i];
}

ProductsFindings Laboratory::find_float() {
  const FormatInfo& info = format_info(format_);
  high_ = std::min(std::ilogb(info.max_finite), kMostExponent);
  model_.format = format_;
  require_sums();
  find_subnormals();
  find_mantissa_bits();
  find_groups();
  if (adds_in_fp32()) {
    found_.groups = model_.groups;
    found_.accumulator = {ASSAY_ACC_FMA, 1, 0, 23};
    found_.alignment = "none";
    found_.rounding = name(Rounding::kNearest);
    return found_;
  }
  find_fraction_bits();
  find_order_of_c();
  find_order_of_groups();
  find_alignment();
  find_rounding();
  explain();
  size_t largest = 0;
  for (const Group& g : model_.groups) largest = std::max(largest, g.size());
  found_.groups = model_.groups;
  found_.order = model_.order;
  found_.accumulator = {ASSAY_ACC_BLOCK, static_cast<int32_t>(largest), model_.fraction_bits,
                        model_.mantissa_bits};
  return found_;
}

ProductsFindings Laboratory::find_integer() {
  require_sums();
  std::vector<Dot> dots;
  std::vector<float> expected;
  uint64_t at = 0;
  const auto whole = [&](uint64_t reach) {
    return static_cast<float>(static_cast<int64_t>(random_.below(at++, 2 * reach + 1)) -
                              static_cast<int64_t>(reach));
  };
  for (int64_t i = 0; i < kRandomDots; ++i) {
    Dot dot = nothing(whole(1 << 20));
    double sum = dot.c;
    for (int j = 0; j < n_; ++j) dot.a[j] = whole(127), dot.b[j] = whole(127), sum += dot.a[j] * dot.b[j];
    dots.push_back(std::move(dot)), expected.push_back(static_cast<float>(sum));
  }
  const std::vector<float> got = run_(dots);
  found_.tried = kRandomDots;
  for (size_t i = 0; i < dots.size(); ++i) found_.explained += got[i] == expected[i];
  if (found_.explained != found_.tried)
    throw InfrastructureError(fmt::format("{} of {} sums of whole numbers are wrong",
                                          found_.tried - found_.explained, found_.tried));
  found_.accumulator = {ASSAY_ACC_INT32, 1, 0, 23};
  found_.alignment = found_.rounding = "exact";
  return found_;
}

}  // namespace

ProductsFindings find_products(int32_t format, int32_t products, const RunProducts& run, uint64_t seed) {
  ASSAY_CHECK(products >= 2 && products <= 256, "an instruction of {} products", products);
  const RunProducts checked = [&](const std::vector<Dot>& dots) {
    std::vector<float> got = run(dots);
    ASSAY_CHECK(got.size() == dots.size(), "{} results of {} dot products", got.size(), dots.size());
    return got;
  };
  Laboratory laboratory(format, products, checked, seed);
  return format == ASSAY_INT8 ? laboratory.find_integer() : laboratory.find_float();
}

}  // namespace assay
