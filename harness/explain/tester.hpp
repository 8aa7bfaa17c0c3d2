// SPDX-License-Identifier: Apache-2.0
// Misfits and predictions of hypotheses on the chosen cells of a case.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "harness/explain/hypothesis.hpp"
#include "harness/explain/misfit.hpp"
#include "harness/explain/same_number.hpp"
#include "harness/explain/samples.hpp"

namespace assay {

inline constexpr double kElsewhere = 0.3;  // of an LSE that another kernel wrote, a sample's misfit
inline constexpr double kAlike = 0.05;     // of legal noise: predictions that differ by less are one

// Misfits of a hypothesis, sample by sample.
class Tester {
 public:
  Tester(const Clues& clues, Predictor& low, const std::vector<Sample>& samples, std::vector<char> bad,
         std::vector<char> right_dims)
      : clues_(clues),
        low_(low),
        samples_(samples),
        bad_(std::move(bad)),
        right_dims_(std::move(right_dims)) {
    const Rules right = clues.predictor.right();
    lse_elsewhere_ = std::all_of(samples.begin(), samples.end(), [&](const Sample& s) {
      return accepted(clues.evidence, s.call, s.cell, -1);
    });
    for (size_t i = 0; i < samples.size(); ++i) {
      targets_.push_back(target_of(clues.evidence, samples[i]));
      right_.push_back(predictor_of(i).predict(right, samples[i].cell));
      right_lse_.push_back(misfit_of(targets_[i], right_.back()).lse);
      nothing_.push_back(total(misfit_of(targets_[i], right_.back()), i));
      // On a second line nothing but the first call is there to say so.
      by_memory_.push_back(
          samples[i].call == Call::kFirst &&
          (!clues.evidence.call(Call::kLow).made || depends_on_memory(clues.evidence, samples[i].cell)));
    }
  }
  struct One {
    double total = 0, o = 0, lse = 0;
    double dims = 0;  // with the right dimensions of O as they should be
    double rest = 1;  // share of the squared error of O that is left
  };
  One of(const Rules& rules, size_t i) {
    Predictor& predictor = predictor_of(i);
    const auto measure = [&](Prediction&& p) {
      const Misfit m = misfit_of(targets_[i], p);
      One one{total(m, i), m.o, m.lse, 0, 1};
      if (bad_[i]) one.rest = rest_of(p.o, i);
      if (!right_dims_.empty()) {
        for (size_t d = 0; d < right_dims_.size(); ++d)
          if (right_dims_[d]) p.o[d] = right_[i].o[d];
        if (lse_elsewhere_) p.lse = right_[i].lse;
        one.dims = total(misfit_of(targets_[i], p), i);
      }
      return one;
    };
    Prediction spread = predictor.predict(rules, samples_[i].cell);
    const bool nan = spread.nan_scores;
    const One one = measure(std::move(spread));
    if (!nan) return one;
    Rules hiding = rules;
    hiding.nan_hides = true;
    const One other = measure(predictor.predict(hiding, samples_[i].cell));
    One better = other.total < one.total ? other : one;
    // What a kernel makes of NaN is its own: it may store zeros. Where unused memory has to do with it the
    // same cell under other poison is asked for the rest.
    const bool zeros =
        std::all_of(targets_[i].o.begin(), targets_[i].o.end(), [](double x) { return x == 0; });
    // NaN that codes are taken for, too.
    const bool nans =
        rules.world &&
        std::all_of(targets_[i].o.begin(), targets_[i].o.end(), [](double x) { return std::isnan(x); }) &&
        other_codes(*rules.world);
    if ((by_memory_[i] || zeros || nans) && better.total > kElsewhere) {
      better.o = std::min(better.o, kElsewhere), better.lse = std::min(better.lse, kElsewhere);
      better.total = kElsewhere, better.dims = std::min(better.dims, kElsewhere);
      better.rest = 0;
    }
    return better;
  }
  std::vector<One> all(const Rules& rules, size_t count) {
    std::vector<One> list;
    for (size_t i = 0; i < count; ++i) list.push_back(of(rules, i));
    return list;
  }
  // Mean with the samples outside `in` left as they are. Null: everywhere.
  double mean(const std::vector<One>& of, const std::vector<char>* in, double One::*what) const {
    double sum = 0;
    for (size_t i = 0; i < of.size(); ++i) sum += in == nullptr || (*in)[i] ? of[i].*what : nothing_[i];
    return of.empty() ? 0 : sum / static_cast<double>(of.size());
  }
  double nothing() const { return nothing(nothing_.size()); }
  double nothing(size_t count) const {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += nothing_[i];
    return count == 0 ? 0 : sum / static_cast<double>(count);
  }
  const Sample& sample(size_t i) const { return samples_[i]; }
  double nothing_at(size_t i) const { return nothing_[i]; }
  // What a hypothesis predicts for a sample; outside its cells and dimensions what a right kernel writes.
  Prediction predicted(const Rules& rules, size_t i, const std::vector<char>* in, bool dims) {
    if (in != nullptr && !(*in)[i]) return right_[i];
    Prediction p = predictor_of(i).predict(rules, samples_[i].cell);
    for (size_t d = 0; d < right_dims_.size() && dims; ++d)
      if (right_dims_[d]) p.o[d] = right_[i].o[d];
    return p;
  }
  bool alike(const Prediction& a, const Prediction& b, size_t i) const {
    const auto same = [&](double x, double y, int32_t dim) {
      if (same_number(x, y)) return true;
      const double size = std::max(std::fabs(x), std::fabs(y));
      const double noise = dim < 0 ? targets_[i].lse_noise : targets_[i].o_noise[dim];
      return std::fabs(x - y) <= kAlike * noise + 1e-7 * size;
    };
    for (size_t d = 0; d < a.o.size(); ++d)
      if (!same(a.o[d], b.o[d], static_cast<int32_t>(d))) return false;
    return lse_elsewhere_ || same(a.lse, b.lse, -1);
  }
  const std::vector<char>& bad() const { return bad_; }
  bool by_dims() const { return !right_dims_.empty(); }

 private:
  Predictor& predictor_of(size_t i) const { return samples_[i].call == Call::kLow ? low_ : clues_.predictor; }
  // Whether codes are taken for other numbers, not read elsewhere.
  bool other_codes(const World& world) const {
    if (world.rewrite) return true;
    if (!world.change) return false;
    const assay_tensors& right = *clues_.evidence.operands(false).tensors;
    assay_tensors read = right;
    world.change(clues_.problem(), read);
    return read.q.format != right.q.format || read.k.format != right.k.format ||
           read.v.format != right.v.format;
  }
  // An LSE that is right everywhere may come from elsewhere, and then says nothing of a cause.
  double total(const Misfit& m, size_t i) const {
    return m.o + (lse_elsewhere_ ? std::min(m.lse, right_lse_[i] + kElsewhere) : m.lse);
  }
  double rest_of(const std::vector<double>& o, size_t i) const {
    double left = 0, all = 0;
    for (size_t d = 0; d < o.size(); ++d) {
      const double got = targets_[i].o[d];
      left += (got - o[d]) * (got - o[d]), all += (got - right_[i].o[d]) * (got - right_[i].o[d]);
    }
    return left < all ? left / all : 1;
  }
  const Clues& clues_;
  Predictor& low_;
  bool lse_elsewhere_ = false;
  std::vector<double> right_lse_;
  std::vector<Prediction> right_;
  std::vector<Target> targets_;
  const std::vector<Sample>& samples_;
  std::vector<char> bad_, right_dims_;
  std::vector<double> nothing_;
  std::vector<char> by_memory_;  // what unused memory holds changes the sample
};

}  // namespace assay
