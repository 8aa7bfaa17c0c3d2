// SPDX-License-Identifier: Apache-2.0
// Pipelines whose stages are all right on what they are given, and one is given something else than the step
// means, runs at another time or not at all.
#include <algorithm>

#include "harness/explain/testing/planted_steps.hpp"

namespace planted_steps {
namespace {

using P = assay_problem;
using T = assay_tensors;

#define TREE "step h=4/2 d=64 page=4 threshold=8 mask=tree sinks=on batch=2q6s40_1q5s9 seed=5"
#define PATH "step h=4/2 d=64 page=4 threshold=8 mask=tree window=4 positions=depth batch=2q6s40_1q5s9 seed=5"
#define AITER "step h=4/2 d=64 page=8 budget=32 batch=2q1s40_1q9s60_1q12 seed=5"
#define CODES "step h=4/2 d=64 page=8 kv=fp8_e4m3:head batch=2q1s40_1q9s60 seed=5"
#define PLAIN "step h=4/2 d=64 page=8 batch=2q1s40_1q9s60_1q12 seed=5"
#define SHARED "step h=4/2 d=64 layout=hnd prefix=256 threshold=2 sinks=on batch=8q2s300p256 seed=5"
#define MLA "step h=16/1 d=96/64 layout=mla page=8 batch=2q4s40_1q2s60 seed=5"

constexpr const char *kSglang = "step_sglang_fa_cpu", *kAiter = "step_aiter_fa_cpu",
                     *kIxformer = "step_ixformer_fa_cpu", *kAiterMla = "step_aiter_mla_cpu",
                     *kUnified = "step_unified_cpu";

constexpr PlantedStep kWiring[] = {
    {"prefix_after_append", kSglang, "prefix", Where::kWiring, TREE, "lengths_with_new",
     [](P& p, T& t) { t.kv_len = list_of(p.kv_len, p.requests); }},
    {"attend_before_append", kUnified, "attend", Where::kWiring, PLAIN, "lengths_without_new",
     [](P& p, T& t) { change(t.kv_len, [&](int32_t n, int32_t r) { return std::max(0, n - p.q_len[r]); }); }},
    {"attend_one_key_less", kUnified, "attend", Where::kWiring, PLAIN, "lengths_off_by_one",
     [](P&, T& t) { change(t.kv_len, [](int32_t n, int32_t) { return n - 1; }); }},
    {"attend_tables_turned", kUnified, "attend", Where::kWiring, "step h=4/2 d=64 page=8 batch=4q3s40 seed=5",
     "table_of_next table_shifted",
     [](P&, T& t) {
       int32_t* pages = copied(t.block_table);
       std::rotate(pages, pages + t.block_table.stride[0], pages + elements(t.block_table));
     }},
    {"attend_first_table", kUnified, "attend", Where::kWiring, "step h=4/2 d=64 page=8 batch=4q3s40 seed=5",
     "table_of_one", [](P&, T& t) { t.block_table.stride[0] = 0; }},
    {"k_scale_of_v", kUnified, "attend", Where::kWiring, CODES, "scale_other",
     [](P&, T& t) { t.k_scale.data = t.v_scale.data; }},
    {"v_scale_of_k", kUnified, "attend", Where::kWiring, CODES, "scale_other",
     [](P&, T& t) { t.v_scale.data = t.k_scale.data; }},
    {"written_by_v_scale", kUnified, "write", Where::kWiring, CODES, "scale_other",
     [](P&, T& t) { t.k_scale.data = t.v_scale.data; }},
    {"k_written_as_v", kUnified, "write", Where::kWiring, PLAIN, "v_for_k",
     [](P&, T& t) { t.dense_v.data = t.dense_k.data; }},
    {"write_a_row_less", kUnified, "write", Where::kWiring, PLAIN, "row_missing", [](P& p, T&) { --p.rows; }},
    {"tree_as_full", kSglang, "prefix", Where::kWiring, TREE, "mask_causal",
     [](P& p, T&) { p.mask = ASSAY_MASK_CAUSAL; }},
    {"sink_in_both", kSglang, "merge", Where::kWiring, TREE, "sink_missing",
     [](P& p, T&) { p.has_sinks = 0; }},
    {"merge_of_first_twice", kSglang, "merge", Where::kWiring, TREE, "state_twice",
     [](P&, T& t) { t.partial_o.stride[0] = t.partial_lse.stride[0] = 0; }},
    {"lse_of_other_part", kSglang, "merge", Where::kWiring, TREE, "states_exchanged",
     [](P&, T& t) {
       t.partial_lse.data = static_cast<float*>(t.partial_lse.data) + t.partial_lse.stride[0];
       t.partial_lse.stride[0] = -t.partial_lse.stride[0];
     }},
    {"path_without_window", kSglang, "path", Where::kWiring, PATH, "window_missing",
     [](P& p, T&) { p.window_left = -1; }},
    {"extend_full", kAiter, "extend", Where::kWiring, AITER, "mask_full",
     [](P& p, T&) { p.mask = ASSAY_MASK_FULL; }},
    {"context_masked", kAiter, "context", Where::kWiring, AITER, "mask_causal",
     [](P& p, T&) { p.mask = ASSAY_MASK_CAUSAL; }},
    {"gather_starts_zero", kAiter, "gather", Where::kWiring, AITER, "starts_zero",
     [](P&, T& t) { change(t.seq_starts, [](int32_t, int32_t) { return 0; }); }},
    {"decode_before_append", kAiter, "decode", Where::kWiring, AITER,
     "lengths_without_new lengths_off_by_one",
     [](P&, T& t) { change(t.kv_len, [](int32_t n, int32_t) { return n - 1; }); }},
    {"suffix_one_key_less", kIxformer, "suffix", Where::kWiring, SHARED, "lengths_off_by_one",
     [](P&, T& t) { change(t.kv_len, [](int32_t n, int32_t) { return n - 1; }); }},
    {"tokens_old_lengths", kAiterMla, "tokens", Where::kWiring, MLA, "lengths_without_new",
     [](P& p, T& t) { change(t.kv_len, [&](int32_t n, int32_t r) { return n - p.q_len[r]; }); }},
    {"extend_starts_arange", kAiterMla, "extend", Where::kWiring, MLA, "starts_arange",
     [](P&, T& t) { change(t.cu_q, [](int32_t, int32_t r) { return r; }); }},
    {"scaled_by_latent_part", kAiterMla, "extend", Where::kWiring, MLA, "softmax_scale",
     [](P& p, T&) { p.softmax_scale *= 1.2247449f; }},
    // Drawn before there was anything to explain them with.
    {"drawn_suffix_of_whole_lengths", kIxformer, "suffix", Where::kWiring, SHARED,
     "lengths_other lengths_with_new",
     [](P& p, T& t) { change(t.kv_len, [&](int32_t n, int32_t) { return n + p.page_size * 16; }); }},
    {"drawn_slots_reversed", kUnified, "write", Where::kWiring, PLAIN, "slots_shifted",
     [](P&, T& t) { change_slots(t, [](std::vector<int64_t>& s) { std::reverse(s.begin(), s.end()); }); }},
    {"nobody_writes", kUnified, "write", Where::kLeftOut, PLAIN, "left_out"},
    {"nobody_merges", kSglang, "merge", Where::kLeftOut, TREE, "left_out"},
    {"nobody_lists_drafts", kSglang, "drafts", Where::kLeftOut, TREE, "left_out"},
    {"written_last", kUnified, "write", Where::kLate, PLAIN, "out_of_order"},
    {"lists_last", kSglang, "drafts", Where::kLate, TREE, "out_of_order"},
};

}  // namespace

std::span<const PlantedStep> planted_wiring() { return kWiring; }

}  // namespace planted_steps
