// SPDX-License-Identifier: Apache-2.0
// What each choice may be follows from what the declaration allows (harness/abi/assay_kernel.h) and from what
// the model computes exactly as declared: no format of P overflows, products of two operands fit fp32.
#include "kernels/faulty/drawn.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <string>

namespace assay_faulty {
namespace {

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), one stream for each choice.
class Choice {
 public:
  Choice(int32_t number, uint32_t stream) : state_(uint64_t(number) << 32 | stream) {
    for (int i = 0; i < 4; ++i) bits();
  }
  double uniform() { return double(bits() >> 11) * 0x1p-53; }
  bool chance(double p) { return uniform() < p; }
  int32_t below(int32_t n) { return std::min(n - 1, int32_t(uniform() * n)); }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[below(int32_t(list.size()))];
  }
  // 2^x for x uniform.
  double power_of_two(double low, double high) { return std::exp2(low + (high - low) * uniform()); }

 private:
  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

// Units that exist, and what lies between them.
Accumulator block_unit(Choice& c, bool narrow) {
  if (c.chance(0.15)) return {ASSAY_ACC_BLOCK, c.one_of({4, 8, 16, 32}), 13 + c.below(13), 13 + c.below(11)};
  if (narrow) return c.one_of({kHopperFp8, kBlackwellFp8, Accumulator{ASSAY_ACC_BLOCK, 16, 13, 23}});
  return c.one_of({kAmpere, kHopper, kHopper, Accumulator{ASSAY_ACC_BLOCK, 4, 23, 23},
                   Accumulator{ASSAY_ACC_BLOCK, 16, 24, 23}, Accumulator{ASSAY_ACC_BLOCK, 32, 25, 23}});
}

Accumulator lanes(Choice& c) { return {ASSAY_ACC_FMA, c.one_of({1, 1, 2, 4, 8, 16})}; }

Unit wide_unit(Choice& c) {
  Unit u;
  u.promote_pv = c.chance(0.2);
  if (c.chance(0.3)) {
    u.qk = lanes(c), u.pv = lanes(c);
    if (c.chance(0.3)) u.p_format = c.one_of<int32_t>({ASSAY_BF16, ASSAY_FP16});
    return u;
  }
  u.qk = block_unit(c, false);
  if (c.chance(0.15)) {
    u.pv = lanes(c), u.p_format = ASSAY_FP32;
    return u;
  }
  u.pv = block_unit(c, false);
  if (c.chance(0.35))
    u.p_format = c.one_of<int32_t>({ASSAY_BF16, ASSAY_FP16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2});
  return u;
}

// Powers of two that P of this format may reach: lag, offset and the error of exp stay below its largest.
double room_of(const Unit& u) {
  switch (u.p_format) {
    case ASSAY_FP8_E4M3:
      return 8;
    case ASSAY_FP8_E5M2:
    case ASSAY_FP16:
    case kOfOperands:  // fp16 or fp8_e5m2 at worst
      return 14;
    default:
      return 20;
  }
}

int32_t tile_of(Choice& c) {
  return c.chance(0.1) ? 1 + c.below(kMaxTile) : 16 * c.one_of({1, 1, 2, 3, 4, 4, 5, 6, 8, 8, 11, 16});
}

void draw_parts(Choice c, Arithmetic& a) {
  a.tile_keys = tile_of(c);
  a.reverse = c.chance(0.4);
  if (c.chance(0.3))
    a.splits = 2 + c.below(c.chance(0.3) ? kMaxSplits - 1 : 7);
  else if (c.chance(0.3))
    a.split_keys = a.tile_keys * (1 + c.below(12));
  if (c.chance(0.3)) a.partial_format = c.one_of<int32_t>({ASSAY_BF16, ASSAY_FP16});
  if (c.chance(0.15)) a.partial_lse_format = c.one_of<int32_t>({ASSAY_BF16, ASSAY_FP16});
  a.sink_first = c.chance(0.3);
}

void draw_exponential(Choice c, Arithmetic& a) {
  // From fp32 rounding to as coarse as P in bf16.
  if (c.chance(0.8)) a.exp_error = c.power_of_two(-24, c.chance(0.3) ? -10 : -18);
  a.exp_form = c.one_of({ErrorForm::kTable, ErrorForm::kTable, ErrorForm::kNoise, ErrorForm::kHigh,
                         ErrorForm::kLow, ErrorForm::kWave});
  if (c.chance(0.15)) a.exp_poly_every = 1 + c.below(16);
  if (c.chance(0.7)) a.tanh_error = c.power_of_two(-24, -11);
  if (c.chance(0.3)) a.reciprocal_error = c.one_of({0x1p-24, -0x1p-24});
}

void draw_undeclared(Choice c, Arithmetic& a) {
  Undeclared& u = a.undeclared;
  u.order = c.chance(0.3);
  u.tile = u.order && c.chance(0.4);
  u.row_sum = c.chance(0.2);
  if (c.chance(0.2)) u.exp_factor = c.power_of_two(0, 8);
  if (c.chance(0.15)) u.fraction_bits = 1 + c.below(2);
}

void draw_sums(Choice c, Arithmetic& a) {
  a.sum_lanes = c.one_of({16, 16, 16, 1, 2, 4, 8});
  a.sum_by_unit = c.chance(0.2);
  if (a.split_keys == 0 && a.splits > 1) {
    a.interleaved = c.chance(0.3);
    a.splits_vary = c.chance(0.25);
  }
  if (c.chance(0.4)) a.log_absolute = c.power_of_two(-24, -12);
  if (c.chance(0.4)) a.log_relative = c.power_of_two(-24, -12);
  if (c.chance(0.4)) a.tanh_absolute = c.power_of_two(-24, -11);
}

void draw_repeats(Choice c, Arithmetic& a) {
  for (Unit* u : {&a.wide, &a.fp8})
    if (u->promote_pv && c.chance(0.6)) u->promote_every = 2 + c.below(7);
  if (c.chance(0.2)) a.p_roundings = 2 + c.below(2);
  if ((a.splits > 1 || a.split_keys > 0) && c.chance(0.4)) a.partial_roundings = 2 + c.below(3);
  a.bias_by_column = c.chance(0.4);
  a.q_replayed = c.chance(0.25);
  a.q_times_log2e = c.chance(0.5);
}

// Tiles so small that a draft more or less is another tile, and items that cut a token's heads.
void draw_items(Choice c, Arithmetic& a) {
  a.split_keys = 0, a.interleaved = a.splits_vary = false;
  if (c.chance(0.6)) a.tile_keys = 1 + c.below(24);
  a.item_rows = c.chance(0.5) ? 1 + c.below(20) : c.one_of({1, 2, 4, 8, 16, 64});
  a.splits = 2 + c.below(7);
  if (!c.chance(0.5)) return;
  a.shares = 1 + c.below(16);
  if (c.chance(0.3)) a.share_tiles = 1 + c.below(8);
  if (c.chance(0.4)) a.share_turns = 2 + c.below(2);
  a.splits = a.shares * a.share_turns;
}

// A unit of 16 bits that takes V's codes as they are, so a scale of each token has to go into P.
void draw_scaled(Choice c, Arithmetic& a) {
  a.v_scale_in_p = a.v_scale_in_any_p = a.undeclared.order = true;
  a.row_sum_from_rounded_p = a.sum_by_unit = false;
  if (a.wide.qk.kind == ASSAY_ACC_FMA) a.wide.qk = block_unit(c, false);
  if (a.wide.pv.kind == ASSAY_ACC_FMA) a.wide.pv = block_unit(c, false);
  a.wide.p_format =
      c.one_of<int32_t>({ASSAY_BF16, ASSAY_BF16, ASSAY_FP16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2});
  // Of a scale there is no knowing, so the room that P has is left to it, and of bf16 there is enough.
  if (a.wide.p_format != ASSAY_BF16) a.wide.p_offset_log2 = a.lag_log2 = 0;
  // Which keys are the largest of their tiles is a matter of small ones.
  if (c.chance(0.3) && a.split_keys == 0 && !a.undeclared.tile) a.tile_keys = 1 + c.below(8);
}

// Weights that nothing is divided by: of keys, of merges, of both.
void draw_lse(Choice c, Arithmetic& a) {
  const bool keys = c.chance(0.6), merges = !keys || c.chance(0.2);
  const auto format = [&] {
    return c.one_of<int32_t>({ASSAY_FP32, ASSAY_FP32, ASSAY_FP32, ASSAY_BF16, ASSAY_FP16});
  };
  if (keys) {
    a.weights_lse_format = format();
    a.row_sum_from_rounded_p = a.sum_by_unit = false;
    if (c.chance(0.5)) a.wide.p_format = ASSAY_FP32, a.wide.pv = lanes(c);
  }
  if (!merges) return;
  a.merge_lse_format = format();
  if (a.splits == 1 && a.split_keys == 0) a.splits = 2 + c.below(7);
}

}  // namespace

Arithmetic drawn_arithmetic(int32_t number) {
  Arithmetic a;
  Choice units(number, 1), weights(number, 2);
  a.wide = wide_unit(units);
  a.has_fp8 = units.chance(0.6);
  if (a.has_fp8)
    a.fp8 = {.qk = block_unit(units, true), .pv = block_unit(units, true), .promote_pv = units.chance(0.5)};
  a.has_int8 = units.chance(0.4);
  a.int8_tile_max = units.chance(0.5);
  a.dequant = units.chance(0.4);
  a.q_prescaled = units.chance(0.2);

  double room = room_of(a.wide);
  if (a.has_fp8) room = std::min(room, 8.0);  // codes of V decide between e4m3 and e5m2
  if (weights.chance(0.3)) a.lag_log2 = weights.one_of({1.0f, 2.0f, 4.0f, 8.0f, 3.5f});
  a.lag_log2 = std::min(a.lag_log2, float(room));
  if (a.has_int8) a.lag_log2 = 0;  // codes of P end at 127
  const auto offset = [&] {
    return weights.chance(0.5) ? 0.0f : float(weights.below(int32_t(room - a.lag_log2) + 1));
  };
  a.wide.p_offset_log2 = weights.chance(0.3) ? offset() : 0;
  a.fp8.p_offset_log2 = a.has_fp8 ? offset() : 0;
  a.p_truncated = weights.chance(0.1);
  a.row_sum_from_rounded_p = weights.chance(0.25);
  draw_parts(Choice(number, 3), a);
  draw_exponential(Choice(number, 4), a);
  draw_undeclared(Choice(number, 5), a);
  draw_sums(Choice(number, 6), a);
  draw_repeats(Choice(number, 7), a);
  a.v_scale_in_p = Choice(number, 8).chance(0.6);
  a.channels_in_q = Choice(number, 9).chance(0.6);
  if (number < kDrawnWithItems) return a;
  Choice more(number, 10);
  if (more.chance(0.6)) draw_items(Choice(number, 11), a);
  a.sink_in_parts = more.chance(0.7);
  a.rescale_inexact = more.chance(0.2);
  if (a.rescale_inexact && a.exp_form == ErrorForm::kTable) a.exp_form = ErrorForm::kLow;  // exact at 0
  if (number >= kDrawnWithLse)
    draw_lse(Choice(number, 13), a);
  else if (number >= kDrawnWithScales)
    draw_scaled(Choice(number, 12), a);
  return a;
}

Table drawn_variants() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (int32_t i = 0; i < kDrawnVariants; ++i) {
      char name[32];
      snprintf(name, sizeof name, "drawn_%04d", i);
      all.emplace_back(name);
    }
    return all;
  }();
  static const std::vector<Row> rows = [] {
    std::vector<Row> all;
    for (int32_t i = 0; i < kDrawnVariants; ++i) {
      Row row{};
      row.name = names[size_t(i)].c_str();
      row.summary = "a drawn point of the declaration's space; kernels --arithmetic shows it";
      row.stage = "variant";
      row.arithmetic = drawn_arithmetic(i);
      all.push_back(row);
    }
    return all;
  }();
  return {rows.data(), kDrawnVariants};
}

}  // namespace assay_faulty
