// SPDX-License-Identifier: Apache-2.0
// Other kernels of a declaration, looked for where they err most. What a declaration does not say may be
// otherwise in each: the order in which a unit takes the products of a score and the keys of a tile, bits
// that it keeps beyond those declared, errors of the exponential and, where no order is declared, which keys
// make a part and in which order they are taken. Thousands of orders of the products are looked at, through
// the scores of the keys that have most of the weight; the few that move O or the LSE furthest are run whole.
// So are, where no order is declared, those of some hundred orders of the keys in which the rounding of P
// moves O furthest (parts have other maxima in each, and weights other places on P's grid), and the habits
// that move an LSE furthest, found on the keys that have its weight.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "harness/problem/names.hpp"
#include "reference/bounds/bounds_cases.hpp"
#include "reference/bounds/bounds_emulator.hpp"
#include "reference/bounds/bounds_legal_orders.hpp"

namespace assay::testkit {

class LegalKernels {
 public:
  // channels: of each head, where its errors are wanted. One row.
  LegalKernels(const DenseCase& c, const assay_arithmetic& a, std::vector<size_t> channels, uint64_t seed)
      : c_(c),
        a_(a),
        channels_(std::move(channels)),
        d_(static_cast<size_t>(c.problem.head_dim_qk)),
        dv_(static_cast<size_t>(c.problem.head_dim_v)),
        random_(seed),
        seed_(seed) {
    for (size_t h = 0; h < channels_.size(); ++h) weigh(h);
  }

  // Looks at so many orders of the products: half of them drawn, the others the best of these with two
  // products exchanged.
  void look(size_t orders) {
    best_.assign(2 * channels_.size(), {});
    if (a_.qk.kind != ASSAY_ACC_BLOCK) return;
    std::vector<size_t> order = natural(d_);
    for (size_t n = 0; n < orders / 2; ++n) {
      std::shuffle(order.begin(), order.end(), random_);
      for (size_t h = 0; h < channels_.size(); ++h) {
        const Moved m = moved(h, order);
        keep(best_[2 * h], m.o, order), keep(best_[2 * h + 1], m.lse, order);
      }
    }
    for (size_t at = 0; at < best_.size() && orders > 0; ++at)
      for (size_t n = 0; n < orders / 2 / best_.size(); ++n) {
        order = best_[at].order;
        std::swap(order[random_() % d_], order[random_() % d_]);
        const Moved m = moved(at / 2, order);
        keep(best_[at], at % 2 == 0 ? m.o : m.lse, order);
      }
  }

  // Looks at so many orders of the keys (none where one is declared).
  void look_at_keys(size_t orders) {
    if (a_.order_declared != 0 || !rounds_p()) return;
    dealt_.assign(channels_.size(), {});
    for (size_t n = 0; n < orders; ++n) {
      const uint64_t seed = n == 0 ? kNatural : random_();
      std::vector<size_t> keys = natural(static_cast<size_t>(c_.m()));
      assay_arithmetic a = a_;
      shuffled(seed, a, keys);
      for (size_t h = 0; h < channels_.size(); ++h) {
        const auto [channel, off] = rounded_away(h, a, keys);
        if (std::fabs(off) > std::fabs(dealt_[h].off)) dealt_[h] = {seed, channel, off};
      }
    }
  }

  // Looks at so many habits of kernels, orders of the keys that have all of the weight, and parts, for each
  // LSE, more where these keys are few; at none where an order is declared or the weight is on too many keys.
  void look_at_lses(size_t trials) {
    if (a_.order_declared != 0) return;
    lse_.assign(channels_.size(), {});
    for (size_t h = 0; h < channels_.size(); ++h) {
      const size_t heavy = weighty(h);
      if (heavy == 0) continue;
      for (size_t n = 0; n < trials * std::min<size_t>(4, kHeavy / heavy); ++n) {
        const double off = lse_off(h, n, heavy);
        if (std::fabs(off) > std::fabs(lse_[h].off)) lse_[h] = {n, heavy, off};
      }
    }
  }

  // Kernel number n of this declaration; 0: as declared, in the order of the data.
  Emulation run(size_t n) const {
    if (n == 0) return Emulator(c_, a_).run();
    if (!lse_.empty() && (n % 8 == 1 || n % 8 == 6)) {
      const size_t h = (n % 8 == 6 ? 1 : 0) % lse_.size();
      if (lse_[h].heavy > 0) {
        const auto [s, a] = dealt_heavily(h, lse_[h].trial, lse_[h].heavy, static_cast<size_t>(c_.m()));
        return Emulator(s, a, Mutant::kNone, 1, leaning_habits(a_, lse_[h].trial)).run();
      }
    }
    std::mt19937_64 random(1000 * seed_ + n);
    assay_arithmetic a = a_;
    std::vector<size_t> products = natural(d_), keys = natural(static_cast<size_t>(c_.m()));
    const size_t head = n % channels_.size();
    // Half of the kernels take an order that was looked for, of a head's O and of its LSE in turn.
    const std::vector<size_t>* found = best_.empty() ? nullptr : &best_[n % best_.size()].order;
    if (n % 8 < 5 && found != nullptr && !found->empty()) {
      products = *found;
    } else {
      std::shuffle(products.begin(), products.end(), random);
      if (a.qk.kind == ASSAY_ACC_BLOCK && a.qk.fraction_bits == 13)
        a.qk.fraction_bits = a.qk.mantissa_bits = 13 + static_cast<int32_t>(random() % 4);
    }
    const Dealt* found_keys = n % 4 == 3 && !dealt_.empty() ? &dealt_[n / 4 % dealt_.size()] : nullptr;
    if (found_keys != nullptr)
      shuffled(found_keys->seed, a, keys);
    else if (a.order_declared == 0)
      deal(head, n, random, a, keys);
    else if (n % 2 == 0)
      within_tiles(a, random, keys);
    const DenseCase s = arranged(products, keys);
    Habits h = habits(head, n, keys);
    if (found != nullptr && n % best_.size() % 2 == 1 && products == *found)
      h.log_side = best_[n % best_.size()].off < 0 ? -1 : 1;
    if (found_keys != nullptr)
      h.weight_error =
          towards(n / 4 % dealt_.size(), found_keys->channel, found_keys->off < 0 ? -1 : 1, true, keys);
    return Emulator(s, a, Mutant::kNone, n, h).run();
  }

 private:
  struct Found {
    double off = 0;
    std::vector<size_t> order;
  };
  // An order of the keys, and what the rounding of P makes of a channel in it.
  struct Dealt {
    uint64_t seed = 0;
    size_t channel = 0;
    double off = 0;
  };
  struct Moved {
    double o, lse;
  };
  // A kernel that moves an LSE: its number, and how many keys have the weight.
  struct Leaning {
    size_t trial = 0, heavy = 0;
    double off = 0;
  };
  static constexpr size_t kHeavy = 768;     // keys that are tried alone
  static constexpr double kNothing = 1e-8;  // of a row's weight
  struct Weights {
    std::vector<double> x, p, o;
    std::vector<size_t> falling, heavy;  // keys, the heaviest first; those that have most of the weight
  };
  static void keep(Found& best, double off, const std::vector<size_t>& order) {
    if (best.order.empty() || std::fabs(off) > std::fabs(best.off)) best = {off, order};
  }
  bool rounds_p() const {
    return a_.p_format != ASSAY_FP32 && a_.p_format != ASSAY_FORMAT_NONE && a_.p_format != ASSAY_INT8;
  }

  // Q as it is multiplied, and what a product of codes is of a score.
  std::vector<double> query(size_t h) const {
    std::vector<double> q(&c_.q[h * d_], &c_.q[h * d_] + d_);
    if (a_.q_replayed_format != ASSAY_FORMAT_NONE)
      for (double& x : q) x = round_to(a_.q_replayed_format, x * a_.q_replayed_factor);
    return q;
  }
  double scale() const {
    const double q = c_.q_scale.empty() ? 1 : c_.q_scale[0], k = c_.k_scale.empty() ? 1 : c_.k_scale[0];
    return c_.problem.softmax_scale * q * k /
           (a_.q_replayed_format == ASSAY_FORMAT_NONE ? 1 : a_.q_replayed_factor);
  }
  void weigh(size_t h) {
    Weights w;
    const std::vector<double> q = query(h);
    const auto keys = static_cast<size_t>(c_.m());
    for (size_t j = 0; j < keys; ++j)
      w.x.push_back(scale() * std::inner_product(q.begin(), q.end(), &c_.k[j * d_], 0.0));
    const double top = *std::max_element(w.x.begin(), w.x.end());
    double sum = 0;
    for (const double x : w.x) w.p.push_back(std::exp(x - top)), sum += w.p.back();
    w.o.assign(dv_, 0.0);
    for (size_t j = 0; j < keys; ++j) {
      w.p[j] /= sum;
      for (size_t t = 0; t < dv_; ++t) w.o[t] += w.p[j] * c_.v[j * dv_ + t];
    }
    w.falling = natural(keys);
    std::stable_sort(w.falling.begin(), w.falling.end(), [&](size_t i, size_t j) { return w.x[i] > w.x[j]; });
    w.heavy.assign(w.falling.begin(),
                   w.falling.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(16, keys)));
    rows_.push_back(std::move(w));
  }

  // What this order of the products makes of the largest channel of O, and of the LSE, to first order.
  Moved moved(size_t h, const std::vector<size_t>& order) const {
    const Weights& w = rows_[h];
    std::vector<double> q(d_), k(d_), off;
    const bool rounded = a_.q_replayed_format != ASSAY_FORMAT_NONE;
    const Least unit{least(rounded ? a_.q_replayed_format : c_.problem.q_format), least(c_.problem.k_format)};
    const std::vector<double> codes = query(h);
    for (size_t t = 0; t < d_; ++t) q[t] = codes[order[t]];
    double lse = 0;
    for (const size_t j : w.heavy) {
      for (size_t t = 0; t < d_; ++t) k[t] = c_.k[j * d_ + order[t]];
      off.push_back(scale() * dot(0, q, k, unit, a_.qk) - w.x[j]);
      lse += w.p[j] * off.back();
    }
    double largest = 0;
    for (size_t t = 0; t < dv_; ++t) {
      double sum = 0;
      for (size_t i = 0; i < off.size(); ++i)
        sum += w.p[w.heavy[i]] * off[i] * (c_.v[w.heavy[i] * dv_ + t] - w.o[t]);
      largest = std::max(largest, std::fabs(sum));
    }
    return {largest, lse};
  }
  static int least(int32_t format) {
    return format_is_fp8(format) ? format_info(format).min_exponent : -100000;
  }

  // How many of a head's heaviest keys have all of its weight (whole tiles); 0: too many.
  size_t weighty(size_t head) const {
    const Weights& w = rows_[head];
    const auto tile = static_cast<size_t>(std::max(1, a_.tile_keys));
    double rest = 0;
    size_t n = w.falling.size();
    while (n > 0 && rest + w.p[w.falling[n - 1]] < kNothing) rest += w.p[w.falling[--n]];
    n = std::min(w.falling.size(), (n + tile - 1) / tile * tile);
    return n <= kHeavy ? n : 0;
  }
  // Kernel number `trial` on the first `count` of the keys: those that have the weight in an order of their
  // own, the others behind. Tiles are dealt to parts in turn, so a part begins alike whatever follows.
  std::pair<DenseCase, assay_arithmetic> dealt_heavily(size_t head, size_t trial, size_t heavy,
                                                       size_t count) const {
    std::mt19937_64 random(seed_ + trial / kHabits);
    std::vector<size_t> keys(rows_[head].falling.begin(),
                             rows_[head].falling.begin() + static_cast<std::ptrdiff_t>(count));
    std::shuffle(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(heavy), random);
    assay_arithmetic a = a_;
    deal_in_turn(random, a);
    const bool found = !best_.empty() && !best_[2 * head + 1].order.empty();
    return {arranged(found ? best_[2 * head + 1].order : natural(d_), keys), a};
  }
  double lse_off(size_t head, size_t trial, size_t heavy) const {
    auto [s, a] = dealt_heavily(head, trial, heavy, heavy);
    s.problem.head_dim_v = 1, s.v.resize(heavy);  // O is of no interest
    const Weights& w = rows_[head];
    const double top = w.x[w.falling[0]];
    double sum = 0;
    for (size_t i = 0; i < heavy; ++i) sum += std::exp(w.x[w.falling[i]] - top);
    return Emulator(s, a, Mutant::kNone, 1, leaning_habits(a_, trial)).run().lse[head] -
           (top + std::log(sum));
  }

  // What the rounding of P makes of the channel of O that it moves furthest, rescales apart.
  std::pair<size_t, double> rounded_away(size_t head, const assay_arithmetic& a,
                                         const std::vector<size_t>& keys) const {
    const Weights& w = rows_[head];
    const auto tile = static_cast<size_t>(std::max(1, a.tile_keys)),
               parts = static_cast<size_t>(std::max(1, a.splits)), tiles = (keys.size() + tile - 1) / tile;
    const double offset = a_.p_offset_log2 * M_LN2;
    std::vector<double> maximum(parts, -std::numeric_limits<double>::infinity()), off(dv_, 0.0);
    size_t part = 0;
    for (size_t from = 0, t = 0; from < keys.size(); from += tile, ++t) {
      const size_t to = std::min(keys.size(), from + tile);
      while (t >= tiles * (part + 1) / parts) ++part;
      double& top = maximum[a.split_interleaved != 0 ? t % parts : part];
      for (size_t i = from; i < to; ++i) top = std::max(top, w.x[keys[i]]);
      for (size_t i = from; i < to; ++i) {
        const size_t j = keys[i];
        const double weight = std::exp(w.x[j] - top + offset);
        if (!(weight > 0)) continue;
        const double share = w.p[j] * (round_to(a_.p_format, weight, Overflow::kSaturate) / weight - 1);
        for (size_t c = 0; c < dv_; ++c) off[c] += share * c_.v[j * dv_ + c];
      }
    }
    const auto at = std::max_element(off.begin(), off.end(),
                                     [](double a, double b) { return std::fabs(a) < std::fabs(b); });
    return {static_cast<size_t>(at - off.begin()), *at};
  }

  // Keys and parts of an undeclared order: parts no longer than twice the mean. V has no say in any.
  void deal(size_t head, size_t n, std::mt19937_64& random, assay_arithmetic& a,
            std::vector<size_t>& keys) const {
    const Weights& w = rows_[head];
    const auto rising = [&](size_t i, size_t j) { return w.x[i] < w.x[j]; };
    const auto falling = [&](size_t i, size_t j) { return w.x[i] > w.x[j]; };
    const auto split = std::max(1, a.splits);
    a.splits = split - static_cast<int32_t>(random() % static_cast<uint64_t>(split / 2 + 1));
    a.split_interleaved = static_cast<int32_t>(random() % 2);
    if (n % 6 == 2 || rises_in_each_tile(n)) a.splits = (split + 1) / 2, a.split_interleaved = 1;
    switch (n % 6) {
      case 0:
        std::shuffle(keys.begin(), keys.end(), random);
        break;
      case 1:
        std::stable_sort(keys.begin(), keys.end(), rising);
        break;
      case 2:
        std::stable_sort(keys.begin(), keys.end(), falling);
        break;
      case 3:
      case 4: {  // parts in which the maximum rises with every tile, and others in which it stays
        std::shuffle(keys.begin(), keys.end(), random);
        const auto other = keys.begin() + static_cast<std::ptrdiff_t>(keys.size() / 2);
        std::stable_sort(keys.begin(), other, rising);
        std::stable_sort(other, keys.end(), falling);
        a.split_interleaved = n % 6 == 4 ? 1 : 0;
        break;
      }
      default:  // the heaviest keys first, but for one of each tile that is above all before it
        keys = with_rises(keys, falling, static_cast<size_t>(std::max(1, a.tile_keys)));
        break;
    }
  }

  // An undeclared order in which the maximum rises with every tile, and most of the weight goes through all.
  bool rises_in_each_tile(size_t n) const { return a_.order_declared == 0 && n % 6 == 5; }
  DenseCase arranged(const std::vector<size_t>& products, const std::vector<size_t>& keys) const {
    DenseCase s;
    s.problem = c_.problem, s.problem.requests[0].kv_len = static_cast<int32_t>(keys.size());
    s.q_scale = c_.q_scale, s.k_scale = c_.k_scale, s.v_scale = c_.v_scale;
    s.q.resize(c_.q.size()), s.k.resize(keys.size() * d_), s.v.resize(keys.size() * dv_);
    for (size_t i = 0; i < c_.q.size(); ++i) s.q[i] = c_.q[i / d_ * d_ + products[i % d_]];
    for (size_t j = 0; j < keys.size(); ++j) {
      for (size_t t = 0; t < d_; ++t) s.k[j * d_ + t] = c_.k[keys[j] * d_ + products[t]];
      std::copy_n(&c_.v[keys[j] * dv_], dv_, &s.v[j * dv_]);
    }
    return s;
  }

  // The exponential errs one way, or by key towards one side of a channel of O, a weight near a tie of P's
  // grid over it where that takes O further; or at random.
  Habits habits(size_t head, size_t n, const std::vector<size_t>& keys) const {
    const double most = a_.exp_relative_error - 0x1p-24;
    Habits h;
    h.scale_steps = static_cast<int32_t>(n % 3) - 1;
    h.log_side = n % 2 == 0 ? 1 : -1;
    h.fused = n % 4 == 1;
    h.base2 = n % 4 > 1, h.base2_apart = n % 4 == 3;
    if (a_.row_sum_chain == 0 && n % 2 == 1) h.row_sum_lanes = 1;
    const size_t how = rises_in_each_tile(n) ? 1 : n / 2 % 4;
    const double side = (n + n / 8) % 2 == 0 ? 1 : -1;
    if (how == 1) h.exp_error = [=](float x) { return x == 0 ? 0 : side * most; };
    // Against O, or (every other time) as if a row sum that moves cost nothing.
    if (how > 1) h.weight_error = towards(head, channels_[head], side, how == 2, keys);
    return h;
  }

  // The exponential of each key errs to the side that takes a channel of O towards `side`.
  std::function<double(int64_t, float)> towards(size_t head, size_t channel, double side, bool against_o,
                                                const std::vector<size_t>& keys) const {
    const double most = a_.exp_relative_error - 0x1p-24, o = against_o ? rows_[head].o[channel] : 0;
    std::vector<float> value;
    for (const size_t key : keys) value.push_back(static_cast<float>(c_.v[key * dv_ + channel]));
    const std::vector<int64_t> against = opposed(head, keys);
    return [this, side, most, o, value = std::move(value), against](int64_t j, float x) {
      // The largest weight of a tile, which P's grid is laid by, errs against the weight nearest to a tie.
      if (!against.empty() && against[static_cast<size_t>(j)] >= 0)
        return side * (value[static_cast<size_t>(against[static_cast<size_t>(j)])] > o ? -most : most);
      const double v = value[static_cast<size_t>(j)];
      const auto taken = [&](double e) {
        return side * moves(std::exp(static_cast<double>(x)) * (1 + e), v, o);
      };
      return taken(most) > taken(-most) ? most : -most;
    };
  }

  // Of P by tile maximum: at the place of each tile's largest weight that of the one whose P is nearest to a
  // tie of its grid, -1 elsewhere.
  std::vector<int64_t> opposed(size_t head, const std::vector<size_t>& keys) const {
    if (a_.p_int8_tile_max == 0) return {};
    const std::vector<double>& x = rows_[head].x;
    const auto tile = static_cast<size_t>(std::max(1, a_.tile_keys));
    std::vector<int64_t> against(keys.size(), -1);
    for (size_t from = 0; from < keys.size(); from += tile) {
      const size_t to = std::min(keys.size(), from + tile);
      size_t top = from, nearest = to;
      for (size_t i = from; i < to; ++i)
        if (x[keys[i]] > x[keys[top]]) top = i;
      double least = std::numeric_limits<double>::infinity();
      for (size_t i = from; i < to; ++i) {
        const double code = 127 * std::exp(x[keys[i]] - x[keys[top]]);
        const double away = std::fabs(code - std::floor(code) - 0.5) / code;
        if (i != top && code > 0.25 && away < least) least = away, nearest = i;
      }
      if (nearest < to) against[top] = static_cast<int64_t>(nearest);
    }
    return against;
  }

  // What a weight makes of a numerator that is rounded, less O times what it makes of the row sum.
  double moves(double weight, double v, double o) const {
    double p = weight;
    if (a_.p_format == ASSAY_INT8)
      p = a_.p_int8_tile_max != 0 ? weight : std::min(127.0, std::nearbyint(weight * 127)) / 127;
    else if (a_.p_format != ASSAY_FP32 && a_.p_format != ASSAY_FORMAT_NONE)
      p = round_to(a_.p_format, weight, Overflow::kSaturate);
    return p * v - (a_.row_sum_from_rounded_p != 0 ? p : weight) * o;
  }

  const DenseCase& c_;
  const assay_arithmetic a_;
  const std::vector<size_t> channels_;
  const size_t d_, dv_;
  std::mt19937_64 random_;
  const uint64_t seed_;
  std::vector<Weights> rows_;
  std::vector<Found> best_;   // of each head: of O, of the LSE
  std::vector<Dealt> dealt_;  // of each head
  std::vector<Leaning> lse_;  // of each head
};

}  // namespace assay::testkit
