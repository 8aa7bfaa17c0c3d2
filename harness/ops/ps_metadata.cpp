// SPDX-License-Identifier: Apache-2.0
// Attention as work for a number of workers that stay. See enum assay_op.
#include <fmt/format.h>

#include "harness/base/error.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr int64_t kWork = 8, kMerged = 3;  // columns

// Tiles of all heads. Each worker adds one row of work at most, where its share begins within a tile.
int64_t entries(const Problem& p) {
  int64_t tiles = 0;
  for (const Request& r : p.requests) tiles += (int64_t{r.q_len} + p.tile_rows - 1) / p.tile_rows;
  return tiles * p.heads_kv;
}

TensorLayout starts(const Problem& p) { return layouts::list(int64_t{p.workers} + 1); }
TensorLayout work_info(const Problem& p) {
  return layouts::table_out(p, entries(p) + p.padded_rows + p.workers, kWork);
}
TensorLayout final_map(const Problem& p) { return layouts::table_out(p, p.workers, kMerged); }
TensorLayout partial_map(const Problem& p) { return layouts::list(2 * int64_t{p.workers}); }

constexpr OperandUse kOperands[] = {
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kWorkIndptr, Role::kOut, starts},
    {Operand::kWorkInfo, Role::kOut, work_info},
    {Operand::kReduceIndptr, Role::kOut, starts},
    {Operand::kReduceFinalMap, Role::kOut, final_map},
    {Operand::kReducePartialMap, Role::kOut, partial_map},
};

constexpr std::string_view kFields[] = {"pad", "page", "workers", "tile"};

constexpr std::string_view kExamples[] = {
    "ps_metadata h=4/2 workers=5 tile=4/8 page=1 batch=1q9s30_2q1s100_1q0s9_1q3s1 seed=1",
    "ps_metadata h=1 pad=3 workers=7 tile=16 strides=out batch=8q1s200_1q1s0 seed=2"};

void check(const Problem& p) {
  ASSAY_CHECK(p.workers >= 1, "{} workers", p.workers);
  ASSAY_CHECK(p.tile_rows >= 1 && p.tile_keys >= 1 && p.page_size >= 1,
              "tiles of {} rows and {} keys, pages of {}", p.tile_rows, p.tile_keys, p.page_size);
}

double bytes(const Problem& p, const BatchSize& b) {
  const double tiles = (b.rows / p.tile_rows + b.requests) * p.heads_kv + p.padded_rows;
  return 4 * (2 * b.requests + kWork * (tiles + p.workers) + (2 + kMerged + 2) * double{1} * p.workers);
}

std::string describe(const Problem& p) {
  return fmt::format("schedules {} tiles of {} rows for {} workers, cut at blocks of {} keys in pages of {}",
                     entries(p), p.tile_rows, p.workers, p.tile_keys, p.page_size);
}

}  // namespace

constinit const Op ops::ps_metadata = list_op({
    .id = ASSAY_OP_PS_METADATA,
    .name = "ps_metadata",
    .summary = "Attention as work for workers that stay: tiles, cuts and merges.",
    .operands = kOperands,
    .fields = kFields,
    .stridable = {.out = true},
    .check = check,
    .entries = entries,
    .bytes = bytes,
    .describe = describe,
    .examples = kExamples,
});

}  // namespace assay
