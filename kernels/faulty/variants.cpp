// SPDX-License-Identifier: Apache-2.0
// Legal variants: the classes of arithmetic that correct kernels of today have (tensor cores of three
// generations, fp32 lanes, int8; orders, splits, lazy rescale, polynomial exponentials, formats of P and of
// partial results). Every one must pass everything. A variant is one row here.
// Sources of the classes: FlashAttention 2-4, FlashInfer, vLLM and SageAttention as described in
// reference/bounds/BOUNDS.md; accumulators as in accumulate.cpp.
#include "kernels/faulty/model.hpp"

namespace assay_faulty {
namespace {

constexpr Unit kAmpereUnit{.qk = kAmpere, .pv = kAmpere};
constexpr Unit kLanes{.qk = kSimt, .pv = kSimt};
constexpr Unit kFourLanes{.qk = {ASSAY_ACC_FMA, 4}, .pv = kSimt};
constexpr Unit kSixteenLanes{.qk = {ASSAY_ACC_FMA, 16}, .pv = {ASSAY_ACC_FMA, 4}};
constexpr Unit kPromoted{.qk = kHopper, .pv = kHopper, .promote_pv = true};
constexpr Unit kFp8OneLevel{.qk = kHopperFp8, .pv = kHopperFp8, .p_offset_log2 = 8};
constexpr Unit kFp8TwoLevel{.qk = kHopperFp8, .pv = kHopperFp8, .promote_pv = true, .p_offset_log2 = 8};
constexpr Unit kFp8Blackwell{.qk = kBlackwellFp8, .pv = kBlackwellFp8, .p_offset_log2 = 8};
constexpr Unit kFp8NoOffset{.qk = kBlackwellFp8, .pv = kBlackwellFp8};
constexpr Unit kWideP{.qk = kHopper, .pv = kSimt, .p_format = ASSAY_FP32};
constexpr Unit kHalfP{.qk = kHopper, .pv = kHopper, .p_format = ASSAY_FP16};
constexpr Unit kOffsetP{.qk = kHopper, .pv = kHopper, .p_format = ASSAY_FP16, .p_offset_log2 = 4};

// The error of ex2.approx.ftz, measured over all arguments on an H200 (2^-22.71) and rounded up; of
// tanh.approx (2^-16.46).
constexpr double kEx2 = 0x1p-22, kTanh = 0x1p-16;

constexpr Row variant(const char* name, const char* summary, const Arithmetic& arithmetic) {
  return {name, summary, "variant", nullptr, nullptr, arithmetic};
}

const Row kVariants[] = {
    variant("hopper", "tensor cores of Hopper, tile 64, accurate exponential", {}),
    variant("hopper_tile16", "tile of 16 keys, one page", {.tile_keys = 16, .exp_error = kEx2}),
    variant("hopper_tile32", "tile of 32 keys", {.tile_keys = 32, .exp_error = kEx2}),
    variant("hopper_tile128", "FlashAttention-3's tile of 128 keys, visited backwards",
            {.tile_keys = 128, .reverse = true, .exp_error = kEx2, .tanh_error = kTanh}),
    variant("hopper_tile96", "tile of 96 keys: no power of two, no multiple of 64",
            {.tile_keys = 96, .exp_error = kEx2}),
    variant("hopper_tile176", "tile of 176 keys (FlashAttention-3, head dimension 64), backwards",
            {.tile_keys = 176, .reverse = true, .exp_error = kEx2}),
    variant("hopper_tile256", "tile of 256 keys", {.tile_keys = 256, .exp_error = kEx2}),
    variant("hopper_promoted", "each tile accumulated apart and added in fp32",
            {.wide = kPromoted, .exp_error = kEx2}),
    variant("ampere", "tensor cores of Ampere: blocks of 8, 24 bits",
            {.wide = kAmpereUnit, .exp_error = kEx2}),
    variant("ampere_rounded_sum", "row sum taken from the rounded P",
            {.wide = kAmpereUnit, .row_sum_from_rounded_p = true, .exp_error = kEx2}),
    variant("blackwell_lag8",
            "FlashAttention-4: rescale only past 2^8, every fourth exponential a cubic, backwards",
            {.tile_keys = 128,
             .reverse = true,
             .lag_log2 = 8,
             .exp_error = kEx2,
             .exp_poly_every = 4,
             .tanh_error = kTanh}),
    variant("blackwell_lag8_plain", "rescale only past 2^8, forwards, no cubic",
            {.lag_log2 = 8, .exp_error = kEx2}),
    variant("cubic_every8", "every eighth exponential a cubic",
            {.tile_keys = 128, .exp_error = kEx2, .exp_poly_every = 8}),
    variant("split2", "two even parts", {.splits = 2, .exp_error = kEx2}),
    variant("split3_reverse", "three even parts, each visited backwards",
            {.reverse = true, .splits = 3, .exp_error = kEx2}),
    variant("split7", "seven even parts: most requests have empty ones",
            {.tile_keys = 32, .splits = 7, .exp_error = kEx2}),
    variant("split16", "sixteen even parts of 16-key tiles",
            {.tile_keys = 16, .splits = 16, .exp_error = kEx2}),
    variant("split_keys256", "parts of 256 keys, as many as there are",
            {.split_keys = 256, .exp_error = kEx2}),
    variant("split_keys512_lanes", "fp32 lanes, parts of 512 keys (vLLM's paged attention)",
            {.wide = kFourLanes, .tile_keys = 16, .split_keys = 512}),
    variant("split4_bf16_partials", "partial results in bf16",
            {.splits = 4, .partial_format = ASSAY_BF16, .exp_error = kEx2}),
    variant("split4_fp16_partials", "partial results in fp16",
            {.splits = 4, .partial_format = ASSAY_FP16, .exp_error = kEx2}),
    variant("split4_fp16_lse", "partial LSE in fp16",
            {.splits = 4, .partial_lse_format = ASSAY_FP16, .exp_error = kEx2}),
    variant("split4_lag8", "four parts with lazy rescale", {.splits = 4, .lag_log2 = 8, .exp_error = kEx2}),
    variant("p_fp32", "P in fp32, second product in fp32 lanes", {.wide = kWideP, .exp_error = kEx2}),
    variant("p_fp16", "P in fp16 whatever V is", {.wide = kHalfP, .exp_error = kEx2}),
    variant("p_fp16_offset4", "P in fp16, scaled by 2^4", {.wide = kOffsetP, .exp_error = kEx2}),
    variant("p_toward_zero", "P rounded toward zero", {.p_truncated = true, .exp_error = kEx2}),
    variant("simt", "fp32 multiply-add throughout, one lane", {.wide = kLanes}),
    variant("simt_lanes4", "fp32, products of Q K dealt to four lanes",
            {.wide = kFourLanes, .tile_keys = 128}),
    variant("simt_lanes16_split5", "fp32, sixteen and four lanes, five parts",
            {.wide = kSixteenLanes, .tile_keys = 32, .splits = 5}),
    variant("simt_ex2", "fp32 with the hardware's exponential, backwards",
            {.wide = kLanes, .reverse = true, .exp_error = kEx2, .tanh_error = kTanh}),
    variant("simt_exp_2_18", "fp32 with an exponential of relative error 2^-18",
            {.wide = kLanes, .exp_error = 0x1p-18}),
    variant("fp8_one_level", "Hopper's fp8 tensor core: 13-bit accumulator, P in fp8 scaled by 2^8",
            {.has_fp8 = true, .fp8 = kFp8OneLevel, .tile_keys = 128, .exp_error = kEx2}),
    variant("fp8_two_level", "the same, each tile promoted to fp32, backwards",
            {.has_fp8 = true, .fp8 = kFp8TwoLevel, .tile_keys = 128, .reverse = true, .exp_error = kEx2}),
    variant("fp8_blackwell", "Blackwell's fp8 tensor core, P scaled by 2^8",
            {.has_fp8 = true, .fp8 = kFp8Blackwell, .tile_keys = 128, .exp_error = kEx2}),
    variant("fp8_no_offset", "fp8 P without a scale",
            {.has_fp8 = true, .fp8 = kFp8NoOffset, .exp_error = kEx2}),
    variant("fp8_split4_rounded_sum", "fp8 P, four parts, row sum from the rounded P",
            {.has_fp8 = true,
             .fp8 = kFp8Blackwell,
             .splits = 4,
             .row_sum_from_rounded_p = true,
             .exp_error = kEx2}),
    variant("int8_static", "exact int8 products, P in int8 by 127", {.has_int8 = true, .exp_error = kEx2}),
    variant("int8_tile_max", "exact int8 products, P in int8 by 127 over the tile's largest",
            {.has_int8 = true, .int8_tile_max = true, .exp_error = kEx2}),
    variant("dequant", "K and V dequantised to Q's 16-bit format in one rounding",
            {.dequant = true, .exp_error = kEx2}),
    variant("dequant_split8", "the same in eight parts of 32-key tiles",
            {.tile_keys = 32, .splits = 8, .dequant = true, .exp_error = kEx2}),
    variant("q_prescaled", "softmax scale folded into Q and rounded to its format",
            {.q_prescaled = true, .exp_error = kEx2}),
    variant("two_pass", "P = exp(x - LSE) in a second pass, undivided",
            {.exp_error = kEx2, .weights_lse_format = ASSAY_FP32}),
    variant("two_pass_lanes", "the same in fp32 lanes, five parts",
            {.wide = kSixteenLanes, .tile_keys = 32, .splits = 5, .weights_lse_format = ASSAY_FP32}),
    variant("split4_by_lse", "parts weigh exp(lse_s - LSE), undivided (vLLM's context parallelism)",
            {.splits = 4, .exp_error = kEx2, .merge_lse_format = ASSAY_FP32}),
    variant("sink_first", "the sink starts the running maximum", {.sink_first = true, .exp_error = kEx2}),
};

}  // namespace

Table legal_variants() { return {kVariants, static_cast<int32_t>(sizeof kVariants / sizeof kVariants[0])}; }

}  // namespace assay_faulty
