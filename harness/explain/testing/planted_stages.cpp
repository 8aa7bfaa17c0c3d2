// SPDX-License-Identifier: Apache-2.0
// Stages that are wrong on their own inputs: what the seeds do wrong among them (T in
// scenarios/SEED_COVERAGE.md).
#include <algorithm>

#include "harness/explain/testing/planted_steps.hpp"

namespace planted_steps {
namespace {

using P = assay_problem;
using T = assay_tensors;

#define TREE "step h=4/2 d=64 page=4 threshold=8 mask=tree sinks=on batch=2q6s40_1q5s9 seed=3"
#define PATH "step h=4/2 d=64 page=4 threshold=8 mask=tree window=4 positions=depth batch=2q6s40_1q5s9 seed=3"
#define LOCAL "step h=4/2 d=64 page=4 chunk=8 batch=2q6s40_1q5s9 seed=3"
#define STEPS \
  "step h=4/2 d=64 page=4 threshold=8 mask=tree positions=depth drafted=2 batch=2q6s40_1q3s9 seed=3"
#define CROSS "step h=4/2 d=64 page=8 mask=cross table=token batch=1q1s9_2q3s40 seed=3"
#define TOKENS "step h=4/2 d=64 page=8 encoder=19 table=token batch=2q3s40_1q1s9_1q2s30 seed=3"
#define PAGES "step h=4/2 d=64 page=8 encoder=19 batch=2q3s40_1q1s9_1q2s30 seed=3"
#define TYPE1 "step h=4/2 d=64 layout=hnd kv=int8:token_head/int8:channel batch=2q1s40_1q1s9 seed=3"
#define MIXED1 "step h=4/2 d=64 layout=hnd kv=int8:token_head/int8:channel batch=2q1s40_2q9s60 seed=3"
#define SHARED "step h=4/2 d=64 layout=hnd prefix=256 threshold=2 sinks=on batch=8q2s300p256 seed=3"
#define DECODES "step h=16/1 d=96/64 layout=mla page=8 batch=2q1s40_1q1s600_1q1s9 seed=3"
#define EXTENDS "step h=16/1 d=96/64 layout=mla page=8 kv=fp8_e4m3:tensor batch=2q4s40_1q2s60 seed=3"
#define AITER "step h=4/2 d=64 page=8 budget=32 batch=2q1s40_1q9s60_1q12 seed=3"
#define CODES "step h=4/2 d=64 page=8 kv=fp8_e4m3:head budget=32 batch=2q1s40_1q9s60_1q12 seed=3"

constexpr const char *kSglang = "step_sglang_fa_cpu", *kAiter = "step_aiter_fa_cpu",
                     *kIxformer = "step_ixformer_fa_cpu", *kAiterMla = "step_aiter_mla_cpu",
                     *kUnified = "step_unified_cpu";

void first_table(P&, T& t) { t.block_table.stride[0] = 0; }
void causal(P& p, T&) { p.mask = ASSAY_MASK_CAUSAL; }
void full(P& p, T&) { p.mask = ASSAY_MASK_FULL; }
void a_row_less(P& p, T&) { --p.rows; }
void no_sinks(P& p, T&) { p.has_sinks = 0; }
void one_state(P& p, T&) { p.states = 1; }
void new_alone(P& p, T&) { p.drafted = 0; }
void wider(P& p, T&) { ++p.window_left; }
void own_sinks(P& p, T& t) {
  static const float twos[64] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
  p.has_sinks = 1;
  t.sinks = list_of(nullptr, p.heads_q), t.sinks.format = ASSAY_FP32;
  t.sinks.data = const_cast<float*>(twos);
}
void to_pages(P& p, T& t) {  // slots taken for pages
  int32_t* at = copied(t.block_table);
  for (int64_t i = 0; i < elements(t.block_table); ++i) at[i] = std::max(0, at[i] / p.page_size);
}
template <class Rule>
void encoders(P& p, T& t, const Rule& rule) {
  std::vector<int32_t> list;
  for (int32_t r = 0; r < p.requests; ++r) list.push_back(rule(p.encoder_len[r]));
  t.encoder_len = list_of(kept(std::move(list)), p.requests);
}
void last_forgotten(P&, T& t) {
  change(t.kv_len, [](int32_t n, int32_t) { return std::max(0, n - 1); });
}
void states_of_second(P&, T& t) {
  t.partial_o.data = static_cast<char*>(t.partial_o.data) +
                     t.partial_o.stride[0] * (t.partial_o.format == ASSAY_FP32 ? 4 : 2);
  t.partial_lse.data = static_cast<float*>(t.partial_lse.data) + t.partial_lse.stride[0];
  t.partial_o.stride[0] = t.partial_lse.stride[0] = 0;
}
float* floats(const assay_tensor& t) { return static_cast<float*>(t.data); }
void first_lse_of_base_2(P&, T& t) {
  static std::vector<float> lse;
  lse.assign(floats(t.partial_lse), floats(t.partial_lse) + elements(t.partial_lse));
  for (int64_t i = 0; i < t.partial_lse.stride[0]; ++i) lse[static_cast<size_t>(i)] *= 1.44269504f;
  t.partial_lse.data = lse.data();
}
void second_table_late(P&, T& t) {
  int32_t* row = copied(t.block_table) + t.block_table.stride[0];
  std::rotate(row, row + 1, row + t.block_table.shape[1]);
}
void lse_zero(P& p, T& t) {  // all states weigh alike
  static std::vector<float> zeros(1 << 16, 0.0f);
  (void)p;
  t.partial_lse.data = zeros.data();
}

constexpr PlantedStep kStages[] = {
    {"sees_drafts", kSglang, "prefix", Where::kStage, TREE, "lengths_with_new",
     [](P& p, T& t) { t.kv_len = list_of(p.kv_len, p.requests); }},
    {"causal_context", kSglang, "prefix", Where::kStage, TREE, "mask_causal", causal},
    {"sink_of_its_own", kSglang, "prefix", Where::kStage, TREE, "sink_extra", own_sinks},
    {"scale_twice", kSglang, "prefix", Where::kStage, TREE, "softmax_scale",
     [](P& p, T&) { p.softmax_scale *= p.softmax_scale; }},
    {"first_table", kSglang, "prefix", Where::kStage, TREE, "table_of_one", first_table},
    {"all_drafts", kSglang, "drafts", Where::kStage, TREE, "drafts_all",
     [](P& p, T& t) {
       static std::vector<uint8_t> ones(4096, 1);
       (void)p;
       t.tree_mask.data = ones.data();
     }},
    {"branches_of_first", kSglang, "drafts", Where::kStage, STEPS, "tree_of_one",
     [](P&, T& t) { t.tree_indptr.stride[0] = 0; }},
    {"new_alone", kSglang, "drafts", Where::kStage, STEPS, "drafts_new_alone", new_alone},
    {"a_step_less", kSglang, "drafts", Where::kStage, STEPS, "drafts_step_less", [](P& p, T&) { --p.drafted; }},
    {"drafts_in_pages", kSglang, "draft", Where::kStage, STEPS, "table_units", to_pages},
    {"newest_forgotten", kSglang, "draft", Where::kStage, STEPS, "lengths_off_by_one", last_forgotten},
    {"path_of_new_alone", kSglang, "paths", Where::kStage, STEPS " window=4", "drafts_new_alone", new_alone},
    {"right_side_cuts_context", kSglang, "prefix", Where::kStage, STEPS, "window_added mask_causal",
     [](P& p, T&) { p.window_right = 0; }},
    {"forgets_the_sink", kSglang, "merge", Where::kStage, TREE, "sink_missing", no_sinks},
    {"context_alone", kSglang, "merge", Where::kStage, TREE, "state_missing", one_state},
    {"drafts_twice", kSglang, "merge", Where::kStage, TREE, "state_twice", states_of_second},
    {"merge_as_mean", kSglang, "merge", Where::kStage, TREE, "merge_unweighted", lse_zero},
    {"window_wider", kSglang, "path", Where::kStage, PATH, "window_off_by_one", wider},
    {"no_window", kSglang, "path", Where::kStage, PATH, "window_missing", [](P& p, T&) { p.window_left = -1; }},
    {"half_chunks", kSglang, "local", Where::kStage, LOCAL, "chunk_other", [](P& p, T&) { p.chunk /= 2; }},
    {"chunks_not_causal", kSglang, "extend", Where::kStage, LOCAL, "mask_full", full},
    {"forgets_a_key", kSglang, "write", Where::kStage, LOCAL, "row_missing", a_row_less},
    {"causal_encoder", kSglang, "cross", Where::kStage, CROSS " write=off", "mask_causal", causal},
    {"one_encoder_length", kSglang, "cross", Where::kStage, CROSS " write=off", "lengths_of_one",
     [](P&, T& t) { t.kv_len.stride[0] = 0; }},
    {"one_encoder_table", kSglang, "cross", Where::kStage, CROSS " write=off", "table_of_one",
     [](P&, T& t) {
       t.block_table.data = static_cast<int32_t*>(t.block_table.data) + 2 * t.block_table.stride[0];
       t.block_table.stride[0] = 0;
     }},
    {"window_over_encoder", kSglang, "cross", Where::kStage, CROSS " write=off", "window_added",
     [](P& p, T&) { p.window_left = 5; }},
    {"keys_of_rows_alone", kSglang, "write", Where::kStage, CROSS, "row_missing", [](P& p, T&) { p.rows = 7; }},
    {"table_from_the_encoder", kSglang, "decoder", Where::kStage, TOKENS, "encoder_missing",
     [](P&, T& t) { t.encoder_len = assay_tensor{}; }},
    {"one_token_short", kSglang, "decoder", Where::kStage, TOKENS, "encoder_off_by_one",
     [](P& p, T& t) { encoders(p, t, [](int32_t n) { return std::max(0, n - 1); }); }},
    {"last_page_of_encoder", kSglang, "decoder", Where::kStage, PAGES, "encoder_rounded_down",
     [](P& p, T& t) { encoders(p, t, [&](int32_t n) { return n / p.page_size * p.page_size; }); }},
    {"one_encoder_for_all", kSglang, "decoder", Where::kStage, TOKENS, "encoder_of_one",
     [](P& p, T& t) {
       const int32_t least = *std::min_element(p.encoder_len, p.encoder_len + p.requests);
       encoders(p, t, [=](int32_t) { return least; });
     }},
    {"map_one_page_off", kSglang, "local", Where::kStage,
     "step h=4/2 d=64 page=4 chunk=8 pool=full batch=2q6s40_1q5s9 seed=3", "map_shifted",
     [](P& p, T& t) {
       int32_t* map = copied(t.slot_map);
       std::rotate(map, map + p.page_size, map + t.slot_map.shape[0]);
     }},
    {"cast_by_a_scale", kSglang, "q_cast", Where::kStage, "step h=4/2 d=64 kv=fp8_e4m3 batch=2q1s40 seed=3",
     "scale_other", [](P& p, T&) { p.q_scale_host = 2; }},
    {"cast_forgotten", kSglang, "decode", Where::kStage, "step h=4/2 d=64 kv=fp8_e4m3 batch=2q1s40 seed=3",
     "scale_other", [](P& p, T&) { p.q_scale_host = 0.5f; }},
    {"causal_prefix", kIxformer, "prefix", Where::kStage, SHARED, "mask_causal", causal},
    {"a_page_less", kIxformer, "prefix", Where::kStage, SHARED, "lengths_off_by_page",
     [](P& p, T& t) { change(t.kv_len, [&](int32_t n, int32_t) { return n - p.page_size; }); }},
    {"sink_of_the_prefix", kIxformer, "prefix", Where::kStage, SHARED, "sink_extra", own_sinks},
    {"first_page_alone", kIxformer, "suffix", Where::kStage, SHARED, "table_first_entry",
     [](P&, T& t) { t.block_table.stride[1] = 0; }},
    {"table_of_the_first", kIxformer, "suffix", Where::kStage, SHARED, "table_of_one", first_table},
    {"suffix_not_causal", kIxformer, "suffix", Where::kStage, SHARED, "mask_full", full},
    {"sink_dropped", kIxformer, "merge", Where::kStage, SHARED, "sink_missing", no_sinks},
    {"prefix_alone", kIxformer, "merge", Where::kStage, SHARED, "state_missing", one_state},
    {"scales_to_one_head", kIxformer, "write", Where::kStage, TYPE1, "scale_of_one",
     [](P&, T& t) { t.k_scale.stride[1] = 0; }},
    {"ready_scales_of_the_first_row", kIxformer, "write", Where::kStage, MIXED1, "scale_of_one",
     [](P&, T& t) { t.dense_k_scale.stride[0] = 0; }},
    {"v_for_k", kIxformer, "write", Where::kStage, MIXED1, "v_for_k",
     [](P&, T& t) { t.dense_k.data = t.dense_v.data; }},
    {"scale_of_the_first_channel", kIxformer, "v_codes", Where::kStage, MIXED1, "scale_of_one",
     [](P&, T& t) { t.q_scale.stride[1] = 0; }},
    {"rows_one_late", kIxformer, "k_codes", Where::kStage, MIXED1, "rows_shifted",
     [](P&, T& t) { t.source.data = static_cast<uint16_t*>(t.source.data) + t.source.stride[1]; }},
    {"codes_without_scales", kIxformer, "decode", Where::kStage, TYPE1, "scale_missing",
     [](P& p, T&) { p.k_scale_kind = ASSAY_SCALE_NONE; }},
    {"scale_of_the_first_slot", kIxformer, "decode", Where::kStage, TYPE1, "scale_of_one",
     [](P&, T& t) { t.k_scale.stride[2] = 0; }},
    {"keys_of_the_query", kIxformer, "prefill", Where::kStage, MIXED1, "lengths_are_rows",
     [](P& p, T& t) { t.kv_len = list_of(p.q_len, p.requests); }},
    {"prefill_not_causal", kIxformer, "prefill", Where::kStage, MIXED1, "mask_full", full},
    {"tables_exchanged", kAiterMla, "tokens", Where::kStage, DECODES, "table_of_next",
     [](P&, T& t) {
       int32_t* pages = copied(t.block_table);
       std::swap(pages[0], pages[t.block_table.stride[0]]);
     }},
    {"old_lengths", kAiterMla, "tokens", Where::kStage, EXTENDS, "lengths_without_new",
     [](P& p, T& t) { change(t.kv_len, [&](int32_t n, int32_t r) { return n - p.q_len[r]; }); }},
    {"one_index_late", kAiterMla, "decode", Where::kStage, DECODES, "table_shifted",
     [](P&, T& t) {
       int32_t* slots = copied(t.indices);
       std::rotate(slots, slots + 1, slots + t.indices.shape[0]);
     }},
    {"rope_forgotten", kAiterMla, "decode", Where::kStage, DECODES, "dims_missing",
     [](P& p, T&) { p.head_dim_qk = p.head_dim_v; }},
    {"scale_of_the_latent_part", kAiterMla, "decode", Where::kStage, DECODES, "softmax_scale",
     [](P& p, T&) { p.softmax_scale *= 1.2247449f; }},
    {"first_part_alone", kAiterMla, "merge", Where::kStage, DECODES, "state_missing", one_state},
    {"arange_starts", kAiterMla, "extend", Where::kStage, EXTENDS, "starts_arange",
     [](P& p, T& t) {
       (void)p;
       change(t.cu_q, [](int32_t, int32_t r) { return r; });
     }},
    {"extend_not_causal", kAiterMla, "extend", Where::kStage, EXTENDS, "mask_full", full},
    {"codes_without_scale", kAiterMla, "extend", Where::kStage, EXTENDS, "scale_missing",
     [](P& p, T&) { p.k_scale_kind = p.v_scale_kind = ASSAY_SCALE_NONE; }},
    // vLLM's AITER: nothing of it is planted elsewhere.
    {"gather_from_start", kAiter, "gather", Where::kStage, AITER, "starts_zero",
     [](P&, T& t) { change(t.seq_starts, [](int32_t, int32_t) { return 0; }); }},
    {"gather_unscaled", kAiter, "gather", Where::kStage, CODES, "scale_missing",
     [](P& p, T&) { p.k_scale_kind = ASSAY_SCALE_NONE; }},
    {"gather_first_table", kAiter, "gather", Where::kStage,
     "step h=4/2 d=64 page=8 budget=32 batch=2q9s60_1q12 seed=3", "table_of_one", first_table},
    {"chunks_half_budget", kAiter, "chunks", Where::kStage, AITER, "budget_other",
     [](P& p, T&) { p.token_budget /= 2; }},
    {"chunks_one_key_less", kAiter, "chunks", Where::kStage, AITER, "lengths_off_by_one",
     [](P&, T& t) { change(t.kv_len, [](int32_t n, int32_t) { return n - 1; }); }},
    {"split_threshold", kAiter, "split", Where::kStage, AITER, "threshold_other",
     [](P& p, T&) { p.threshold += 8; }},
    {"split_last_missing", kAiter, "split", Where::kStage, AITER, "last_request_missing",
     nullptr, [](P& p, T& t) { static_cast<int32_t*>(t.out_cu_q.data)[p.requests + 2] = 0; }},
    {"context_causal", kAiter, "context", Where::kStage, AITER, "mask_causal", causal},
    {"merge_by_largest", kAiter, "merge", Where::kStage, AITER, "merge_largest",
     [](P&, T& t) {
       static std::vector<float> lse;
       const int64_t n = elements(t.partial_lse);
       lse.assign(floats(t.partial_lse), floats(t.partial_lse) + n);
       for (float& x : lse) x *= 1000;
       t.partial_lse.data = lse.data();
     }},
    {"write_next_slot", kUnified, "write", Where::kStage, LOCAL, "slots_shifted",
     [](P&, T& t) { change_slots(t, [](std::vector<int64_t>& s) { std::rotate(s.begin(), s.begin() + 1, s.end()); }); }},
    {"attend_v_scale_for_k", kUnified, "attend", Where::kStage,
     "step h=4/2 d=64 page=8 kv=fp8_e4m3:head batch=2q1s40_1q9s60 seed=3", "scale_other",
     [](P&, T& t) { t.k_scale.data = t.v_scale.data; }},
    {"attend_cap_missing", kUnified, "attend", Where::kStage,
     "step h=4/2 d=64 page=8 cap=2 batch=2q1s40_1q9s60 seed=3", "cap_missing", [](P& p, T&) { p.softcap = 0; }},
    // Drawn before there was anything to explain them with.
    {"drawn_first_lse_of_base_2", kSglang, "merge", Where::kStage, TREE, "merge_base2", first_lse_of_base_2},
    {"drawn_gather_from_whole_pages", kAiter, "gather", Where::kStage,
     "step h=4/2 d=64 page=8 budget=20 batch=2q1s40_2q9s60_1q12 seed=3", "starts_other",
     [](P& p, T& t) {
       change(t.seq_starts, [&](int32_t n, int32_t) { return n / p.page_size * p.page_size; });
     }},
    {"drawn_second_table_late", kUnified, "attend", Where::kStage,
     "step h=4/2 d=64 page=8 batch=2q1s40_1q9s60 seed=3", "table_shifted", second_table_late},
    {"drawn_v_for_k", kSglang, "draft", Where::kStage, TREE, "v_for_k",
     [](P&, T& t) { t.k.data = t.v.data; }},
    {"drawn_threshold_0", kAiter, "split", Where::kStage, AITER, "threshold_other",
     [](P& p, T&) { p.threshold = 0; }},
};

}  // namespace

std::span<const PlantedStep> planted_stages() { return kStages; }

}  // namespace planted_steps
