// SPDX-License-Identifier: Apache-2.0
// What the op of a line takes, as its description says (harness/ops): which fields, which scales its rows can
// have, which operands can be strided, which inputs mean something. Nothing here knows an op by name.
#include <algorithm>

#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/extent.hpp"
#include "harness/scenario/field_names.hpp"
#include "harness/scenario/fields.hpp"
#include "harness/scenario/limits.hpp"
#include "harness/scenario/rule_tables.hpp"

namespace assay {
namespace {

constexpr std::string_view kAttentionFields[] = {"mask",  "window", "chunk", "cap",   "alibi",
                                                 "scale", "sinks",  "index", "relate"};

// True when every field of attention that the op does not take stands at its default.
bool no_foreign_fields(const Scenario& s) {
  static const std::vector<int> indices = [] {
    std::vector<int> list;
    for (const std::string_view name : kAttentionFields) list.push_back(field_index(name));
    return list;
  }();
  const FieldSet own = fields_of(op_of(s.op));
  return std::all_of(indices.begin(), indices.end(), [&](int index) {
    return (own & field_bit(index)) != 0 || fields()[index].is_default(s);
  });
}

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

std::string ops_with(Operand operand) {
  std::string names;
  for (const Op* op : all_ops())
    if (find_operand(*op, operand) != nullptr) names += (names.empty() ? "" : ", ") + std::string(op->name);
  return names;
}

bool within(const StridedOperands& is, const StridedOperands& may) {
  return (may.q || !is.q) && (may.kv || !is.kv) && (may.out || !is.out) && (may.table || !is.table) &&
         (may.scales || !is.scales) && (may.last || !is.last);
}

}  // namespace

std::vector<Rule> op_rules() {
  return {
      {"block_fields",
       {"op", "mask", "window", "chunk", "cap", "alibi", "scale", "sinks", "index", "relate"},
       [](const Scenario& s) { return op_of(s.op).whole_context || no_foreign_fields(s); },
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         return fmt::format("{} belong to attention; leave them out of {}",
                            op.foreign_fields.empty() ? "masks, biases and relations" : op.foreign_fields,
                            op.name);
       }},
      {"op_masks",
       {"op", "mask", "positions"},
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         return (op.masks & mask_bit(s.mask)) != 0 &&
                (op.rows_anywhere || s.positions == kNoPositions || s.positions == kDepthPositions);
       },
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         if ((op.masks & mask_bit(s.mask)) != 0)
           return fmt::format(
               "positions= of {0} are none, or depth (of a draft in a tree, with mask=tree): its rows stand "
               "behind what is cached; take one of these, or paged or prefill, whose rows stand anywhere",
               op.name);
         std::string list;
         for (const Name& mask : mask_names())
           if ((op.masks & mask_bit(mask.value)) != 0)
             list += (list.empty() ? "" : ", ") + std::string(mask.text);
         return fmt::format("mask={} is none of {}; take mask={}", name_of(mask_names(), s.mask), op.name,
                            list);
       }},
      {"block_from",
       {"op", "from"},
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         const bool codes = s.source_format == ASSAY_FORMAT_NONE && find_operand(op, Operand::kDenseKScale);
         return (codes || s.source_format == ASSAY_FP32 || format_is_float16(s.source_format)) &&
                (!op.attends_rows || takes(op, "from") || s.source_format == Scenario{}.source_format);
       },
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         if (!takes(op, "from"))
           return fmt::format("{} reads nothing in another format; leave out from=", op.name);
         return fmt::format(
             "{} reads fp32, bf16 or fp16; from=codes is of ops whose new rows bring scales of "
             "their own ({})",
             op.name, ops_with(Operand::kDenseKScale));
       }},
      {"block_states",
       {"op", "states", "part"},
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         const bool free = takes(op, "states") && (!takes(op, "part") || s.part_tokens == 0);
         return free ? s.states >= 1 : s.states == Scenario{}.states;
       },
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         if (!takes(op, "states"))
           return fmt::format("{} has no partial results; leave out states=", op.name);
         if (takes(op, "part") && s.part_tokens != 0)
           return fmt::format(
               "{} makes as many states as part={} cuts keys into; leave out states= or add part=0", op.name,
               s.part_tokens);
         return fmt::format("{} of {} states; make it 1 or more", op.name, s.states);
       }},
      {"block_part",
       {"op", "part"},
       [](const Scenario& s) {
         return takes(op_of(s.op), "part") ? s.part_tokens >= 0 : s.part_tokens == Scenario{}.part_tokens;
       },
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         return takes(op, "part") ? fmt::format("part={}: parts have 0 keys or more", s.part_tokens)
                                  : fmt::format("{} cuts no keys into parts; leave out part=", op.name);
       }},
      {"block_pad",
       {"op", "pad"},
       [](const Scenario& s) { return takes(op_of(s.op), "pad") ? s.padded_rows >= 0 : s.padded_rows == 0; },
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         return takes(op, "pad") ? fmt::format("pad={}: 0 rows or more are padded", s.padded_rows)
                                 : fmt::format("{} has no padded rows or lists; leave out pad=", op.name);
       }},
      {"latent_sources",
       {"op", "sources", "layout", "d"},
       [](const Scenario& s) {
         return !s.split_latent || (takes(op_of(s.op), "sources") && s.head_dim_v < s.head_dim_qk &&
                                    (op_of(s.op).attends_rows || s.layout == ASSAY_LAYOUT_MLA));
       },
       [](const Scenario& s) {
         return fmt::format(
             "sources=2 are the latent and the rope part of a row of cache_write layout=mla or of a step; {} "
             "of "
             "layout={} d={}/{} has no two parts",
             op_of(s.op).name, name_of(layout_names(), s.layout), s.head_dim_qk, s.head_dim_v);
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
      {"layers",
       {"op", "layers", "storage", "layout"},
       [](const Scenario& s) {
         return s.layers == 1 || (takes(op_of(s.op), "layers") && s.storage == Storage::kInterleaved &&
                                  (s.layout == ASSAY_LAYOUT_NHD || s.layout == ASSAY_LAYOUT_HND));
       },
       [](const Scenario& s) {
         if (!takes(op_of(s.op), "layers"))
           return fmt::format("{} has no paged cache of several layers; leave out layers=", op_of(s.op).name);
         return fmt::format(
             "layers={} lie between each other in a cache of storage=interleaved and layout=nhd or hnd; "
             "write those, or leave out layers=",
             s.layers);
       }},
      {"computed_scales_of_channels",
       {"op", "scales", "q", "input"},
       [](const Scenario& s) {
         return !s.computed_scales || (takes(op_of(s.op), "scales") && s.q.scale == ASSAY_SCALE_CHANNEL &&
                                       s.recipe != InputRecipe::kExact);
       },
       [](const Scenario& s) {
         if (!takes(op_of(s.op), "scales"))
           return fmt::format("scales=computed is of quantize_int8; leave it out of {}", op_of(s.op).name);
         return std::string(
             "scales=computed are those of channels; write q=int8:channel (or fp8), and another input than "
             "exact, whose ties need given scales");
       }},
      {"metadata_chunk",
       {"op", "chunk", "page"},
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         return op.attends_rows || !takes(op, "chunk") || s.chunk % s.page_size == 0;
       },
       [](const Scenario& s) {
         return fmt::format(
             "chunk={} is no multiple of page={}: a chunk begins with a page, and another chunk "
             "would be another mask",
             s.chunk, s.page_size);
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
         return fmt::format(
             "encoder={}: the encoder's tokens stand before the request's own in a row of the table; take "
             "table=block or token, and {} tokens at most together",
             s.encoder_tokens, kMaxTokens);
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
         return fmt::format(
             "mask=full of {} are the rows of an encoder, which see each other and are kept in no cache; "
             "write write=off and groups without s, such as batch=2q9",
             op_of(s.op).name);
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
             "mask=cross of {} attends to all tokens of an encoder, to which rows have no distance; take "
             "window=-1, alibi=none and no prefix=",
             op_of(s.op).name);
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
         return fmt::format(
             "{} share causal attention over heads of K and V; leave out other masks, layout=mla, "
             "write=off, encoder=, pool=, sources=2, scales of q= and token_head of kv=, or take ranks=1 "
             "interleave=1",
             group_text(s));
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
         return fmt::format("{} share keys of requests with pages of their own; leave out p and trace()",
                            group_text(s));
       }},
      {"block_q",
       {"op", "q"},
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         if (!takes(op, "q")) return s.q == Quantization{};
         return op.q_rule.fits == nullptr || op.q_rule.fits(s.q);
       },
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         return takes(op, "q") ? std::string(op.q_rule.message)
                               : fmt::format("{} has no Q; leave out q=", op.name);
       }},
      {"block_kv",
       {"op", "kv"},
       [](const Scenario& s) {
         const QuantizationRule& rule = op_of(s.op).kv_rule;
         return rule.fits == nullptr || (rule.fits(s.k) && rule.fits(s.v));
       },
       [](const Scenario& s) { return std::string(op_of(s.op).kv_rule.message); }},
      {"computed_scales",
       {"op", "kv", "layout", "input", "write"},
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         const OperandUse* scales = find_operand(op, Operand::kKScale);
         const bool computes = scales != nullptr && scales->when_dynamic != Role::kNone;
         const auto dynamic = [](const Quantization& q) { return q.scale == ASSAY_SCALE_TOKEN_HEAD; };
         const bool unknown = answer_is_known(s.recipe) && !s.no_write;
         return !(op.attends_rows && computes && (dynamic(s.k) || dynamic(s.v)) &&
                  (s.layout == ASSAY_LAYOUT_MLA || unknown));
       },
       [](const Scenario& s) {
         if (s.layout == ASSAY_LAYOUT_MLA)
           return fmt::format(
               "kv= with token_head: a cache that {} writes has scales of K and of V for each token, and V "
               "of "
               "layout=mla has none of its own; take other scales or another layout, or paged, which reads "
               "such a cache",
               op_of(s.op).name);
         return fmt::format(
             "kv= with token_head: {} computes the scales of its new keys, so that input={} knows no answer "
             "beforehand; take other scales, another input, or write=off",
             op_of(s.op).name, name_of(kRecipeNames, static_cast<int32_t>(s.recipe)));
       }},
      {"block_rows",
       {"op", "mask", "batch"},
       [](const Scenario& s) {
         const auto every_group = [&s](auto holds) {
           return std::all_of(s.batch.groups.begin(), s.batch.groups.end(), holds);
         };
         const bool drawn =
             s.batch.kind == BatchSpec::Kind::kUniform || s.batch.kind == BatchSpec::Kind::kZipf;
         switch (row_rule(op_of(s.op), s.mask)) {
           case RowRule::kAny:
             break;
           case RowRule::kOneAtMost:
             if (drawn) return s.batch.q.high <= 1;
             return every_group([](const BatchGroup& g) { return g.q_len <= 1; });
           case RowRule::kWithinCache:
             return every_group([](const BatchGroup& g) { return g.q_len <= g.kv_len; });
         }
         return true;
       },
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         return op.rows == RowRule::kOneAtMost
                    ? fmt::format("{} takes one row of a request; make every q 0 or 1", op.name)
                    : fmt::format("{} takes q of the s tokens in the cache; make s at least q in every group",
                                  op.name);
       }},
      {"parts",
       {"op", "part", "batch"},
       [](const Scenario& s) {
         if (!takes(op_of(s.op), "part") || s.part_tokens <= 0) return true;
         const int64_t most = kMaxStates * s.part_tokens;
         const bool drawn =
             s.batch.kind == BatchSpec::Kind::kUniform || s.batch.kind == BatchSpec::Kind::kZipf;
         return (!drawn || s.batch.s.high <= most) &&
                std::all_of(s.batch.groups.begin(), s.batch.groups.end(),
                            [&](const BatchGroup& g) { return g.kv_len <= most; });
       },
       [](const Scenario& s) {
         return fmt::format("part={} cuts the longest request into more than {} parts; make the parts longer",
                            s.part_tokens, kMaxStates);
       }},
      {"block_strides",
       {"op", "strides"},
       [](const Scenario& s) { return within(s.strided, op_of(s.op).stridable); },
       [](const Scenario& s) {
         const StridedOperands& may = op_of(s.op).stridable;
         std::string list;
         for (const auto& [allowed, name] :
              {std::pair{may.q, "q"}, std::pair{may.kv, "kv"}, std::pair{may.out, "out"},
               std::pair{may.table, "table"}, std::pair{may.scales, "scales"}, std::pair{may.last, "last"}})
           if (allowed) list += (list.empty() ? "" : ", ") + std::string(name);
         return fmt::format("{} can have strided {} (q is what it reads in rows)", op_of(s.op).name, list);
       }},
      {"block_input",
       {"op", "input"},
       [](const Scenario& s) { return takes(op_of(s.op), s.recipe); },
       [](const Scenario& s) { return fmt::format("{} {}", op_of(s.op).name, op_of(s.op).recipes_message); }},
  };
}

}  // namespace assay
