// SPDX-License-Identifier: Apache-2.0
// What each draft sees as a table of slots, of its tree (tree_tables) or of context and tree
// (swa_tree_table). The two differ in how wide the table is. See enum assay_op.
#include <fmt/format.h>

#include <algorithm>

#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

TensorLayout per_row(const Problem& p) { return layouts::list(p.rows()); }
TensorLayout starts(const Problem& p) { return layouts::list(p.rows() + 1); }
TensorLayout tree_only(const Problem& p) {
  return layouts::table_out(p, p.rows(), int64_t{p.max_q_len()} * (p.drafted + 1));
}
TensorLayout with_context(const Problem& p) { return layouts::table_out(p, p.rows(), p.max_kv_len()); }

template <TensorLayout (*kTable)(const Problem&)>
constexpr OperandUse kOperands[] = {
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kBlockTable, Role::kIn, layouts::block_table},
    {Operand::kIndptr, Role::kIn, layouts::csr_indptr},
    {Operand::kIndices, Role::kIn, layouts::csr_indices},
    {Operand::kTreeMask, Role::kIn, layouts::tree_mask},
    {Operand::kTreeIndptr, Role::kIn, layouts::tree_indptr},
    {Operand::kOutLen, Role::kOut, per_row},
    {Operand::kOutCuQ, Role::kOut, starts},
    {Operand::kOutCuKv, Role::kOut, starts},
    {Operand::kOutTable, Role::kOut, kTable},
};

constexpr std::string_view kFields[] = {"pad", "page", "blocks", "table", "tree", "bits", "drafted"};

constexpr std::string_view kTreeExamples[] = {
    "tree_tables page=8 batch=2q4s40_1q7_1q0s9 seed=1",
    "tree_tables pad=3 page=1 table=token strides=out batch=3q5s20 seed=2",
    "tree_tables tree=flat page=8 batch=2q4s40_1q7_1q0s9 seed=3",
    "tree_tables drafted=2 page=8 batch=2q4s40_1q7s21_1q0s9 seed=4"};

constexpr std::string_view kSwaExamples[] = {
    "swa_tree_table page=8 batch=2q4s40_1q7s37_1q0s9 seed=1",
    "swa_tree_table pad=3 page=3 table=csr strides=out batch=3q5s20 seed=2"};

// With so many entries in a row of the table.
double bytes(const Problem& p, const BatchSize& b, double entries) {
  return 4 * (2 * b.requests + (b.rows + p.padded_rows) * (3 + entries)) + 8 * b.requests +
         (p.flat_tree ? b.rows * b.longest : b.tree_entries);
}
double tree_bytes(const Problem& p, const BatchSize& b) {
  return bytes(p, b, b.tree_entries / std::max(1.0, b.rows));
}
double swa_bytes(const Problem& p, const BatchSize& b) { return bytes(p, b, b.longest); }

std::string describe(const Problem& p) {
  return fmt::format("lists     what {} drafts of {} requests see, as slots in pages of {}", p.total_q(),
                     p.requests.size(), p.page_size);
}

}  // namespace

constinit const Op ops::tree_tables = list_op({
    .id = ASSAY_OP_TREE_TABLES,
    .name = "tree_tables",
    .summary = "For each draft of a tree the slots of the drafts it sees.",
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands<tree_only>,
    .fields = kFields,
    .rows = RowRule::kWithinCache,
    .stridable = {.out = true, .table = true},
    .bytes = tree_bytes,
    .describe = describe,
    .examples = kTreeExamples,
});

constinit const Op ops::swa_tree_table = list_op({
    .id = ASSAY_OP_SWA_TREE_TABLE,
    .name = "swa_tree_table",
    .summary = "For each draft of a tree the slots of the context and of the drafts it sees.",
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands<with_context>,
    .fields = kFields,
    .rows = RowRule::kWithinCache,
    .stridable = {.out = true, .table = true},
    .bytes = swa_bytes,
    .describe = describe,
    .examples = kSwaExamples,
});

}  // namespace assay
