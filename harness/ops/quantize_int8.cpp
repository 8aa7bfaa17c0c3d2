// SPDX-License-Identifier: Apache-2.0
// Quantises rows to int8 with given or with computed scales. See enum assay_op.
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr OperandUse kOperands[] = {
    {Operand::kSource, Role::kIn, layouts::source},
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kQ, Role::kOut, layouts::q_written},
    {Operand::kQScale, Role::kIn, layouts::q_scale, Role::kOut},
};

}  // namespace

constinit const Op ops::quantize_int8 = {
    .id = ASSAY_OP_QUANTIZE_INT8,
    .name = "quantize_int8",
    .summary = "Quantises rows to int8 with given or with computed scales.",
    .operands = kOperands,
};

}  // namespace assay
