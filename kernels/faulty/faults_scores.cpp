// SPDX-License-Identifier: Apache-2.0
// Faults between the dot product and the softmax: scale, rounding, soft cap, position bias, sink.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

int visible_keys(const assay_problem* p) { return any_visible(*p); }

int other_scale(const assay_problem* p) {
  return p->softmax_scale != default_scale(p->head_dim_qk) && any_visible(*p);
}
int dims_differ(const assay_problem* p) {
  return p->softmax_scale != default_scale(p->head_dim_v) && any_visible(*p);
}
int scale_not_bf16(const assay_problem* p) {
  int exponent = 0;
  const float eight_bits = std::frexp(p->softmax_scale, &exponent) * 256;
  return eight_bits != std::nearbyint(eight_bits) && any_visible(*p);
}

int capped(const assay_problem* p) { return p->softcap > 0 && any_visible(*p); }
int capped_and_scaled(const assay_problem* p) { return p->softmax_scale != 1.0f && capped(p); }
// Scores of unit-normal Q and K have deviation scale * sqrt(d); other inputs are larger still.
int far_beyond_cap(const assay_problem* p) {
  return capped(p) && 4 * p->softmax_scale * std::sqrt(static_cast<float>(p->head_dim_qk)) > 88 * p->softcap;
}
// exp(-cap) of a larger cap is no weight.
int capped_and_masked(const assay_problem* p) {
  return p->softcap > 0 && p->softcap <= 24 && any_row(*p, masks_lanes);
}

bool keys_before(const assay_problem& p, int64_t distance) {
  return any_row(p, [&](const RowView& v) { return !v.empty() && v.position - v.begin >= distance; });
}
int biased(const assay_problem* p) { return p->alibi != ASSAY_ALIBI_NONE && keys_before(*p, 1); }
int biased_several_heads(const assay_problem* p) { return p->heads_q > 1 && biased(p); }
int biased_by_root(const assay_problem* p) { return p->alibi == ASSAY_ALIBI_SQRT && keys_before(*p, 2); }
int bias_shifts(const assay_problem* p) { return p->alibi != ASSAY_ALIBI_NONE && keys_before(*p, 0); }
// A constant shift is a constant only for a linear bias that every key has.
// A constant shift is a constant only for a linear bias that every key has, and no sink lacks.
int bias_shifts_all_keys(const assay_problem* p) {
  return p->alibi == ASSAY_ALIBI_LINEAR && !p->has_sinks && bias_shifts(p) &&
         !any_row(*p, [](const RowView& v) { return v.end > v.position + 1; });
}

int sinks(const assay_problem* p) { return p->has_sinks && p->total_q > 0; }
int sinks_and_heads(const assay_problem* p) { return p->heads_q > 1 && sinks(p); }
int sinks_and_keys(const assay_problem* p) { return p->has_sinks && any_visible(*p); }
int sinks_and_rows(const assay_problem* p) {
  return p->has_sinks && any_request(*p, [](int32_t, int32_t q, int32_t) { return q > 1; });
}
int sinks_and_parts(const assay_problem* p) { return p->has_sinks && several_parts(*p); }

constexpr Planter kScores{"scores", kWhole};
constexpr Planter kScoresSplit{"scores", kSplit};

const Row kRows[] = {
    kScores("scale_default", "the softmax scale is 1/sqrt(head_dim_qk), whatever was asked for", "FI-37",
            "scale.softmax_default", {.softmax_scale_default = true}, other_scale),
    kScores("scale_of_v_width", "the softmax scale is 1/sqrt(head_dim_v)", "FI-37 AI-22", "scale.softmax",
            {.softmax_scale_of_v = true}, dims_differ),
    kScores("scale_in_bf16", "the softmax scale is rounded to bf16", "proto:SCALE_BF16", "precision.scale",
            {.softmax_scale_format = ASSAY_BF16}, scale_not_bf16),
    kScores("scores_in_bf16", "dot products are rounded to bf16", "proto:S_BF16", "precision.scores",
            {.scores_format = ASSAY_BF16}, visible_keys),
    kScores("scores_in_fp16", "dot products are rounded to fp16", "proto:S_FP16ACC", "precision.scores",
            {.scores_format = ASSAY_FP16}, visible_keys),
    kScores("qk_accumulated_in_fp16", "dot products are accumulated in fp16", "proto:S_FP16ACC",
            "precision.scores", {.qk_accumulator_format = ASSAY_FP16}, visible_keys),
    kScores("cap_ignored", "the soft cap is not applied", "FA-33 T20", "softcap.ignored",
            {.softcap = Softcap::kIgnored}, capped),
    kScores("cap_before_scale", "the soft cap is applied before the softmax scale", "proto:SOFTCAP_ORDER",
            "softcap.before_scale", {.softcap = Softcap::kBeforeScale}, capped_and_scaled),
    kScores("cap_ratio", "tanh is a ratio of exponentials that overflow", "VL-36", "softcap.ratio",
            {.softcap = Softcap::kRatio}, far_beyond_cap),
    kScores("cap_after_mask", "the soft cap turns masked scores into -cap", "FI-56", "softcap.after_mask",
            {.softcap = Softcap::kAfterMask}, capped_and_masked),
    kScores("alibi_ignored", "the position bias is not applied", "T20", "alibi.ignored",
            {.alibi = Alibi::kIgnored}, biased),
    kScores("alibi_of_next_head", "the slope is that of the next head", "FA-32", "alibi.other_head",
            {.alibi = Alibi::kOtherHead}, biased_several_heads),
    kScores("alibi_recomputed", "slopes are those of the textbook, whatever was given", "T20", "none",
            {.alibi = Alibi::kRecomputed}, biased),
    kScores("alibi_sign", "the position bias grows with the distance", "T20", "alibi.sign",
            {.alibi = Alibi::kSignFlipped}, biased),
    kScores("alibi_linear_for_sqrt", "the root of the distance is not taken", "T20", "alibi.sqrt_ignored",
            {.alibi = Alibi::kSqrtIgnored}, biased_by_root),
    kScores("alibi_shifted", "the distance is one too large, so the LSE is wrong", "proto:ALIBI_OFF VL-48",
            "alibi.shifted", {.alibi_shift = 1}, bias_shifts),
    control(kScores("alibi_shift_hidden",
                    "the distance is one too large and the LSE corrected for it: nothing is wrong", "VL-48",
                    "alibi.shifted", {.alibi_shift_hidden = true}, bias_shifts_all_keys)),
    kScores("sink_ignored", "the sink is left out", "FA-14 T20", "sinks.ignored", {.sink = Sink::kIgnored},
            sinks),
    kScores("sink_first_row", "only the first new token of a request has the sink", "TR-04",
            "sinks.first_row_only", {.sink = Sink::kFirstRowOnly}, sinks_and_rows),
    kScores("sink_of_next_head", "the sink is that of the next head", "FI-15", "sinks.other_head",
            {.sink = Sink::kOtherHead}, sinks_and_heads),
    kScoresSplit("sink_per_part", "every part of the keys adds the sink", "T20", "sinks.per_split",
                 {.sink = Sink::kPerSplit}, sinks_and_parts),
    kScores("sink_scaled", "the sink is multiplied by the softmax scale like a score", "FI-33",
            "sinks.unscaled", {.sink = Sink::kScaled}, sinks),
    kScores("sink_raw", "the sink is added to the row sum without its exponential", "FA-13", "sinks.unscaled",
            {.sink = Sink::kRaw}, sinks_and_keys),
};

}  // namespace

std::span<const Row> score_faults() { return kRows; }

}  // namespace assay_faulty
