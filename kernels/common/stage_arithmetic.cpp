// SPDX-License-Identifier: Apache-2.0
// See stage_arithmetic.hpp.
#include "kernels/common/stage_arithmetic.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/common/stages.hpp"

namespace assay_kernels {
namespace {

// Of two formats that results are rounded to.
int32_t coarser(int32_t a, int32_t b) {
  constexpr int32_t kByRoundoff[] = {ASSAY_FP8_E5M2, ASSAY_FP8_E5M2FNUZ, ASSAY_FP8_E4M3, ASSAY_FP8_E4M3FNUZ,
                                     ASSAY_INT8,     ASSAY_BF16,         ASSAY_FP16,     ASSAY_FP32};
  for (const int32_t format : kByRoundoff)
    if (a == format || b == format) return format;
  return ASSAY_FORMAT_NONE;
}

// Fewer products in a step, and lanes, mean longer chains; a matrix unit truncates where fp32 rounds.
assay_accumulator widest(const assay_accumulator& a, const assay_accumulator& b) {
  if (a.kind == b.kind && a.kind != ASSAY_ACC_BLOCK)
    return {a.kind, std::min(a.block, b.block), 0, std::min(a.mantissa_bits, b.mantissa_bits)};
  if (a.kind == ASSAY_ACC_INT32) return b;
  if (b.kind == ASSAY_ACC_INT32) return a;
  const auto bits = [](const assay_accumulator& x) {
    return x.kind == ASSAY_ACC_BLOCK ? x.fraction_bits : 24;
  };
  const auto step = [](const assay_accumulator& x) { return x.kind == ASSAY_ACC_BLOCK ? x.block : 1; };
  return {ASSAY_ACC_BLOCK, std::min(step(a), step(b)), std::min(bits(a), bits(b)),
          std::min(a.mantissa_bits, b.mantissa_bits)};
}

// The rounding of Q that the reference repeats, as an error that it does not.
void forget_replay(assay_arithmetic& a) {
  double relative = 0, absolute = 0;
  switch (a.q_replayed_format) {
    case ASSAY_BF16:
      relative = 0x1p-8;
      break;
    case ASSAY_FP16:
      relative = 0x1p-11, absolute = 0x1p-25;
      break;
    case ASSAY_FP8_E4M3:
    case ASSAY_FP8_E4M3FNUZ:
      relative = 0x1p-4, absolute = 0x1p-10;
      break;
    case ASSAY_FP8_E5M2:
    case ASSAY_FP8_E5M2FNUZ:
      relative = 0x1p-3, absolute = 0x1p-17;
      break;
    default:
      break;
  }
  if (a.q_replayed_format != ASSAY_FORMAT_NONE) {
    a.q_rounding = (1 + a.q_rounding) * (1 + relative + 2 * 0x1p-24) - 1;
    // Of a Q that took scales, which are not known here, nothing is said below fp16's normal numbers.
    if (a.q_replayed_scales == 0) a.q_rounding_absolute += absolute / std::abs(a.q_replayed_factor);
  }
  a.q_replayed_format = ASSAY_FORMAT_NONE, a.q_replayed_factor = 0, a.q_replayed_scales = 0;
}

assay_arithmetic asked(const assay_kernel& k, const assay_problem& p) {
  assay_arithmetic own = assay_default_arithmetic();
  if (k.arithmetic == nullptr || k.arithmetic(&k, &p, &own) != ASSAY_OK) own = assay_default_arithmetic();
  return own;
}

// What holds for all lengths that memory may have where the host's are bounds. A kernel may go another way
// for a request of few rows or keys (a warp for each row, or four that share its keys) and declares that by
// each request's lengths, so it is asked for fewer rows, fewer keys, and a mixture.
assay_arithmetic within_bounds(const StageCall& call) {
  assay_problem p = call.problem;
  std::vector<int32_t> q_len = call.q_len, kv_len = call.kv_len;
  p.q_len = q_len.data(), p.kv_len = kv_len.data();
  assay_arithmetic own = asked(*call.kernel, p);
  const auto widen = [&] {
    const assay_arithmetic other = asked(*call.kernel, p);
    if (std::memcmp(&own, &other, sizeof own) != 0) own = assay_kernels::widest(own, other);
  };
  const auto limit = [](std::vector<int32_t>& list, const std::vector<int32_t>& bounds, int32_t most,
                        size_t every) {
    for (size_t r = 0; r < list.size(); ++r) list[r] = r % every == 0 ? std::min(bounds[r], most) : bounds[r];
  };
  for (int64_t most = 1; most < p.max_q_len; most *= 2)
    limit(q_len, call.q_len, static_cast<int32_t>(most), 1), widen();
  limit(q_len, call.q_len, 1, 2), widen();
  q_len = call.q_len;
  for (int64_t most = 1; most < p.max_kv_len; most *= 2)
    limit(kv_len, call.kv_len, static_cast<int32_t>(most), 1), widen();
  return own;
}

void forget_order(assay_arithmetic& a) {
  if (a.splits > 1) a.splits_vary = 1;
  a.order_declared = 0, a.split_keys = 0, a.split_interleaved = 0;
  a.chained_requests = 0;
  a.item_rows = a.shares = a.share_tiles = a.share_turns = 0;
}

// Tiles, parts and items are declared in the keys and rows of the call's requests, and read in the step's.
void read_as_step(assay_arithmetic& a, const StageCall& call, const assay_problem& step) {
  const assay_problem& p = call.problem;
  if (call.keys_from != StageCall::kSameKeys) {
    const bool whole_tiles =
        call.keys_from > 0 && a.tile_keys > 0 && call.keys_from % a.tile_keys == 0 && a.splits <= 1;
    if (!whole_tiles) forget_order(a);
    a.item_rows = a.shares = a.share_tiles = a.share_turns = 0;  // of one part they say nothing
  }
  // Heads of Q that a step repeats (join_stages.hpp) are rows beside each other, of which an item has so many
  // times as many.
  const int32_t times = std::max(1, p.heads_q / std::max(1, step.heads_q));
  if (a.item_rows > 0 && times > 1 && p.heads_kv == step.heads_kv)
    a.item_rows % times == 0 ? static_cast<void>(a.item_rows /= times) : forget_order(a);
}

const char* same(const char* a, const char* b) {  // names decide fields; two different ones decide nothing
  return a != nullptr && b != nullptr && __builtin_strcmp(a, b) == 0 ? a : nullptr;
}

}  // namespace

bool attends(int32_t op) {
  return op == ASSAY_OP_PREFILL || op == ASSAY_OP_PAGED || op == ASSAY_OP_DECODE_SPLITKV ||
         op == ASSAY_OP_PERSISTENT_PREFILL || op == ASSAY_OP_PERSISTENT_PAGED;
}

assay_arithmetic widest(assay_arithmetic a, assay_arithmetic b) {
  if (a.q_replayed_format != b.q_replayed_format || a.q_replayed_factor != b.q_replayed_factor)
    forget_replay(a), forget_replay(b);
  assay_arithmetic w = a;
  w.qk = widest(a.qk, b.qk), w.pv = widest(a.pv, b.pv);
  const bool like = a.row_sum.kind == b.row_sum.kind && a.row_sum.block == b.row_sum.block;
  if (!like) w.row_sum = {};
  w.row_sum_chain = a.row_sum_chain == b.row_sum_chain && like ? a.row_sum_chain : 0;
  w.promote_pv = a.promote_pv != 0 && b.promote_pv != 0;
  w.promote_every = std::max(a.promote_every, b.promote_every);
  w.tile_keys = std::min(a.tile_keys, b.tile_keys);
  w.tile_reverse = a.tile_reverse != 0 && b.tile_reverse != 0;
  w.order_declared = 0;  // there is more than one
  w.splits = std::max(a.splits, b.splits);
  w.split_keys = 0, w.split_interleaved = 0, w.splits_vary = 1, w.chained_requests = 0;
  w.item_rows = w.shares = w.share_tiles = w.share_turns = 0;
  w.p_format = coarser(a.p_format, b.p_format);
  w.p_truncated = a.p_truncated != 0 || b.p_truncated != 0;
  w.p_roundings = std::max(a.p_roundings, b.p_roundings);
  // Sums of rounded and of exact P: room for one rounding more covers either.
  if (a.row_sum_from_rounded_p != b.row_sum_from_rounded_p && w.p_format != ASSAY_FP32)
    w.row_sum_from_rounded_p = 0, w.p_roundings = std::max(2, w.p_roundings + 1);
  // Weights that are divided by their sum err by no more than those that are not, but stand elsewhere on P's
  // grid.
  w.weights_lse_format = coarser(a.weights_lse_format, b.weights_lse_format);
  w.merge_lse_format = coarser(a.merge_lse_format, b.merge_lse_format);
  if (w.weights_lse_format != ASSAY_FORMAT_NONE) {
    if (w.row_sum_from_rounded_p != 0 || a.weights_lse_format != b.weights_lse_format)
      w.p_roundings = std::max(2, w.p_roundings + 1);
    w.row_sum_from_rounded_p = 0;
  }
  w.p_offset_log2 = std::min(a.p_offset_log2, b.p_offset_log2);
  w.p_int8_tile_max = a.p_int8_tile_max != 0 && b.p_int8_tile_max != 0;
  w.dequant_format =
      a.dequant_format == b.dequant_format ? a.dequant_format : coarser(a.dequant_format, b.dequant_format);
  w.dequant_replayed = a.dequant_format == b.dequant_format ? a.dequant_replayed & b.dequant_replayed : 0;
  w.partial_format = coarser(a.partial_format, b.partial_format);
  w.partial_lse_format = coarser(a.partial_lse_format, b.partial_lse_format);
  w.partial_roundings = std::max(a.partial_roundings, b.partial_roundings);
  w.rescale_lag_log2 = std::max(a.rescale_lag_log2, b.rescale_lag_log2);
  w.rescale_inexact = std::max(a.rescale_inexact, b.rescale_inexact);
  w.exp_relative_error = std::max(
      {a.exp_relative_error, b.exp_relative_error, a.exp_poly_relative_error, b.exp_poly_relative_error});
  w.exp_poly_every = 0, w.exp_poly_relative_error = 0;
  w.tanh_relative_error = std::max(a.tanh_relative_error, b.tanh_relative_error);
  w.tanh_absolute_error = std::max(a.tanh_absolute_error, b.tanh_absolute_error);
  const auto undeclared = [](const assay_arithmetic& x) {
    return x.log_absolute_error == 0 && x.log_relative_error == 0;
  };
  constexpr double kUndeclaredLog = 0x1p-21;
  if (undeclared(a) != undeclared(b)) {
    w.log_absolute_error = std::max({a.log_absolute_error, b.log_absolute_error, kUndeclaredLog});
    w.log_relative_error = std::max(a.log_relative_error, b.log_relative_error);
  } else {
    w.log_absolute_error = std::max(a.log_absolute_error, b.log_absolute_error);
    w.log_relative_error = std::max(a.log_relative_error, b.log_relative_error);
  }
  w.bias_form = std::max(a.bias_form, b.bias_form);
  w.q_rounding = std::max(a.q_rounding, b.q_rounding);
  w.q_rounding_absolute = std::max(a.q_rounding_absolute, b.q_rounding_absolute);
  w.scaling_relative_error = std::max(a.scaling_relative_error, b.scaling_relative_error);
  w.dense_new_keys = a.dense_new_keys | b.dense_new_keys;
  w.qk_instruction = same(a.qk_instruction, b.qk_instruction);
  w.pv_instruction = same(a.pv_instruction, b.pv_instruction);
  w.exp_instruction = same(a.exp_instruction, b.exp_instruction);
  w.tanh_instruction = same(a.tanh_instruction, b.tanh_instruction);
  return w;
}

assay_arithmetic arithmetic_of(Calls& calls, const assay_problem& step) {
  assay_arithmetic all = assay_default_arithmetic();
  all.scaling_relative_error = 0;
  bool first = true, inner_step = false;
  double exp_of_merge = 0, gather_error = 0;
  int32_t lse_of_merge = ASSAY_FORMAT_NONE;
  for (const StageCall& call : calls.calls()) {
    const assay_kernel& k = *call.kernel;
    assay_arithmetic own = call.bounded && attends(k.op) ? within_bounds(call) : asked(k, call.problem);
    read_as_step(own, call, step);
    if (k.op == ASSAY_OP_STEP) own.chained_requests = 0;  // a chain among its own requests
    // New keys of a step may lie beside the cache, without its scales, and another stage takes them.
    if (own.q_replayed_scales != 0) forget_replay(own);
    if (attends(k.op) || k.op == ASSAY_OP_STEP) {  // a step within a step attends, and writes
      const double scaling =
          std::max(all.scaling_relative_error, k.op == ASSAY_OP_STEP ? own.scaling_relative_error : 0.0);
      calls.dense_new_keys |= k.op == ASSAY_OP_STEP ? own.dense_new_keys : 0;
      all = first ? own : widest(all, own);
      all.scaling_relative_error = scaling;
      first = false, inner_step = inner_step || k.op == ASSAY_OP_STEP;
    } else if (k.op == ASSAY_OP_CACHE_GATHER) {
      gather_error = std::max(gather_error, own.scaling_relative_error);
    } else if (k.op == ASSAY_OP_MERGE_STATES || k.op == ASSAY_OP_REDUCE) {
      exp_of_merge = std::max(exp_of_merge, own.exp_relative_error);
      lse_of_merge = coarser(lse_of_merge, own.merge_lse_format);
    } else if (k.op == ASSAY_OP_CACHE_WRITE || k.op == ASSAY_OP_QUANTIZE_INT8) {
      all.scaling_relative_error = std::max(all.scaling_relative_error, own.scaling_relative_error);
    }
  }
  all.exp_relative_error = std::max(all.exp_relative_error, exp_of_merge);
  all.merge_lse_format = coarser(all.merge_lse_format, lse_of_merge);
  all.dense_new_keys = calls.dense_new_keys;
  if (calls.cast_q != ASSAY_FORMAT_NONE) all.q_replayed_format = calls.cast_q, all.q_replayed_factor = 1;
  // A step says by classes of requests which keys are repeated, a stage that attends says it of all it reads.
  if (!inner_step) all.dequant_replayed = 0;
  if (calls.dequant_format != ASSAY_FORMAT_NONE) {
    // What a gather leaves of a code is known where its product is rounded as fp32 rounds it, unless a stage
    // that attends rounds operands again.
    const bool known = all.dequant_format == ASSAY_FORMAT_NONE && gather_error == 0;
    all.dequant_format = coarser(all.dequant_format, calls.dequant_format);
    all.dequant_replayed = known ? calls.gathers : 0;
  }
  if (calls.parts > 1) {
    // Parts of a stage lie within those that stages pass on, and are merged before them.
    const bool inner = all.splits > 1;
    // Of a chain it is known where its links end, if nothing within them is rounded to 16 bits.
    const bool chain = !inner || all.partial_format == ASSAY_FP32 || all.partial_format == ASSAY_FORMAT_NONE;
    all.partial_format = inner ? coarser(all.partial_format, calls.partial_format) : calls.partial_format;
    all.partial_lse_format = inner ? coarser(all.partial_lse_format, ASSAY_FP32) : ASSAY_FP32;
    all.partial_roundings = calls.levels + (inner ? std::max(1, all.partial_roundings) : 0);
    all.splits = std::max(1, all.splits) * calls.parts;
    all.split_keys = 0, all.split_interleaved = 0, all.order_declared = 0;
    all.splits_vary = 1, all.chained_requests = chain ? calls.chained : 0;
    all.item_rows = all.shares = all.share_tiles = all.share_turns = 0;
    if (exp_of_merge > 0) all.exp_instruction = nullptr;
  }
  return all;
}

}  // namespace assay_kernels
