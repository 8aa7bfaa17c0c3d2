// SPDX-License-Identifier: Apache-2.0
// See bounds_elementwise.hpp: what keys have alike (the matrix form does the same with hashes,
// bounds_alike.cpp), which of them are heavy or how many above them, and what their scales lose.
#include <algorithm>
#include <bit>
#include <map>

#include "reference/bounds/bounds_alike.hpp"
#include "reference/bounds/bounds_blind.hpp"
#include "reference/bounds/bounds_elementwise.hpp"
#include "reference/bounds/bounds_finish.hpp"
#include "reference/bounds/bounds_heavy.hpp"
#include "reference/bounds/bounds_underflow.hpp"

namespace assay::elementwise {

void count_alike(Keys& keys) {
  std::map<uint64_t, int> groups;
  const auto score_of = [](const Key& k) { return (std::bit_cast<uint64_t>(k.x) + 0x80000) >> 20; };
  for (const Key& k : keys) ++groups[score_of(k)];
  for (Key& k : keys) k.alike = groups[score_of(k)];
}

bool structured(const Keys& keys, bool coarse) {
  if (coarse) {
    double alike = 0, whole = 0;
    for (const Key& k : keys) alike += k.p * k.alike, whole += k.p;
    return alike > kMostAlike * whole;
  }
  std::vector<double> scores, weights;
  for (const Key& k : keys) scores.push_back(k.x), weights.push_back(k.p);
  return repeated_share(scores, weights) > kRepeatedShare;
}

bool find_heavy(Keys& keys, double largest) {
  const auto heavy = [&](const Key& k) { return k.x >= largest - kHeavyDistance; };
  const bool few = static_cast<size_t>(std::count_if(keys.begin(), keys.end(), heavy)) <= kMostHeavy;
  for (Key& k : keys) k.heavy = few && heavy(k);
  return few;
}

void count_updates(Keys& keys, double slack, double most, bool sink) {
  std::vector<double> x;
  for (const Key& k : keys) x.push_back(k.x);
  std::sort(x.begin(), x.end());
  for (Key& k : keys) {
    const auto above = x.end() - std::upper_bound(x.begin(), x.end(), k.x - slack);
    const bool counted = !sink && most > kFewUpdates;
    k.updates = counted ? std::min(most, static_cast<double>(above - (slack > 0))) : most;
  }
}

double score_error(const Problem& p, const ErrorTerms& t, const RowScores& scores, size_t i, double shift) {
  const double s = scores.s[i], bias = scores.bias[i];
  double error = t.dot * scores.a[i] + t.score * std::fabs(s), x = s;
  if (p.softcap > 0) {
    // Slope of the cap anywhere within the error of its argument.
    const double nearest = std::max(0.0, std::fabs(s) - error) / p.softcap;
    const double slope = 1 - std::tanh(nearest) * std::tanh(nearest);
    x = p.softcap * std::tanh(s / p.softcap);
    error = error * slope * (1 + t.cap_relative) + std::fabs(x) * t.cap_relative + t.cap_absolute;
  }
  return error * (1 + t.bias_score) + t.bias_score * std::fabs(s) +
         t.bias_relative * (std::fabs(x + bias) + std::max(std::fabs(bias), 2 * shift));
}

void look_at_order(const Keys& keys, const std::vector<KeySpan>& spans, int64_t window, double middle,
                   int32_t d, double windows, ChannelFacts<double>& c) {
  double in_window = 0, squares = 0;
  SignWindows signs(1, window);
  for (const KeySpan& span : spans) {
    auto [first, last] = keys_of(keys, span);
    double stretch = 0;
    for (auto k = first; k != last; ++k) {
      const double from_o = k->p * (k->v[d] - c.o), square = from_o * from_o * k->alike;
      stretch += from_o;
      c.by_score += k->x > middle ? from_o : 0;
      c.apart += square, c.passed += square * k->updates * k->updates;
      signs.add(k->index, &k->v[d]);
    }
    c.stretches += stretch * stretch;
    in_window += stretch;
    if (span.to % window != 0 && &span != &spans.back()) continue;
    squares += in_window * in_window;
    in_window = 0;
  }
  signs.end();
  c.by_score = std::fabs(c.by_score), c.windows = std::sqrt(windows * squares);
  c.signs = signs.most(0, windows) / static_cast<double>(keys.size());
}

double k_normal(const ErrorModel& model, const OperandReader& operands, int request, int32_t kv_head,
                const Keys& keys) {
  const SmallestNormal& normal = model.k_normal();
  if (normal.value == 0 || !normal.scaled) return normal.value;
  double largest = 0;
  for (const Key& key : keys)
    largest = std::max(largest, operands.k_scale_size(request, static_cast<int32_t>(key.index), kv_head));
  return normal.value * largest;
}

void scale_losses(const Problem& p, const OperandReader& operands, RowId id, int32_t head, const Keys& keys,
                  const RowScores& scores, RowShape& shape) {
  const double q = scale_factor(p.q_scale == ASSAY_SCALE_NONE ? 1 : operands.q_scale_size(id, head));
  for (const Key& key : keys) {
    const auto index = static_cast<int32_t>(key.index);
    const double k = scale_factor(
        p.k_scale == ASSAY_SCALE_NONE ? 1 : operands.k_scale_size(id.request, index, head / p.group()));
    shape.gain = std::max(shape.gain, gain_of_scales(q, k));
    shape.underflow = std::max(
        shape.underflow, lost_of_factors(p, q, k) * scores.a[static_cast<size_t>(key.index - scores.begin)]);
  }
}

}  // namespace assay::elementwise
