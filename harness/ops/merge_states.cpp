// SPDX-License-Identifier: Apache-2.0
// Merges partial results of attention by their log-sum-exp. See enum assay_op.
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

}  // namespace

constinit const Op ops::merge_states = {
    .id = ASSAY_OP_MERGE_STATES,
    .name = "merge_states",
    .summary = "Merges partial results of attention by their log-sum-exp.",
    .operands = kOperands,
};

}  // namespace assay
