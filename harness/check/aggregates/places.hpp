// SPDX-License-Identifier: Apache-2.0
// Elements at one place of the output's grid err alike: codes of a narrow format that one key hands through,
// means of the same few values under a flat softmax. What sums over elements vary by then is what sums over
// places do.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <utility>
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
  void add(int32_t place, double sd) { elements_.emplace_back(place, sd); }
  double value() const {
    const double mean = static_cast<double>(elements_.size()) / 0x1p15, most = mean + 4 * std::sqrt(mean) + 1;
    if (largest_count() <= most) return 0;  // as nearly always
    std::unordered_map<int32_t, Sums> sums;
    for (const auto& [place, sd] : elements_) {
      Sums& s = sums[place];
      s.sd += sd, s.square += sd * sd, s.count += 1;
    }
    double sum = 0;
    for (const auto& [place, s] : sums)
      if (s.count > most) sum += s.sd * s.sd - s.square;
    return sum;
  }

 private:
  struct Sums {
    double sd = 0, square = 0, count = 0;
  };
  // How many elements the place with the most of them has.
  int64_t largest_count() const {
    struct Place {
      int32_t place = 0, count = 0;
    };
    std::vector<Place> table(std::bit_ceil(2 * elements_.size() + 1));  // half of it stays free
    const size_t last = table.size() - 1;
    int32_t largest = 0;
    for (const auto& [place, sd] : elements_) {
      // Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4); then the next that is free or its.
      size_t at = (static_cast<uint32_t>(place) * uint64_t{0x9e3779b97f4a7c15} >> 32) & last;
      while (table[at].count > 0 && table[at].place != place) at = (at + 1) & last;
      table[at].place = place;
      largest = std::max(largest, ++table[at].count);
    }
    return largest;
  }
  std::vector<std::pair<int32_t, double>> elements_;
};

}  // namespace assay
