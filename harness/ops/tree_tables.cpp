// SPDX-License-Identifier: Apache-2.0
// What each draft sees of its tree, as a table of slots. See enum assay_op.
#include <fmt/format.h>

#include <algorithm>

#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

TensorLayout per_row(const Problem& p) { return layouts::list(p.rows()); }
TensorLayout starts(const Problem& p) { return layouts::list(p.rows() + 1); }
TensorLayout tables(const Problem& p) { return layouts::table_out(p, p.rows(), p.max_q_len()); }

constexpr OperandUse kOperands[] = {
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kBlockTable, Role::kIn, layouts::block_table},
    {Operand::kIndptr, Role::kIn, layouts::csr_indptr},
    {Operand::kIndices, Role::kIn, layouts::csr_indices},
    {Operand::kTreeMask, Role::kIn, layouts::tree_mask},
    {Operand::kTreeIndptr, Role::kIn, layouts::tree_indptr},
    {Operand::kOutLen, Role::kOut, per_row},
    {Operand::kOutCuKv, Role::kOut, starts},
    {Operand::kOutTable, Role::kOut, tables},
};

constexpr std::string_view kFields[] = {"pad", "page", "blocks", "table"};

constexpr std::string_view kExamples[] = {
    "tree_tables page=8 batch=2q4s40_1q7_1q0s9 seed=1",
    "tree_tables pad=3 page=1 table=token strides=out batch=3q5s20 seed=2"};

double bytes(const Problem& p, const BatchSize& b) {
  const double rows = b.rows + p.padded_rows;
  return 4 * (2 * b.requests + rows * (2 + b.tree_entries / std::max(1.0, b.rows))) + 8 * b.requests +
         b.tree_entries;
}

std::string describe(const Problem& p) {
  return fmt::format("lists     what {} drafts of {} requests see, as slots in pages of {}", p.total_q(),
                     p.requests.size(), p.page_size);
}

}  // namespace

constinit const Op ops::tree_tables = {
    .id = ASSAY_OP_TREE_TABLES,
    .name = "tree_tables",
    .summary = "For each draft of a tree the slots of the drafts it sees.",
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands,
    .fields = kFields,
    .rows = RowRule::kWithinCache,
    .stridable = {.out = true, .table = true},
    .recipes = recipe_set(InputRecipe::kNormal),
    .recipes_message = "tree_tables reads lengths and tables: input=normal",
    .foreign_fields = "masks, biases and relations",
    .bytes = bytes,
    .work = list_work,
    .describe = describe,
    .examples = kExamples,
};

}  // namespace assay
