// SPDX-License-Identifier: Apache-2.0
// Writes new rows of K and V, quantised if the cache is, to their slots of a cache. See enum assay_op.
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr OperandUse kOperands[] = {
    {Operand::kDenseK, Role::kIn, layouts::dense_k_read},
    {Operand::kDenseV, Role::kIn, layouts::dense_v_read},
    {Operand::kSlotMapping, Role::kIn, layouts::slot_mapping},
    {Operand::kK, Role::kInOut, layouts::k_paged},
    {Operand::kV, Role::kInOut, layouts::v_paged},
    {Operand::kKScale, Role::kIn, layouts::k_scale_paged, Role::kInOut},
    {Operand::kVScale, Role::kIn, layouts::v_scale_paged_unless_latent, Role::kInOut},
};

}  // namespace

constinit const Op ops::cache_write = {
    .id = ASSAY_OP_CACHE_WRITE,
    .name = "cache_write",
    .summary = "Writes new rows of K and V, quantised if the cache is, to their slots of a cache.",
    .has_cache = true,
    .operands = kOperands,
};

}  // namespace assay
