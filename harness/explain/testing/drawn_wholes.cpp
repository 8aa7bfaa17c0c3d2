// SPDX-License-Identifier: Apache-2.0
// Steps that show no stages, of mechanisms that planted_wholes.cpp has not: listed with their place and
// causes before anybody saw what explain says of them, and scored beside those. A new one: a row.
#include <algorithm>
#include <cstring>

#include "harness/explain/testing/planted_steps.hpp"

namespace planted_steps {
namespace {

using P = assay_problem;
using T = assay_tensors;

#define PLAIN "step h=4/2 d=64 page=8 batch=2q1s40_1q9s60_1q12 seed=17"
#define BIAS "step h=4/2 d=64 page=8 alibi=linear batch=2q1s40_2q9s60 seed=17"
#define CODES "step h=4/2 d=64 page=8 kv=fp8_e4m3:head batch=2q1s40_2q9s60 seed=17"
#define SINKS "step h=4/2 d=64 page=8 sinks=on batch=2q1s40_2q9s60 seed=17"
#define TREE "step h=4/2 d=64 page=4 threshold=8 mask=tree batch=2q6s40_1q5s9 seed=17"

constexpr const char* kUnified = "step_unified_cpu";

// One number a head, those of the next head.
void of_next_head(T& t, assay_tensor T::*operand) {
  assay_tensor& own = t.*operand;
  static std::vector<float> turned;
  const auto* data = static_cast<const float*>(own.data);
  turned.assign(data, data + own.shape[0]);
  std::rotate(turned.begin(), turned.begin() + 1, turned.end());
  own.data = turned.data();
}

// Numbers of one axis, times `by`, or one over each.
float* copied_floats(assay_tensor& own) {
  static std::vector<std::vector<float>> all;
  std::vector<float>& list = all.emplace_back();
  for (int64_t i = 0; i < own.shape[0]; ++i)
    list.push_back(static_cast<const float*>(own.data)[i * own.stride[0]]);
  own.data = list.data(), own.stride[0] = 1;
  return list.data();
}
void scaled(assay_tensor& own, float by) {
  float* list = copied_floats(own);
  for (int64_t i = 0; i < own.shape[0]; ++i) list[i] *= by;
}
void inverted(assay_tensor& own) {
  float* list = copied_floats(own);
  for (int64_t i = 0; i < own.shape[0]; ++i) list[i] = 1 / list[i];
}

constexpr PlantedStep kDrawn[] = {
    {"drawn2_sink_of_next_head", kUnified, "attend", Where::kWhole, SINKS, "sinks.other_head",
     [](P&, T& t) { of_next_head(t, &T::sinks); }},
    {"drawn2_bias_missing", kUnified, "attend", Where::kWhole, BIAS, "bias_missing alibi.ignored",
     [](P& p, T&) { p.alibi = ASSAY_ALIBI_NONE; }},
    {"drawn2_bias_of_next_head", kUnified, "attend", Where::kWhole, BIAS, "alibi.other_head",
     [](P&, T& t) { of_next_head(t, &T::alibi_slopes); }},
    {"drawn2_v_unscaled", kUnified, "write", Where::kWhole, CODES, "scale_missing",
     [](P& p, T&) { p.v_scale_kind = ASSAY_SCALE_NONE; }},
    {"drawn2_scales_exchanged", kUnified, "write", Where::kWhole, CODES, "scale_other",
     [](P&, T& t) { std::swap(t.k_scale.data, t.v_scale.data); }},
    {"drawn2_scale_of_first_head", kUnified, "write", Where::kWhole, CODES, "scale_of_one",
     [](P&, T& t) { t.k_scale.stride[0] = 0, t.v_scale.stride[0] = 0; }},
    {"drawn2_slots_backwards", kUnified, "write", Where::kWhole, PLAIN, "slots_shifted",
     [](P&, T& t) { change_slots(t, [](std::vector<int64_t>& s) { std::reverse(s.begin(), s.end()); }); }},
    {"drawn2_one_row_unwritten", kUnified, "write", Where::kWhole, PLAIN, "row_missing",
     [](P&, T& t) { change_slots(t, [](std::vector<int64_t>& s) { s[s.size() / 2] = -1; }); }},
    {"drawn2_k_of_row_before", kUnified, "write", Where::kWhole, PLAIN, "rows_shifted slots_shifted",
     [](P&, T& t) {
       // Row i takes the K of row i - 1, the first its own.
       static std::vector<char> rows;
       const int64_t row = t.dense_k.stride[0] * 2, count = t.dense_k.shape[0];
       const auto* own = static_cast<const char*>(t.dense_k.data);
       rows.assign(own, own + row * count);
       std::memmove(rows.data() + row, rows.data(), static_cast<size_t>(row * (count - 1)));
       t.dense_k.data = rows.data();
     }},
    {"drawn2_shortest_length", kUnified, "attend", Where::kWhole,
     "step h=4/2 d=64 page=8 batch=1q3s70_3q3s40_1q3s90 seed=17", "lengths_of_one lengths_other",
     [](P& p, T& t) {
       set_lengths(p, t,
                   [](const P& q, int32_t) { return *std::min_element(q.kv_len, q.kv_len + q.requests); });
     }},
    {"drawn2_whole_pages", kUnified, "attend", Where::kWhole, PLAIN, "lengths_other keys.tail_dropped",
     [](P& p, T& t) {
       set_lengths(p, t, [](const P& q, int32_t r) {
         return std::max(q.q_len[r], q.kv_len[r] / q.page_size * q.page_size);
       });
     }},
    {"drawn2_table_entry_late", kUnified, "attend", Where::kWhole, PLAIN,
     "table_shifted page.wrong keys.wrong_start",
     [](P&, T& t) {
       int32_t* table = copied(t.block_table);
       const int64_t pages = t.block_table.shape[1];
       for (int64_t r = 0; r < t.block_table.shape[0]; ++r) {
         int32_t* own = table + r * pages;
         // The first two pages of a request in place of each other would be a permutation: its first page is
         // read twice.
         own[1] = own[0];
       }
     }},
    {"drawn2_query_heads_backwards", kUnified, "attend", Where::kWhole, PLAIN,
     "heads.q_swapped heads.kv_mapping",
     [](P& p, T& t) {
       t.q.data = static_cast<char*>(t.q.data) + (p.heads_q - 1) * t.q.stride[1] * 2;
       t.q.stride[1] = -t.q.stride[1];
     }},
    {"drawn2_chunk_ignored", kUnified, "attend", Where::kWhole,
     "step h=4/2 d=64 page=4 chunk=16 batch=2q1s40_2q9s60 seed=17", "chunk_missing mask.chunk_ignored",
     [](P& p, T&) { p.mask = ASSAY_MASK_CAUSAL, p.chunk = 0; }},
    {"drawn2_window_halved", kUnified, "attend", Where::kWhole,
     "step h=4/2 d=64 page=8 window=20 batch=2q1s40_2q9s60 seed=17", "window_other mask.window_short",
     [](P& p, T&) { p.window_left /= 2; }},
    {"drawn2_tree_transposed", kUnified, "attend", Where::kWhole, TREE, "mask.tree_transposed mask_tree",
     [](P& p, T& t) {
       static std::vector<uint8_t> turned;
       const auto* own = static_cast<const uint8_t*>(t.tree_mask.data);
       turned.assign(own, own + t.tree_mask.shape[0]);
       int64_t at = 0;
       for (int32_t r = 0; r < p.requests; ++r) {
         const int32_t n = p.q_len[r];
         for (int32_t i = 0; i < n; ++i)
           for (int32_t j = 0; j < n; ++j) turned[static_cast<size_t>(at + i * n + j)] = own[at + j * n + i];
         at += n * n;
       }
       t.tree_mask.data = turned.data();
     }},
    {"drawn2_softmax_unscaled", kUnified, "attend", Where::kWhole, PLAIN, "softmax_scale scale.softmax",
     [](P& p, T&) { p.softmax_scale = 1; }},
    {"drawn2_v_of_first_head", kUnified, "write", Where::kWhole, PLAIN,
     "heads.one_side other_operand scale_of_one", [](P&, T& t) { t.dense_v.stride[1] = 0; }},
    // Drawn on 2026-11-29, after all that was changed for those above.
    {"drawn3_tables_of_two_exchanged", kUnified, "attend", Where::kWhole, PLAIN,
     "table_of_next table_other page.of_other_request",
     [](P&, T& t) {
       int32_t* table = copied(t.block_table);
       const int64_t pages = t.block_table.shape[1];
       std::swap_ranges(table, table + pages, table + pages);
     }},
    {"drawn3_table_in_a_ring", kUnified, "attend", Where::kWhole, PLAIN, "table_other page.wrong",
     [](P&, T& t) {
       int32_t* table = copied(t.block_table);
       const int64_t pages = t.block_table.shape[1];
       for (int64_t r = 0; r < t.block_table.shape[0]; ++r)
         for (int64_t i = 4; i < pages; ++i) table[r * pages + i] = table[r * pages + i % 4];
     }},
    {"drawn3_three_keys_late", kUnified, "attend", Where::kWhole, PLAIN,
     "lengths_other lengths_off_by_one keys.kv_len_short",
     [](P& p, T& t) {
       set_lengths(p, t, [](const P& q, int32_t r) { return std::max(q.q_len[r], q.kv_len[r] - 3); });
     }},
    {"drawn3_whole_pages_up", kUnified, "attend", Where::kWhole,
     "step h=4/2 d=64 page=8 batch=2q1s40_2q3s61_1q12 seed=17", "lengths_other mask.causal_long",
     [](P& p, T& t) {
       set_lengths(p, t, [](const P& q, int32_t r) {
         return (q.kv_len[r] + q.page_size - 1) / q.page_size * q.page_size;
       });
     }},
    {"drawn3_slopes_negated", kUnified, "attend", Where::kWhole, BIAS, "alibi.sign bias_other",
     [](P&, T& t) { scaled(t.alibi_slopes, -1); }},
    {"drawn3_slope_of_first_head", kUnified, "attend", Where::kWhole, BIAS, "alibi.other_head bias_other",
     [](P&, T& t) { t.alibi_slopes.stride[0] = 0; }},
    {"drawn3_sinks_in_base2", kUnified, "attend", Where::kWhole, SINKS, "sinks.unscaled sinks.other_value",
     [](P&, T& t) { scaled(t.sinks, 1.442695f); }},
    {"drawn3_scales_inverted", kUnified, "write", Where::kWhole, CODES, "scale_other scale_twice",
     [](P&, T& t) { inverted(t.k_scale), inverted(t.v_scale); }},
    {"drawn3_rows_of_the_first", kUnified, "write", Where::kWhole, PLAIN, "rows_shifted",
     [](P&, T& t) { t.dense_k.stride[0] = t.dense_v.stride[0] = 0; }},
    {"drawn3_query_of_next_row", kUnified, "attend", Where::kWhole, PLAIN,
     "rows_shifted rows.query_of_other_row",
     [](P& p, T& t) {
       // Row i takes the Q of row i + 1, the last its own.
       static std::vector<char> rows;
       const int64_t row = t.q.stride[0] * 2;
       const auto* own = static_cast<const char*>(t.q.data);
       rows.assign(own + row, own + row * p.total_q);
       rows.insert(rows.end(), own + row * (p.total_q - 1), own + row * p.total_q);
       t.q.data = rows.data();
     }},
    {"drawn3_tree_of_the_first", kUnified, "attend", Where::kWhole, TREE, "tree_of_one mask_tree",
     [](P& p, T& t) {
       static std::vector<uint8_t> turned;
       const auto* own = static_cast<const uint8_t*>(t.tree_mask.data);
       turned.assign(own, own + t.tree_mask.shape[0]);
       for (int32_t r = 1; r < p.requests && p.q_len[r] == p.q_len[0]; ++r)
         std::copy_n(own, p.q_len[0] * p.q_len[0], turned.begin() + r * p.q_len[0] * p.q_len[0]);
       t.tree_mask.data = turned.data();
     }},
    {"drawn3_decodes_unwritten", kUnified, "write", Where::kWhole, PLAIN, "row_missing",
     [](P& p, T& t) {
       change_slots(t, [](std::vector<int64_t>& s) { std::fill_n(s.begin(), 2, -1); });
       static_cast<void>(p);
     }},
    {"drawn3_kv_heads_exchanged", kUnified, "write", Where::kWhole, PLAIN,
     "heads.kv_mapping heads.one_side other_operand",
     [](P& p, T& t) {
       t.dense_k.data = static_cast<char*>(t.dense_k.data) + (p.heads_kv - 1) * t.dense_k.stride[1] * 2;
       t.dense_k.stride[1] = -t.dense_k.stride[1];
     }},
    {"drawn3_chunks_doubled", kUnified, "attend", Where::kWhole,
     "step h=4/2 d=64 page=4 chunk=16 batch=2q1s40_2q9s60 seed=17", "chunk_other",
     [](P& p, T&) { p.chunk *= 2; }},
};

}  // namespace

std::span<const PlantedStep> drawn_wholes() { return kDrawn; }

}  // namespace planted_steps
