// SPDX-License-Identifier: Apache-2.0
// An attention kernel in slow motion, for the tests of the bounds: tiled online softmax in fp32 with every
// choice of assay_arithmetic (lanes or tensor-core blocks, order, splits, rounding of P, lazy rescale,
// an inexact exponential), and with planted mistakes. It shares no code with the reference or the bounds.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_cut.hpp"
#include "reference/bounds/bounds_emulator_habits.hpp"
#include "reference/bounds/bounds_emulator_order.hpp"
#include "reference/bounds/bounds_emulator_query.hpp"
#include "reference/bounds/bounds_emulator_units.hpp"
#include "reference/bounds/bounds_rows.hpp"

namespace assay::testkit {

struct Emulation {
  std::vector<double> o;    // before the output rounding, [n, heads_q, dv]
  std::vector<double> lse;  // [n, heads_q]
};

class Emulator {
 public:
  Emulator(const DenseCase& c, const assay_arithmetic& a, Mutant mutant = Mutant::kNone, uint64_t seed = 1,
           Habits habits = {})
      : c_(c), p_(c.problem), a_(a), mutant_(mutant), random_(seed, 77), habits_(std::move(habits)) {
    victim_ = static_cast<int64_t>(random_.below(0, c.m()));
  }

  Emulation run() {
    Emulation out;
    for (int64_t i = 0; i < c_.n(); ++i)
      for (int32_t h = 0; h < p_.heads_q; ++h) row(i, h, out);
    return out;
  }

 private:
  static constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

  // Codes without their scale are what a matrix unit multiplies where nothing is dequantised before; the
  // scale goes on the score or on the result. Scales inside the sum (K by channel, V by token) go on the
  // operand.
  bool outside(const assay_accumulator& unit, int32_t scale, int32_t inside) const {
    return unit.kind != ASSAY_ACC_FMA && a_.dequant_format == ASSAY_FORMAT_NONE && scale != inside;
  }
  bool q_outside() const { return outside(a_.qk, p_.q_scale, ASSAY_SCALE_CHANNEL) && a_.q_rounding == 0; }
  bool folds() const { return folds_channels(p_, a_); }
  bool k_outside() const { return outside(a_.qk, p_.k_scale, ASSAY_SCALE_CHANNEL); }
  bool v_outside() const { return outside(a_.pv, p_.v_scale, ASSAY_SCALE_TOKEN_HEAD); }
  static double scale_of(const std::vector<float>& scales, int32_t kind, int64_t heads, int64_t dim,
                         int64_t i) {
    return kind == ASSAY_SCALE_NONE ? 1 : scales[DenseCase::scale_index(kind, i, heads, dim)];
  }

  // Exponent of the smallest normal number: a unit aligns subnormals there. Not of operands that were scaled
  // or rounded before (their codes are not kept here), nor of formats with the range of fp32.
  static int least(int32_t format, bool codes) {
    const bool small = format == ASSAY_FP16 || (format >= ASSAY_FP8_E4M3 && format <= ASSAY_FP8_E5M2FNUZ);
    return small && codes ? format_info(format).min_exponent : -100000;
  }
  float exponential(float x) const { return exponential(x, a_.exp_relative_error); }
  float exponential(float x, double relative) const {  // natural, with the declared relative error
    if (mutant_ == Mutant::kExpCoarse) relative = 0x1p-10;
    if (x < -87.0f) return 0.0f;
    if (habits_.exp_error) return off_by(x, habits_.exp_error(x));
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    // The result's own rounding is part of what is declared.
    const double noise = (2 * random_.uniform(bits) - 1) * std::max(0.0, relative - 0x1p-24);
    return static_cast<float>(std::exp(static_cast<double>(x)) * (1 + (x == 0 ? 0 : 1) * noise));
  }
  float capped(float x) const {
    if (p_.softcap <= 0) return x;
    const double noise = 2 * random_.uniform(std::bit_cast<uint32_t>(x)) - 1;
    return p_.softcap * static_cast<float>(std::tanh(static_cast<double>(x / p_.softcap)) *
                                               (1 + 0.9 * a_.tanh_relative_error * noise) +
                                           0.9 * a_.tanh_absolute_error * noise);
  }
  // What rounding m log2(e) takes off it, as a score.
  double rounded_off(float m) const {
    if (!habits_.fused || habits_.base2 || m == kMinusInf) return 0;
    const double exact = static_cast<double>(m) * M_LOG2E;
    return (exact - static_cast<double>(static_cast<float>(exact))) * M_LN2;
  }
  // Of kernels that work in base 2: a score of theirs, and what an exponential takes of a difference.
  bool folds_base() const {
    return habits_.base2 && !habits_.base2_apart && p_.softcap <= 0 && p_.alibi == ASSAY_ALIBI_NONE;
  }
  float to_base(float x) const { return habits_.base2 ? x * static_cast<float>(M_LOG2E) : x; }
  float to_natural(float x) const { return habits_.base2 ? x * static_cast<float>(M_LN2) : x; }
  // Of a part: maximum and row sum, which is 2^offset too large.
  float lse_of(float m, float l) const {
    if (!habits_.base2) return m + logarithm(l) - static_cast<float>(a_.p_offset_log2 * M_LN2);
    return to_natural(m + to_base(logarithm(l)) - static_cast<float>(a_.p_offset_log2));
  }
  float logarithm(float x) const {
    if (habits_.log_side != 0) {
      const bool said = a_.log_absolute_error != 0 || a_.log_relative_error != 0;
      const double exact = std::log(static_cast<double>(x)),
                   most = said ? a_.log_absolute_error + a_.log_relative_error * std::fabs(exact) : 0x1p-21;
      return static_cast<float>(exact + habits_.log_side * 0.95 * most);
    }
    const double noise = 2 * random_.uniform(std::bit_cast<uint32_t>(x) + (uint64_t{1} << 40)) - 1;
    const double exact = std::log(static_cast<double>(x));
    return static_cast<float>(exact + 0.9 * noise *
                                          (a_.log_absolute_error + a_.log_relative_error * std::fabs(exact)));
  }
  // As an integer number of quanta for int8, otherwise the value itself.
  double round_p(float x, float quanta) const {
    if (mutant_ == Mutant::kPCoarse) return round_to(ASSAY_FP8_E4M3, x);
    if (a_.p_format == ASSAY_FP32 || a_.p_format == ASSAY_FORMAT_NONE) return x;
    if (a_.p_format == ASSAY_INT8) {
      const float q = x * quanta;
      return std::min(127.0, a_.p_truncated ? std::trunc(static_cast<double>(q)) : std::nearbyint(q));
    }
    if (!a_.p_truncated && mutant_ != Mutant::kPTruncated)
      return round_to(a_.p_format, x, Overflow::kSaturate);
    const FormatInfo& f = format_info(a_.p_format);
    return x == 0 ? 0 : chop(x, std::max(exponent(x), f.min_exponent), f.mantissa_bits);
  }

  bool sees(int64_t i, int64_t j) const {
    const int64_t position = c_.m() - c_.n() + i;
    if (mutant_ == Mutant::kDropKey && j == std::min(victim_, position)) return false;
    const int shortened = mutant_ == Mutant::kWindowShort ? 1 : 0;
    if (p_.window_left >= 0 && j < position - p_.window_left + shortened) return false;
    if (p_.window_right >= 0 && j > position + p_.window_right) return false;
    if (p_.chunk > 0 && (j > position || (position >= 0 && j / p_.chunk != position / p_.chunk)))
      return false;
    if (p_.mask == ASSAY_MASK_TREE) {
      const int64_t draft = j - (c_.m() - c_.n());
      return draft < 0 || p_.tree_mask[i * c_.n() + draft] != 0;
    }
    return p_.mask != ASSAY_MASK_CAUSAL || j <= position;
  }

  // A dequantised operand element as the kernel's second product or dot product takes it.
  double operand(const std::vector<double>& codes, const std::vector<float>& scales, int32_t kind,
                 bool outside, int64_t heads, int64_t dim, int64_t i) const {
    if (outside || (kind == ASSAY_SCALE_NONE && a_.dequant_format == ASSAY_FORMAT_NONE)) return codes[i];
    const double scale = scale_of(scales, kind, heads, dim, i);
    if (a_.dequant_format == ASSAY_FORMAT_NONE) return static_cast<float>(codes[i] * scale);
    if (a_.dequant_replayed) return round_to(a_.dequant_format, codes[i] * scale);
    // Some rounding: the scale first, as kernels do that multiply in the narrow format.
    return round_to(a_.dequant_format, codes[i] * round_to(a_.dequant_format, scale));
  }
  bool by_column() const { return p_.alibi == ASSAY_ALIBI_LINEAR && a_.bias_form == ASSAY_BIAS_COLUMN; }
  float bias(int64_t i, int64_t j, int32_t h) const {
    const int64_t distance = c_.m() - c_.n() + i - j;
    if (by_column()) return c_.slopes[h] * static_cast<float>(j);
    if (p_.alibi == ASSAY_ALIBI_NONE || distance < 0) return 0;
    const auto steps = static_cast<float>(distance);
    return -c_.slopes[h] * (p_.alibi == ASSAY_ALIBI_SQRT ? std::sqrt(steps) : steps);
  }

  // A result of some keys: O divided by its row sum, and its LSE.
  struct Partial {
    std::vector<double> o;
    double lse = kMinusInf;
  };
  void store_partial(Partial& part) const {
    const auto store = [](int32_t format, double x) {
      return format == ASSAY_FORMAT_NONE || std::isinf(x) ? x : round_to(format, x);
    };
    const bool bf16 = mutant_ == Mutant::kPartialBf16, lse_bf16 = mutant_ == Mutant::kPartialLseBf16;
    for (double& x : part.o) x = store(bf16 ? int32_t{ASSAY_BF16} : a_.partial_format, x);
    part.lse = store(lse_bf16 ? int32_t{ASSAY_BF16} : a_.partial_lse_format, part.lse);
  }
  Partial merged(const Partial* parts, size_t count) const {
    Partial all;
    all.o.assign(p_.head_dim_v, 0.0);
    float top = kMinusInf, sum = 0;
    for (size_t s = 0; s < count; ++s) top = std::max(top, static_cast<float>(parts[s].lse));
    std::vector<float> w;
    for (size_t s = 0; s < count; ++s) {
      w.push_back(std::isinf(parts[s].lse) ? 0.0f : exponential(static_cast<float>(parts[s].lse) - top));
      sum += w.back();
    }
    if (!(sum > 0)) return all;
    all.lse = static_cast<float>(top + logarithm(sum));
    if (a_.merge_lse_format != ASSAY_FORMAT_NONE) {
      const auto lse = static_cast<float>(round_to(a_.merge_lse_format, all.lse));
      for (size_t s = 0; s < count; ++s)
        w[s] = std::isinf(parts[s].lse) ? 0.0f : exponential(static_cast<float>(parts[s].lse) - lse);
      sum = 1;
    }
    for (size_t s = 0; s < count; ++s)
      for (int32_t t = 0; t < p_.head_dim_v; ++t)
        all.o[t] =
            std::fmaf(w[s] * (1.0f / sum), static_cast<float>(parts[s].o[t]), static_cast<float>(all.o[t]));
    return all;
  }

  void row(int64_t i, int32_t h, Emulation& out) const {
    const int32_t d = p_.head_dim_qk, dv = p_.head_dim_v;
    float scale = p_.softmax_scale * (mutant_ == Mutant::kScale ? 1.01f : 1.0f);
    std::vector<double> q(d);
    for (int32_t t = 0; t < d && !folds(); ++t) {
      const int64_t at = (i * p_.heads_q + h) * d + t;
      const double code_scale = scale_of(c_.q_scale, p_.q_scale, p_.heads_q, d, at);
      q[t] = q_outside() ? c_.q[at] : static_cast<float>(c_.q[at] * code_scale);
      if (t == 0 && q_outside()) scale = static_cast<float>(scale * code_scale);
    }
    folds() ? fold_query(c_, a_, i, h, q, scale) : round_query(a_, q, scale);
    if (folds_base()) scale = to_base(scale);
    if (habits_.scale_steps != 0) scale = std::nextafter(scale, habits_.scale_steps > 0 ? 1e30f : 0.0f);
    const int64_t tile = std::max(1, a_.tile_keys);
    std::vector<std::vector<int64_t>> order = visited_tiles(c_, a_, random_, i, h);
    const size_t splits = order.size();
    std::vector<Partial> parts;
    for (size_t s = 0; s < splits; ++s) {
      State state;
      const size_t lanes = habits_.row_sum_lanes > 0 ? habits_.row_sum_lanes : 4;
      const bool lanes_said = a_.row_sum.block > 0 && a_.row_sum.kind == ASSAY_ACC_FMA;
      state.l.assign(lanes_said ? static_cast<size_t>(a_.row_sum.block) : lanes, 0.0f);
      state.o.assign(dv, 0.0), state.window.assign(dv, 0.0);
      const bool sink_early = p_.sinks && s == 0 && a_.sink_first != 0 && habits_.sink_weighs_first;
      const bool sink_here = p_.sinks && s == 0 && !sink_early;
      if (p_.sinks && a_.sink_first) state.m = to_base(c_.sinks[h]);
      if (sink_early) state.l[0] = exponential(static_cast<float>(a_.p_offset_log2 * M_LN2));
      for (int64_t t : order[s]) step(i, h, q, scale, t * tile, tile, state);
      state.promote();
      for (size_t width = state.l.size(); width > 1; width = (width + 1) / 2)
        for (size_t t = 0; t < width / 2; ++t) state.l[t] += state.l[width - 1 - t];
      float l = state.l[0];
      if (sink_here) {
        const float sink = to_base(c_.sinks[h]), top = std::max(state.m, sink);
        const float offset = static_cast<float>(a_.p_offset_log2 * M_LN2);
        if (top > state.m) {
          const float down = state.m == kMinusInf ? 0.0f : exponential(to_natural(state.m - top));
          l *= down;
          for (double& x : state.o) x = static_cast<float>(x) * down;
          state.m = top;
        }
        l += exponential(to_natural(sink - top) + offset);
      }
      Partial part{state.o, kMinusInf};
      if (l > 0) {
        const float inverse = 1.0f / l;
        for (double& x : part.o) x = static_cast<float>(x) * inverse;
        if (v_outside() && p_.v_scale != ASSAY_SCALE_NONE)
          for (int32_t t = 0; t < dv; ++t)
            part.o[t] = static_cast<float>(part.o[t]) *
                        static_cast<float>(
                            scale_of(c_.v_scale, p_.v_scale, p_.heads_kv, dv, h / p_.group() * dv + t));
        part.lse = lse_of(state.m, l);
      }
      if (splits > 1) store_partial(part);
      parts.push_back(std::move(part));
    }
    // Levels of merging before the last: pairs, stored again.
    for (int32_t level = 1; level < a_.partial_roundings && splits > 1; ++level) {
      std::vector<Partial> next;
      for (size_t s = 0; s < parts.size(); s += 2) {
        next.push_back(merged(&parts[s], std::min<size_t>(2, parts.size() - s)));
        store_partial(next.back());
      }
      parts = std::move(next);
    }
    Partial result = splits == 1 ? parts[0] : merged(parts.data(), parts.size());
    std::vector<double>& o = result.o;
    double lse = result.lse;
    if (a_.weights_lse_format != ASSAY_FORMAT_NONE) o = weighed_by(lse, i, h, q, scale, order);
    if (by_column()) lse = static_cast<float>(lse) - c_.slopes[h] * static_cast<float>(c_.m() - c_.n() + i);
    if (mutant_ == Mutant::kValueScale)
      for (double& x : o) x = static_cast<float>(x) * 1.00390625f;
    if (mutant_ == Mutant::kLse2) lse = static_cast<float>(lse * M_LOG2E);
    out.o.insert(out.o.end(), o.begin(), o.end());
    out.lse.push_back(static_cast<float>(lse));
  }

  // O of weights relative to the row's LSE, a pass of its own: parts are added as they are.
  std::vector<double> weighed_by(double lse, int64_t i, int32_t h, const std::vector<double>& q, float scale,
                                 const std::vector<std::vector<int64_t>>& order) const {
    const int32_t dv = p_.head_dim_v;
    const int64_t tile = std::max(1, a_.tile_keys);
    std::vector<double> all(dv, 0.0);
    for (size_t s = 0; s < order.size() && !std::isinf(lse); ++s) {
      State state;
      state.fixed = true, state.m = to_base(static_cast<float>(round_to(a_.weights_lse_format, lse)));
      state.l.assign(1, 0.0f), state.o.assign(dv, 0.0), state.window.assign(dv, 0.0);
      for (int64_t t : order[s]) step(i, h, q, scale, t * tile, tile, state);
      state.promote();
      Partial part{state.o, 0};
      for (int32_t t = 0; t < dv; ++t) {
        double outside = std::exp2(-a_.p_offset_log2);
        if (v_outside() && p_.v_scale != ASSAY_SCALE_NONE)
          outside *= scale_of(c_.v_scale, p_.v_scale, p_.heads_kv, dv, h / p_.group() * dv + t);
        part.o[t] = static_cast<float>(part.o[t] * outside);
      }
      if (order.size() > 1) store_partial(part);
      for (int32_t t = 0; t < dv; ++t) all[t] = static_cast<float>(all[t] + part.o[t]);
    }
    return all;
  }

  void step(int64_t i, int32_t h, const std::vector<double>& q, float scale, int64_t first, int64_t tile,
            State& state) const {
    const int32_t d = p_.head_dim_qk, dv = p_.head_dim_v;
    const int64_t m = c_.m(), last = std::min(m, first + tile), kv_head = h / p_.group();
    const bool extra = mutant_ == Mutant::kTailKeys && last == m;  // sixteen zero keys behind the end
    std::vector<float> x;
    std::vector<int64_t> places;
    std::vector<std::vector<double>> values;
    for (int64_t j = first; j < last + (extra ? 16 : 0); ++j) {
      std::vector<double> k(d, 0.0), v(dv, 0.0);
      float k_scale = 1;
      if (j < m) {
        if (!sees(i, j)) continue;
        const int64_t key = mutant_ == Mutant::kStaleToken && j == victim_ ? (j + m / 2) % m : j;
        int64_t value = key;
        if (mutant_ == Mutant::kSwapV && m >= 32) value = j < 16 ? j + 16 : j < 32 ? j - 16 : j;
        for (int32_t t = 0; t < d; ++t)
          k[t] = operand(c_.k, c_.k_scale, p_.k_scale,
                         k_outside() || (folds() && p_.k_scale == ASSAY_SCALE_CHANNEL), p_.heads_kv, d,
                         (key * p_.heads_kv + kv_head) * d + t);
        for (int32_t t = 0; t < dv; ++t)
          v[t] = operand(c_.v, c_.v_scale, p_.v_scale, v_outside(), p_.heads_kv, dv,
                         (value * p_.heads_kv + kv_head) * dv + t);
        if (k_outside())
          k_scale = static_cast<float>(
              scale_of(c_.k_scale, p_.k_scale, p_.heads_kv, d, (key * p_.heads_kv + kv_head) * d));
        if (mutant_ == Mutant::kLastDim) k[d - 1] = 0;
      }
      const Least unit = folds() ? Least{least(a_.q_replayed_format, true), least(p_.k_format, true)}
                                 : Least{least(p_.q_format, q_outside()), least(p_.k_format, k_outside())};
      double s = dot(0, q, k, unit, a_.qk);
      s = static_cast<float>(s) * k_scale;
      if (mutant_ == Mutant::kScoresBf16) s = round_to(ASSAY_BF16, s);
      const float score = capped(static_cast<float>(s) * scale) + bias(i, j, h);
      x.push_back(folds_base() ? score : to_base(score));
      values.push_back(v);
      places.push_back(j);
    }
    if (x.empty()) {
      if (state.m != kMinusInf && !state.fixed) rescale(state, standing());
      return;
    }
    const float tile_top = *std::max_element(x.begin(), x.end());
    float top = state.fixed ? state.m : std::max(state.m, tile_top);
    float factor = state.m == kMinusInf || state.fixed ? 1.0f : standing();
    if (state.m != kMinusInf && top > state.m) {
      if ((top - state.m) * (habits_.base2 ? 1 : M_LOG2E) <= a_.rescale_lag_log2)
        top = state.m;
      else
        factor = exponential(to_natural(static_cast<float>(state.m - top + rounded_off(top))));
    }
    state.m = top;
    const double against = top - rounded_off(top);
    rescale(state, factor);
    const float offset = static_cast<float>(a_.p_offset_log2 * M_LN2);
    std::vector<float> e(x.size());
    float largest = 0;
    for (size_t j = 0; j < x.size(); ++j) {
      const bool poly =
          a_.exp_poly_every > 0 && (places[j] - first) % a_.exp_poly_every == a_.exp_poly_every - 1;
      const float argument = habits_.fused && !habits_.base2
                                 ? static_cast<float>(x[j] - against + static_cast<double>(offset))
                                 : to_natural(x[j] - top) + offset;
      e[j] = habits_.weight_error
                 ? off_by(argument, habits_.weight_error(places[j], argument))
                 : exponential(argument, poly ? a_.exp_poly_relative_error : a_.exp_relative_error);
      largest = std::max(largest, e[j]);
    }
    // int8: codes of P are integers, `quantum` turns their products into values.
    const bool integer = a_.p_format == ASSAY_INT8;
    const bool by_tile = integer && a_.p_int8_tile_max && largest > 0;
    // 127 over weights far below a sink is beyond fp32; a power of two changes no bit of them.
    const float up = by_tile && largest < 0x1p-60f ? 0x1p64f : 1.0f;
    const float quanta = !integer ? 1.0f : by_tile ? 127.0f / (largest * up) : 127.0f;
    const float quantum = !integer ? 1.0f : a_.p_int8_tile_max ? largest / 127.0f : 1.0f / 127.0f;
    std::vector<double> p;
    float run = 0;
    const bool rounded_sum = (a_.row_sum_from_rounded_p != 0) != (mutant_ == Mutant::kRowSumFromRoundedP);
    for (size_t j = 0; j < x.size(); ++j) {
      // Several roundings: against a maximum that turns out too small first.
      double rounded = round_p(a_.p_roundings > 1 ? e[j] * habits_.first_above : e[j] * up, quanta);
      for (int32_t n = 1; n < a_.p_roundings; ++n)
        rounded =
            round_p(static_cast<float>(rounded) *
                        (n + 1 < a_.p_roundings ? 0.9f : std::pow(0.9f, 1.0f - n) / habits_.first_above),
                    quanta);
      p.push_back(rounded);
      if (mutant_ == Mutant::kRowSumMissesKey && places[j] == victim_) continue;
      if (mutant_ == Mutant::kKeyTwice && places[j] == victim_) p.back() *= 2, e[j] *= 2;
      if (a_.row_sum.kind == ASSAY_ACC_BLOCK) continue;
      const float added = rounded_sum ? static_cast<float>(p.back()) * quantum : e[j];
      const int64_t chunk = std::max<int64_t>(1, habits_.row_sum_chunk);
      if (chunk > 1) {
        run += added;
        if (j % static_cast<size_t>(chunk) != static_cast<size_t>(chunk) - 1 && j + 1 < x.size()) continue;
      }
      state.l[j / static_cast<size_t>(chunk) % state.l.size()] +=
          chunk > 1 ? std::exchange(run, 0.0f) : added;
    }
    std::vector<double> column(x.size());
    const Least unit{a_.p_format == ASSAY_FORMAT_NONE ? -100000 : least(a_.p_format, true),
                     least(p_.v_format, v_outside())};
    if (a_.row_sum.kind == ASSAY_ACC_BLOCK)
      state.l[0] = static_cast<float>(
          dot(state.l[0], p, std::vector<double>(p.size(), 1.0), {unit.a, -100000}, a_.row_sum));
    for (int32_t t = 0; t < dv; ++t) {
      for (size_t j = 0; j < x.size(); ++j) column[j] = values[j][t];
      if (integer) {
        const float sum = static_cast<float>(dot(0, p, column, unit, a_.pv));
        state.o[t] = std::fmaf(sum, quantum, static_cast<float>(state.o[t]));
      } else if (a_.promote_pv) {
        state.window[t] = dot(state.window[t], p, column, unit, a_.pv);
      } else {
        state.o[t] = dot(state.o[t], p, column, unit, a_.pv);
      }
      if (mutant_ == Mutant::kOutputPerTile) state.o[t] = round_to(ASSAY_BF16, state.o[t]);
    }
    if (a_.promote_pv && ++state.tiles % std::max(1, a_.promote_every) == 0) state.promote();
  }

  void rescale(State& state, float factor) const { state.rescale(factor, mutant_ == Mutant::kNoRescale); }
  // What a maximum that stays multiplies by: an exponential that is inexact at 0 errs the same way every
  // time.
  float standing() const {
    if (a_.rescale_inexact == 0) return 1;
    const double error = 0.99 * std::max(0.0, a_.exp_relative_error - 0x1p-24);
    return static_cast<float>(1 + (victim_ % 2 == 0 ? error : -error));
  }
  const DenseCase& c_;
  const Problem& p_;
  assay_arithmetic a_;
  Mutant mutant_;
  CounterRng random_;
  Habits habits_;
  int64_t victim_ = 0;
};

}  // namespace assay::testkit
