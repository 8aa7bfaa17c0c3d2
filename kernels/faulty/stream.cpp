// SPDX-License-Identifier: Apache-2.0
// Tile by tile: products, scale, cap, bias, mask, running maximum, exponentials, rounding of P, values. Each
// step names the arithmetic it follows; the switches stand beside the step they spoil.
#include "kernels/faulty/stream.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/faulty/cache.hpp"
#include "kernels/faulty/exponential.hpp"
#include "kernels/faulty/lanes.hpp"
#include "kernels/faulty/mask.hpp"
#include "kernels/faulty/rounding.hpp"
#include "kernels/faulty/sink.hpp"

namespace assay_faulty {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr float kFirstAbove = 1.4f;    // P of the first of several roundings, over the last
constexpr float kLargestExp = 88.72f;  // exp of more overflows fp32
constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

double log2e_of(const Switches& sw) { return sw.log2e != 0 ? sw.log2e : kLog2E; }

int32_t p_format_of(const Call& c) {
  return c.sw.p_format != ASSAY_FORMAT_NONE ? c.sw.p_format : c.how.p_format;
}
float p_offset_of(const Call& c) {
  const bool over = c.sw.p_saturated && c.how.p_format == ASSAY_FP8_E4M3;
  return c.how.p_offset + (over ? 4.0f : 0.0f);
}

// An approximate reciprocal errs by half an ulp more than a division, one way.
float reciprocal(const Call& c, float x) {
  if (c.arithmetic.reciprocal_error == 0) return 1.0f / x;
  return static_cast<float>((1.0 + c.arithmetic.reciprocal_error) / x);
}

// ---- scores

// Sums of 16 products of codes, each cut to what 16 bits hold, join exactly.
void add_saturated_sums(const Call& c, const float* q, const int16_t* q_exponent, int first, int columns,
                        Scratch& s) {
  constexpr float kLow = std::numeric_limits<int16_t>::min(), kHigh = std::numeric_limits<int16_t>::max();
  const Tile& t = s.tile;
  const int dims = c.p().head_dim_qk;
  std::array<float, kMaxTile> sum{};
  for (int d = 0; d < dims; d += 16) {
    const int64_t row = int64_t{d} * t.k_stride;
    std::fill_n(sum.begin() + first, columns, 0.0f);
    accumulate(c.how.qk, q + d, q_exponent + d, {t.k.data() + row, t.k_exponent.data() + row, t.k_stride},
               std::min(16, dims - d), first, columns, sum.data());
    for (int w = first; w < first + columns; ++w) s.score[w] += std::clamp(sum[w], kLow, kHigh);
  }
}

void dot_products(const Call& c, const float* q, const int16_t* q_exponent, int first, int columns,
                  Scratch& s) {
  std::fill_n(s.score.begin() + first, columns, 0.0f);
  const Tile& t = s.tile;
  const int dims = c.p().head_dim_qk;
  if (c.sw.qk_sums_saturated && c.how.qk.kind == ASSAY_ACC_INT32) {
    add_saturated_sums(c, q, q_exponent, first, columns, s);
  } else if (c.sw.qk_accumulator_format == ASSAY_FORMAT_NONE) {
    accumulate(c.how.qk, q, q_exponent, {t.k.data(), t.k_exponent.data(), t.k_stride}, dims, first, columns,
               s.score.data());
  } else {
    for (int d = 0; d < dims; d += 16) {
      const int64_t row = int64_t{d} * t.k_stride;
      accumulate(c.how.qk, q + d, q_exponent + d, {t.k.data() + row, t.k_exponent.data() + row, t.k_stride},
                 std::min(16, dims - d), first, columns, s.score.data());
      round_all(s.score.data() + first, columns, c.sw.qk_accumulator_format);
    }
  }
  round_all(s.score.data() + first, columns, c.sw.scores_format);
}

// What many kernels compute for themselves: 2^-8/n, 2^-16/n, ... of n heads, a power of two, and every other
// one of twice as many for those beyond.
float textbook_slope(int32_t head, int32_t heads) {
  int32_t power = 1;
  while (2 * power <= heads) power *= 2;
  const double exponent =
      head < power ? 8.0 * (head + 1) / power : 8.0 * (2 * (head - power) + 1) / (2 * power);
  return static_cast<float>(std::exp2(-exponent));
}

void apply_alibi(const Call& c, int request, const Stream& stream, int lo, int hi, Scratch& s) {
  const assay_problem& p = c.p();
  const Switches& sw = c.sw;
  if (p.alibi == ASSAY_ALIBI_NONE || sw.alibi == Alibi::kIgnored) return;
  const int32_t head =
      sw.alibi == Alibi::kOtherHead ? (stream.head + sw.alibi_head) % p.heads_q : stream.head;
  const int32_t shift = sw.alibi_shift_hidden ? 1 : sw.alibi_shift;
  float slope = c.ops.alibi_slopes[head * c.ops.alibi_stride];
  if (sw.alibi == Alibi::kSignFlipped) slope = -slope;
  if (sw.alibi == Alibi::kRecomputed) slope = textbook_slope(head, p.heads_q);
  if (sw.alibi_format != ASSAY_FORMAT_NONE) slope = static_cast<float>(rounded(slope, sw.alibi_format));
  const bool root = p.alibi == ASSAY_ALIBI_SQRT && sw.alibi != Alibi::kSqrtIgnored;
  if (c.how.bias_by_column) {
    for (int w = lo; w < hi; ++w)
      s.score[w] = std::fmaf(slope, static_cast<float>(s.tile.first + w), s.score[w]);
    return;
  }
  const int32_t position = c.kv_len[request] - p.q_len[request] + stream.row;
  for (int w = lo; w < hi; ++w) {
    const int32_t distance = position - (s.tile.first + w) + shift;
    const float d = distance > 0 ? static_cast<float>(distance) : 0.0f;
    s.score[w] = std::fmaf(-slope, root ? std::sqrt(d) : d, s.score[w]);
  }
}

void finish_scores(const Call& c, int request, const Stream& stream, int lo, int hi, Scratch& s) {
  const assay_problem& p = c.p();
  const bool by_key = scores_scaled_by_key(c), natural = natural_scores(c);
  float* x = s.score.data();
  const bool cap = p.softcap > 0 && c.sw.softcap != Softcap::kIgnored;
  if (cap && c.sw.softcap == Softcap::kBeforeScale) {
    for (int w = lo; w < hi; ++w) x[w] /= p.softcap;
    tanh_all(x, lo, hi, c.arithmetic.tanh_error);
    for (int w = lo; w < hi; ++w)
      x[w] = x[w] * p.softcap * (stream.scale * (by_key ? s.tile.scale[w] : 1.0f));
  } else if (cap) {
    const float inverse = 1.0f / p.softcap;
    const float ratio = stream.scale * inverse;
    for (int w = lo; w < hi; ++w) x[w] *= by_key ? ratio * s.tile.scale[w] : ratio;
    if (c.sw.softcap == Softcap::kRatio) std::copy(x + lo, x + hi, s.argument.begin() + lo);
    tanh_all(x, lo, hi, c.arithmetic.tanh_error, c.arithmetic.tanh_absolute);
    for (int w = lo; w < hi; ++w) x[w] *= p.softcap;
    if (c.sw.softcap == Softcap::kRatio)  // infinity over infinity
      for (int w = lo; w < hi; ++w)
        if (std::fabs(s.argument[w]) > kLargestExp) x[w] = std::numeric_limits<float>::quiet_NaN();
  } else if (natural) {
    for (int w = lo; w < hi; ++w) x[w] *= by_key ? stream.scale * s.tile.scale[w] : stream.scale;
  } else if (by_key) {
    for (int w = lo; w < hi; ++w) x[w] *= s.tile.scale[w];
  }
  apply_alibi(c, request, stream, lo, hi, s);
}

// Columns the row does not see hold -infinity (or a fault's sentinel).
void apply_mask(const Call& c, int request, const Stream& stream, int lo, int hi, Scratch& s) {
  const int32_t first = s.tile.first;
  float hidden = c.sw.sentinel != 0 ? c.sw.sentinel : kMinusInf;
  if (c.sw.softcap == Softcap::kAfterMask && c.p().softcap > 0) hidden = -c.p().softcap;
  for (int w = lo; w < hi; ++w)
    if (first + w < stream.seen.begin || first + w >= stream.seen.end) s.score[w] = hidden;
  if (asks_key_by_key(c)) {
    const int drafts = std::max(lo, c.kv_len[request] - c.p().q_len[request] - first);
    int32_t row = stream.row;
    if (c.sw.tree_row_packed) row = (row * c.ops.group + stream.head % c.ops.group) % c.p().q_len[request];
    for (int w = drafts; w < hi; ++w)
      if (!key_visible(c, request, row, first + w)) s.score[w] = hidden;
  }
  if (stream.dropped >= first + lo && stream.dropped < first + hi)
    s.score[stream.dropped - first] = kMinusInf;
}

// ---- softmax

bool skips_rescale(Pick pick, int32_t update, const Stream& stream) {
  switch (pick) {
    case Pick::kNone:
      return false;
    case Pick::kFirst:
      return update == 1;
    case Pick::kSecond:
      return update == 2;
    default:
      return mix(static_cast<uint32_t>(update), static_cast<uint32_t>(stream.row)) % 2 == 0;
  }
}

void scale_all(float* values, int count, float factor) {
  for (int i = 0; i < count; ++i) values[i] *= factor;
}

// What a maximum that stays does to what was summed, of a kernel whose exponential is off at 0.
void stand(const Call& c, Stream& stream, float* o, int dims) {
  if (!c.arithmetic.rescale_inexact || stream.maximum == kMinusInf) return;
  const float one = exp2_one(0.0f, c.arithmetic.exponential());
  scale_all(stream.sum, 16, one);
  scale_all(o, c.how.promote_every > 1 ? 2 * dims : dims, one);
}

// Advances the running maximum and brings what was summed before to the new one.
void advance_maximum(const Call& c, Stream& stream, float tile_maximum, float factor, float* o, int dims) {
  const float before = stream.maximum;
  float now = std::max(before, tile_maximum);
  if (before == kMinusInf) {
    stream.maximum = now;
    return;
  }
  if (!(now > before)) {
    if (now != now || tile_maximum != tile_maximum) stream.maximum = tile_maximum;
    return stand(c, stream, o, dims);
  }
  const float step = (before - now) * factor;
  if (c.arithmetic.lag_log2 > 0 && step >= -c.arithmetic.lag_log2) return stand(c, stream, o, dims);
  stream.maximum = now;
  ++stream.updates;
  const float rescale = exp2_one(step, c.arithmetic.exponential());
  if (!c.sw.l_never_rescaled && !skips_rescale(c.sw.l_not_rescaled, stream.updates, stream))
    scale_all(stream.sum, 16, rescale);
  if (!c.sw.o_never_rescaled && !skips_rescale(c.sw.o_not_rescaled, stream.updates, stream))
    scale_all(o, c.how.promote_every > 1 ? 2 * dims : dims, rescale);
}

// P in the format of the second product; returns what one unit of it is worth.
float round_weights(const Call& c, int lo, int hi, float largest, float* p) {
  const int32_t format = p_format_of(c);
  if (format == ASSAY_INT8) {
    const bool by_tile = c.how.p_tile_max && largest > 0;
    // A power of two before the division: 127 over a tiny P is beyond fp32, and none of P's bits change.
    const float up = by_tile && largest < 0x1p-60f ? 0x1p64f : 1.0f;
    const float codes = by_tile ? 127.0f / (largest * up) : 127.0f;
    const bool truncate = c.arithmetic.p_truncated || c.sw.p_truncated;
    for (int w = lo; w < hi; ++w) {
      const float code = truncate ? __builtin_truncf(p[w] * up * codes) : __builtin_rintf(p[w] * up * codes);
      p[w] = code > 127.0f ? 127.0f : code;
    }
    return c.how.p_tile_max ? largest * (1.0f / 127.0f) : 1.0f / 127.0f;
  }
  const bool truncate = c.arithmetic.p_truncated || c.sw.p_truncated;
  // Several roundings: against maxima that turn out too small by these factors, the last of them right.
  float above = 1.0f;
  for (int n = 0; n < c.how.p_roundings; ++n) {
    const bool last = n + 1 == c.how.p_roundings;
    const float next = last ? 1.0f : kFirstAbove * (1.0f - static_cast<float>(n) / 8);
    if (next != above) scale_all(p + lo, hi - lo, next / above);
    round_all(p + lo, hi - lo, format, truncate);
    if (c.sw.p_bits > 0) round_bits(p + lo, hi - lo, c.sw.p_bits);
    above = next;
  }
  return 1.0f;
}

void promote(float* o, int dims) {
  for (int d = 0; d < dims; ++d) o[d] += o[dims + d], o[dims + d] = 0.0f;
}

void add_values(const Call& c, const Stream& stream, int lo, int hi, float unit, float* o, Scratch& s) {
  const int dims = padded(c.p().head_dim_v);
  const Tile& t = s.tile;
  const int32_t format = p_format_of(c);
  // Products are dealt to lanes or blocks from the beginning of the tile.
  const int step = std::max(1, c.how.pv.block), from = lo / step * step;
  std::fill(s.weight.begin() + from, s.weight.begin() + lo, 0.0f);
  exponents_of(s.weight.data() + from, hi - from,
               format == ASSAY_INT8 ? -126 : format_of(format).smallest_exponent,
               s.weight_exponent.data() + from);
  const int64_t row = int64_t{from} * t.v_stride;
  const Matrix v{t.v.data() + row, t.v_exponent.data() + row, t.v_stride};
  const auto sum_to = [&](float* to) {
    if (c.sw.o_bits == 0) {
      accumulate(c.how.pv, s.weight.data() + from, s.weight_exponent.data() + from, v, hi - from, 0, dims,
                 to);
      return;
    }
    for (int k = 0; k < hi - from; k += step) {
      const int64_t at = int64_t{k} * t.v_stride;
      accumulate(c.how.pv, s.weight.data() + from + k, s.weight_exponent.data() + from + k,
                 {v.value + at, v.exponent + at, v.stride}, std::min(step, hi - from - k), 0, dims, to);
      round_bits(to, dims, c.sw.o_bits);
    }
  };
  const bool apart = c.how.promote_pv || format == ASSAY_INT8;
  if (!apart) {
    sum_to(o);
  } else if (c.how.promote_every > 1) {
    sum_to(o + dims);
    if (stream.tiles % c.how.promote_every == 0) promote(o, dims);
  } else {
    std::fill(s.product.begin(), s.product.end(), 0.0f);
    sum_to(s.product.data());
    if (format == ASSAY_INT8 && c.how.p_tile_max)
      for (int d = 0; d < dims; ++d) o[d] = std::fmaf(s.product[d], unit, o[d]);
    else  // codes of a fixed scale: 1/127 joins at the end
      for (int d = 0; d < dims; ++d) o[d] += s.product[d];
  }
  round_all(o, dims, c.sw.o_accumulator_format);
}

// Row sum as a column of ones in the second product.
void add_weights(const Call& c, int lo, int hi, Stream& stream, Scratch& s) {
  static const std::vector<float> ones(size_t(kMaxTile) * kColumns, 1.0f);
  static const std::vector<int16_t> exponents(ones.size(), 0);
  const int step = std::max(1, c.how.row_sum.block), from = lo / step * step;
  std::fill(s.weight.begin() + from, s.weight.begin() + lo, 0.0f);
  exponents_of(s.weight.data() + from, hi - from, format_of(p_format_of(c)).smallest_exponent,
               s.weight_exponent.data() + from);
  float sums[kColumns];
  std::fill_n(sums, kColumns, stream.sum[0]);
  accumulate(c.how.row_sum, s.weight.data() + from, s.weight_exponent.data() + from,
             {ones.data(), exponents.data(), kColumns}, hi - from, 0, kColumns, sums);
  stream.sum[0] = sums[0];
}

// Row sums and scales of V and of P's codes, all that is outside of the second product.
void scale_result(const Call& c, int request, int32_t kv_head, float inverse, float* o) {
  const int dims = c.p().head_dim_v;
  if (p_format_of(c) == ASSAY_INT8 && !c.how.p_tile_max) inverse *= 1.0f / 127.0f;
  if (results_scaled_by_channel(c)) {
    for (int d = 0; d < dims; ++d) o[d] = o[d] * inverse * result_scale(c, request, kv_head, d);
  } else {
    const float scale = result_scale(c, request, kv_head, 0);
    for (int d = 0; d < dims; ++d) o[d] = o[d] * inverse * scale;
  }
}

}  // namespace

bool natural_scores(const Call& c) {
  const assay_problem& p = c.p();
  return p.softcap > 0 || p.alibi != ASSAY_ALIBI_NONE || p.has_sinks;
}

float log2_factor(const Call& c, const Stream& stream) {
  const double log2e = log2e_of(c.sw);
  return static_cast<float>(natural_scores(c) ? log2e : stream.scale * log2e);
}

float natural_factor(const Call& c, const Stream& stream) {
  return natural_scores(c) ? 1.0f : static_cast<float>(log2_factor(c, stream) * kLn2);
}

Scratch::Scratch(const Call& c) {
  const int keys = padded(c.arithmetic.tile_keys), qk = c.p().head_dim_qk, v = padded(c.p().head_dim_v);
  tile.k_stride = keys, tile.v_stride = v;
  tile.k.resize(size_t(qk) * keys), tile.k_exponent.resize(size_t(qk) * keys, kZeroExponent);
  tile.v.resize(size_t(keys) * v), tile.v_exponent.resize(size_t(keys) * v, kZeroExponent);
  tile.scale.resize(keys), tile.v_scale.resize(keys);
  row.resize(size_t(keys) * qk);
  score.resize(keys), argument.resize(keys), weight.resize(keys), product.resize(v);
  weight_exponent.resize(keys);
}

bool takes_masked_lanes(const Call& c) {
  return c.sw.sentinel != 0 || (c.sw.softcap == Softcap::kAfterMask && c.p().softcap > 0);
}

void load_tile(const Call& c, int request, int32_t kv_head, int32_t tile, KeyInterval wanted, Scratch& s) {
  const assay_problem& p = c.p();
  Tile& t = s.tile;
  const int keys = c.arithmetic.tile_keys, qk = p.head_dim_qk;
  t.first = tile * keys;
  t.loaded = std::max(0, wanted.begin - t.first);
  t.end = std::min(keys, wanted.end - t.first);
  const bool by_key = scores_scaled_by_key(c);
  for (int w = t.loaded; w < t.end; ++w) {
    load_k(c, request, t.first + w, kv_head, s.row.data() + int64_t{w} * qk);
    load_v(c, request, t.first + w, kv_head, t.v.data() + int64_t{w} * t.v_stride);
    if (by_key) t.scale[w] = key_scale(c, request, t.first + w, kv_head);
    if (c.how.v_scale_in_p) t.v_scale[w] = value_scale(c, request, t.first + w, kv_head);
  }
  if (c.sw.v_tile_late && c.state.calls % 2 == 1 && t.end - t.loaded > 1) {
    float* v = t.v.data() + int64_t{t.loaded} * t.v_stride;
    std::copy_n(v + t.v_stride, p.head_dim_v, v);
  }
  for (int d = 0; d < qk; ++d) {
    float* to = t.k.data() + int64_t{d} * t.k_stride;
    for (int w = t.loaded; w < t.end; ++w) to[w] = s.row[int64_t{w} * qk + d];
  }
  const auto smallest = [&](int32_t format, bool dequantised) {
    return format_of(dequantised ? c.how.dequant_format : format).smallest_exponent;
  };
  if (c.how.qk.kind == ASSAY_ACC_BLOCK) {
    const int from = t.loaded / kColumns * kColumns, columns = padded(t.end) - from;
    for (int d = 0; d < qk; ++d) {
      const int64_t at = int64_t{d} * t.k_stride + from;
      exponents_of(t.k.data() + at, columns, smallest(p.k_format, c.how.dequant_k), t.k_exponent.data() + at);
    }
  }
  if (c.how.pv.kind == ASSAY_ACC_BLOCK) {
    const int64_t at = int64_t{t.loaded} * t.v_stride;
    exponents_of(t.v.data() + at, (t.end - t.loaded) * t.v_stride, smallest(p.v_format, c.how.dequant_v),
                 t.v_exponent.data() + at);
  }
}

void start_stream(const Call& c, Stream& stream, float* o) {
  std::fill_n(stream.sum, 16, 0.0f);
  std::fill_n(o, 2 * padded(c.p().head_dim_v), 0.0f);
  stream.updates = stream.tiles = 0;
  stream.maximum = c.sw.sentinel != 0 ? c.sw.sentinel : kMinusInf;
  if (const float sink = early_sink(c, stream.row, stream.head); sink != kMinusInf) {
    stream.maximum = sink + stream.shift;
    stream.sum[0] = exp2_one(p_offset_of(c));
  }
  if (c.how.sink_tops_parts)
    if (const float sink = sink_of(c, stream.row, stream.head); sink != kMinusInf)
      stream.maximum = sink + stream.shift;
}

void visit_tile(const Call& c, int request, Stream& stream, const float* q, const int16_t* q_exponent,
                float* o, Scratch& s) {
  const Tile& t = s.tile;
  const bool masked_too = takes_masked_lanes(c);
  const int lo = masked_too ? t.loaded : std::max(t.loaded, stream.seen.begin - t.first);
  const int hi = masked_too ? t.end : std::min(t.end, stream.seen.end - t.first);
  if (lo >= hi && stream.weighed) return;
  if (lo >= hi) return stand(c, stream, o, padded(c.p().head_dim_v));
  const int from = lo / kColumns * kColumns;
  dot_products(c, q, q_exponent, from, padded(hi) - from, s);
  finish_scores(c, request, stream, lo, hi, s);
  apply_mask(c, request, stream, lo, hi, s);

  float tile_maximum = kMinusInf;
  int maximum_end = hi;
  if (c.sw.max_of_half_tile && c.how.p_format == ASSAY_INT8 && lo < c.arithmetic.tile_keys / 2)
    maximum_end = std::min(hi, c.arithmetic.tile_keys / 2);
  for (int w = lo; w < maximum_end; ++w) tile_maximum = s.score[w] > tile_maximum ? s.score[w] : tile_maximum;
  float any_nan = 0;
  for (int w = lo; w < hi; ++w) any_nan += s.score[w] != s.score[w] ? 1.0f : 0.0f;
  if (any_nan > 0) tile_maximum = std::numeric_limits<float>::quiet_NaN();
  if (tile_maximum == kMinusInf) return stand(c, stream, o, padded(c.p().head_dim_v));
  if (c.sw.max_of_first_tile && stream.tiles > 0) tile_maximum = std::min(tile_maximum, stream.maximum);
  ++stream.tiles;
  const float factor = log2_factor(c, stream);
  if (!stream.weighed) advance_maximum(c, stream, tile_maximum, factor, o, padded(c.p().head_dim_v));

  const float against = stream.weighed ? stream.lse * static_cast<float>(kLog2E) : stream.maximum * factor;
  const float bias = p_offset_of(c) - against;
  for (int w = lo; w < hi; ++w) s.argument[w] = std::fmaf(s.score[w], factor, bias);
  float* p = s.weight.data();
  Exponential exponential = c.arithmetic.exponential();
  if (c.sw.exp_error != 0) exponential.error = c.sw.exp_error, exponential.form = ErrorForm::kTable;
  exp2_all(s.argument.data(), lo, hi, exponential, p);
  if (const int w = stream.doubled - t.first; w >= lo && w < hi) p[w] *= 2;
  if (const int w = stream.misweighed - t.first; w >= lo && w < hi) p[w] *= 1 + c.sw.key_weight_error;

  const bool from_rounded = c.arithmetic.row_sum_from_rounded_p != c.sw.row_sum_flipped;
  const int skipped = stream.unsummed - t.first;
  const auto add_to_sums = [&](float unit) {
    const float kept = skipped >= lo && skipped < hi ? p[skipped] : 0.0f;
    if (kept != 0.0f) p[skipped] = 0.0f;
    const int lanes = c.arithmetic.sum_lanes;
    if (lanes != 16) {
      for (int w = lo; w < hi; ++w) stream.sum[w % lanes] += p[w] * unit;
      if (kept != 0.0f) p[skipped] = kept;
      return;
    }
    int w = lo;
    for (; w < hi && w % 16 != 0; ++w) stream.sum[w % 16] += p[w] * unit;
    for (; w + 16 <= hi; w += 16)
      for (int i = 0; i < 16; ++i) stream.sum[i] += p[w + i] * unit;
    for (; w < hi; ++w) stream.sum[w % 16] += p[w] * unit;
    if (kept != 0.0f) p[skipped] = kept;
  };
  float largest = 0;
  for (int w = lo; w < hi; ++w) largest = p[w] > largest ? p[w] : largest;
  const bool by_unit = c.how.row_sum.kind == ASSAY_ACC_BLOCK;
  if (!from_rounded && !by_unit) add_to_sums(1.0f);
  if (c.how.v_scale_in_p)
    for (int w = lo; w < hi; ++w) p[w] *= t.v_scale[w];
  const float unit = round_weights(c, lo, hi, largest, p);
  if (by_unit)
    add_weights(c, lo, hi, stream, s);
  else if (from_rounded)
    add_to_sums(unit);
  add_values(c, stream, lo, hi, unit, o, s);
}

void finish_weighed(const Call& c, int request, int32_t kv_head, float* o) {
  if (c.how.promote_every > 1) promote(o, padded(c.p().head_dim_v));
  scale_result(c, request, kv_head, std::exp2(-p_offset_of(c)), o);
}

float finish_stream(const Call& c, int request, int32_t kv_head, const Stream& stream, bool last_part,
                    float* o) {
  float sums[16];
  std::copy_n(stream.sum, 16, sums);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  float sum = sums[0], maximum = stream.maximum;
  const int dims = c.p().head_dim_v;
  if (c.how.promote_every > 1) promote(o, padded(dims));
  if (maximum == kMinusInf || sum == 0) return kMinusInf;
  if (c.sw.l_factor != 0) sum *= c.sw.l_factor;

  const float natural = natural_factor(c, stream);
  const float offset = p_offset_of(c);
  if (const float sink = late_sink(c, stream.row, stream.head, last_part) + stream.shift; sink != kMinusInf) {
    if (c.sw.sink == Sink::kRaw) {
      sum += sink * exp2_one(offset);
    } else if (const float shift =
                   (maximum - sink) * static_cast<float>(kLog2E);  // scores are natural where sinks are
               shift >= 0) {
      sum += exp2_one(offset - shift);
    } else {
      const float rescale = exp2_one(shift);
      scale_all(o, dims, rescale);
      sum = sum * rescale + exp2_one(offset);
      maximum = sink;
    }
  }
  scale_result(c, request, kv_head, c.sw.not_normalised ? 1.0f : reciprocal(c, sum), o);
  const double log_sum =
      log_of(sum, c.arithmetic.log_absolute, c.arithmetic.log_relative) - static_cast<double>(offset) * kLn2;
  if (c.sw.lse == Lse::kIgnoresMax) return static_cast<float>(log_sum);
  if (c.sw.lse == Lse::kFromScaled)
    return maximum * natural + static_cast<float>(std::log(static_cast<double>(sum)));
  return maximum * natural + static_cast<float>(log_sum);
}

}  // namespace assay_faulty
