// SPDX-License-Identifier: Apache-2.0
// Faults of the results: the LSE, rows without keys, elements never written, memory beside the outputs.
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

using namespace reach;

int visible_keys(const assay_problem* p) { return any_visible(*p); }
int any_rows(const assay_problem* p) { return p->total_q > 0; }
int several_heads(const assay_problem* p) { return p->heads_q > 1 && any_visible(*p); }
int several_rows(const assay_problem* p) {
  return any_row(*p, [](const RowView& v) { return v.q_len > 1 && !v.empty(); });
}
int sinks_and_keys(const assay_problem* p) { return p->has_sinks && any_visible(*p); }
int fp8_unit(const assay_problem* p) {
  const auto fp8 = [](int32_t f) { return f >= ASSAY_FP8_E4M3 && f <= ASSAY_FP8_E5M2FNUZ; };
  return fp8(p->q_format) && fp8(p->k_format) && fp8(p->v_format) && any_visible(*p);
}
// A tree may hide every key of a row that has no context.
bool perhaps_empty(const RowView& v) { return v.empty() || (v.tree && v.begin >= v.context()); }
int empty_rows(const assay_problem* p) { return any_row(*p, perhaps_empty); }
int empty_rows_without_sink(const assay_problem* p) { return !p->has_sinks && empty_rows(p); }
int empty_requests(const assay_problem* p) {
  return any_request(*p, [](int32_t, int32_t, int32_t kv) { return kv == 0; });
}
int rows_before_keys(const assay_problem* p) {
  return causal(*p) && any_row(*p, [](const RowView& v) { return v.position < 0 && v.kv_len > 0; });
}
int rows_behind_empty_request(const assay_problem* p) {
  bool empty = false;
  return any_request(*p, [&](int32_t, int32_t, int32_t kv) {
    if (empty && kv > 0) return true;
    empty = empty || kv == 0;
    return false;
  });
}
int k_wider_than_v(const assay_problem* p) {
  return p->head_dim_qk > p->head_dim_v && (group(*p) > 1 || p->total_q > 1) && any_visible(*p);
}

constexpr Planter kOutput{"output", kWhole};
constexpr Planter kOutputFp8{"output", kFp8};

const Row kRows[] = {
    kOutput("lse_base_2", "the LSE is in base 2", "VL-09 SG-10 VL-10", "lse.base2", {.lse = Lse::kBase2},
            visible_keys),
    kOutput("lse_without_max", "the LSE is the logarithm of the row sum alone", "FI-65", "lse.ignores_max",
            {.lse = Lse::kIgnoresMax}, visible_keys),
    kOutput("lse_without_sink", "the LSE lacks the sink that the output has", "T20", "lse.ignores_sink",
            {.lse = Lse::kIgnoresSink}, sinks_and_keys),
    kOutput("lse_of_next_head", "the LSE is stored one head late", "FA-34", "lse.other_head",
            {.lse = Lse::kOtherHead}, several_heads),
    kOutput("lse_of_next_row", "the LSE is stored one row late", "SA-03 AI-20", "lse.other_row",
            {.lse = Lse::kOtherRow}, several_rows),
    kOutputFp8("lse_with_offset", "the LSE keeps the offset of the scaled fp8 weights", "SA-02",
               "lse.from_scaled", {.lse = Lse::kFromScaled}, fp8_unit),
    kOutput("lse_unwritten", "the LSE is never written", "FI-24", "output.unwritten", {.lse_unwritten = true},
            any_rows),
    kOutput("empty_request_unwritten", "requests without keys return early", "VL-26 SG-18 FI-13 FI-43 FM-02",
            "output.unwritten", {.empty_request_unwritten = true}, empty_requests),
    kOutput("negative_rows_unwritten", "rows before the first key return early", "FI-09", "output.unwritten",
            {.negative_rows_unwritten = true}, rows_before_keys),
    kOutput("empty_rows_nan", "rows that see nothing are 0 / 0", "AI-26 AI-24 SG-20", "output.nan",
            {.empty_rows_nan = true}, empty_rows_without_sink),
    kOutput("empty_rows_lse_inf", "the LSE of rows that see nothing is +inf", "VL-05", "lse.empty_row",
            {.empty_rows_lse_inf = true}, empty_rows_without_sink),
    kOutput("empty_rows_lse_zero", "the LSE of rows that see nothing is 0", "VL-50 FI-54", "lse.empty_row",
            {.empty_rows_lse_zero = true}, empty_rows_without_sink),
    kOutput("empty_request_clears_next", "a request without keys clears a whole tile of 16 rows",
            "FA-22 AI-12", "rows.written_to_other_row", {.empty_request_clears_next = true},
            rows_behind_empty_request),
    kOutput("o_with_k_width", "a row of O is stored as wide as K: zeros in the next head", "AI-32",
            "dims.store_overrun", {.o_width_of_qk = true}, k_wider_than_v),
    kOutput("output_zeros", "the output is zero", "AI-02 PT-05", "output.zeros", {.output_zeros = true},
            visible_keys),
    kOutput("output_halved", "the output is half of what it should be", "FI-22", "output.scaled",
            {.output_factor = 0.5f}, visible_keys),
    kOutput("output_truncated", "the output is truncated", "proto:OUT_RZ", "precision.output_truncated",
            {.output_truncated = true}, visible_keys),
    kOutput("row_unwritten", "one row of a request is not written", "AI-28 FA-11", "output.unwritten",
            {.row_unwritten = Pick::kHashed}, any_rows),
    kOutput("guard_written", "two bytes behind O are written", "AI-12", "memory.guard_written",
            {.writes_guard = true}, any_rows),
    kOutput("input_written", "Q is changed in place", "SA-01", "memory.input_written", {.writes_input = true},
            any_rows),
};

}  // namespace

std::span<const Row> output_faults() { return kRows; }

}  // namespace assay_faulty
