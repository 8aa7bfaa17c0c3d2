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
         std::string given;
         for (const std::string_view name : kAttentionFields) {
           const int index = field_index(name);
           if ((fields_of(op) & field_bit(index)) == 0 && !fields()[static_cast<size_t>(index)].is_default(s))
             given += fmt::format("{}{}=", given.empty() ? "" : ", ", name);
         }
         return fmt::format("{} belong to attention, not to {} ({}); leave them out", given, op.name,
                            op.foreign_fields.empty() ? "masks, biases and relations" : op.foreign_fields);
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
      {"layers",
       {"op", "layers", "storage", "layout"},
       [](const Scenario& s) {
         return s.layers == 1 || (takes(op_of(s.op), "layers") && s.storage == Storage::kInterleaved &&
                                  (s.layout == ASSAY_LAYOUT_NHD || s.layout == ASSAY_LAYOUT_HND));
       },
       [](const Scenario& s) {
         if (!takes(op_of(s.op), "layers"))
           return fmt::format("{} has no paged cache of several layers; leave out layers=", op_of(s.op).name);
         const bool apart = s.storage != Storage::kInterleaved;
         const bool other = s.layout != ASSAY_LAYOUT_NHD && s.layout != ASSAY_LAYOUT_HND;
         return fmt::format(
             "layers={} lie between each other in some caches; write {}{}{}, or leave out layers=", s.layers,
             apart ? "storage=interleaved" : "", apart && other ? " and " : "",
             other ? "layout=nhd or layout=hnd" : "");
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
         if (s.q.scale != ASSAY_SCALE_CHANNEL)
           return std::string("scales=computed are those of channels; write q=int8:channel, or fp8");
         return std::string(
             "scales=computed come from the values, and the ties of input=exact need given ones; "
             "take another input");
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
