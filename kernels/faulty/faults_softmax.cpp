// SPDX-License-Identifier: Apache-2.0
// Faults of the online softmax and of the precision of what it passes on: sums, weights, accumulators.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

int visible_keys(const assay_problem* p) { return any_visible(*p); }
int two_tiles(const assay_problem* p) { return rescales(*p); }
int two_keys(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return v.end - v.begin > 1; });
}
int leading_tile_hidden(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return !v.empty() && v.begin >= kTile; });
}
// The lengths decide: a row without keys, or logits that can reach -5e4 (scale * d times what 16-bit values
// of ordinary size give).
// A row without keys among rows that bring tiles, or products that can reach -5e4.
// A row without keys among rows that bring tiles, products that can reach -5e4 (those of codes do), or a
// scale so small that -5e4 times it is a weight.
int sentinel_met(const assay_problem* p) {
  const bool large = p->softmax_scale * static_cast<float>(p->head_dim_qk) * 1e3f > 5e4f ||
                     quantized(p->q_format) || quantized(p->k_format);
  const bool weighs = p->softmax_scale * 5e4f < 60;
  return any_row(*p, [&](const RowView& v) {
    return v.kv_len > 0 && (v.empty() || v.tree || large || (weighs && masks_lanes(v)));
  });
}
int fp8_unit(const assay_problem* p) {
  const auto fp8 = [](int32_t f) { return f >= ASSAY_FP8_E4M3 && f <= ASSAY_FP8_E5M2FNUZ; };
  return fp8(p->q_format) && fp8(p->k_format) && fp8_e4m3(p->v_format) && rescales(*p);
}
int int8_unit(const assay_problem* p) {
  return p->q_format == ASSAY_INT8 && p->k_format == ASSAY_INT8 && p->v_format == ASSAY_INT8 &&
         any_row(*p, [](const RowView& v) {
           for (int64_t tile = v.begin / kTile * kTile; tile < v.end; tile += kTile)
             if (v.begin < tile + kTile / 2 && v.end > tile + kTile / 2) return true;
           return false;
         });
}

constexpr Planter kSoftmax{"softmax", kWhole};
constexpr Planter kSoftmaxFp8Lazy{"softmax", kFp8Lazy};
constexpr Planter kSoftmaxInt8{"softmax", kInt8};
constexpr Planter kValues{"values", kWhole};

const Row kRows[] = {
    kSoftmax("o_not_rescaled", "the output is not rescaled at the first update of the maximum",
             "proto:NO_RESCALE_TILE", "softmax.o_not_rescaled", {.o_not_rescaled = Pick::kFirst}, two_tiles),
    kSoftmax("o_never_rescaled", "the output is never rescaled", "proto:NO_RESCALE_TILE T19",
             "softmax.o_not_rescaled", {.o_never_rescaled = true}, two_tiles),
    kSoftmax("l_not_rescaled", "the row sum is not rescaled at the first update of the maximum",
             "proto:L_NO_RESCALE", "softmax.l_not_rescaled", {.l_not_rescaled = Pick::kFirst}, two_tiles),
    kSoftmax("l_never_rescaled", "the row sum is never rescaled", "proto:L_NO_RESCALE T19",
             "softmax.l_not_rescaled", {.l_never_rescaled = true}, two_tiles),
    kSoftmax("l_missing_key", "the row sum lacks one key", "proto:L_MISS1", "softmax.l_missing_key",
             {.l_missing_key = Pick::kHashed}, visible_keys),
    kSoftmax("l_of_two_rows", "lanes of two rows are added to one row sum: twice the sum", "FI-22",
             "softmax.row_sum_scaled", {.l_factor = 2.0f}, visible_keys),
    kSoftmax("l_ones_of_fp16", "the ones of a bf16 row sum have the bits of fp16", "FI-61",
             "softmax.row_sum_scaled", {.l_factor = 0x1p-7f}, visible_keys),
    kSoftmax("not_normalised", "the output is not divided by the row sum", "T08", "softmax.not_normalised",
             {.not_normalised = true}, two_keys),
    kSoftmax("log2e_missing", "exp2 of natural scores", "FI-45", "softmax.log2e", {.log2e = 1.0f},
             visible_keys),
    kSoftmax("log2e_short", "log2(e) is 1.44", "T19", "softmax.log2e", {.log2e = 1.44f}, visible_keys),
    kSoftmax("sentinel", "masked scores and the first maximum are -5e4", "FI-14", "softmax.finite_sentinel",
             {.sentinel = -5e4f}, sentinel_met),
    kSoftmax("masked_tile_nan", "a row whose first tiles are hidden starts with -inf - -inf", "VL-46",
             "output.nan", {.masked_tile_nan = true}, leading_tile_hidden),
    kSoftmaxFp8Lazy("p_saturated", "weights under a lagging maximum pass the largest fp8 number", "FA-01",
                    "softmax.p_saturated", {.p_saturated = true}, fp8_unit),
    kSoftmaxInt8("max_of_half_tile", "the maximum misses the second half of a tile, so int8 weights saturate",
                 "FI-46", "softmax.p_saturated", {.max_of_half_tile = true}, int8_unit),
    kSoftmax("p_in_e4m3", "the weights are rounded to fp8", "proto:P_FP8", "precision.p_coarse",
             {.p_format = ASSAY_FP8_E4M3}, visible_keys),
    kSoftmax("weights_truncated", "the weights are truncated", "proto:P_TRUNC", "precision.p_truncated",
             {.p_truncated = true}, visible_keys),
    kSoftmax("l_of_rounded_p", "the row sum adds the rounded weights", "proto:L_ROUNDED",
             "precision.row_sum_from_rounded_p", {.row_sum_flipped = true}, visible_keys),
    kSoftmax("exp_10_bits", "the exponential has a relative error of 2^-10", "proto:EXP10", "precision.exp",
             {.exp_error = 0x1p-10}, visible_keys),
    kValues("o_in_bf16", "the output is rounded to bf16 after every tile", "proto:O_BF16",
            "precision.o_accumulator", {.o_accumulator_format = ASSAY_BF16}, visible_keys),
};

}  // namespace

std::span<const Row> softmax_faults() { return kRows; }

}  // namespace assay_faulty
