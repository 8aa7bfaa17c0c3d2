// SPDX-License-Identifier: Apache-2.0
// Which unit serves a case and how its operands get there, decided by the formats as real kernels do; and the
// same as a declaration. Both come from one place, so a kernel cannot declare what it does not do.
#include <algorithm>
#include <cmath>

#include "kernels/faulty/call.hpp"
#include "kernels/faulty/exponential.hpp"
#include "kernels/faulty/lanes.hpp"
#include "kernels/faulty/rounding.hpp"

namespace assay_faulty {
namespace {

bool is_fp8(int32_t f) {
  return f == ASSAY_FP8_E4M3 || f == ASSAY_FP8_E5M2 || f == ASSAY_FP8_E4M3FNUZ || f == ASSAY_FP8_E5M2FNUZ;
}
bool is_16_bit(int32_t f) { return f == ASSAY_BF16 || f == ASSAY_FP16; }
int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

double unit_roundoff(int32_t format) {
  return 0.5 / static_cast<double>(1 << format_of(format).mantissa_bits);
}

void loosen(const Undeclared& u, assay_arithmetic& d) {
  if (u.row_sum) d.row_sum_chain = 0;
  d.exp_relative_error *= u.exp_factor;
  for (assay_accumulator* unit : {&d.qk, &d.pv})
    if (unit->kind == ASSAY_ACC_BLOCK) unit->fraction_bits -= u.fraction_bits;
  if (!u.order) return;
  d.order_declared = 0;
  if (!u.tile || d.promote_every > 1) return;  // windows of promotion are counted in tiles
  // Parts of a size count tiles, and which keys take the polynomial is a matter of tiles too.
  d.tile_keys = d.tile_reverse = d.split_keys = d.split_interleaved = 0;
  d.item_rows = d.shares = d.share_tiles = d.share_turns = 0;
  if (d.exp_poly_every > 0) d.exp_relative_error = std::max(d.exp_relative_error, d.exp_poly_relative_error);
  d.exp_poly_every = 0, d.exp_poly_relative_error = 0;
}

}  // namespace

Resolved resolve(const Arithmetic& a, const assay_problem& p) {
  Resolved r;
  const bool q_channel = p.q_scale_kind == ASSAY_SCALE_CHANNEL,
             k_channel = p.k_scale_kind == ASSAY_SCALE_CHANNEL;
  const bool v_by_token = p.v_scale_kind == ASSAY_SCALE_TOKEN_HEAD;
  const bool scaled = p.k_scale_kind != ASSAY_SCALE_NONE || p.v_scale_kind != ASSAY_SCALE_NONE;
  // The narrow units multiply codes, so a scale inside the sum (a channel of Q or K, a token of V) shuts
  // them.
  const bool codes = !q_channel && !k_channel && !v_by_token;
  const bool fp8 = a.has_fp8 && codes && is_fp8(p.q_format) && is_fp8(p.k_format) && is_fp8(p.v_format);
  const bool int8 = a.has_int8 && codes && p.q_format == ASSAY_INT8 && p.k_format == ASSAY_INT8;
  const bool fp32 = p.q_format == ASSAY_FP32 || p.k_format == ASSAY_FP32 || p.v_format == ASSAY_FP32;

  Unit unit = fp8 ? a.fp8 : a.wide;
  if (fp32 && unit.qk.kind == ASSAY_ACC_BLOCK) unit = Unit{};
  r.qk = unit.qk, r.pv = unit.pv;
  r.promote_pv = unit.promote_pv;
  r.promote_every = unit.promote_pv ? unit.promote_every : 1;
  r.p_offset = unit.p_offset_log2;
  r.p_format = unit.p_format;
  const bool lanes = unit.qk.kind == ASSAY_ACC_FMA;
  const int32_t half = p.q_format == ASSAY_FP16 ? ASSAY_FP16 : ASSAY_BF16;

  // The header has a P of any place on its grid where the order is undeclared; bf16 has room for any scale,
  // the others for none above the largest number of P over 2^offset.
  const bool bf16_p = unit.p_format == ASSAY_BF16 || (unit.p_format == kOfOperands && half == ASSAY_BF16);
  const bool takes = bf16_p || (a.v_scale_in_any_p && unit.p_format != ASSAY_FP32);
  r.v_scale_in_p = a.v_scale_in_p && v_by_token && a.undeclared.order && !fp32 && !lanes && takes &&
                   unit.pv.kind == ASSAY_ACC_BLOCK && !k_channel && !a.row_sum_from_rounded_p &&
                   !a.sum_by_unit;
  const auto byte = [](int32_t f) { return is_fp8(f) || f == ASSAY_INT8; };
  r.q_takes_channels = a.channels_in_q && k_channel && !lanes && !fp32 && !v_by_token && byte(p.k_format) &&
                       byte(p.v_format) && (is_16_bit(p.q_format) || byte(p.q_format));
  if (r.v_scale_in_p) {
    if (r.p_format == kOfOperands) r.p_format = half;
  } else if (r.q_takes_channels) {
    // Codes of either format are numbers of 16 bits, so nothing is dequantised.
  } else if (!fp8 && !int8 && !fp32 && scaled && (a.dequant || (!lanes && (k_channel || v_by_token)))) {
    r.dequant_k = r.dequant_v = true;
    r.dequant_format = half;
  } else if (v_by_token) {
    r.dequant_v = true;  // fp32 lanes: one rounding of code * scale
  }
  r.q_takes_q_channel = q_channel;
  r.q_takes_k_channel = k_channel && !r.dequant_k;
  r.q_format = lanes ? ASSAY_FP32 : is_16_bit(p.q_format) ? p.q_format : half;
  // A large scale times Q leaves the range of fp16, which a relative error says nothing of.
  const bool fits = r.q_format != ASSAY_FP16 || std::fabs(p.softmax_scale) <= 1;
  r.q_takes_scale = a.q_prescaled && !fp8 && !int8 && fits && !r.q_takes_channels;
  if (fp8 || int8) r.q_format = p.q_format;
  if (a.q_replayed && !fp8 && !int8 && p.q_scale_kind == ASSAY_SCALE_NONE && !r.q_takes_k_channel) {
    r.q_takes_scale = true;
    r.q_factor = a.q_times_log2e ? static_cast<float>(p.softmax_scale * M_LOG2E) : p.softmax_scale;
  }

  if (r.p_format == kOfOperands) {
    if (lanes)
      r.p_format = ASSAY_FP32;
    else if (fp8)
      r.p_format =
          p.v_format == ASSAY_FP8_E5M2 || p.v_format == ASSAY_FP8_E5M2FNUZ ? ASSAY_FP8_E5M2 : ASSAY_FP8_E4M3;
    else if (r.dequant_v)
      r.p_format = r.dequant_format;
    else
      r.p_format = is_16_bit(p.v_format) ? p.v_format : half;
  }
  if (int8) {
    r.qk = {ASSAY_ACC_INT32, 1, 0, 23};
    if (p.v_format == ASSAY_INT8) {
      r.pv = r.qk;
      r.p_format = ASSAY_INT8;
      r.p_tile_max = a.int8_tile_max;
      r.p_offset = 0;
      r.promote_every = 1;  // sums of codes are kept per tile
    }
  }
  if (r.p_format != ASSAY_INT8 && r.p_format != ASSAY_FP32) r.p_roundings = a.p_roundings;
  r.bias_by_column = a.bias_by_column && p.alibi == ASSAY_ALIBI_LINEAR &&
                     (p.mask == ASSAY_MASK_CAUSAL || p.chunk > 0) && p.mask != ASSAY_MASK_TREE;

  const int32_t keys = std::max(1, p.max_kv_len), tiles = ceil_div(keys, a.tile_keys);
  r.parts = a.split_keys > 0 ? ceil_div(keys, a.split_keys) : a.splits;
  // What a share has of an item may be all of it.
  const int32_t part_tiles = a.split_keys > 0 ? a.split_keys / a.tile_keys
                             : a.shares > 0   ? ceil_div(tiles, a.share_turns)
                                              : ceil_div(tiles, r.parts);
  // One lane of the sixteen a row sum runs in, their folding, and the sink.
  r.row_sum_chain = std::min(part_tiles, tiles) * ceil_div(a.tile_keys, a.sum_lanes) + 5;
  if (a.sum_by_unit && r.pv.kind == ASSAY_ACC_BLOCK) r.row_sum = r.pv;
  // A row sum of rounded P is of P against a maximum.
  if (!a.row_sum_from_rounded_p && r.row_sum.kind != ASSAY_ACC_BLOCK)
    r.weights_lse_format = a.weights_lse_format;
  // Not `parts` of this batch: a request's bits follow from its own length.
  r.sink_first = a.sink_first && a.splits == 1 && a.split_keys == 0;
  r.sink_tops_parts = a.sink_first && a.sink_in_parts && !r.sink_first;
  return r;
}

assay_arithmetic declared_arithmetic(const Arithmetic& a, const assay_problem& p) {
  const Resolved r = resolve(a, p);
  const auto unit = [](const Accumulator& u) {
    return assay_accumulator{u.kind, u.block, u.fraction_bits, u.mantissa_bits};
  };
  assay_arithmetic d{};
  d.struct_size = sizeof d;
  d.qk = unit(r.qk), d.pv = unit(r.pv);
  d.promote_pv = r.promote_pv;
  d.promote_every = r.promote_every > 1 ? r.promote_every : 0;
  d.tile_keys = a.tile_keys;
  d.tile_reverse = a.reverse;
  d.splits = r.parts;
  d.split_keys = a.split_keys;
  d.row_sum_chain = r.row_sum_chain;
  d.p_format = r.p_format;
  d.p_truncated = a.p_truncated;
  d.p_roundings = r.p_roundings;
  d.p_int8_tile_max = r.p_tile_max;
  d.row_sum_from_rounded_p = a.row_sum_from_rounded_p || r.row_sum.kind == ASSAY_ACC_BLOCK;
  if (r.row_sum.kind == ASSAY_ACC_BLOCK) d.row_sum = unit(r.row_sum);
  d.dequant_format = r.dequant_k ? r.dequant_format : ASSAY_FORMAT_NONE;
  d.dequant_replayed = r.dequant_k;
  d.partial_format = a.partial_format;
  d.partial_lse_format = a.partial_lse_format;
  d.partial_roundings = a.partial_roundings;
  d.bias_form = r.bias_by_column ? ASSAY_BIAS_COLUMN : ASSAY_BIAS_DISTANCE;
  d.rescale_lag_log2 = a.lag_log2;
  d.p_offset_log2 = r.p_offset;
  d.exp_relative_error = a.exp_error + kExpAccurate;
  d.exp_poly_every = a.exp_poly_every;
  d.exp_poly_relative_error = a.exp_poly_every > 0 ? kExpCubic : 0;
  d.tanh_relative_error = a.tanh_error + 0x1.02p-24;
  // Two scales may meet in fp32 before they meet Q. A power of two alone shifts the exponent and nothing
  // else, but for fp16, whose subnormals are within reach.
  int exponent = 0;
  const bool shift = r.q_takes_scale && !r.q_takes_q_channel && !r.q_takes_k_channel &&
                     p.q_scale_kind == ASSAY_SCALE_NONE && r.q_format == p.q_format &&
                     p.q_format != ASSAY_FP16 && std::frexp(p.softmax_scale, &exponent) == 0.5f;
  if (r.q_factor != 0) d.q_replayed_format = r.q_format, d.q_replayed_factor = r.q_factor;
  if (r.q_takes_channels) d.q_replayed_format = r.q_format, d.q_replayed_factor = 1, d.q_replayed_scales = 1;
  const bool replayed = r.q_factor != 0 || r.q_takes_channels;
  d.q_rounding = r.q_rounded() && !replayed && !shift ? unit_roundoff(r.q_format) + 0x1p-24 : 0;
  // fp16 has subnormals within reach of values that a small softmax scale was multiplied into.
  if (d.q_rounding > 0 && r.q_format == ASSAY_FP16)
    d.q_rounding_absolute = 0x1p-25 / (r.q_takes_scale ? static_cast<double>(p.softmax_scale) : 1.0);
  d.split_interleaved = a.interleaved;
  d.splits_vary = a.splits_vary;
  d.log_absolute_error = a.log_absolute, d.log_relative_error = a.log_relative;
  d.tanh_absolute_error = a.tanh_absolute;
  d.order_declared = 1;
  d.sink_first = r.sink_first || r.sink_tops_parts;
  d.rescale_inexact = a.rescale_inexact;
  d.weights_lse_format = r.weights_lse_format, d.merge_lse_format = a.merge_lse_format;
  if (r.weights_lse_format != ASSAY_FORMAT_NONE) d.order_declared = 0;
  if (a.item_rows > 0)
    d.item_rows = a.item_rows, d.shares = a.shares, d.share_tiles = a.share_tiles,
    d.share_turns = a.shares > 0 ? a.share_turns : 0;
  loosen(a.undeclared, d);
  return d;
}

}  // namespace assay_faulty
