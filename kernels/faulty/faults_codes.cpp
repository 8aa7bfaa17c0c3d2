// SPDX-License-Identifier: Apache-2.0
// Faults of single kinds of codes: right for nearly every value of ordinary data, wrong for the smallest, the
// largest and the zeros of a storage format; sums that only products of the largest codes fill; and a maximum
// that does not move, which takes a step of logits beyond an exponential's range to show.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

// Formats with subnormals within reach of a kernel's fp32 (int8: +-1 stands for them).
bool small_codes(int32_t f) { return f == ASSAY_FP16 || quantized(f); }
bool small_floats(int32_t f) { return small_codes(f) && f != ASSAY_INT8; }
bool top_beside_ieee(int32_t f) {
  return f == ASSAY_FP8_E4M3 || f == ASSAY_FP8_E4M3FNUZ || f == ASSAY_FP8_E5M2FNUZ;
}
bool signed_zero(int32_t f) {
  return f == ASSAY_FP16 || f == ASSAY_BF16 || f == ASSAY_FP8_E4M3 || f == ASSAY_FP8_E5M2;
}

template <bool (*Has)(int32_t)>
int in_q(const assay_problem* p) {
  return Has(p->q_format) && any_visible(*p);
}
template <bool (*Has)(int32_t)>
int in_k(const assay_problem* p) {
  return Has(p->k_format) && any_visible(*p);
}
template <bool (*Has)(int32_t)>
int in_v(const assay_problem* p) {
  return Has(p->v_format) && any_visible(*p);
}

// A scale inside a sum (of a channel of Q or K, of a token of V) keeps codes from the integer unit.
int multiplies_int8(const assay_problem* p) {
  return p->q_format == ASSAY_INT8 && p->k_format == ASSAY_INT8 && p->q_scale_kind != ASSAY_SCALE_CHANNEL &&
         p->k_scale_kind != ASSAY_SCALE_CHANNEL && p->v_scale_kind != ASSAY_SCALE_TOKEN_HEAD &&
         any_visible(*p);
}

constexpr Planter kCodes{"dequant", kWhole};
constexpr Switches of(Codes codes, Sides side) { return {.codes = codes, .codes_of = side}; }

const Row kRows[] = {
    kCodes("k_subnormal_lost", "the smallest codes of K are read as zero", "T18", "none",
           of(Codes::kSmallestLost, kOfK), in_k<small_codes>),
    kCodes("v_subnormal_lost", "the smallest codes of V are read as zero", "T18", "none",
           of(Codes::kSmallestLost, kOfV), in_v<small_codes>),
    kCodes("q_subnormal_lost", "the smallest codes of Q are read as zero", "T18", "none",
           of(Codes::kSmallestLost, kOfQ), in_q<small_codes>),
    kCodes("k_subnormal_raised", "subnormal codes of K are read with a leading one", "T18", "none",
           of(Codes::kSmallestRaised, kOfK), in_k<small_floats>),
    kCodes("v_subnormal_raised", "subnormal codes of V are read with a leading one", "T18", "none",
           of(Codes::kSmallestRaised, kOfV), in_v<small_floats>),
    kCodes("q_subnormal_raised", "subnormal codes of Q are read with a leading one", "T18", "none",
           of(Codes::kSmallestRaised, kOfQ), in_q<small_floats>),
    kCodes("k_subnormal_halved", "subnormal codes of K are read an exponent too low", "T18", "none",
           of(Codes::kSmallestHalved, kOfK), in_k<small_floats>),
    kCodes("v_subnormal_halved", "subnormal codes of V are read an exponent too low", "T18", "none",
           of(Codes::kSmallestHalved, kOfV), in_v<small_floats>),
    kCodes("k_top_is_nan", "the largest exponent of K is read as in IEEE 754, where it is no number", "VL-39",
           "none", of(Codes::kTopIsNaN, kOfK), in_k<top_beside_ieee>),
    kCodes("v_top_is_nan", "the largest exponent of V is read as in IEEE 754, where it is no number", "VL-39",
           "none", of(Codes::kTopIsNaN, kOfV), in_v<top_beside_ieee>),
    kCodes("k_top_lost", "the largest code of K is read as the one below it", "T18", "none",
           of(Codes::kTopLost, kOfK), in_k<small_codes>),
    kCodes("v_top_lost", "the largest code of V is read as the one below it", "T18", "none",
           of(Codes::kTopLost, kOfV), in_v<small_codes>),
    kCodes("q_top_clipped", "codes of Q beyond half the largest are read as that half", "T18", "none",
           of(Codes::kTopClipped, kOfQ), in_q<quantized>),
    Planter{"scores", kInt8}("qk_sums_saturated", "sums of 16 products of int8 codes saturate at 16 bits",
                             "T18", "none", {.qk_sums_saturated = true}, multiplies_int8),
    Planter{"softmax", kWhole}(
        "max_of_first_tile", "the running maximum is that of the first tile: later weights overflow", "T19",
        "none", {.max_of_first_tile = true}, [](const assay_problem* p) -> int { return rescales(*p); }),
    kCodes("minus_zero_is_nan", "-0 in Q, K or V is read as the fnuz formats do, as no number", "VL-39",
           "none", Switches{.codes = Codes::kMinusZeroIsNaN, .codes_of = kOfQ | kOfK | kOfV},
           [](const assay_problem* p) -> int {
             return (signed_zero(p->q_format) || signed_zero(p->k_format) || signed_zero(p->v_format)) &&
                    any_visible(*p);
           }),
};

}  // namespace

std::span<const Row> rare_faults() { return kRows; }

}  // namespace assay_faulty
