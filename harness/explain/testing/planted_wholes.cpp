// SPDX-License-Identifier: Apache-2.0
// Steps that show no stages and are told another problem, or other operands, than they are asked: dispatch
// and builders of a third party.
#include <algorithm>

#include "harness/explain/testing/planted_steps.hpp"

namespace planted_steps {
namespace {

using P = assay_problem;
using T = assay_tensors;

#define PLAIN "step h=4/2 d=64 page=8 batch=2q1s40_1q9s60_1q12 seed=7"
#define WINDOW "step h=4/2 d=64 page=8 window=11 batch=2q1s40_2q9s60 seed=7"
#define TREE "step h=4/2 d=64 page=4 threshold=8 mask=tree batch=2q6s40_1q5s9 seed=7"
#define CODES "step h=4/2 d=64 page=8 kv=fp8_e4m3:head batch=2q1s40_2q9s60 seed=7"
#define SINKS "step h=4/2 d=64 page=8 sinks=on cap=3 batch=2q1s40_2q9s60 seed=7"

constexpr const char* kUnified = "step_unified_cpu";

int32_t without_new(const P& p, int32_t request) { return p.kv_len[request] - p.q_len[request]; }

constexpr PlantedStep kWholes[] = {
    {"whole_tree_as_causal", kUnified, "attend", Where::kWhole, TREE, "mask_causal tree_as_causal",
     [](P& p, T&) { p.mask = ASSAY_MASK_CAUSAL; }},
    {"whole_all_drafts", kUnified, "attend", Where::kWhole, TREE, "drafts_all mask_full",
     [](P&, T& t) {
       static std::vector<uint8_t> ones(4096, 1);
       t.tree_mask.data = ones.data();
     }},
    {"whole_full", kUnified, "attend", Where::kWhole, PLAIN, "mask_full",
     [](P& p, T&) { p.mask = ASSAY_MASK_FULL; }},
    {"whole_context_only", kUnified, "attend", Where::kWhole, PLAIN, "new_keys_missing lengths_without_new",
     [](P& p, T& t) {
       p.mask = ASSAY_MASK_FULL;
       set_lengths(p, t, without_new);
     }},
    {"whole_length_of_before", kUnified, "attend", Where::kWhole, PLAIN, "lengths_without_new",
     [](P& p, T& t) { set_lengths(p, t, without_new); }},
    {"whole_window_wider", kUnified, "attend", Where::kWhole, WINDOW, "window_off_by_one",
     [](P& p, T&) { ++p.window_left; }},
    {"whole_window_missing", kUnified, "attend", Where::kWhole, WINDOW, "window_missing",
     [](P& p, T&) { p.window_left = -1; }},
    {"whole_first_table", kUnified, "attend", Where::kWhole,
     "step h=4/2 d=64 page=8 window=11 batch=4q3s40 seed=7", "table_of_one",
     [](P&, T& t) { t.block_table.stride[0] = 0; }},
    {"whole_unscaled", kUnified, "write", Where::kWhole, CODES, "scale_missing",
     [](P& p, T&) { p.k_scale_kind = ASSAY_SCALE_NONE; }},
    {"whole_sinks_missing", kUnified, "attend", Where::kWhole, SINKS, "sink_missing",
     [](P& p, T&) { p.has_sinks = 0; }},
    {"whole_cap_missing", kUnified, "attend", Where::kWhole, SINKS, "cap_missing",
     [](P& p, T&) { p.softcap = 0; }},
    {"whole_slots_shifted", kUnified, "write", Where::kWhole, PLAIN, "slots_shifted",
     [](P&, T& t) {
       change_slots(t, [](std::vector<int64_t>& s) { std::rotate(s.begin(), s.begin() + 1, s.end()); });
     }},
    {"whole_never_written", kUnified, "write", Where::kWhole, PLAIN, "left_out row_missing",
     [](P&, T& t) {
       static std::vector<int64_t> none(4096, -1);
       t.slot_mapping.data = none.data();
     }},
    {"whole_v_for_k", kUnified, "write", Where::kWhole, PLAIN, "v_for_k",
     [](P&, T& t) { t.dense_k.data = t.dense_v.data; }},
    {"whole_softmax_scale", kUnified, "attend", Where::kWhole, PLAIN, "softmax_scale",
     [](P& p, T&) { p.softmax_scale *= 1.4142135f; }},
    // Rows that come in two tensors: Q without its second one, halves of a projection by another scale.
    {"whole_rope_of_q_missing", "step_aiter_mla_cpu", "attend", Where::kWhole,
     "step h=4/1 d=48/32 layout=mla page=8 sources=2 batch=2q1s20_2q4s10 seed=7",
     "dims_missing dims.qk_dropped",
     [](P&, T& t) {
       static std::vector<uint16_t> zeros(1 << 16, 0);
       t.rope.data = zeros.data();
     }},
    {"whole_halves_scaled", "step_mla_prefill_cpu", "attend", Where::kWhole,
     "step h=4/2 d=64/48 sources=2 page=8 batch=2q1s20_2q4s30 seed=7", "softmax_scale",
     [](P& p, T&) { p.softmax_scale *= 1.4142135f; }},
    {"whole_starts_arange", kUnified, "attend", Where::kWhole, PLAIN, "starts_arange",
     [](P&, T& t) { change(t.cu_q, [](int32_t, int32_t r) { return r; }); }},
    // Drawn before there was anything to explain them with.
    {"drawn_whole_cap_twice", kUnified, "attend", Where::kWhole, SINKS, "cap_other",
     [](P& p, T&) { p.softcap *= 2; }},
    {"drawn_whole_last_request_unwritten", kUnified, "write", Where::kWhole, PLAIN, "row_missing",
     [](P& p, T& t) {
       change_slots(
           t, [&](std::vector<int64_t>& s) { std::fill(s.end() - p.q_len[p.requests - 1], s.end(), -1); });
     }},
    // What only the cache shows: no list that is read otherwise says it.
    {"whole_last_rows_unwritten", kUnified, "write", Where::kWhole, PLAIN, "row_missing",
     [](P& p, T& t) {
       change_slots(t, [&](std::vector<int64_t>& s) {
         for (int32_t r = 0, end = 0; r < p.requests; ++r)
           if (end += p.q_len[r]; p.q_len[r] > 1) s[static_cast<size_t>(end) - 1] = -1;
       });
     }},
    {"whole_padding_over_first_row", kUnified, "write", Where::kWhole,
     "step h=4/2 d=64 page=8 pad=3 batch=2q1s40_1q9s60_1q12 seed=7", "slots_shifted",
     [](P&, T& t) { change_slots(t, [](std::vector<int64_t>& s) { s.back() = s[0]; }); }},
    {"whole_round_the_first_page", kUnified, "write", Where::kWhole, PLAIN, "slots_shifted",
     [](P& p, T& t) {
       change_slots(t, [&](std::vector<int64_t>& s) {
         const int64_t page = p.page_size;
         size_t row = 0;
         for (int32_t r = 0; r < p.requests; ++r) {
           const int64_t first = s[row];
           for (int32_t i = 0; i < p.q_len[r]; ++i, ++row) {
             const int64_t slot = first / page * page + (first + i) % page;
             std::replace(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(row), slot, int64_t{-1});
             s[row] = slot;
           }
         }
       });
     }},
};

}  // namespace

std::span<const PlantedStep> planted_wholes() { return kWholes; }

}  // namespace planted_steps
