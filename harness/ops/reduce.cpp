// SPDX-License-Identifier: Apache-2.0
// Merges the partial results of tiles that a schedule cut. See enum assay_op.
#include <fmt/format.h>

#include "harness/ops/layouts.hpp"
#include "harness/ops/tiles.hpp"

namespace assay {
namespace {

constexpr OperandUse kOperands[] = {
    {Operand::kPartialO, Role::kIn, layouts::tile_o_read},
    {Operand::kPartialLse, Role::kIn, layouts::tile_lse_read},
    {Operand::kReduceIndptr, Role::kIn, layouts::reduce_indptr},
    {Operand::kReduceFinalMap, Role::kIn, layouts::reduce_final_map},
    {Operand::kReducePartialMap, Role::kIn, layouts::reduce_partial_map},
    {Operand::kO, Role::kOut, layouts::o},
    {Operand::kLse, Role::kOut, layouts::lse},
};

constexpr std::string_view kFields[] = {"out", "workers", "tile"};

constexpr std::string_view kExamples[] = {
    "reduce h=4/2 d=32 workers=5 tile=4/8 batch=1q9s30_2q1s100_1q0s9_1q3s1 seed=1",
    "reduce h=3 d=48 out=fp32 workers=9 tile=16 strides=q+out batch=1q40_1q9 seed=2"};

double bytes(const Problem& p, const BatchSize& b) { return tile_bytes(p) + schedule_bytes(p, b); }

// Partial results once, and as many rows as are cut; a cut tile has two parts or more.
Work work(const Problem& p) {
  Work w;
  w.tokens = p.total_q();
  const double results = partial_results(p), dv = p.head_dim_v;
  w.total_bytes = results * (4 * dv + 4) + results / 2 * (dv * format_bytes(p.o_format) + 4);
  return w;
}

std::string describe(const Problem& p) {
  return fmt::format("merges    {:.0f} partial results of rows and heads of {}, fp32; O {}",
                     partial_results(p), p.head_dim_v, name_of(format_names(), p.o_format));
}

}  // namespace

constinit const Op ops::reduce = {
    .id = ASSAY_OP_REDUCE,
    .name = "reduce",
    .summary = "Merges the partial results of tiles that a schedule cut.",
    .takes_exponentials = true,
    .operands = kOperands,
    .fields = kFields,
    .stridable = {.q = true, .out = true, .last = true},
    .recipes = recipe_set(InputRecipe::kNormal),
    .recipes_message = "takes input=normal",
    .check = check_schedule,
    .bytes = bytes,
    .work = work,
    .describe = describe,
    .examples = kExamples,
};

}  // namespace assay
