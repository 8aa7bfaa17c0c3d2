// SPDX-License-Identifier: Apache-2.0
// What a building block is made of (see enum assay_op): which fields belong to it, which scales its rows can
// have, which operands can be strided, which inputs mean something. A new block: its row in every table here.
#include <algorithm>

#include "harness/problem/names.hpp"
#include "harness/scenario/limits.hpp"
#include "harness/scenario/rule_tables.hpp"

namespace assay {
namespace {

bool splits(int32_t op) { return op == ASSAY_OP_DECODE_SPLITKV; }
bool writes(const Scenario& s) { return s.op == ASSAY_OP_CACHE_WRITE; }
bool quantizes(const Scenario& s) { return s.op == ASSAY_OP_QUANTIZE_INT8; }

std::string_view op_of(const Scenario& s) { return name_of(op_names(), s.op); }

// Operands that may be strided; a combination outside is refused.
StridedOperands stridable(int32_t op) {
  switch (op) {
    case ASSAY_OP_MERGE_STATES:
      return {.q = true, .out = true};
    case ASSAY_OP_CACHE_WRITE:
      return {.q = true, .kv = true, .scales = true};
    case ASSAY_OP_CACHE_GATHER:
      return {.kv = true, .out = true, .table = true, .scales = true};
    case ASSAY_OP_QUANTIZE_INT8:
      return {.q = true, .out = true, .scales = true};
    default:
      return {.q = true, .kv = true, .out = true, .table = true, .scales = true};
  }
}

bool writable(const Quantization& q) {
  return q.scale != ASSAY_SCALE_REQUEST_HEAD && (q.scale != ASSAY_SCALE_TOKEN_HEAD || q.format == ASSAY_INT8);
}

bool input_known(const Scenario& s) {
  if (splits(s.op)) return !answer_is_known(s.recipe);  // which are answers for the whole
  switch (s.recipe) {
    case InputRecipe::kNormal:
      return true;
    case InputRecipe::kOutlier:
      return s.op != ASSAY_OP_MERGE_STATES;
    case InputRecipe::kExact:
      return writes(s) || quantizes(s);
    default:
      return false;
  }
}

}  // namespace

bool shares_pages(int32_t op) { return op == ASSAY_OP_PAGED || op == ASSAY_OP_CACHE_GATHER || splits(op); }

std::vector<Rule> block_rules() {
  return {
      {"block_fields",
       {"op", "mask", "window", "chunk", "cap", "alibi", "scale", "sinks", "index", "relate"},
       [](const Scenario& s) {
         const bool plain = s.mask == ASSAY_MASK_CAUSAL && s.window_left == -1 && s.window_right == -1 &&
                            s.chunk == 0 && s.softcap == 0 && s.alibi == ASSAY_ALIBI_NONE &&
                            s.softmax_scale == 0 && !s.swa_index && s.relations == 0;
         if (splits(s.op)) return !s.sinks && !s.swa_index && s.relations == 0;
         return is_attention(s.op) || (plain && (!s.sinks || s.op == ASSAY_OP_MERGE_STATES));
       },
       [](const Scenario& s) {
         return fmt::format("{} belong to attention; leave them out of {}",
                            splits(s.op) ? "sinks, index and relations (sinks also to the merge)"
                                         : "masks, biases and relations",
                            op_of(s));
       }},
      {"block_sources",
       {"op", "from", "states", "part", "pad"},
       [](const Scenario& s) {
         const Scenario d;
         return (s.source_format == ASSAY_FP32 || format_is_float16(s.source_format)) &&
                (!attends(s.op) || s.source_format == d.source_format) &&
                (splits(s.op) ? s.part_tokens >= 0 : s.part_tokens == d.part_tokens) &&
                (s.op == ASSAY_OP_MERGE_STATES || (splits(s.op) && s.part_tokens == 0)
                     ? s.states >= 1
                     : s.states == d.states) &&
                (writes(s) ? s.padded_rows >= 0 : s.padded_rows == 0);
       },
       [](const Scenario& s) {
         return fmt::format(
             "from is fp32, bf16 or fp16 of a building block that reads rows, states belongs to merge_states "
             "and "
             "to decode_splitkv with part=0, part to decode_splitkv and pad to cache_write; leave them out "
             "of {}",
             op_of(s));
       }},
      {"block_q",
       {"op", "q"},
       [](const Scenario& s) {
         if (attends(s.op)) return true;
         if (!quantizes(s)) return s.q == Quantization{};
         return s.q.format == ASSAY_INT8 &&
                (s.q.scale == ASSAY_SCALE_TOKEN_HEAD || s.q.scale == ASSAY_SCALE_CHANNEL);
       },
       [](const Scenario& s) {
         return quantizes(s) ? std::string(
                                   "quantize_int8 writes q=int8:token_head (dynamic scales) or "
                                   "q=int8:channel (given scales)")
                             : fmt::format("{} has no Q; leave out q=", op_of(s));
       }},
      {"block_kv",
       {"op", "kv"},
       [](const Scenario& s) { return !writes(s) || (writable(s.k) && writable(s.v)); },
       [](const Scenario&) {
         return std::string(
             "cache_write knows no request (no request_head scales) and computes scales of a token for int8 "
             "only (token_head); take kv=int8:token_head or scales tensor, host, head or channel");
       }},
      {"block_rows",
       {"op", "batch"},
       [](const Scenario& s) {
         if (is_attention(s.op) || !has_cache(s.op)) return true;
         const bool drawn =
             s.batch.kind == BatchSpec::Kind::kUniform || s.batch.kind == BatchSpec::Kind::kZipf;
         if (splits(s.op) && drawn) return s.batch.q.high <= 1;
         return std::all_of(s.batch.groups.begin(), s.batch.groups.end(), [&](const BatchGroup& g) {
           return splits(s.op) ? g.q_len <= 1 : g.q_len <= g.kv_len;
         });
       },
       [](const Scenario& s) {
         if (splits(s.op))
           return std::string("decode_splitkv takes one row of a request; make every q 0 or 1");
         return fmt::format("{} takes q of the s tokens in the cache; make s at least q in every group",
                            op_of(s));
       }},
      {"parts",
       {"op", "part", "batch"},
       [](const Scenario& s) {
         if (!splits(s.op) || s.part_tokens <= 0) return true;
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
       [](const Scenario& s) {
         const StridedOperands may = stridable(s.op), &is = s.strided;
         return (may.q || !is.q) && (may.kv || !is.kv) && (may.out || !is.out) && (may.table || !is.table) &&
                (may.scales || !is.scales);
       },
       [](const Scenario& s) {
         const StridedOperands may = stridable(s.op);
         std::string list;
         for (const auto& [allowed, name] :
              {std::pair{may.q, "q"}, std::pair{may.kv, "kv"}, std::pair{may.out, "out"},
               std::pair{may.table, "table"}, std::pair{may.scales, "scales"}})
           if (allowed) list += (list.empty() ? "" : ", ") + std::string(name);
         return fmt::format("{} can have strided {} (q is what it reads in rows)", op_of(s), list);
       }},
      {"block_input",
       {"op", "input"},
       [](const Scenario& s) { return is_attention(s.op) || input_known(s); },
       [](const Scenario& s) {
         if (splits(s.op))
           return std::string(
               "input=exact, incidence and dyadic answer for a whole context, which decode_splitkv cuts up; "
               "take "
               "another input");
         return fmt::format("{} takes input=normal{}", op_of(s),
                            s.op == ASSAY_OP_MERGE_STATES   ? ""
                            : s.op == ASSAY_OP_CACHE_GATHER ? " or outlier"
                                                            : ", outlier or exact (ties of the rounding)");
       }},
  };
}

}  // namespace assay
