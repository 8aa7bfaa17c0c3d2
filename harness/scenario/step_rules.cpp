// SPDX-License-Identifier: Apache-2.0
// What steps and their encoders, ranks and parts of latent rows leave undefined (see op_rules.cpp).
#include <algorithm>

#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/extent.hpp"
#include "harness/scenario/field_names.hpp"
#include "harness/scenario/limits.hpp"
#include "harness/scenario/rule_tables.hpp"

namespace assay {
namespace {

// A step that a group of ranks runs (harness/run/rank_group.hpp), one of a single rank too.
bool is_for_group(const Scenario& s) {
  const Op& op = op_of(s.op);
  return op.attends_rows && takes(op, "ranks") && (s.ranks > 1 || s.interleave > 1);
}

// As the line has it: "ranks=2", "the ranks of interleave=16".
std::string group_text(const Scenario& s) {
  return s.ranks > 1 ? fmt::format("ranks={}", s.ranks)
                     : fmt::format("the ranks of interleave={}", s.interleave);
}

}  // namespace

std::vector<Rule> step_rules() {
  return {
      {"latent_sources",
       {"op", "sources", "layout", "d"},
       [](const Scenario& s) {
         return !s.split_latent || (takes(op_of(s.op), "sources") && s.head_dim_v < s.head_dim_qk &&
                                    (op_of(s.op).attends_rows || s.layout == ASSAY_LAYOUT_MLA));
       },
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         const char* what = "sources=2 are the latent and the rope part of a row";
         if (!takes(op, "sources"))
           return fmt::format("{} of cache_write layout=mla or of a step; leave it out of {}", what, op.name);
         if (s.head_dim_v >= s.head_dim_qk)
           return fmt::format("{}, which d={}/{} leaves none; make V narrower than K, such as d=192/128",
                              what, s.head_dim_qk, s.head_dim_v);
         return fmt::format("{}, which {} has with layout=mla alone, not {}", what, op.name,
                            name_of(layout_names(), s.layout));
       }},
      {"sources_mask",
       {"op", "sources", "mask"},
       [](const Scenario& s) {
         return !s.split_latent || (s.mask != ASSAY_MASK_CROSS && s.mask != ASSAY_MASK_FULL);
       },
       [](const Scenario& s) {
         return fmt::format(
             "sources=2 are parts of a decoder's new rows, not of an encoder's; take sources=1, "
             "or mask=causal or tree instead of {}",
             name_of(mask_names(), s.mask));
       }},
      {"shared_rope",
       {"op", "sources", "layout", "input"},
       [](const Scenario& s) {
         return !s.split_latent || s.layout == ASSAY_LAYOUT_MLA || !answer_is_known(s.recipe);
       },
       [](const Scenario& s) {
         return fmt::format(
             "input={} knows the answer for keys of each head, and sources=2 gives unfolded heads one rope "
             "part; "
             "take another input, or layout=mla",
             name_of(kRecipeNames, static_cast<int32_t>(s.recipe)));
       }},
      {"encoder",
       {"op", "encoder", "table", "mask", "batch"},
       [](const Scenario& s) {
         return s.encoder_tokens == 0 ||
                (takes(op_of(s.op), "encoder") && s.table != ASSAY_TABLE_CSR && s.mask != ASSAY_MASK_CROSS &&
                 s.encoder_tokens <= kMaxTokens - extent_of(s.batch).max_kv);
       },
       [](const Scenario& s) {
         if (!takes(op_of(s.op), "encoder"))
           return fmt::format("encoder={} is of step and decode_metadata; leave it out of {}",
                              s.encoder_tokens, op_of(s.op).name);
         if (s.mask == ASSAY_MASK_CROSS)
           return std::string(
               "mask=cross attends to the encoder itself, whose tokens are s; encoder= is of the layers that "
               "attend behind it: leave it out");
         const char* what = "the encoder's tokens stand before the request's own in a row of the table";
         if (s.table == ASSAY_TABLE_CSR)
           return fmt::format("encoder={}: {}; take table=block or token", s.encoder_tokens, what);
         return fmt::format("encoder={}: {}, {} tokens at most together", s.encoder_tokens, what, kMaxTokens);
       }},
      {"full_pool",
       {"op", "pool"},
       [](const Scenario& s) { return !s.full_pool || takes(op_of(s.op), "pool"); },
       [](const Scenario& s) {
         return fmt::format("pool=full is of step and local_batches; leave it out of {}", op_of(s.op).name);
       }},
      {"encoder_step",
       {"op", "mask", "write", "batch", "prefix"},
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         if (s.mask != ASSAY_MASK_FULL || op.whole_context || !takes(op, "write")) return true;
         const std::vector<BatchGroup>& groups = s.batch.groups;
         return s.no_write && s.prefix_tokens == 0 && s.batch.kind == BatchSpec::Kind::kMix &&
                std::all_of(groups.begin(), groups.end(),
                            [](const BatchGroup& g) { return g.q_len == g.kv_len && g.shared == 0; });
       },
       [](const Scenario& s) {
         const bool groups =
             s.batch.kind == BatchSpec::Kind::kMix &&
             std::all_of(s.batch.groups.begin(), s.batch.groups.end(),
                         [](const BatchGroup& g) { return g.q_len == g.kv_len && g.shared == 0; });
         std::string write = s.no_write ? "" : "write write=off";
         if (!groups)
           write += fmt::format("{} groups without s, such as batch=2q9", write.empty() ? "write" : " and");
         return fmt::format(
             "mask=full of {} are the rows of an encoder, which see each other and are kept in no cache; "
             "{}{}{}",
             op_of(s.op).name, write, !write.empty() && s.prefix_tokens != 0 ? ", and " : "",
             s.prefix_tokens != 0 ? "leave out prefix=" : "");
       }},
      {"cross_distances",
       {"op", "mask", "window", "alibi", "prefix"},
       [](const Scenario& s) {
         return s.mask != ASSAY_MASK_CROSS || op_of(s.op).whole_context ||
                (s.window_left < 0 && s.window_right < 0 && s.alibi == ASSAY_ALIBI_NONE &&
                 s.prefix_tokens == 0);
       },
       [](const Scenario& s) {
         return fmt::format(
             "mask=cross of {} attends to all tokens of an encoder, to which rows have no distance; {} not "
             "for "
             "it",
             op_of(s.op).name, given_fields(s, {"window", "alibi", "prefix"}));
       }},
      {"ranks_heads",
       {"op", "ranks", "h"},
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         return !op.attends_rows || !takes(op, "ranks") || (s.ranks > 0 && s.heads_q % s.ranks == 0);
       },
       [](const Scenario& s) {
         std::string list;
         for (int32_t n = 1; n <= s.heads_q; ++n)
           if (s.heads_q % n == 0) list += (list.empty() ? "" : ", ") + std::to_string(n);
         return fmt::format("ranks={}: ranks share the {} heads of Q evenly; take {}", s.ranks, s.heads_q,
                            list);
       }},
      {"ranks_cache",
       {"op", "ranks", "interleave", "layout", "mask", "q", "kv", "write", "encoder", "pool", "sources"},
       [](const Scenario& s) {
         if (!is_for_group(s)) return true;
         const auto whole = [](const Quantization& q) { return q.scale != ASSAY_SCALE_TOKEN_HEAD; };
         return !s.no_write && !s.split_latent && s.encoder_tokens == 0 && !s.full_pool &&
                s.layout != ASSAY_LAYOUT_MLA && s.mask == ASSAY_MASK_CAUSAL &&
                s.q.scale == ASSAY_SCALE_NONE && whole(s.k) && whole(s.v);
       },
       [](const Scenario& s) {
         std::string not_shared;
         const auto add = [&](bool is, const std::string& text) {
           if (is) not_shared += (not_shared.empty() ? "" : ", ") + text;
         };
         add(s.mask != ASSAY_MASK_CAUSAL, fmt::format("mask={}", name_of(mask_names(), s.mask)));
         add(s.layout == ASSAY_LAYOUT_MLA, "layout=mla");
         add(s.no_write, "write=off");
         add(s.encoder_tokens != 0, "encoder=");
         add(s.full_pool, "pool=full");
         add(s.split_latent, "sources=2");
         add(s.q.scale != ASSAY_SCALE_NONE, "the scale of q=");
         add(s.k.scale == ASSAY_SCALE_TOKEN_HEAD || s.v.scale == ASSAY_SCALE_TOKEN_HEAD, "token_head of kv=");
         return fmt::format(
             "{} share causal attention over heads of K and V, without {}; leave that out, or {}",
             group_text(s), not_shared,
             s.ranks > 1 ? s.interleave > 1 ? "ranks= and interleave=" : "ranks=" : "interleave=");
       }},
      {"ranks_batch",
       {"op", "ranks", "interleave", "batch"},
       [](const Scenario& s) {
         // Local slots of what comes behind a shared prefix would lie in its pages.
         const auto& groups = s.batch.groups;
         return !is_for_group(s) ||
                (s.batch.kind != BatchSpec::Kind::kTrace &&
                 std::all_of(groups.begin(), groups.end(), [](auto& g) { return g.shared == 0; }));
       },
       [](const Scenario& s) {
         return fmt::format("{} share keys of requests with pages of their own; {}", group_text(s),
                            s.batch.kind == BatchSpec::Kind::kTrace
                                ? "write the lengths of a step instead of trace()"
                                : "leave out shared prefixes (p)");
       }},
  };
}

}  // namespace assay
