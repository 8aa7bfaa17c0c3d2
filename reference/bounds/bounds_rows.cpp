// SPDX-License-Identifier: Apache-2.0
// Scores of one row with the magnitudes the bounds are made of. Only visible keys are read: the others
// may be poison.
#include "reference/bounds/bounds_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "reference/bounds/bounds_rounding.hpp"
#include "reference/bounds/bounds_shared.hpp"
#include "reference/bounds/bounds_terms.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

double position_bias(const Problem& p, double slope, int64_t distance) {
  if (p.alibi == ASSAY_ALIBI_NONE || distance < 0) return 0;
  return -slope * (p.alibi == ASSAY_ALIBI_SQRT ? std::sqrt(static_cast<double>(distance))
                                               : static_cast<double>(distance));
}

int32_t replayed_dequant(const assay_arithmetic& a) {
  return a.dequant_replayed ? a.dequant_format : int32_t{ASSAY_FORMAT_NONE};
}

void round_all(int32_t format, int64_t count, double* values) {
  if (format == ASSAY_FORMAT_NONE) return;
  const FormatInfo& info = format_info(format);
  PRounding r;
  r.mantissa_bits = info.mantissa_bits;
  r.min_exponent = info.min_exponent;
  r.largest = info.max_finite;
  for (int64_t i = 0; i < count; ++i)
    values[i] = std::copysign(rounding::to_float(r, std::fabs(values[i])).value, values[i]);
}

bool folds_channels(const Problem& p, const assay_arithmetic& a) {
  // New keys of a step may lie beside the cache, without its scales.
  return a.q_replayed_format != ASSAY_FORMAT_NONE && a.q_replayed_scales != 0 && p.op != ASSAY_OP_STEP &&
         (p.q_scale == ASSAY_SCALE_CHANNEL || p.k_scale == ASSAY_SCALE_CHANNEL);
}

std::vector<double> channels_in_q(const Problem& p, const assay_arithmetic& a, const OperandReader& operands,
                                  int32_t kv_head) {
  std::vector<double> scales(static_cast<size_t>(p.head_dim_qk), 1.0);
  if (folds_channels(p, a) && p.k_scale == ASSAY_SCALE_CHANNEL)
    for (int32_t d = 0; d < p.head_dim_qk; ++d)
      if (const double scale = operands.k_channel_scale(kv_head, d); scale != 0)
        scales[static_cast<size_t>(d)] = scale;  // keys of a scale of 0 are 0 whatever Q is
  return scales;
}

namespace {

// Q as stored is code * scales * whole in double, exactly; the whole scale stays outside.
void fold_channels(const Problem& p, const assay_arithmetic& a, const OperandReader& operands, RowId id,
                   int32_t head, double* q) {
  std::vector<double> codes(static_cast<size_t>(p.head_dim_qk));
  operands.q_codes(id, head, codes.data());
  for (int32_t d = 0; d < p.head_dim_qk; ++d) {
    const double of_q = p.q_scale == ASSAY_SCALE_CHANNEL ? operands.q_channel_scale(head, d) : 1,
                 of_k = p.k_scale == ASSAY_SCALE_CHANNEL ? operands.k_channel_scale(head / p.group(), d) : 1;
    double& code = codes[static_cast<size_t>(d)];
    const double exact = code * of_q * of_k * a.q_replayed_factor;
    code = static_cast<float>(code * static_cast<float>(of_q * of_k));
    code = static_cast<float>(code * a.q_replayed_factor);
    if (exact != 0)
      q[d] /= exact;
    else
      q[d] = 0;
  }
  round_all(a.q_replayed_format, p.head_dim_qk, codes.data());
  for (int32_t d = 0; d < p.head_dim_qk; ++d) q[d] *= codes[static_cast<size_t>(d)];
}

}  // namespace

void replay_query(const Problem& p, const assay_arithmetic& a, const OperandReader& operands, RowId id,
                  int32_t head, double* q) {
  if (a.q_replayed_format == ASSAY_FORMAT_NONE) return;
  if (folds_channels(p, a)) return fold_channels(p, a, operands, id, head, q);
  if (p.q_scale != ASSAY_SCALE_NONE) return;
  for (int32_t d = 0; d < p.head_dim_qk; ++d) q[d] = static_cast<float>(q[d] * a.q_replayed_factor);
  round_all(a.q_replayed_format, p.head_dim_qk, q);
  for (int32_t d = 0; d < p.head_dim_qk; ++d) q[d] /= a.q_replayed_factor;
}

void ProductOrder::add(double largest, double c2, double off, double length) {
  partial += largest * largest;
  model += c2;
  error += off * off;
  random += length / 3 * 0x1p-48 * c2;
}

bool ProductOrder::generic() const { return partial <= 1.5 * model && error <= 2 * random; }

bool ProductOrder::shared() const {
  constexpr double kMostTogether = 4;
  return together > kMostTogether;
}

int64_t equal_mantissas(const double* values, int64_t count) {
  std::vector<double> mantissas;
  for (int64_t i = 0; i < count; ++i) {
    int exponent = 0;
    if (values[i] != 0) mantissas.push_back(std::fabs(std::frexp(values[i], &exponent)));
  }
  std::sort(mantissas.begin(), mantissas.end());
  int64_t most = 1, run = 1;
  for (size_t i = 1; i < mantissas.size(); ++i) {
    run = mantissas[i] == mantissas[i - 1] ? run + 1 : 1;
    most = std::max(most, run);
  }
  return most;
}

size_t fp32_lanes(const assay_arithmetic* a) {
  return a != nullptr && a->qk.kind == ASSAY_ACC_FMA ? static_cast<size_t>(std::max(1, a->qk.block)) : 16;
}

std::vector<double> product_units(const Problem& p, const assay_arithmetic* a, double q_scale,
                                  double k_scale) {
  std::vector<double> units, mantissas;
  const double scale = std::fabs(p.softmax_scale);
  // A declared rounding of Q is that of Q times a factor, which is one of these in kernels that are known.
  const bool before = a != nullptr && a->q_rounding > 0 && scale > 0;
  for (const double factor : {1.0, before ? 1 / scale : 1.0, before ? 1 / (scale * M_LOG2E) : 1.0})
    for (const double unit : {1.0, k_scale, q_scale, q_scale * k_scale}) {
      int exponent = 0;
      const double mantissa = std::frexp(factor * unit, &exponent);
      if (std::find(mantissas.begin(), mantissas.end(), mantissa) != mantissas.end()) continue;
      mantissas.push_back(mantissa);
      units.push_back(factor * unit);
    }
  return units;
}

double q_normal(const ErrorModel& model, const Problem& p, const OperandReader& operands, RowId id,
                int32_t head) {
  const SmallestNormal& normal = model.q_normal();
  if (normal.value == 0) return 0;
  double least = 1;
  if (normal.by_channel) {
    const std::vector<double> scales = channels_in_q(p, model.arithmetic(), operands, head / p.group());
    least = std::fabs(scales[0]);
    for (const double scale : scales) least = std::min(least, std::fabs(scale));
  }
  return normal.value * (normal.scaled ? operands.q_scale_size(id, head) : 1) / least;
}

double q_code_scale(const Problem& p, const assay_arithmetic& a, const OperandReader& operands, RowId id,
                    int32_t head) {
  const double unit = replayed_unit(p, a);
  if (p.q_scale == ASSAY_SCALE_NONE || (p.q_scale == ASSAY_SCALE_CHANNEL && folds_channels(p, a)))
    return unit;
  const double size = operands.q_scale_size(id, head);
  return size > 0 ? size * unit : unit;
}

double replayed_unit(const Problem& p, const assay_arithmetic& a) {
  const bool again =
      a.q_replayed_format != ASSAY_FORMAT_NONE && (p.q_scale == ASSAY_SCALE_NONE || folds_channels(p, a));
  return again ? 1 / std::fabs(a.q_replayed_factor) : 1;
}

double k_code_scale(const Problem& p, const assay_arithmetic& a, const OperandReader& operands, int request,
                    int32_t key, int32_t kv_head) {
  if (a.dequant_format != ASSAY_FORMAT_NONE || p.k_scale == ASSAY_SCALE_NONE) return 1;
  if (p.k_scale == ASSAY_SCALE_CHANNEL && folds_channels(p, a)) return 1;
  const double size = operands.k_scale_size(request, key, kv_head);
  return size > 0 ? size : 1;
}

double v_code_scale(const Problem& p, const assay_arithmetic& a, const OperandReader& operands, int request,
                    int32_t key, int32_t kv_head) {
  const int32_t kind = stored_v(p).scale;
  // One of each token is part of the sum.
  if (a.dequant_format != ASSAY_FORMAT_NONE || kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_TOKEN_HEAD)
    return 1;
  const double size = operands.v_scale_size(request, key, kv_head);
  return size > 0 ? size : 1;
}

double smallest_factor_of_p(const Problem& p, const assay_arithmetic& a, const OperandReader& operands,
                            const std::vector<RowId>& rows) {
  if (!p_takes_scales(p, a) || a.p_format == ASSAY_FORMAT_NONE || a.p_format == ASSAY_FP32) return 1;
  double smallest = 1, largest = 0;
  std::set<int> requests;
  for (const RowId& row : rows) requests.insert(row.request);
  for (const int request : requests)
    for (int32_t key = 0; key < p.requests[static_cast<size_t>(request)].kv_len; ++key)
      for (int32_t head = 0; head < p.heads_kv; ++head) {
        // Of a scale of 0 nothing is left, rounded or not.
        const double size = operands.v_scale_size(request, key, head);
        if (size > 0 && std::isfinite(size))
          smallest = std::min(smallest, size), largest = std::max(largest, size);
      }
  return a.p_format == ASSAY_INT8 && a.p_int8_tile_max && largest > 0 ? std::min(1.0, smallest / largest)
                                                                      : smallest;
}

double column_shift(const Problem& p, const assay_arithmetic& a, RowId id, double slope) {
  if (p.alibi != ASSAY_ALIBI_LINEAR || a.bias_form != ASSAY_BIAS_COLUMN) return 0;
  const int64_t first = p.first_key.empty() ? 0 : p.first_key[id.request];
  const int64_t row = std::abs(row_offset(p, id)), keys = p.requests[id.request].kv_len;
  return std::fabs(slope) * static_cast<double>(first + std::max(row, keys));
}

namespace {

double logit(const Problem& p, double score, double bias) {
  return (p.softcap > 0 ? p.softcap * std::tanh(score / p.softcap) : score) + bias;
}

}  // namespace

RowLogits row_logits(const Problem& p, const OperandReader& operands, RowId id, int32_t head) {
  // Sums of several keys are on their way at a time, each in the order of row_scores().
  constexpr int64_t kBeside = 4;
  const KeyInterval keys = key_interval(p, id);
  const int64_t count = keys.end - keys.begin, position = row_offset(p, id);
  const int32_t dims = p.head_dim_qk;
  const double slope = p.alibi == ASSAY_ALIBI_NONE ? 0.0 : operands.alibi_slope(head);
  RowLogits row;
  row.begin = keys.begin;
  row.x.assign(static_cast<size_t>(std::max<int64_t>(0, count)), -std::numeric_limits<double>::infinity());
  std::vector<double> q(static_cast<size_t>(dims)), k(static_cast<size_t>(kBeside * dims), 0.0);
  operands.q(id, head, q.data());
  for (int64_t first = 0; first < count; first += kBeside) {
    const int64_t here = std::min(kBeside, count - first);
    bool seen[kBeside] = {};
    for (int64_t j = 0; j < here; ++j) {
      const auto key = static_cast<int32_t>(keys.begin + first + j);
      seen[j] = draft_visible(p, operands, id, key);
      if (seen[j]) operands.k(id.request, key, head / p.group(), k.data() + j * dims);
    }
    double dot[kBeside] = {};
    for (int32_t d = 0; d < dims; ++d)
      for (int64_t j = 0; j < kBeside; ++j) dot[j] += q[d] * k[j * dims + d];
    for (int64_t j = 0; j < here; ++j)
      if (const int64_t key = keys.begin + first + j; seen[j])
        row.x[first + j] = logit(p, p.softmax_scale * dot[j],
                                 position_bias(p, slope, position - key_offset(p, id.request, key)));
  }
  return row;
}

void key_as_multiplied(const Problem& p, const assay_arithmetic& a, const OperandReader& operands,
                       int request, int64_t key, int32_t kv_head, double* k) {
  const auto position = static_cast<int32_t>(key);
  operands.k(request, position, kv_head, k);
  const double scale = k_code_scale(p, a, operands, request, position, kv_head);
  for (int32_t d = 0; d < p.head_dim_qk; ++d) k[d] /= scale;
}

namespace {

// ProductOrder::together of a row whose scores are known.
double keys_together(const Problem& p, const assay_arithmetic& a, const OperandReader& operands, RowId id,
                     int32_t head, const double* q, const RowScores& row) {
  const auto count = static_cast<int64_t>(row.x.size());
  const auto read = [&](int64_t place, double* k) {
    key_as_multiplied(p, a, operands, id.request, row.begin + place, head / p.group(), k);
  };
  if (row.keys == 0) return 1;
  SharedProducts some(p.head_dim_qk);
  std::vector<double> k(static_cast<size_t>(p.head_dim_qk));
  for (const int64_t place : SharedProducts::spread(count))
    if (!std::isinf(row.x[static_cast<size_t>(place)])) read(place, k.data()), some.add(k.data());
  return std::max(1 + static_cast<double>(row.keys - 1) * some.common(q),
                  heavy_keys_together(p.head_dim_qk, q, row.x.data(), count,
                                      *std::max_element(row.x.begin(), row.x.end()), read));
}

}  // namespace

RowScores row_scores(const Problem& p, const OperandReader& operands, RowId id, int32_t head,
                     const assay_arithmetic* declared) {
  const int32_t dequant = declared != nullptr ? replayed_dequant(*declared) : int32_t{ASSAY_FORMAT_NONE};
  const KeyInterval keys = key_interval(p, id);
  const int64_t count = keys.end - keys.begin, position = row_offset(p, id);
  const double slope = p.alibi == ASSAY_ALIBI_NONE ? 0.0 : operands.alibi_slope(head);
  RowScores row;
  row.begin = keys.begin;
  row.x.assign(count, -std::numeric_limits<double>::infinity());
  row.s.assign(count, 0.0);
  row.a.assign(count, 0.0);
  row.bias.assign(count, 0.0);
  row.r.assign(count, 0.0);
  std::vector<double> q(p.head_dim_qk), k(p.head_dim_qk);
  operands.q(id, head, q.data());
  if (declared != nullptr) replay_query(p, *declared, operands, id, head, q.data());
  row.q_repeats = equal_mantissas(q.data(), p.head_dim_qk);
  for (double value : q) {
    row.query_sum += std::fabs(p.softmax_scale * value);
    row.q_max = std::max(row.q_max, std::fabs(value));
  }
  std::vector<float> lanes(fp32_lanes(declared));
  const double q_scale = declared != nullptr ? q_code_scale(p, *declared, operands, id, head) : 1;
  std::vector<double> units;  // of keys with the scale `units_of`: mostly of all
  double units_of = -1;
  int64_t first = -1, last = -1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t key = keys.begin + i;
    if (!draft_visible(p, operands, id, key)) continue;
    operands.k(id.request, static_cast<int32_t>(key), head / p.group(), k.data());
    round_all(dequant, p.head_dim_qk, k.data());
    double dot = 0, absolute = 0, square = 0, sum = 0, largest = 0;
    for (int32_t d = 0; d < p.head_dim_qk; ++d) {
      dot += q[d] * k[d];
      largest = std::max(largest, std::fabs(dot));
      absolute += std::fabs(q[d] * k[d]);
      square += q[d] * k[d] * (q[d] * k[d]);
      row.k_max = std::max(row.k_max, std::fabs(k[d]));
      sum += std::fabs(k[d]);
    }
    row.key_sum = std::max(row.key_sum, std::fabs(p.softmax_scale) * sum);
    const double k_scale = declared != nullptr ? k_code_scale(p, *declared, operands, id.request,
                                                              static_cast<int32_t>(key), head / p.group())
                                               : 1;
    double off = 0;
    if (k_scale != units_of) units = product_units(p, declared, q_scale, k_scale), units_of = k_scale;
    for (const double unit : units) {
      std::fill(lanes.begin(), lanes.end(), 0.0f);
      for (int32_t d = 0; d < p.head_dim_qk; ++d) {
        float& lane = lanes[d % lanes.size()];
        lane = static_cast<float>(lane + q[d] * k[d] / unit);
      }
      double folded = 0;
      for (float lane : lanes) folded += lane;
      off = std::max(off, std::fabs(folded * unit - dot));
    }
    row.order.add(largest, dot * dot + 2 * square, off,
                  static_cast<double>(p.head_dim_qk) / static_cast<double>(lanes.size()));
    row.s[i] = p.softmax_scale * dot;
    row.a[i] = std::fabs(p.softmax_scale) * absolute;
    row.r[i] = std::fabs(p.softmax_scale) * std::sqrt(square);
    row.bias[i] = position_bias(p, slope, position - key_offset(p, id.request, key));
    row.x[i] = logit(p, row.s[i], row.bias[i]);
    ++row.keys;
    if (first < 0) first = key;
    last = key;
  }
  row.span = row.keys > 0 ? last - first + 1 : 0;
  if (declared != nullptr && declared->qk.kind == ASSAY_ACC_FMA)
    row.order.together = keys_together(p, *declared, operands, id, head, q.data(), row);
  return row;
}

double ErrorModel::largest_sum(double scaled_q_norm, double k_norm, int64_t keys, double k_max, double v_max,
                               double lse) const {
  // Codes times their scale, written down in a format that may not hold them.
  const int32_t written = arithmetic_.dequant_format;
  if (written != ASSAY_FORMAT_NONE && std::max(k_max, v_max) > format_info(written).max_finite)
    return std::numeric_limits<double>::infinity();
  // A part's result is a mean of values and may be the largest of them; a little more where weights are
  // rounded and the row sum is of exact ones.
  double more = 0;
  if (p_rounding_.narrow && arithmetic_.row_sum_from_rounded_p == 0)
    more = std::min(p_rounding_.most,
                    p_rounding_.relative + static_cast<double>(keys) * p_rounding_.eta *
                                               std::exp2(std::max(0.0, -arithmetic_.p_offset_log2)));
  if (arithmetic_.splits > 1 && v_max * (1 + more) > format_info(arithmetic_.partial_format).max_finite)
    return std::numeric_limits<double>::infinity();
  // The LSE of a part that matters is within tens of the row's, and may be stored in base 2.
  constexpr double kTens = 100;
  const int32_t stored = arithmetic_.partial_lse_format;
  if (arithmetic_.splits > 1 && stored != ASSAY_FORMAT_NONE &&
      M_LOG2E * (lse + kTens) > format_info(stored).max_finite)
    return std::numeric_limits<double>::infinity();
  for (const int32_t format : {arithmetic_.weights_lse_format, arithmetic_.merge_lse_format})
    if (format != ASSAY_FORMAT_NONE && M_LOG2E * (lse + kTens) > format_info(format).max_finite)
      return std::numeric_limits<double>::infinity();
  // Scores go to powers of two, P is at most 2^lag times what the offset scales it by.
  const double dot =
      scaled_q_norm * k_norm * std::max(M_LOG2E, softmax_scale_ > 0 ? 1 / softmax_scale_ : 1.0);
  const double p =
      std::exp2(std::max(0.0, arithmetic_.rescale_lag_log2) + std::max(0.0, arithmetic_.p_offset_log2));
  return std::max(dot, p * static_cast<double>(keys) * v_max);
}

double ErrorModel::room_of_weights(int64_t keys, double v_max) const {
  const double above =
      (std::max(0.0, arithmetic_.rescale_lag_log2) + std::max(0.0, arithmetic_.p_offset_log2)) * M_LN2;
  const double products = static_cast<double>(keys) * std::max({1.0, v_max, largest_code_});
  double room = std::log(std::numeric_limits<float>::max() / products) - above;
  // Conversions to 8 bits saturate, which is nearer to what is right; those to fp16 need not.
  const double of_p = std::log(format_info(ASSAY_FP16).max_finite) - above;
  if (arithmetic_.p_format == ASSAY_FP16 && of_p > 0) room = std::min(room, of_p);
  return room;
}

}  // namespace assay
