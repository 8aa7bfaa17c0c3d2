// SPDX-License-Identifier: Apache-2.0
// Attention of packed K and V by a schedule: whole tiles, and parts of those that are cut. See enum assay_op.
#include "harness/ops/layouts.hpp"
#include "harness/ops/tiles.hpp"

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
    {Operand::kWorkIndptr, Role::kIn, layouts::work_indptr},
    {Operand::kWorkInfo, Role::kIn, layouts::work_info},
    {Operand::kO, Role::kOut, layouts::o},
    {Operand::kLse, Role::kOut, layouts::lse},
    {Operand::kPartialO, Role::kOut, layouts::tile_o_written},
    {Operand::kPartialLse, Role::kOut, layouts::tile_lse_written},
};

constexpr std::string_view kFields[] = {"q", "kv", "out", "cap", "alibi", "scale", "workers", "tile"};

constexpr std::string_view kExamples[] = {
    "persistent_prefill h=4/2 d=32 workers=5 tile=4/8 batch=1q9s30_2q1s100_1q0s9_1q3s1 seed=1",
    "persistent_prefill h=3 d=48/32 q=fp8_e4m3 kv=fp8_e4m3:head workers=4 tile=16 strides=q+kv+out "
    "batch=1q40_1q9 "
    "seed=2"};

}  // namespace

constinit const Op ops::persistent_prefill = scheduled_op({
    .id = ASSAY_OP_PERSISTENT_PREFILL,
    .name = "persistent_prefill",
    .summary = "Attention of packed K and V by a schedule: whole tiles, and parts of those that are cut.",
    .operands = kOperands,
    .fields = kFields,
    .examples = kExamples,
});

}  // namespace assay
