// SPDX-License-Identifier: Apache-2.0
// Attention of a paged cache by a schedule: whole tiles, and parts of those that are cut. See enum assay_op.
#include "harness/ops/layouts.hpp"
#include "harness/ops/tiles.hpp"

namespace assay {
namespace {

constexpr OperandUse kOperands[] = {
    {Operand::kQ, Role::kIn, layouts::q_read},
    {Operand::kQScale, Role::kIn, layouts::q_scale},
    {Operand::kK, Role::kIn, layouts::k_paged},
    {Operand::kV, Role::kIn, layouts::v_paged},
    {Operand::kKScale, Role::kIn, layouts::k_scale_paged},
    {Operand::kVScale, Role::kIn, layouts::v_scale_paged},
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kBlockTable, Role::kIn, layouts::block_table},
    {Operand::kIndptr, Role::kIn, layouts::csr_indptr},
    {Operand::kIndices, Role::kIn, layouts::csr_indices},
    {Operand::kLastPageLen, Role::kIn, layouts::csr_last_page_len},
    {Operand::kAlibiSlopes, Role::kIn, layouts::alibi_slopes},
    {Operand::kWorkIndptr, Role::kIn, layouts::work_indptr},
    {Operand::kWorkInfo, Role::kIn, layouts::work_info},
    {Operand::kO, Role::kOut, layouts::o},
    {Operand::kLse, Role::kOut, layouts::lse},
    {Operand::kPartialO, Role::kOut, layouts::tile_o_written},
    {Operand::kPartialLse, Role::kOut, layouts::tile_lse_written},
};

constexpr std::string_view kFields[] = {"q",      "kv",    "out", "page",  "blocks", "layout",  "storage",
                                        "layers", "table", "cap", "alibi", "scale",  "workers", "tile"};

constexpr std::string_view kExamples[] = {
    "persistent_paged h=4/2 d=32 workers=5 tile=4/8 page=4 batch=1q9s30_2q1s100_1q0s9_1q3s1 seed=1",
    "persistent_paged h=4/1 d=64/32 kv=fp8_e4m3 workers=7 tile=1/16 layout=mla table=csr strides=out "
    "batch=3q1s70_1q1s0 seed=2"};

}  // namespace

constinit const Op ops::persistent_paged = scheduled_op({
    .id = ASSAY_OP_PERSISTENT_PAGED,
    .name = "persistent_paged",
    .summary = "Attention of a paged cache by a schedule: whole tiles, and parts of those that are cut.",
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands,
    .fields = kFields,
    .examples = kExamples,
});

}  // namespace assay
