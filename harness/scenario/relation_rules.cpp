// SPDX-License-Identifier: Apache-2.0
// Where a relation (relate=) has something to compare. A relation that would compare a case with itself, or
// with a case that has another answer, is refused with the reason, so that a line which lists it checks it.
// Batches that are drawn or read from a trace are known later: there a relation without material checks
// nothing, and says so in its report.
#include <algorithm>

#include "harness/ops/op.hpp"
#include "harness/problem/problem.hpp"
#include "harness/scenario/rule_tables.hpp"

namespace assay {
namespace {

bool has(const Scenario& s, uint32_t relations) { return (s.relations & relations) != 0; }

// True when some written group satisfies `holds`, or the batch is no written mix.
template <class Holds>
bool some_group(const Scenario& s, const Holds& holds) {
  return s.batch.kind != BatchSpec::Kind::kMix ||
         std::any_of(s.batch.groups.begin(), s.batch.groups.end(), holds);
}

// Nothing of the line looks at where rows and keys stand, but for the mask.
bool positions_alike(const Scenario& s) {
  return s.window_left < 0 && s.window_right < 0 && s.chunk == 0 && s.alibi == ASSAY_ALIBI_NONE;
}

bool several_requests(const Scenario& s) {
  int64_t count = 0;
  switch (s.batch.kind) {
    case BatchSpec::Kind::kMix:
      for (const BatchGroup& g : s.batch.groups) count += g.count;
      return count > 1;
    case BatchSpec::Kind::kUniform:
    case BatchSpec::Kind::kZipf:
      return s.batch.n > 1;
    case BatchSpec::Kind::kTrace:
      break;
  }
  return true;
}

}  // namespace

std::vector<Rule> relation_rules() {
  return {
      {"relate_pages",
       {"relate", "op"},
       [](const Scenario& s) {
         return !has(s, kRelatePages) || (op_of(s.op).whole_context && op_of(s.op).has_cache);
       },
       [](const Scenario& s) {
         return fmt::format(
             "relate=pages places physical pages elsewhere, and {} reads none for this; start the line with "
             "paged",
             op_of(s.op).name);
       }},
      {"relate_batch",
       {"relate", "batch"},
       [](const Scenario& s) { return !has(s, kRelateOrder | kRelateAlone) || several_requests(s); },
       [](const Scenario& s) {
         return fmt::format(
             "relate={} compares batches, and this one has a single request; give batch= two or "
             "more",
             has(s, kRelateOrder) ? "order" : "alone");
       }},
      {"relate_split",
       {"relate", "mask", "window", "chunk", "alibi", "batch"},
       [](const Scenario& s) {
         return !has(s, kRelateSplit) ||
                (positions_alike(s) && some_group(s, [&](const BatchGroup& g) {
                   const bool any_cut = s.mask == ASSAY_MASK_FULL || s.mask == ASSAY_MASK_CROSS;
                   return g.q_len > 0 && g.kv_len >= 2 && (any_cut || g.kv_len > g.q_len);
                 }));
       },
       [](const Scenario& s) {
         const char* what = "relate=split reads the front of the context in a call of its own";
         if (!positions_alike(s))
           return fmt::format("{}, where positions are others; {} about positions: leave that out", what,
                              given_fields(s, {"window", "chunk", "alibi"}));
         return fmt::format("{}; it needs a request with new tokens (q) behind a context (s larger than q)",
                            what);
       }},
      {"relate_positions",
       {"relate", "first", "positions"},
       [](const Scenario& s) {
         return !(has(s, kRelateSplit) && s.first_key != kNoPositions) &&
                !(has(s, kRelateSplit | kRelateChunked | kRelateWindow) && s.positions != kNoPositions);
       },
       [](const Scenario& s) {
         if (has(s, kRelateSplit) && s.first_key != kNoPositions)
           return std::string("relate=split rests on keys from 0; leave out first= or take another relation");
         return fmt::format(
             "relate={} rests on rows that stand at the last keys; leave out positions= or take another "
             "relation",
             has(s, kRelateSplit)     ? "split"
             : has(s, kRelateChunked) ? "chunked"
                                      : "window");
       }},
      {"relate_chunked",
       {"relate", "mask", "batch"},
       [](const Scenario& s) {
         return !has(s, kRelateChunked) ||
                (s.mask == ASSAY_MASK_CAUSAL &&
                 some_group(s, [](const BatchGroup& g) { return g.q_len >= 2 && g.kv_len > 0; }));
       },
       [](const Scenario& s) {
         return fmt::format(
             "relate=chunked gives early rows before later keys exist; it needs {}",
             s.mask != ASSAY_MASK_CAUSAL ? "mask=causal" : "a request with two or more new tokens (q)");
       }},
      {"relate_window",
       {"relate", "window", "chunk"},
       [](const Scenario& s) {
         return !has(s, kRelateWindow) || (s.window_left < 0 && s.window_right < 0 && s.chunk == 0);
       },
       [](const Scenario& s) {
         return fmt::format(
             "relate=window compares no window with one that hides nothing; {} in the way: leave "
             "that out",
             given_fields(s, {"window", "chunk"}));
       }},
      {"relate_sink",
       {"relate", "sinks"},
       [](const Scenario& s) { return !has(s, kRelateSink) || s.sinks; },
       [](const Scenario&) {
         return std::string("relate=sink compares sinks that weigh nothing with none; write sinks=on");
       }},
  };
}

}  // namespace assay
