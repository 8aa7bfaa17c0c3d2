// SPDX-License-Identifier: Apache-2.0
// What a paged cache's layout, storage, page table and strides leave undefined (see rules.cpp).
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"
#include "harness/scenario/rule_tables.hpp"

namespace assay {
namespace {

bool has_table(const Scenario& s) { return find_operand(op_of(s.op), Operand::kBlockTable) != nullptr; }
bool packed_layout(const Scenario& s) {
  return s.layout == ASSAY_LAYOUT_X || s.layout == ASSAY_LAYOUT_SHUFFLED;
}

std::string format_pair(const Scenario& s) {
  return fmt::format("{}/{}", name_of(format_names(), s.k.format), name_of(format_names(), s.v.format));
}

}  // namespace

std::vector<Rule> storage_rules() {
  return {
      {"mla_heads",
       {"layout", "h"},
       [](const Scenario& s) { return s.layout != ASSAY_LAYOUT_MLA || s.heads_kv == 1; },
       [](const Scenario& s) {
         return fmt::format(
             "layout=mla holds one latent row per token, so it has one KV head, not {}; write h={}/1",
             s.heads_kv, s.heads_q);
       }},
      {"mla_dims",
       {"layout", "d"},
       [](const Scenario& s) { return s.layout != ASSAY_LAYOUT_MLA || s.head_dim_v <= s.head_dim_qk; },
       [](const Scenario& s) {
         return fmt::format(
             "layout=mla takes V from the front of K's row, so V's dimension {} cannot exceed {}; "
             "e.g. d=576/512",
             s.head_dim_v, s.head_dim_qk);
       }},
      {"mla_formats",
       {"layout", "kv"},
       [](const Scenario& s) { return s.layout != ASSAY_LAYOUT_MLA || s.k == s.v; },
       [](const Scenario&) {
         return std::string(
             "layout=mla keeps K and V in the same bytes, so they have one format and one scale; "
             "write kv= without a slash");
       }},
      {"mla_storage",
       {"layout", "storage"},
       [](const Scenario& s) { return s.layout != ASSAY_LAYOUT_MLA || s.storage == Storage::kSplit; },
       [](const Scenario&) {
         return std::string("layout=mla has no V plane to stack or interleave; leave out storage=");
       }},
      {"packed_dim",
       {"layout", "d", "kv"},
       [](const Scenario& s) { return !packed_layout(s) || s.head_dim_qk % pack_width(s.k.format) == 0; },
       [](const Scenario& s) {
         return fmt::format(
             "layout={} packs {} elements of K into 16 bytes, and d={} is not a multiple of that; "
             "change d or the layout",
             name_of(layout_names(), s.layout), pack_width(s.k.format), s.head_dim_qk);
       }},
      {"packed_page",
       {"layout", "page", "kv"},
       [](const Scenario& s) {
         return s.layout != ASSAY_LAYOUT_SHUFFLED || s.page_size % pack_width(s.k.format) == 0;
       },
       [](const Scenario& s) {
         return fmt::format(
             "layout=shuffled packs {} tokens of V together, and page={} is not a multiple of that; "
             "change page or the layout",
             pack_width(s.k.format), s.page_size);
       }},
      {"shared_storage",
       {"storage", "d", "kv"},
       [](const Scenario& s) {
         return s.storage == Storage::kSplit ||
                (s.head_dim_qk == s.head_dim_v && (s.k.format == s.v.format || s.head_dim_qk % 4 == 0));
       },
       [](const Scenario& s) {
         if (s.head_dim_qk != s.head_dim_v)
           return fmt::format(
               "K and V in one allocation need equal head dimensions, not d={}/{}; make them so or write "
               "storage=split",
               s.head_dim_qk, s.head_dim_v);
         return fmt::format(
             "K and V of two formats, kv={}, in one allocation need a head dimension that is a multiple of "
             "4, not {}; change d or write storage=split",
             format_pair(s), s.head_dim_qk);
       }},
      {"swa_index",
       {"index", "window", "chunk", "mask"},
       [](const Scenario& s) {
         return !s.swa_index || (s.mask == ASSAY_MASK_CAUSAL && (s.window_left >= 0 || s.chunk > 0));
       },
       [](const Scenario& s) {
         const bool far = s.window_left < 0 && s.chunk == 0;
         return fmt::format("index=swa keeps the pages a window or chunk can still see; it needs {}{}{}",
                            far ? "a window to the left (window=LEFT) or chunk=" : "",
                            far && s.mask != ASSAY_MASK_CAUSAL ? " and " : "",
                            s.mask != ASSAY_MASK_CAUSAL ? "mask=causal" : "");
       }},
      {"strided_table",
       {"strides", "table", "op"},
       [](const Scenario& s) { return !s.strided.table || (has_table(s) && s.table != ASSAY_TABLE_CSR); },
       [](const Scenario& s) {
         if (!has_table(s))
           return fmt::format(
               "strides=table pads the rows of a two-dimensional page table, and {} reads none; leave it "
               "out",
               op_of(s.op).name);
         return std::string(
             "strides=table pads the rows of a two-dimensional page table; write table=block or "
             "table=token");
       }},
      {"strided_last",
       {"strides", "layout"},
       [](const Scenario& s) { return !s.strided.last || !packed_layout(s); },
       [](const Scenario& s) {
         return fmt::format(
             "strides=last puts dimensions apart, and layout={} packs 16 bytes of them; take layout=nhd, "
             "hnd or mla",
             name_of(layout_names(), s.layout));
       }},
      {"drawn_slots",
       {"slots", "table", "op"},
       [](const Scenario& s) {
         return !s.drawn_slots ||
                (takes(op_of(s.op), "slots") && (!has_table(s) || s.table == ASSAY_TABLE_TOKEN));
       },
       [](const Scenario& s) {
         if (!takes(op_of(s.op), "slots"))
           return fmt::format("{} finds tokens by their page; leave out slots=drawn", op_of(s.op).name);
         return std::string("slots=drawn needs an entry for every token; write table=token");
       }},
      {"strided_scales",
       {"strides", "q", "kv"},
       [](const Scenario& s) {
         return !s.strided.scales || s.q.scale == ASSAY_SCALE_TOKEN_HEAD ||
                s.k.scale == ASSAY_SCALE_TOKEN_HEAD || s.v.scale == ASSAY_SCALE_TOKEN_HEAD;
       },
       [](const Scenario&) {
         return std::string(
             "strides=scales transposes per-token scales; give q or kv a token_head scale, e.g. "
             "kv=int8:token_head");
       }},
  };
}

}  // namespace assay
