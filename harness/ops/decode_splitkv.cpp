// SPDX-License-Identifier: Apache-2.0
// Attention of one row per request, as partial results over parts of its keys. See enum assay_op.
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

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
    {Operand::kTreeMask, Role::kIn, layouts::tree_mask},
    {Operand::kTreeIndptr, Role::kIn, layouts::tree_indptr},
    {Operand::kFirstKey, Role::kIn, layouts::first_key},
    {Operand::kPositions, Role::kIn, layouts::positions},
    {Operand::kPartialO, Role::kOut, layouts::partial_o_written},
    {Operand::kPartialLse, Role::kOut, layouts::partial_lse_written},
};

}  // namespace

constinit const Op ops::decode_splitkv = {
    .id = ASSAY_OP_DECODE_SPLITKV,
    .name = "decode_splitkv",
    .summary = "Attention of one row per request, as partial results over parts of its keys.",
    .attends_rows = true,
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands,
};

}  // namespace assay
