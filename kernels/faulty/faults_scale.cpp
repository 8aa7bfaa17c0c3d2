// SPDX-License-Identifier: Apache-2.0
// Faults of dequantisation: scales missing, of the wrong place or slightly off, codes of the wrong format.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

bool by_head(int32_t kind) { return kind >= ASSAY_SCALE_HEAD; }

int q_scaled(const assay_problem* p) { return p->q_scale_kind != ASSAY_SCALE_NONE && any_visible(*p); }
int k_scaled(const assay_problem* p) { return p->k_scale_kind != ASSAY_SCALE_NONE && any_visible(*p); }
int v_scaled(const assay_problem* p) { return p->v_scale_kind != ASSAY_SCALE_NONE && any_visible(*p); }
int k_scaled_as_a_whole(const assay_problem* p) {
  return p->k_scale_kind != ASSAY_SCALE_CHANNEL && k_scaled(p);
}
int v_scaled_as_a_whole(const assay_problem* p) {
  return p->v_scale_kind != ASSAY_SCALE_CHANNEL && v_scaled(p);
}
int fp8_q_and_k(const assay_problem* p) {
  return p->q_format >= ASSAY_FP8_E4M3 && p->q_format <= ASSAY_FP8_E5M2FNUZ && k_scaled(p);
}
int q_by_head(const assay_problem* p) {
  const int32_t heads = p->q_scale_kind == ASSAY_SCALE_REQUEST_HEAD ? p->heads_kv : p->heads_q;
  return by_head(p->q_scale_kind) && heads > 1 && any_visible(*p);
}
int k_by_head(const assay_problem* p) {
  return by_head(p->k_scale_kind) && p->heads_kv > 1 && any_visible(*p);
}
int v_by_head(const assay_problem* p) {
  return by_head(p->v_scale_kind) && p->heads_kv > 1 && any_visible(*p);
}
int q_by_request(const assay_problem* p) {
  return p->q_scale_kind == ASSAY_SCALE_REQUEST_HEAD && p->requests > 1 && any_visible(*p);
}
int k_by_request(const assay_problem* p) {
  return p->k_scale_kind == ASSAY_SCALE_REQUEST_HEAD && p->requests > 1 && any_visible(*p);
}
int v_by_request(const assay_problem* p) {
  return p->v_scale_kind == ASSAY_SCALE_REQUEST_HEAD && p->requests > 1 && any_visible(*p);
}
// Scales one token further on, clamped to the last.
int older_key_seen(const assay_problem& p) {
  return any_row(p, [](const RowView& v) { return !v.empty() && v.begin < v.kv_len - 1; });
}
int k_by_token(const assay_problem* p) {
  return p->k_scale_kind == ASSAY_SCALE_TOKEN_HEAD && older_key_seen(*p);
}
int v_by_token(const assay_problem* p) {
  return p->v_scale_kind == ASSAY_SCALE_TOKEN_HEAD && older_key_seen(*p);
}
int k_by_channel(const assay_problem* p) {
  return p->k_scale_kind == ASSAY_SCALE_CHANNEL && p->head_dim_qk > 1 && any_visible(*p);
}
int v_by_channel(const assay_problem* p) {
  return p->v_scale_kind == ASSAY_SCALE_CHANNEL && p->head_dim_v > 1 && any_visible(*p);
}
int fnuz(const assay_problem* p) {
  const auto is = [](int32_t f) { return f == ASSAY_FP8_E4M3FNUZ || f == ASSAY_FP8_E5M2FNUZ; };
  return (is(p->q_format) || is(p->k_format) || is(p->v_format)) && any_visible(*p);
}

constexpr Planter kDequant{"dequant", kWhole};
constexpr Planter kDequantFp8{"dequant", kFp8};

const Row kRows[] = {
    kDequant("q_scale_missing", "the scale of Q is not applied", "SG-19", "scale.q_missing",
             {.q_scale_missing = true}, q_scaled),
    kDequant("k_scale_missing", "the scale of K is not applied", "FI-36 SG-19 VL-40", "scale.k_missing",
             {.k_scale_missing = true}, k_scaled),
    kDequant("v_scale_missing", "the scale of V is not applied", "FI-35 FI-36", "scale.v_missing",
             {.v_scale_missing = true}, v_scaled),
    kDequantFp8("k_scale_missing_fp8_q", "with Q in fp8 the tile of K is returned without its scale", "VL-17",
                "scale.k_missing", {.k_scale_missing_fp8_q = true}, fp8_q_and_k),
    kDequant("q_scale_of_next_head", "the scale of Q is that of the next head", "AI-31",
             "scale.q_of_other_head", {.q_scale_head = 1}, q_by_head),
    kDequant("k_scale_of_next_head", "the scale of K is that of the next head", "AI-31",
             "scale.k_of_other_head", {.k_scale_head = 1}, k_by_head),
    kDequant("v_scale_of_next_head", "the scale of V is that of the next head", "AI-31",
             "scale.v_of_other_head", {.v_scale_head = 1}, v_by_head),
    kDequant("q_scale_of_next_request", "the scale of Q is that of the next request", "AI-15",
             "scale.q_of_other_request", {.q_scale_request = 1}, q_by_request),
    kDequant("k_scale_of_next_request", "the scale of K is that of the next request", "AI-15 VL-41",
             "scale.k_of_other_request", {.k_scale_request = 1}, k_by_request),
    kDequant("v_scale_of_next_request", "the scale of V is that of the next request", "AI-15 VL-41",
             "scale.v_of_other_request", {.v_scale_request = 1}, v_by_request),
    kDequant("k_scale_of_next_token", "the scale of K is that of the next token", "AI-25 TR-08",
             "scale.k_of_other_token", {.k_scale_token = 1}, k_by_token),
    kDequant("v_scale_of_next_token", "the scale of V is that of the next token", "AI-25 TR-08",
             "scale.v_of_other_token", {.v_scale_token = 1}, v_by_token),
    kDequant("k_scale_of_next_channel", "the scale of K is that of the next channel", "FI-23",
             "scale.k_of_other_channel", {.k_scale_channel = 1}, k_by_channel),
    kDequant("v_scale_of_next_channel", "the scale of V is that of the next channel", "FI-23",
             "scale.v_of_other_channel", {.v_scale_channel = 1}, v_by_channel),
    kDequant("k_scale_1_percent", "the scale of K is 1 % too large", "proto:KSCALE_1P VL-18",
             "scale.k_factor", {.k_scale_factor = 1.01f}, k_scaled),
    kDequant("v_scale_1_percent", "the scale of V is 1 % too large", "proto:VSCALE_1P VL-18",
             "scale.v_factor", {.v_scale_factor = 1.01f}, v_scaled),
    kDequant("v_scale_1_ulp", "the scale of V is one bf16 ulp (0.4 %) too large", "proto:VSCALE_ULP",
             "scale.v_factor", {.v_scale_factor = 1.00390625f}, v_scaled),
    kDequant("v_scale_quarter_ulp", "the scale of V is 0.1 % too large", "proto:VSCALE_QUARTER",
             "scale.v_factor", {.v_scale_factor = 1.001f}, v_scaled),
    kDequant("k_scale_in_bf16", "the scale of K is rounded to bf16", "T18", "scale.k_factor",
             {.k_scale_format = ASSAY_BF16}, k_scaled_as_a_whole),
    kDequant("v_scale_in_bf16", "the scale of V is rounded to bf16", "T18", "scale.v_factor",
             {.v_scale_format = ASSAY_BF16}, v_scaled_as_a_whole),
    kDequant("fnuz_as_fn", "fp8 codes of the fnuz formats are decoded as OCP ones", "VL-39",
             "format.fnuz_as_fn", {.fnuz_as_fn = true}, fnuz),
};

}  // namespace

std::span<const Row> scale_faults() { return kRows; }

}  // namespace assay_faulty
