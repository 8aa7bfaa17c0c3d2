// SPDX-License-Identifier: Apache-2.0
// A prefix that all requests share as one request of all rows, and what is left. See enum assay_op.
#include <fmt/format.h>

#include "harness/base/error.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

TensorLayout tables(const Problem& p) {
  return layouts::table_out(p, static_cast<int64_t>(p.requests.size()),
                            (int64_t{p.max_kv_len()} + p.page_size - 1) / p.page_size);
}
TensorLayout lengths(const Problem& p) { return layouts::list(static_cast<int64_t>(p.requests.size()) + 1); }
TensorLayout prefix_starts(const Problem&) { return layouts::list(2); }
TensorLayout prefix_pages(const Problem& p) { return layouts::list(p.prefix_tokens / p.page_size); }

TensorLayout verdict(const Problem&) { return layouts::list(1); }

constexpr OperandUse kOperands[] = {
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kBlockTable, Role::kIn, layouts::block_table},
    {Operand::kIndptr, Role::kIn, layouts::csr_indptr},
    {Operand::kIndices, Role::kIn, layouts::csr_indices},
    {Operand::kOutLen, Role::kOut, lengths},
    {Operand::kOutCuQ, Role::kOut, prefix_starts},
    {Operand::kOutTable, Role::kOut, tables},
    {Operand::kOutIndices, Role::kOut, prefix_pages},
    {Operand::kOutCounts, Role::kOut, verdict},
};

constexpr std::string_view kFields[] = {"page",    "blocks", "table", "prefix",
                                        "workers", "window", "chunk", "alibi"};

constexpr std::string_view kExamples[] = {
    "cascade_metadata prefix=16 page=8 batch=2q1s40p16_1q3s17p16 seed=1",
    "cascade_metadata prefix=12 page=4 table=token strides=out batch=2q1s21_1q0_1q1s9 seed=2",
    "cascade_metadata page=4 table=csr batch=2q1s21_1q2s9 seed=3",
    "cascade_metadata prefix=256 workers=8 batch=9q1s300p256 seed=4"};

void check(const Problem& p) {
  ASSAY_CHECK(p.prefix_tokens >= 0 && p.workers >= 1, "a prefix of {} tokens for {} workers", p.prefix_tokens,
              p.workers);
}

double bytes(const Problem& p, const BatchSize& b) {
  return 4 * (b.requests * (4 + b.longest / p.page_size) + p.prefix_tokens / p.page_size);
}

std::string describe(const Problem& p) {
  return fmt::format("splits    {} requests behind a prefix of up to {} tokens in pages of {}",
                     p.requests.size(), p.prefix_tokens, p.page_size);
}

}  // namespace

constinit const Op ops::cascade_metadata = list_op({
    .id = ASSAY_OP_CASCADE_METADATA,
    .name = "cascade_metadata",
    .summary = "A shared prefix as one request, and the rest of every request.",
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands,
    .fields = kFields,
    .stridable = {.out = true, .table = true},
    .check = check,
    .bytes = bytes,
    .describe = describe,
    .examples = kExamples,
});

}  // namespace assay
