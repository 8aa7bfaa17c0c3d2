// SPDX-License-Identifier: Apache-2.0
// The rules between fields. Each names every field it looks at (covering arrays ask a rule as soon as
// those have a value), and its message says what is wrong and what to change. Only combinations that
// the mathematics or the storage leave undefined are forbidden; what a kernel cannot do is its own
// refusal. To add a rule: one row, and one line in rules_test.cpp that breaks it.
#include <algorithm>
#include <cmath>

#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/extent.hpp"
#include "harness/scenario/field_names.hpp"
#include "harness/scenario/fields.hpp"
#include "harness/scenario/limits.hpp"
#include "harness/scenario/rule_tables.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

bool paged(const Scenario& s) { return op_of(s.op).has_cache; }

// True when `holds` is true of every group of a written mix. Drawn lengths obey the rules by
// construction (kv_len >= q_len, no shared prefixes) or come from a trace.
template <typename Holds>
bool every_group(const Scenario& s, Holds holds) {
  return std::all_of(s.batch.groups.begin(), s.batch.groups.end(), holds);
}

bool quantization_valid(const Quantization& q) {
  const bool operand = q.format == ASSAY_FP32 || format_is_float16(q.format) || format_is_quantized(q.format);
  return operand && (format_is_quantized(q.format) == (q.scale != ASSAY_SCALE_NONE)) &&
         q.scale >= ASSAY_SCALE_NONE && q.scale <= ASSAY_SCALE_CHANNEL;
}

// Behind every written key and row; what a trace draws is looked at when it is read.
int64_t last_position(const Scenario& s) {
  int64_t longest = 0;
  if (s.batch.kind == BatchSpec::Kind::kUniform || s.batch.kind == BatchSpec::Kind::kZipf)
    longest = std::max<int64_t>(s.batch.q.high, s.batch.s.high);
  for (const BatchGroup& g : s.batch.groups) longest = std::max<int64_t>({longest, g.q_len, g.kv_len});
  return std::max<int64_t>({0, s.first_key, s.positions}) + longest;
}

bool in_range(int64_t value, int64_t low, int64_t high) { return value >= low && value <= high; }
bool magnitude(double value) { return value >= kMinMagnitude && value <= kMaxMagnitude; }

std::vector<Rule> shape_rules() {
  return {
      {"heads",
       {"h"},
       [](const Scenario& s) {
         return in_range(s.heads_q, 1, kMaxHeads) && in_range(s.heads_kv, 1, kMaxHeads) &&
                s.heads_q % s.heads_kv == 0;
       },
       [](const Scenario& s) {
         if (!in_range(s.heads_q, 1, kMaxHeads) || !in_range(s.heads_kv, 1, kMaxHeads))
           return fmt::format("h={}/{} is out of range; accepted are 1 to {} heads", s.heads_q, s.heads_kv,
                              kMaxHeads);
         return fmt::format(
             "{} query heads cannot share {} KV heads evenly; make Q a multiple of KV, e.g. h={}/{}",
             s.heads_q, s.heads_kv, s.heads_kv * 4, s.heads_kv);
       }},
      {"head_dims",
       {"d"},
       [](const Scenario& s) {
         return in_range(s.head_dim_qk, 1, kMaxHeadDim) && in_range(s.head_dim_v, 1, kMaxHeadDim);
       },
       [](const Scenario& s) {
         return fmt::format("head dimensions are {} and {}; accepted are 1 to {}", s.head_dim_qk,
                            s.head_dim_v, kMaxHeadDim);
       }},
      {"formats",
       {"q", "kv", "out"},
       [](const Scenario& s) {
         return quantization_valid(s.q) && quantization_valid(s.k) && quantization_valid(s.v) &&
                (s.o_format == ASSAY_FP32 || format_is_float16(s.o_format));
       },
       [](const Scenario&) {
         return std::string("a quantised format needs a scale and no other has one; O is fp32, bf16 or fp16");
       }},
      {"cache_fields",
       {"op", "page", "blocks", "layout", "storage", "table", "index"},
       [](const Scenario& s) {
         const Scenario d;
         const bool page = s.page_size == d.page_size || takes(op_of(s.op), "page");
         return paged(s) || (page && s.min_blocks == 0 && s.layout == d.layout && s.storage == d.storage &&
                             s.table == d.table && !s.swa_index);
       },
       [](const Scenario& s) {
         std::string given = takes(op_of(s.op), "page")
                                 ? given_fields(s, {"blocks", "layout", "storage", "table", "index"})
                                 : given_fields(s, {"page", "blocks", "layout", "storage", "table", "index"});
         return fmt::format("{} of a paged cache, which {} has not; leave that out", given,
                            name_of(op_names(), s.op));
       }},
      {"page_size",
       {"page"},
       [](const Scenario& s) { return in_range(s.page_size, 1, kMaxPageSize); },
       [](const Scenario& s) {
         return fmt::format("a page of {} tokens is out of range; accepted are 1 to {}", s.page_size,
                            kMaxPageSize);
       }},
  };
}

// Masks, positions and lengths.
std::vector<Rule> batch_rules() {
  return {
      {"window",
       {"window"},
       [](const Scenario& s) { return s.window_left >= -1 && s.window_right >= -1; },
       [](const Scenario& s) {
         return fmt::format("window {}/{} is out of range; a side is -1 (unlimited) or a token count",
                            s.window_left, s.window_right);
       }},
      {"chunk",
       {"chunk", "mask"},
       [](const Scenario& s) { return s.chunk == 0 || (s.chunk > 0 && s.mask == ASSAY_MASK_CAUSAL); },
       [](const Scenario& s) {
         if (s.chunk < 0) return fmt::format("chunk={} is out of range; it is 0 or a token count", s.chunk);
         return fmt::format(
             "chunk={} is local attention, which is causal; write mask=causal, or leave chunk= out", s.chunk);
       }},
      {"positions",
       {"first", "positions", "op", "mask", "input", "index"},
       [](const Scenario& s) {
         if (s.first_key == kNoPositions && s.positions == kNoPositions) return true;
         return op_of(s.op).attends_rows && !answer_is_known(s.recipe) && !s.swa_index &&
                (s.positions != kDepthPositions || s.mask == ASSAY_MASK_TREE) &&
                (s.mask != ASSAY_MASK_TREE || s.positions < 0);
       },
       [](const Scenario& s) {
         if (s.positions == kDepthPositions && s.mask != ASSAY_MASK_TREE)
           return std::string("positions=depth is the depth in a draft tree; write mask=tree");
         if (s.mask == ASSAY_MASK_TREE && s.positions >= 0)
           return std::string("the drafts of a tree stand behind its context; take positions=depth or drawn");
         const std::string moved = given_fields(s, {"first", "positions"});
         if (!op_of(s.op).attends_rows)
           return fmt::format("{} of what a mask sees, and {} has no mask; leave that out", moved,
                              op_of(s.op).name);
         if (s.swa_index)
           return fmt::format(
               "{} of what a mask sees, and a cache of index=swa holds what rows at the last keys see; "
               "write "
               "index=full",
               moved);
         return fmt::format(
             "{} of what a mask sees, and the answer of input={} counts keys from 0; take an input other "
             "than exact, incidence and dyadic",
             moved, name_of(kRecipeNames, static_cast<int32_t>(s.recipe)));
       }},
      {"positions_end",
       {"first", "positions", "batch"},
       [](const Scenario& s) { return last_position(s) <= kMaxTokens; },
       [](const Scenario& s) {
         return fmt::format(
             "first= or positions= puts the end of the longest request at {}; positions go up to {}, so "
             "make "
             "them smaller",
             last_position(s), kMaxTokens);
       }},
      {"magnitudes",
       {"cap", "scale"},
       [](const Scenario& s) {
         return (s.softcap == 0 || magnitude(s.softcap)) &&
                (s.softmax_scale == 0 || magnitude(s.softmax_scale));
       },
       [](const Scenario& s) {
         const bool cap = s.softcap != 0 && !magnitude(s.softcap);
         return fmt::format("{}={} is out of range; accepted are {} to {}", cap ? "cap" : "scale",
                            cap ? s.softcap : s.softmax_scale, kMinMagnitude, kMaxMagnitude);
       }},
      {"batch_given",
       {"batch"},
       [](const Scenario& s) { return s.batch.kind != BatchSpec::Kind::kMix || !s.batch.groups.empty(); },
       [](const Scenario&) { return std::string("batch= is required, e.g. batch=64q1s4k_2q512s2k"); }},
      {"batch_lengths",
       {"batch"},
       [](const Scenario& s) {
         return every_group(s, [](const BatchGroup& g) {
           return g.count >= 1 && g.q_len >= 0 && g.kv_len >= 0 && in_range(g.shared, 0, g.kv_len);
         });
       },
       [](const Scenario& s) {
         if (!every_group(s, [](const BatchGroup& g) { return in_range(g.shared, 0, g.kv_len); }))
           return std::string(
               "a shared prefix (p) is longer than the visible tokens (s) of its group; make p at most s");
         return std::string("a group has 1 request or more, and lengths of 0 or more");
       }},
      {"shared_prefix",
       {"batch", "op"},
       [](const Scenario& s) {
         return op_of(s.op).shares_pages || every_group(s, [](const BatchGroup& g) { return g.shared == 0; });
       },
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         const OperandUse* cache = find_operand(op, Operand::kK);
         const bool writes = cache != nullptr && cache->role != Role::kIn;
         const char* twice = writes ? ", or slots would be written twice" : "";
         return fmt::format(
             "a shared prefix (p) means pages that several requests read; {}; leave out p or start the "
             "line "
             "with paged",
             op.has_cache ? fmt::format("every request of {} has pages of its own{}", op.name, twice)
                          : fmt::format("{} has no pages", op.name));
       }},
      {"shared_context",
       {"op", "batch", "mask", "drafted"},
       [](const Scenario& s) {
         const OperandUse* cache = find_operand(op_of(s.op), Operand::kK);
         if (cache == nullptr || cache->role != Role::kInOut || !op_of(s.op).attends_rows) return true;
         return every_group(s, [&](const BatchGroup& g) {
           return g.shared == 0 ||
                  (s.mask != ASSAY_MASK_CROSS && g.shared <= g.kv_len - int64_t{g.q_len} * (s.drafted + 1));
         });
       },
       [](const Scenario& s) {
         if (s.mask == ASSAY_MASK_CROSS)
           return fmt::format("every request of {} mask=cross has an encoder of its own; leave out p",
                              op_of(s.op).name);
         return fmt::format(
             "a shared prefix (p) of {} ends before the new tokens, whose slots would be written twice; "
             "make p at "
             "most s - {}",
             op_of(s.op).name, s.drafted > 0 ? fmt::format("{} q", s.drafted + 1) : std::string("q"));
       }},
      {"prefix_in_common",
       {"op", "prefix", "batch"},
       [](const Scenario& s) {
         if (s.prefix_tokens == 0 || !op_of(s.op).attends_rows) return true;
         const std::vector<BatchGroup>& groups = s.batch.groups;
         return s.batch.kind == BatchSpec::Kind::kMix && groups.size() == 1 &&
                (groups[0].count == 1 || groups[0].shared >= s.prefix_tokens);
       },
       [](const Scenario& s) {
         const bool one = s.batch.kind == BatchSpec::Kind::kMix && s.batch.groups.size() == 1;
         return fmt::format(
             "prefix={0}: all requests have these tokens in common; {2} p{0} or more, such as "
             "batch=8q1s{1}p{0}",
             s.prefix_tokens, 2 * int64_t{s.prefix_tokens}, one ? "give the group" : "write one group with");
       }},
      {"drafted_tree",
       {"op", "mask", "drafted", "tree"},
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         return s.drafted == 0 ||
                (takes(op, "drafted") && !s.flat_tree && (s.mask == ASSAY_MASK_TREE || is_about_trees(op)));
       },
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         const char* what = "are draft steps of several branches before this one";
         if (!takes(op, "drafted"))
           return fmt::format("drafted={} {}, of step, tree_tables and swa_tree_table; leave it out of {}",
                              s.drafted, what, op.name);
         return fmt::format("drafted={} {}; write {}", s.drafted, what,
                            s.flat_tree ? "tree=compact" : "mask=tree");
       }},
      {"no_write",
       {"op", "write"},
       [](const Scenario& s) { return !s.no_write || takes(op_of(s.op), "write"); },
       [](const Scenario& s) {
         return fmt::format("write=off leaves the cache of a step as it is; leave it out of {}",
                            op_of(s.op).name);
       }},
      {"tree_drafts",
       {"mask", "drafted", "batch"},
       [](const Scenario& s) {
         return (s.mask != ASSAY_MASK_TREE && s.drafted == 0) || every_group(s, [&](const BatchGroup& g) {
                  return int64_t{g.q_len} * (s.drafted + 1) <= g.kv_len;
                });
       },
       [](const Scenario& s) {
         if (s.drafted > 0)
           return fmt::format(
               "drafted={}: the drafts of {} steps (q each) and the new ones are the last of the visible "
               "tokens (s); make s at least {} q in every group",
               s.drafted, s.drafted, s.drafted + 1);
         return std::string(
             "mask=tree: the new tokens (q) are the draft at the end of the visible ones (s); make s at "
             "least q in every group");
       }},
      {"size",
       {"op",    "h",    "d",       "q",       "kv",     "out",  "from",   "states",
        "part",  "pad",  "ranks",   "budget",  "prefix", "page", "blocks", "table",
        "chunk", "mask", "drafted", "encoder", "layers", "batch"},
       [](const Scenario& s) { return case_fits(s, extent_of(s.batch)); },
       [](const Scenario& s) { return case_size_message(s, extent_of(s.batch)); }},
  };
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = [] {
    std::vector<Rule> all;
    for (const std::vector<Rule>& more : {shape_rules(), storage_rules(), batch_rules(), op_rules(),
                                          step_rules(), tree_rules(), input_rules(), relation_rules()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return table;
}

std::string given_fields(const Scenario& s, std::initializer_list<std::string_view> names) {
  std::vector<std::string> given;
  for (const std::string_view name : names)
    if (!fields()[static_cast<size_t>(field_index(name))].is_default(s))
      given.push_back(std::string(name) + "=");
  std::string text;
  for (size_t i = 0; i < given.size(); ++i)
    text += (i == 0 ? "" : i + 1 == given.size() ? " and " : ", ") + given[i];
  return text + (given.size() == 1 ? " is" : " are");
}

const Rule* broken_rule(const Scenario& scenario) {
  for (const Rule& rule : rules())
    if (!rule.holds(scenario)) return &rule;
  return nullptr;
}

}  // namespace assay
