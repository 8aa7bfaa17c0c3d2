// SPDX-License-Identifier: Apache-2.0
// One part of a cell's keys under rules: the running maximum, the weights, the sums.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "harness/explain/predict.hpp"
#include "harness/explain/rounding.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kNoScore = -std::numeric_limits<double>::infinity();
constexpr double kLn2 = std::numbers::ln2;
constexpr double kLeastWeight = 0x1p-150;    // half the least number of fp32
constexpr double kMostArgument = 88.722839;  // of an exponential that fp32 holds

}  // namespace

int32_t Predictor::count_updates(const assay_arithmetic& a, const std::vector<Scored>& keys, size_t begin,
                                 size_t end, double maximum) {
  int32_t updates = 0;
  for (size_t i = begin; i < end;) {
    double largest = kNoScore;
    size_t next = i;
    for (; next < end && keys[next].tile == keys[i].tile; ++next) largest = std::max(largest, keys[next].x);
    const double moved = std::max(maximum, largest);
    if (moved != maximum && (maximum == kNoScore || moved - maximum > a.rescale_lag_log2 * kLn2)) {
      updates += maximum != kNoScore;
      maximum = moved;
    }
    i = next;
  }
  return updates;
}

SplitPart Predictor::run_part(const Rules& rules, const std::vector<Scored>& keys, size_t begin, size_t end,
                              double sink, LseParts* lse) {
  const assay_arithmetic& a = rules.arithmetic;
  const int32_t dim = problem_.head_dim_v;
  SplitPart part{{}, kNoScore, static_cast<int32_t>(end - begin)};
  std::vector<double> acc(dim, 0.0);
  double maximum = rules.first_maximum, sum = 0;
  const double offset = std::exp2(a.p_offset_log2);
  if (sink != kNoScore && a.sink_first) {
    maximum = std::max(maximum, sink);
    sum = offset * std::exp(rules.exponent_factor * (sink - maximum));
    sink = kNoScore;
  }
  int32_t update = 0, tile = -1;
  const bool counted = rules.o_kept || rules.l_kept || rules.rescaled_twice;
  const int32_t updates = counted ? count_updates(a, keys, begin, end, maximum) : 0;
  std::vector<double> p;
  for (size_t i = begin; i < end;) {
    size_t next = i;
    ++tile;
    double largest = kNoScore;
    bool poisoned = false;
    for (; next < end && keys[next].tile == keys[i].tile; ++next) {
      poisoned |= std::isnan(keys[next].x);
      if (!keys[next].in_maximum) continue;
      if (rules.maximum_lanes == 0 || a.tile_keys == 0 ||
          keys[next].term.position % a.tile_keys < rules.maximum_lanes ||
          keys[i].term.position % a.tile_keys >= rules.maximum_lanes)
        largest = std::max(largest, keys[next].x);  // ignores NaN, as max of hardware does
    }
    if (poisoned) largest = std::numeric_limits<double>::quiet_NaN();
    if (poisoned && rules.nan_hides && maximum == kNoScore) {
      std::fill(acc.begin(), acc.end(), std::numeric_limits<double>::quiet_NaN());
      sum = std::numeric_limits<double>::quiet_NaN();
      i = next;
      continue;
    }
    if (maximum - largest > rules.skip_below) {
      i = next;
      continue;
    }
    const double before = maximum;
    double moved = std::max(before, largest);
    if (poisoned) moved = largest;
    if (rules.maximum_per_tile && largest != kNoScore) maximum = moved = largest;
    if (rules.maximum_stays && maximum != kNoScore) moved = maximum;
    if (maximum != kNoScore && moved - maximum <= a.rescale_lag_log2 * kLn2) moved = maximum;
    if (maximum != kNoScore && moved > maximum && moved - maximum <= rules.lazy_below) {
      const double down = std::exp(maximum - moved);
      if (rules.lazy_sum_rescaled) sum *= down;
      for (size_t d = 0; d < acc.size() && rules.lazy_output_rescaled; ++d) acc[d] *= down;
      moved = maximum;
    }
    if (moved != maximum) {
      const double down = rules.rescale_exponent * rules.exponent_factor * (maximum - moved);
      const double rescale = maximum == kNoScore                    ? 0
                             : rules.exp_everywhere && rules.exp_of ? rules.exp_of(down)
                                                                    : std::exp(down);
      if (maximum != kNoScore) {
        const MaximumMove move{update, updates, moved - maximum, tile};
        const bool keep_o = rules.o_kept && rules.o_kept(move);
        const bool keep_l = rules.l_kept && rules.l_kept(move);
        const bool twice = rules.rescaled_twice && rules.rescaled_twice(move);
        const double of_o = twice && rules.twice_o ? rescale * rescale : rescale;
        const double of_l = twice && rules.twice_l ? rescale * rescale : rescale;
        for (int32_t d = 0; d < dim; ++d)
          if (!keep_o || (rules.kept_dims && !rules.kept_dims(d))) acc[d] *= of_o;
        if (!keep_l) sum *= of_l;
        ++update;
      }
      maximum = moved;
      if (part.first == kNoScore) part.first = moved;
    }
    if (maximum == kNoScore) {  // nothing but masked scores so far
      i = next;
      continue;
    }
    p.resize(next - i);
    double tile_largest = 0;
    for (size_t j = i; j < next; ++j) {
      const double relative_to = rules.stale_maximum && before != kNoScore ? before : maximum;
      const double argument = rules.exponent_factor * keys[j].exponent * (keys[j].x - relative_to);
      p[j - i] = offset * (rules.exp_of ? rules.exp_of(argument) : std::exp(argument));
      if (rules.in_maximum && argument > kMostArgument) p[j - i] = std::numeric_limits<double>::infinity();
      // Far below a first maximum that is none of the scores nothing is left of a weight in fp32.
      if (rules.first_maximum != kNoScore && p[j - i] < kLeastWeight) p[j - i] = 0;
      tile_largest = std::max(tile_largest, p[j - i]);
    }
    double of_tile = 0;  // its row sum, where that is rounded by itself
    for (size_t j = i; j < next; ++j) {
      const Term& term = keys[j].term;
      const double exact = p[j - i];
      double rounded = round_weight(a, exact, tile_largest, rules.round_clamp);
      rounded = coarsened(rounded, rules.p_step, rules.p_mantissa);
      double counted_as = a.row_sum_from_rounded_p ? rounded : exact;
      if (rules.p_of) {
        rounded = offset * rules.p_of(rounded / offset);
        if (rules.p_of_in_sum) counted_as = rounded;
      }
      double& joins = rules.sum_of_tile ? of_tile : sum;
      joins += term.weight * term.in_sum * counted_as;
      if (rules.sum_per_key) joins = round_step(rules.sum_format, joins);
      const double w = term.weight * term.in_output * term.v_factor * rounded;
      const double* v = keys[j].v;
      if (v == nullptr) continue;
      for (int32_t d = 0; d < dim; ++d) acc[d] += w * v[d];
      if (rules.accumulator_per_key)
        for (double& x : acc) x = round_step(rules.accumulator_format, x);
    }
    if (rules.accumulator_format != ASSAY_FORMAT_NONE)
      for (double& x : acc) x = round_step(rules.accumulator_format, x);
    sum += rules.sum_of_tile && !rules.sum_per_key ? round_step(rules.sum_format, of_tile) : of_tile;
    if (rules.sum_format != ASSAY_FORMAT_NONE && !rules.sum_per_key && !rules.sum_of_tile)
      sum = round_step(rules.sum_format, sum);
    i = next;
  }
  if (maximum == kNoScore) {
    part.o.assign(dim, 0.0);
    part.lse = sink;
    if (lse) *lse = {sink, sink, sink == kNoScore ? 0.0 : 1.0, sink, kNoScore};
    return part;
  }
  if (rules.sink_raw && sink != kNoScore) {
    sum += offset * sink;
    sink = kNoScore;
  }
  sum *= rules.sum_factor;
  const double without = sum / offset;
  const double keys_alone = std::log(without) + maximum;
  double whole = without;
  if (sink != kNoScore) {  // joined at the end, relative to the larger of both
    const double top = std::max(maximum, sink);
    const double down = std::exp(maximum - top);
    for (double& x : acc) x *= down;
    sum = sum * down +
          offset * std::exp(rules.sink_exponent * (rules.sink_unshifted ? sink + maximum - top : sink - top));
    maximum = top;
    whole = sum / offset;
  }
  // A part that is not merged with others, or every one.
  const double more = lse != nullptr || rules.sum_offset_of_parts ? offset * rules.sum_offset : 0;
  if (rules.sum_offset_in_lse) whole += more / offset;
  const double divisor = rules.divide ? sum + more : offset;
  part.o.resize(dim);
  for (int32_t d = 0; d < dim; ++d) part.o[d] = divisor == 0 ? 0.0 : acc[d] / divisor;
  part.lse = maximum + std::log(whole);
  part.maximum = maximum;
  if (lse) *lse = {part.lse, maximum, whole, sink, keys_alone};
  return part;
}

SplitPart Predictor::run_states(const Rules& rules, const std::vector<Scored>& keys, size_t begin, size_t end,
                                double sink, LseParts* lse) {
  if (begin == end || keys[begin].state == keys[end - 1].state)
    return run_part(rules, keys, begin, end, sink, lse);
  std::vector<SplitPart> states;
  const bool first = rules.arithmetic.sink_first;
  double top = kNoScore;
  for (size_t i = begin; i < end;) {
    size_t next = i;
    while (next < end && keys[next].state == keys[i].state) ++next;
    states.push_back(run_part(rules, keys, i, next, first && i == begin ? sink : kNoScore, nullptr));
    top = std::max(top, states.back().maximum);
    i = next;
  }
  const int32_t dim = problem_.head_dim_v;
  SplitPart part{std::vector<double>(dim, 0.0), kNoScore, static_cast<int32_t>(end - begin)};
  part.first = states.front().first;
  double sum = 0;
  for (const SplitPart& state : states) {
    if (state.lse == kNoScore) continue;
    const double down = rules.exponent_factor * (state.maximum - top);
    const double w = rules.exp_everywhere && rules.exp_of ? rules.exp_of(down) : std::exp(down);
    const double of_sum = w * std::exp(state.lse - state.maximum);
    sum += of_sum;
    for (int32_t d = 0; d < dim; ++d) part.o[d] += (rules.divide ? of_sum : w) * state.o[d];
  }
  const double keys_alone = top + std::log(sum);
  double maximum = top;
  if (sink != kNoScore && !first) {
    maximum = std::max(top, sink);
    const double down = std::exp(top - maximum);
    for (double& x : part.o) x *= down;
    sum = sum * down + std::exp(rules.sink_exponent * (sink - maximum));
  }
  const double divisor = sum + (lse != nullptr ? rules.sum_offset : 0);
  const double whole = rules.sum_offset_in_lse ? divisor : sum;
  if (rules.divide)
    for (double& x : part.o) x = divisor == 0 ? 0.0 : x / divisor;
  part.maximum = maximum;
  part.lse = maximum + std::log(whole);
  if (lse) *lse = {part.lse, maximum, whole, sink, keys_alone};
  return part;
}

}  // namespace assay
