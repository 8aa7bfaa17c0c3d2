// SPDX-License-Identifier: Apache-2.0
// Where the recipes with a known answer (exact, incidence, dyadic) exist at all. They need logits that tie or
// differ by known powers of two and keys that weigh nothing, which ALiBi, soft caps and sinks do not leave
// standing. The recipe itself refuses what only its numbers show (harness/input/exact_recipe.cpp).
#include "harness/ops/op.hpp"
#include "harness/ops/parts.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/extent.hpp"
#include "harness/scenario/rule_tables.hpp"

namespace assay {
namespace {

int32_t code_room(const Scenario& s) {
  const Op& op = op_of(s.op);
  const bool latent = answers_are_known(op) && op.has_cache && s.layout == ASSAY_LAYOUT_MLA;
  return latent ? s.head_dim_qk - s.head_dim_v : s.head_dim_qk;
}

int32_t code_dims(const Scenario& s) {
  if (!answers_are_known(op_of(s.op))) return 0;  // their exact values need no room
  return answer_dims(s.recipe, static_cast<int64_t>(extent_of(s.batch).max_kv));
}

}  // namespace

std::vector<Rule> input_rules() {
  return {
      {"answer_terms",
       {"input", "alibi", "cap", "sinks"},
       [](const Scenario& s) {
         return !answer_is_known(s.recipe) || (s.alibi == ASSAY_ALIBI_NONE && s.softcap == 0 && !s.sinks);
       },
       [](const Scenario& s) {
         return fmt::format(
             "input=exact, incidence and dyadic have a known answer only where keys tie and nothing but keys "
             "stands in the denominator; {} breaks that: leave it out or take another input",
             s.alibi != ASSAY_ALIBI_NONE ? "alibi=" + std::string(name_of(alibi_names(), s.alibi))
             : s.softcap != 0            ? std::string("cap=")
                                         : std::string("sinks=on"));
       }},
      {"answer_dims",
       {"input", "op", "layout", "d", "batch"},
       [](const Scenario& s) { return code_room(s) >= code_dims(s); },
       [](const Scenario& s) {
         return fmt::format(
             "the input spells the positions of its keys in {} dimensions of Q and K{}, and d leaves {}; use "
             "a "
             "larger d, shorter requests or another input",
             code_dims(s), s.layout == ASSAY_LAYOUT_MLA ? " behind the latent part" : "", code_room(s));
       }},
      {"dyadic",
       {"input", "scale", "out"},
       [](const Scenario& s) {
         return s.recipe != InputRecipe::kDyadic || (s.softmax_scale == 0 && s.o_format != ASSAY_FP32);
       },
       [](const Scenario& s) {
         return s.softmax_scale != 0
                    ? std::string(
                          "input=dyadic sets the scale to ln 2, which makes every weight a power of two; "
                          "leave out scale=")
                    : std::string(
                          "input=dyadic divides by sums that are no powers of two, so that its answer is "
                          "exact after rounding to 16 bits only; write out=bf16 or out=fp16");
       }},
  };
}

}  // namespace assay
