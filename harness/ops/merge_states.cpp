// SPDX-License-Identifier: Apache-2.0
// Merges partial results of attention by their log-sum-exp. See enum assay_op.
#include <fmt/format.h>

#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr OperandUse kOperands[] = {
    {Operand::kPartialO, Role::kIn, layouts::partial_o_read},
    {Operand::kPartialLse, Role::kIn, layouts::partial_lse_read},
    {Operand::kSinks, Role::kIn, layouts::sinks},
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kO, Role::kOut, layouts::o},
    {Operand::kLse, Role::kOut, layouts::lse},
};

constexpr std::string_view kFields[] = {"out", "from", "states", "sinks"};

constexpr std::string_view kExamples[] = {
    "merge_states h=4 d=32 batch=1q7_2q3_1q0 seed=1",
    "merge_states h=3 d=48 from=bf16 states=5 strides=q+out sinks=on batch=2q9 seed=2",
    "merge_states h=3 d=48 from=fp16 strides=q+last batch=2q9 seed=3"};

Work work(const Problem& p) {
  Work w;
  w.tokens = p.total_q();
  const double rows = static_cast<double>(w.tokens), hq = p.heads_q, dv = p.head_dim_v;
  w.total_bytes = p.states * rows * hq * (dv * format_bytes(p.source_format) + 4) +
                  rows * hq * (dv * format_bytes(p.o_format) + 4);
  if (p.sinks) w.total_bytes += 4 * hq;
  return w;
}

std::string describe(const Problem& p) {
  return fmt::format("merges    {} partial results of {} rows, {} heads of {}, {}{}; O {}", p.states,
                     p.rows(), p.heads_q, p.head_dim_v, name_of(format_names(), p.source_format),
                     p.sinks ? ", and a sink" : "", name_of(format_names(), p.o_format));
}

}  // namespace

constinit const Op ops::merge_states = {
    .id = ASSAY_OP_MERGE_STATES,
    .name = "merge_states",
    .summary = "Merges partial results of attention by their log-sum-exp.",
    .takes_exponentials = true,
    .operands = kOperands,
    .fields = kFields,
    .default_source = ASSAY_FP32,
    .stridable = {.q = true, .out = true, .last = true},
    .recipes = recipe_set(InputRecipe::kNormal),
    .recipes_message = "takes input=normal",
    .work = work,
    .describe = describe,
    .examples = kExamples,
};

}  // namespace assay
