// SPDX-License-Identifier: Apache-2.0
// Attention as work for a number of workers that stay. See enum assay_op.
#include <fmt/format.h>

#include "harness/ops/layouts.hpp"
#include "harness/ops/tiles.hpp"

namespace assay {
namespace {

constexpr OperandUse kOperands[] = {
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kWorkIndptr, Role::kOut, layouts::work_indptr},
    {Operand::kWorkInfo, Role::kOut, layouts::work_info},
    {Operand::kReduceIndptr, Role::kOut, layouts::reduce_indptr},
    {Operand::kReduceFinalMap, Role::kOut, layouts::reduce_final_map},
    {Operand::kReducePartialMap, Role::kOut, layouts::reduce_partial_map},
};

constexpr std::string_view kFields[] = {"pad", "page", "workers", "tile"};

constexpr std::string_view kExamples[] = {
    "ps_metadata h=4/2 workers=5 tile=4/8 page=1 batch=1q9s30_2q1s100_1q0s9_1q3s1 seed=1",
    "ps_metadata h=1 pad=3 workers=7 tile=16 strides=out batch=8q1s200_1q1s0 seed=2"};

std::string describe(const Problem& p) {
  return fmt::format("schedules {} tiles of {} rows for {} workers, cut at blocks of {} keys in pages of {}",
                     tiles_of(p), p.tile_rows, p.workers, p.tile_keys, p.page_size);
}

}  // namespace

constinit const Op ops::ps_metadata = list_op({
    .id = ASSAY_OP_PS_METADATA,
    .name = "ps_metadata",
    .summary = "Attention as work for workers that stay: tiles, cuts and merges.",
    .operands = kOperands,
    .fields = kFields,
    .stridable = {.out = true},
    .check = check_schedule,
    .entries = tiles_of,
    .bytes = schedule_bytes,
    .describe = describe,
    .examples = kExamples,
});

}  // namespace assay
