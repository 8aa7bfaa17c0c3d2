// SPDX-License-Identifier: Apache-2.0
// What a decode kernel reads, refreshed in place for the next replay. See enum assay_op.
#include <fmt/format.h>

#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

TensorLayout tables(const Problem& p) {
  return layouts::table_out(p, static_cast<int64_t>(p.requests.size()),
                            (int64_t{p.max_kv_len()} + p.page_size - 1) / p.page_size);
}

int64_t entries(const Problem& p) { return static_cast<int64_t>(p.requests.size()); }
TensorLayout lengths(const Problem& p) { return layouts::list(entries(p) + p.padded_rows); }
TensorLayout starts(const Problem& p) { return layouts::list(entries(p) + p.padded_rows + 1); }

constexpr OperandUse kOperands[] = {
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kContextLen, Role::kIn, layouts::per_request},
    {Operand::kEncoderLen, Role::kIn, layouts::encoder_len},
    {Operand::kBlockTable, Role::kIn, layouts::block_table},
    {Operand::kIndptr, Role::kIn, layouts::csr_indptr},
    {Operand::kIndices, Role::kIn, layouts::csr_indices},
    {Operand::kOutLen, Role::kOut, lengths},
    {Operand::kOutCuQ, Role::kOut, starts},
    {Operand::kOutCuKv, Role::kOut, starts},
    {Operand::kOutTable, Role::kOut, tables},
};

constexpr std::string_view kFields[] = {"pad", "page", "blocks", "table", "encoder"};

constexpr std::string_view kExamples[] = {
    "decode_metadata page=8 table=token batch=2q1s41_1q1_1q0s9 seed=1",
    "decode_metadata pad=3 page=1 strides=out+table batch=2q4s10_1q1 seed=2",
    "decode_metadata page=32 table=csr batch=3q2s33 seed=3",
    "decode_metadata encoder=19 page=8 table=token batch=2q1s41_1q1_1q0s9 seed=4"};

double bytes(const Problem& p, const BatchSize& b) {
  return 4 * (b.requests * (6 + b.longest / p.page_size) + 3 * double{1} * p.padded_rows);
}

std::string describe(const Problem& p) {
  return fmt::format("refreshes {} requests of up to {} keys in pages of {}", p.requests.size(),
                     p.max_kv_len(), p.page_size);
}

}  // namespace

constinit const Op ops::decode_metadata = list_op({
    .id = ASSAY_OP_DECODE_METADATA,
    .name = "decode_metadata",
    .summary = "Lengths, starts and page table of a step, from the context and a table.",
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands,
    .fields = kFields,
    .rows = RowRule::kWithinCache,
    .stridable = {.out = true, .table = true},
    .entries = entries,
    .bytes = bytes,
    .describe = describe,
    .examples = kExamples,
});

}  // namespace assay
