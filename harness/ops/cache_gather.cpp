// SPDX-License-Identifier: Apache-2.0
// Copies chunks of cached tokens, dequantised, into packed rows. See enum assay_op.
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr OperandUse kOperands[] = {
    {Operand::kK, Role::kIn, layouts::k_paged},
    {Operand::kV, Role::kIn, layouts::v_paged},
    {Operand::kKScale, Role::kIn, layouts::k_scale_paged},
    {Operand::kVScale, Role::kIn, layouts::v_scale_paged_unless_latent},
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kSeqStarts, Role::kIn, layouts::per_request},
    {Operand::kTokenToBatch, Role::kIn, layouts::token_to_batch},
    {Operand::kBlockTable, Role::kIn, layouts::block_table},
    {Operand::kIndptr, Role::kIn, layouts::csr_indptr},
    {Operand::kIndices, Role::kIn, layouts::csr_indices},
    {Operand::kLastPageLen, Role::kIn, layouts::csr_last_page_len},
    {Operand::kDenseK, Role::kOut, layouts::dense_k_written},
    {Operand::kDenseV, Role::kOut, layouts::dense_v_written},
};

}  // namespace

constinit const Op ops::cache_gather = {
    .id = ASSAY_OP_CACHE_GATHER,
    .name = "cache_gather",
    .summary = "Copies chunks of cached tokens, dequantised, into packed rows.",
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands,
};

}  // namespace assay
