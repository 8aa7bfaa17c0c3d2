// SPDX-License-Identifier: Apache-2.0
// Kernels of no class: a declaration whose fields are drawn one by one, an emulated kernel that does what it
// says in one of the ways it leaves open (order of keys and of dimensions, base 2, errors of one side, chains
// of the row sum), on data of every family, extreme sizes and keys that share products. No tier may be left.
// Some hundred here; ASSAY_LONG_TESTS=1 makes it 20,000, and ASSAY_DRAW_SEED starts elsewhere.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <span>

#include "harness/campaign/draws.hpp"
#include "harness/input/patterns.hpp"
#include "harness/problem/names.hpp"
#include "reference/attacks/attack.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay::attacks {
namespace {

using FreeDraws = campaign::Draws;

constexpr uint64_t kStreamFree = 4242, kStreamRepeats = 4243, kStreamRest = 4244;
// Draws that left a tier once: an int8 tile whose largest weight is a polynomial's, a late sink above a
// maximum left behind, near-equal weights rounded twice on a unit of 13 bits.
constexpr uint64_t kOnceOutside[] = {109223, 3008087, 4001812};
enum class Unit { kLanes, kMatrix, kFewBits };

struct FreeKernel {
  DenseCase data, taken;  // as judged; as the kernel takes keys and dimensions
  assay_arithmetic declared, kernel;
  Habits habits;
  Unit unit;
  int32_t keys, rows, dims;
  bool full;  // every row sees every key
};

bool has_eight_bits(int32_t format) { return format_bytes(format) == 1; }

void multiply_all(std::vector<double>& values, double factor) {
  for (double& x : values) x *= factor;
}
void round_to_steps(std::vector<double>& values, double step) {
  for (double& x : values) x = std::nearbyint(x / step) * step;
}

// Patterns of harness/input, keys that differ in their last dimensions alone, few values, sparse keys.
void draw_structure(FreeDraws& d, FreeKernel& f, uint64_t seed) {
  DenseCase& c = f.data;
  const auto dims = size_t{1} * f.dims;
  const int64_t kind = d.below(5);
  if (kind == 1) {
    const Patterns patterns(seed, double{c.problem.softmax_scale} * f.dims);
    for (int32_t key = 0; key < f.keys; ++key) {
      CounterRng(seed, 2).normals(uint64_t{1} * patterns.k_like(key) * dims, f.dims, &c.k[key * dims]);
      patterns.k(key, f.dims, &c.k[key * dims]);
      patterns.v(key, f.dims, &c.v[key * dims]);
    }
  } else if (kind == 2) {
    const auto kinds = static_cast<int64_t>(d.log_uniform(1, 20));
    const auto shared = static_cast<size_t>(d.below(f.dims + 1));
    const bool v_by_kind = d.chance(0.5);
    for (int32_t key = 0; key < f.keys; ++key) {
      const auto of = static_cast<int64_t>(static_cast<double>(kinds) * uniform(seed, 9, key));
      for (size_t t = 0; t < shared; ++t)
        c.k[key * dims + t] = 3 * normal(seed, 2, (1 + of) * 1000 + static_cast<int64_t>(t));
      for (size_t t = 0; v_by_kind && t < dims; ++t)
        c.v[key * dims + t] = (of % 2 ? 1 : -1) + 0.01 * c.v[key * dims + t];
    }
  } else if (kind == 3) {
    const double step = std::exp2(-static_cast<double>(d.below(6)));
    round_to_steps(c.k, step);
    if (d.chance(0.5)) round_to_steps(c.v, step);
    if (d.chance(0.3)) round_to_steps(c.q, step);
  } else if (kind == 4) {
    const double kept = d.uniform(0.05, 0.7), rest = d.chance(0.5) ? 0 : 1e-4;
    for (size_t i = 0; i < c.k.size(); ++i)
      if (uniform(seed, 31, static_cast<int64_t>(i)) > kept) c.k[i] *= rest;
  }
  if (d.chance(0.25)) multiply_all(c.v, std::exp2(d.uniform(-30, 20)));
  for (std::vector<double>* side : {&c.q, &c.k})
    if (d.chance(0.2)) {
      const double size = std::exp2(d.uniform(-18, 4));
      multiply_all(*side, size);
      if (d.chance(0.7)) c.problem.softmax_scale = static_cast<float>(c.problem.softmax_scale / size);
    }
}

// Formats of the operands, units of the products, format of P and how it is rounded.
void draw_units(FreeDraws& d, FreeKernel& f) {
  Problem& p = f.data.problem;
  assay_arithmetic& a = f.declared;
  int32_t k =
      d.one_of<int32_t>({ASSAY_FP32, ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_INT8});
  f.unit = d.one_of<Unit>({Unit::kLanes, Unit::kMatrix, Unit::kFewBits});
  const bool lanes = f.unit == Unit::kLanes;
  if (!lanes && k == ASSAY_FP32) k = ASSAY_BF16;
  const int32_t q = has_eight_bits(k) && d.chance(0.5) ? int32_t{ASSAY_BF16} : k;
  const bool integers = !lanes && k == ASSAY_INT8 && q == ASSAY_INT8;
  if (lanes) {
    a.qk.block = d.one_of<int32_t>({1, 2, 3, 4, 8, 16, 32});
    a.pv.block = d.one_of<int32_t>({1, 2, 4, 8, 16});
    if (d.chance(0.15)) a.row_sum = {ASSAY_ACC_FMA, d.one_of<int32_t>({1, 4, 8}), 0, 23};
  } else {
    a.qk = {ASSAY_ACC_BLOCK, d.one_of<int32_t>({4, 8, 16, 32}), static_cast<int32_t>(23 + d.below(3)), 23};
    if (f.unit == Unit::kFewBits && has_eight_bits(q))
      a.qk.fraction_bits = a.qk.mantissa_bits = static_cast<int32_t>(13 + d.below(4));
    if (integers) a.qk = {ASSAY_ACC_INT32, 32, 0, 0};
    a.pv = a.qk;
    if (!integers && d.chance(0.2)) a.promote_pv = 1, a.promote_every = d.chance(0.4) ? 2 : 0;
  }
  a.p_format = integers ? int32_t{ASSAY_INT8}
               : lanes  ? d.one_of<int32_t>({ASSAY_FP32, ASSAY_FP32, ASSAY_BF16, ASSAY_FP16})
                        : d.one_of<int32_t>({ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_FP8_E5M2});
  a.p_int8_tile_max = integers && d.chance(0.5);
  if (has_eight_bits(a.p_format) && !integers && d.chance(0.5)) a.p_offset_log2 = 8;
  if (a.p_format == ASSAY_FP16 && d.chance(0.2)) a.p_offset_log2 = 4;
  a.p_truncated = a.p_format != ASSAY_FP32 && d.chance(0.2);
  a.row_sum_from_rounded_p = !integers && d.chance(0.2);
  if (!has_eight_bits(a.p_format) && a.p_offset_log2 == 0 && d.chance(0.12))
    a.rescale_lag_log2 = d.one_of<double>({1, 4, 8});
  if (has_eight_bits(k) && !lanes && !has_eight_bits(q))
    a.dequant_format = q, a.dequant_replayed = d.chance(0.6);
  // Matrix units multiply codes: no scales inside their sums.
  const bool codes = !lanes && a.dequant_format == ASSAY_FORMAT_NONE;
  const auto scale = [&](int32_t inside) -> int32_t {
    if (!has_eight_bits(k)) return ASSAY_SCALE_NONE;
    const int32_t kind = d.one_of<int32_t>(
        {ASSAY_SCALE_TENSOR, ASSAY_SCALE_HEAD, ASSAY_SCALE_TOKEN_HEAD, ASSAY_SCALE_CHANNEL});
    return codes && kind == inside ? int32_t{ASSAY_SCALE_HEAD} : kind;
  };
  p.q_format = q, p.k_format = p.v_format = k;
  p.k_scale = scale(ASSAY_SCALE_CHANNEL), p.v_scale = scale(ASSAY_SCALE_TOKEN_HEAD);
  p.q_scale = has_eight_bits(q) ? d.one_of<int32_t>({ASSAY_SCALE_TENSOR, ASSAY_SCALE_HEAD})
                                : int32_t{ASSAY_SCALE_NONE};
}

// Cap, sinks, bias, windows, and what functions err by.
void draw_rules(FreeDraws& d, FreeKernel& f) {
  Problem& p = f.data.problem;
  assay_arithmetic& a = f.declared;
  if (d.chance(0.3)) a.exp_relative_error = std::exp2(d.uniform(-22, -9));
  if (d.chance(0.1)) a.exp_poly_every = 4, a.exp_poly_relative_error = std::exp2(d.uniform(-15, -12));
  if (d.chance(0.06)) a.rescale_inexact = 1;
  if (d.chance(0.3)) {
    p.softcap = static_cast<float>(std::pow(10, d.uniform(-1, 2)));
    a.tanh_relative_error = std::exp2(d.uniform(-24, -11));
    if (d.chance(0.3)) a.tanh_absolute_error = std::exp2(d.uniform(-24, -12));
  }
  if (d.chance(0.3)) {
    const double most = d.chance(0.3) ? 25 : 6;
    p.sinks = true;
    f.data.sinks = {static_cast<float>(d.uniform(-8, most)), static_cast<float>(d.uniform(-8, most))};
    a.sink_first = d.chance(0.5);
  }
  if (d.chance(0.15)) {
    p.alibi = d.chance(0.7) ? ASSAY_ALIBI_LINEAR : ASSAY_ALIBI_SQRT, f.data.slopes = {0.25f, 0.0625f};
    // The emulator gives a bias of that form to all keys, and none to sinks.
    if (p.alibi == ASSAY_ALIBI_LINEAR && !f.full && !p.sinks && d.chance(0.3))
      a.bias_form = ASSAY_BIAS_COLUMN;
  }
  if (!f.full && d.chance(0.3)) p.window_left = static_cast<int32_t>(d.below(f.keys + 1));
  if (!f.full && p.window_left < 0 && d.chance(0.15)) p.chunk = static_cast<int32_t>(1 + d.below(f.keys));
}

// Tiles, parts, what is stored between them.
void draw_tiles_and_parts(FreeDraws& d, assay_arithmetic& a) {
  a.tile_keys = d.one_of<int32_t>({1, 8, 16, 32, 48, 64, 128, 1 << 20});
  a.order_declared = d.chance(0.6);
  a.partial_format = a.partial_lse_format = ASSAY_FORMAT_NONE;
  a.tile_reverse = a.order_declared && d.chance(0.2);
  if (d.chance(0.3)) a.splits = static_cast<int32_t>(2 + d.below(6));
  if (a.splits > 1) {
    a.tile_keys = std::min(a.tile_keys, 128);
    a.split_interleaved = a.order_declared && d.chance(0.3);
    a.splits_vary = !a.order_declared && d.chance(0.15);
    a.partial_format = d.one_of<int32_t>({ASSAY_FP32, ASSAY_FP32, ASSAY_BF16, ASSAY_FP16});
    a.partial_lse_format = d.chance(0.2) ? ASSAY_BF16 : ASSAY_FP32;
    if (d.chance(0.3)) a.partial_roundings = static_cast<int32_t>(2 + d.below(3));
    if (d.chance(0.15)) a.merge_lse_format = ASSAY_FP32;
  }
  if (!a.order_declared && !a.row_sum_from_rounded_p && a.p_format != ASSAY_INT8 && a.rescale_lag_log2 == 0 &&
      d.chance(0.1))
    a.weights_lse_format = d.chance(0.6) ? ASSAY_FP32 : ASSAY_BF16, a.merge_lse_format = ASSAY_FORMAT_NONE,
    a.sink_first = 0;
}

// P that is rounded more than once, before the last time against maxima that turn out too small by any
// factor, close to a power of two most of all; and weights that lie together below one key.
void draw_repeats(FreeDraws& d, FreeKernel& f, uint64_t seed) {
  assay_arithmetic& a = f.declared;
  if (!d.chance(0.3) || a.p_format == ASSAY_FP32 || a.p_format == ASSAY_INT8) return;
  a.p_roundings = static_cast<int32_t>(2 + d.below(2));
  if (a.rescale_lag_log2 == 0)
    a.p_format =
        d.one_of<int32_t>({a.p_format, a.p_format, a.p_format, ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ});
  // Rounded first they may be twice as large, and be followed by smaller ones.
  if (a.p_offset_log2 > 0) a.p_offset_log2 = d.chance(0.5) ? 0 : a.p_offset_log2 - 2;
  const double step = 2 * format_info(a.p_format).unit_roundoff;
  f.habits.first_above = static_cast<float>(d.chance(0.5)   ? d.uniform(1, 2)
                                            : d.chance(0.5) ? 1 + d.uniform(0, step)
                                                            : 2 - d.uniform(0, step));
  if (d.chance(0.5))
    for (double& v : f.data.v) v = 1 + 0.1 * v;
  if (!d.chance(0.4)) return;
  const double below = d.log_uniform(0.1, 20), spread = std::exp2(d.uniform(-8, 1));
  DenseCase& c = f.data;
  const auto dims = size_t{1} * f.dims;
  for (size_t i = 0; i < c.q.size(); ++i) c.q[i] = 1;
  c.problem.softmax_scale = 1;
  for (int32_t j = 0; j < f.keys; ++j)
    for (size_t t = 0; t < dims; ++t)
      c.k[j * dims + t] = t > 0 ? 0 : j == 0 ? 0 : -below - spread * uniform(seed, 71, j);
}

// Q that is rounded again, known to the reference or not; errors of the logarithm; a row sum by the unit of
// the second product; parts of so many keys.
void draw_rest(FreeDraws& d, FreeKernel& f) {
  const Problem& p = f.data.problem;
  assay_arithmetic& a = f.declared;
  if (p.q_scale == ASSAY_SCALE_NONE && p.k_scale != ASSAY_SCALE_CHANNEL && d.chance(0.2)) {
    const int32_t format = d.one_of<int32_t>({ASSAY_BF16, ASSAY_FP16, ASSAY_FP16});
    double largest = 0;  // as numbers that leave the format are nobody's claim
    for (const double q : f.data.q) largest = std::max(largest, std::fabs(q));
    const bool fits = largest * std::fabs(p.softmax_scale) * M_LOG2E < 0.99 * format_info(format).max_finite;
    const double scale = fits ? std::fabs(p.softmax_scale) : 1;
    if (d.chance(0.5)) {
      a.q_replayed_format = format;
      a.q_replayed_factor = d.chance(0.5) ? 1 : d.chance(0.5) ? scale : scale * M_LOG2E;
    } else {
      // The emulator multiplies by what the absolute error says.
      a.q_rounding = format_info(format).unit_roundoff + kUnit;
      a.q_rounding_absolute = format_info(format).half_subnormal / scale;
    }
  }
  if (d.chance(0.2)) a.log_absolute_error = std::exp2(d.uniform(-24, -10));
  if (d.chance(0.2)) a.log_relative_error = std::exp2(d.uniform(-24, -10));
  if (a.pv.kind == ASSAY_ACC_BLOCK && a.weights_lse_format == ASSAY_FORMAT_NONE && d.chance(0.1))
    a.row_sum = a.pv, a.row_sum_from_rounded_p = 1;
  if (a.splits > 1 && !a.split_interleaved && !a.splits_vary && d.chance(0.3)) {
    a.split_keys = a.tile_keys * static_cast<int32_t>(1 + d.below(4));
    a.splits = std::max(1, (f.keys + a.split_keys - 1) / a.split_keys);
  }
}

// What a declaration leaves to a kernel.
void draw_habits(FreeDraws& d, FreeKernel& f) {
  const assay_arithmetic& a = f.declared;
  const double most = std::max(0.0, a.exp_relative_error - kUnit);
  const bool inexact = a.rescale_inexact != 0;
  const int64_t side = a.exp_poly_every != 0 ? 0 : d.below(5);
  if (side == 1) f.habits.exp_error = [=](float x) { return cubic_error(x, most); };
  if (side == 2) f.habits.exp_error = [=](float x) { return x == 0 && !inexact ? 0 : most; };
  if (side == 3) f.habits.exp_error = [=](float x) { return x == 0 && !inexact ? 0 : -most; };
  f.habits.base2 = d.chance(0.2), f.habits.fused = !f.habits.base2 && d.chance(0.2);
  if (d.chance(0.2)) f.habits.log_side = d.chance(0.5) ? 1 : -1;
  if (a.row_sum.block == 0 && d.chance(0.2)) f.habits.row_sum_lanes = d.one_of<size_t>({1, 2, 16});
  f.habits.sink_weighs_first = a.sink_first != 0 && d.chance(0.3);
  if (d.chance(0.3))
    for (assay_accumulator* unit : {&f.kernel.qk, &f.kernel.pv})
      if (unit->kind == ASSAY_ACC_BLOCK && unit->mantissa_bits < 22) {
        const auto more = static_cast<int32_t>(d.below(3));
        unit->fraction_bits += more, unit->mantissa_bits += more;
      }
}

// By rising or falling score, or shuffled, where nothing of a key depends on its place.
void take_keys_otherwise(FreeDraws& d, FreeKernel& f, uint64_t seed) {
  const assay_arithmetic& a = f.declared;
  const Problem& p = f.data.problem;
  const bool any_order = f.full && !a.order_declared && (a.splits > 1 || a.tile_keys > f.keys);
  const bool places = p.alibi != ASSAY_ALIBI_NONE || p.k_scale == ASSAY_SCALE_TOKEN_HEAD ||
                      p.v_scale == ASSAY_SCALE_TOKEN_HEAD;
  if (!any_order || places || !d.chance(0.7)) return;
  const auto dims = size_t{1} * f.dims;
  std::vector<int64_t> order(static_cast<size_t>(f.keys));
  std::iota(order.begin(), order.end(), 0);
  std::vector<double> by(order.size());
  const int64_t how = d.below(3);
  for (size_t j = 0; j < order.size(); ++j) {
    by[j] = how == 2 ? uniform(seed, 88, static_cast<int64_t>(j)) : 0;
    for (size_t t = 0; how < 2 && t < dims; ++t)
      by[j] += (how == 0 ? 1 : -1) * f.data.q[t] * f.data.k[j * dims + t];
  }
  std::sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return by[i] < by[j]; });
  for (size_t j = 0; j < order.size(); ++j)
    for (size_t t = 0; t < dims; ++t)
      f.taken.k[j * dims + t] = f.data.k[order[j] * dims + t],
                           f.taken.v[j * dims + t] = f.data.v[order[j] * dims + t];
  f.taken.store();
}

// fp32 sums of products take any order.
void take_dimensions_otherwise(FreeDraws& d, FreeKernel& f) {
  const bool by_dimension = f.data.problem.k_scale == ASSAY_SCALE_CHANNEL;
  if (f.unit != Unit::kLanes || by_dimension || !d.chance(0.3)) return;
  for (std::vector<double>* side : {&f.taken.q, &f.taken.k})
    for (size_t at = 0; at < side->size(); at += static_cast<size_t>(f.dims))
      std::reverse(side->begin() + static_cast<int64_t>(at),
                   side->begin() + static_cast<int64_t>(at) + f.dims);
  f.taken.store();
}

FreeKernel draw_free(uint64_t seed) {
  FreeDraws d(seed, kStreamFree);
  FreeKernel f;
  f.dims = static_cast<int32_t>(d.log_uniform(1, d.chance(0.2) ? 300 : 96));
  f.keys = static_cast<int32_t>(d.log_uniform(1, d.chance(0.15) ? 4000 : 600));
  f.rows = static_cast<int32_t>(1 + d.below(std::min(3, f.keys)));
  f.data = make_case(static_cast<Family>(d.below(static_cast<int64_t>(Family::kCount))), f.rows, f.keys,
                     f.dims, seed);
  f.full = d.chance(0.6);
  if (f.full) f.data.problem.mask = ASSAY_MASK_FULL;
  f.data.problem.softmax_scale =
      static_cast<float>((d.chance(0.4) ? std::pow(10, d.uniform(-5, 2)) : 1) / std::sqrt(f.dims));
  draw_structure(d, f, seed);
  f.declared = default_arithmetic();
  f.declared.exp_relative_error = 0x1p-22;
  draw_units(d, f);
  draw_rules(d, f);
  draw_tiles_and_parts(d, f.declared);
  FreeDraws repeats(seed, kStreamRepeats);
  draw_repeats(repeats, f, seed);
  FreeDraws rest(seed, kStreamRest);
  draw_rest(rest, f);
  const int32_t k = f.data.problem.k_format;
  f.data = f.data.rebuilt(k == ASSAY_INT8 ? 127 : format_info(k).max_finite);
  f.kernel = f.declared, f.taken = f.data;
  draw_habits(d, f);
  take_keys_otherwise(d, f, seed);
  take_dimensions_otherwise(d, f);
  return f;
}

TEST(FreeDeclarations, KernelsThatDoWhatTheySayLeaveNoTier) {
  const bool whole = std::getenv("ASSAY_LONG_TESTS") != nullptr;
  const char* from = std::getenv("ASSAY_DRAW_SEED");
  const uint64_t first = from != nullptr ? std::strtoull(from, nullptr, 10) : 0;
  TierRatios worst;
  int64_t looked = 0;
  std::vector<uint64_t> seeds(whole ? 20'000 : 400);
  std::iota(seeds.begin(), seeds.end(), first);
  seeds.insert(seeds.end(), std::begin(kOnceOutside), std::end(kOnceOutside));
  for (const uint64_t seed : seeds) {
    const FreeKernel f = draw_free(seed);
    const DenseCase& c = f.data;
    const BoundedAttention matrix = bounded_attention(c.problem, c.host(), c.rows(), f.declared);
    const testkit::Emulation e =
        testkit::Emulator(f.taken, f.kernel, testkit::Mutant::kNone, seed, f.habits).run();
    const auto finite = [](double x) { return std::isfinite(x); };
    // What nothing is claimed of: chains that are too long, sums beyond fp32.
    if (matrix.growth > 1 || !(matrix.largest < 3e38) || !std::all_of(e.o.begin(), e.o.end(), finite))
      continue;
    ++looked;
    TierRatios r = tier_ratios(matrix, e);
    r.add(tier_ratios(bounded_attention_elementwise(c.problem, c.host(), c.rows(), f.declared), e));
    worst.add(r);
    EXPECT_LE(r.largest(), 1) << fmt::format(
        "draw {}: {} keys, d {}, formats {} {}, unit {} of {}, P {} ({} times), tile {}, {} parts, declared "
        "{}; D "
        "{:.3f} "
        "P {:.3f} R {:.3f} LSE {:.3f} LSE P {:.3f}",
        seed, f.keys, f.dims, c.problem.q_format, c.problem.k_format, f.declared.qk.kind, f.declared.qk.block,
        f.declared.p_format, f.declared.p_roundings, f.declared.tile_keys, f.declared.splits,
        f.declared.order_declared, r.d, r.p, r.r, r.lse, r.lse_p);
  }
  fmt::print("  {} kernels, largest error / bound: D {:.2f} P {:.2f} R {:.2f} LSE {:.2f} LSE P {:.2f}\n",
             looked, worst.d, worst.p, worst.r, worst.lse, worst.lse_p);
  EXPECT_GT(looked, whole ? 10'000 : 200);
  EXPECT_GT(std::min({worst.d, worst.p, worst.r}), 0.3) << "bounds so wide hold for anything";
}

}  // namespace
}  // namespace assay::attacks
