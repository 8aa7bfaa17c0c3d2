// SPDX-License-Identifier: Apache-2.0
// Attention of ragged Q over K and V that lie packed, one request behind the other. See enum assay_op.
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr OperandUse kOperands[] = {
    {Operand::kQ, Role::kIn, layouts::q_read},
    {Operand::kQScale, Role::kIn, layouts::q_scale},
    {Operand::kK, Role::kIn, layouts::k_ragged},
    {Operand::kV, Role::kIn, layouts::v_ragged},
    {Operand::kKScale, Role::kIn, layouts::k_scale_ragged},
    {Operand::kVScale, Role::kIn, layouts::v_scale_ragged},
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kCuKv, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kAlibiSlopes, Role::kIn, layouts::alibi_slopes},
    {Operand::kSinks, Role::kIn, layouts::sinks},
    {Operand::kTreeMask, Role::kIn, layouts::tree_mask},
    {Operand::kTreeIndptr, Role::kIn, layouts::tree_indptr},
    {Operand::kFirstKey, Role::kIn, layouts::first_key},
    {Operand::kPositions, Role::kIn, layouts::positions},
    {Operand::kO, Role::kOut, layouts::o},
    {Operand::kLse, Role::kOut, layouts::lse},
};

}  // namespace

constinit const Op ops::prefill = {
    .id = ASSAY_OP_PREFILL,
    .name = "prefill",
    .summary = "Attention of ragged Q over K and V that lie packed, one request behind the other.",
    .attends_rows = true,
    .whole_context = true,
    .operands = kOperands,
};

}  // namespace assay
