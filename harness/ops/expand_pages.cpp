// SPDX-License-Identifier: Apache-2.0
// A page table of any kind to a flat one of pages of one token, with its starts. See enum assay_op.
#include <fmt/format.h>

#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

int64_t entries(const Problem& p) { return p.total_kv(); }
TensorLayout indices(const Problem& p) { return layouts::list(entries(p) + p.padded_rows); }

constexpr OperandUse kOperands[] = {
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kBlockTable, Role::kIn, layouts::block_table},
    {Operand::kIndptr, Role::kIn, layouts::csr_indptr},
    {Operand::kIndices, Role::kIn, layouts::csr_indices},
    {Operand::kOutCuKv, Role::kOut, layouts::request_starts},
    {Operand::kOutIndices, Role::kOut, indices},
};

constexpr std::string_view kFields[] = {"pad", "page", "blocks", "table"};

constexpr std::string_view kExamples[] = {
    "expand_pages page=8 batch=2q1s40_1q1s0_1q1s9 seed=1",
    "expand_pages pad=7 page=3 table=csr batch=2q4s10_1q1 seed=2",
    "expand_pages page=1 table=token strides=table batch=3q1s21 seed=3"};

double bytes(const Problem& p, const BatchSize& b) { return 4 * (2 * b.requests + b.keys + p.padded_rows); }

std::string describe(const Problem& p) {
  return fmt::format("expands   {} requests, pages of {}, to {} slots and {} entries of padding",
                     p.requests.size(), p.page_size, entries(p), p.padded_rows);
}

}  // namespace

constinit const Op ops::expand_pages = list_op({
    .id = ASSAY_OP_EXPAND_PAGES,
    .name = "expand_pages",
    .summary = "Page table to a flat table of pages of one token.",
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands,
    .fields = kFields,
    .stridable = {.table = true},
    .entries = entries,
    .bytes = bytes,
    .describe = describe,
    .examples = kExamples,
});

}  // namespace assay
