// SPDX-License-Identifier: Apache-2.0
// Elements at one place of the output's grid err alike: codes of a narrow format that one key hands through,
// means of the same few values under a flat softmax. What sums over elements vary by then is what sums over
// places do.
#pragma once

#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace assay {

class Places {
 public:
  // An element whose result may move: the standard deviation of what it adds to each of two sums.
  struct Element {
    int32_t place = 0;
    float first = 0, second = 0;
  };
  static constexpr double kLeast = 1e-3;  // less is left out

  // Results whose mantissas agree in 16 bits, whatever their exponents. The offset keeps results that lie
  // on ties of the output, as many do, away from the edges of the bins.
  void add(double o, double first, double second) {
    if (first < kLeast && second < kLeast) return;
    int exponent = 0;
    const double mantissa = std::fabs(std::frexp(o, &exponent));
    elements_.push_back({static_cast<int32_t>(std::floor(mantissa * 0x1p16 + 0.37)),
                         static_cast<float>(first), static_cast<float>(second)});
  }
  int64_t size() const { return static_cast<int64_t>(elements_.size()); }
  const Element& operator[](int64_t i) const { return elements_[static_cast<size_t>(i)]; }

 private:
  std::vector<Element> elements_;
};

// By how much the variance of a sum grows where the elements of a place add up. Places with no more elements
// than chance puts there are none.
class PlaceVariance {
 public:
  void add(int32_t place, double sd) {
    Sums& s = sums_[place];
    s.sd += sd, s.square += sd * sd, s.count += 1;
    count_ += 1;
  }
  double value() const {
    const double mean = count_ / 0x1p15, most = mean + 4 * std::sqrt(mean) + 1;
    double sum = 0;
    for (const auto& [place, s] : sums_)
      if (s.count > most) sum += s.sd * s.sd - s.square;
    return sum;
  }

 private:
  struct Sums {
    double sd = 0, square = 0, count = 0;
  };
  std::unordered_map<int32_t, Sums> sums_;
  double count_ = 0;
};

}  // namespace assay
