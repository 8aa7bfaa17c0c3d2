// SPDX-License-Identifier: Apache-2.0
// Attention in chunks as virtual batches of causal attention. See enum assay_op.
#include <fmt/format.h>

#include <algorithm>

#include "harness/base/error.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

// Requests that a request becomes: one for each chunk its rows enter, one for rows before its first key.
int64_t pieces(const Problem& p, const Request& r) {
  const int32_t blind = std::clamp(-r.context_len(), 0, r.q_len);
  int64_t count = blind > 0 ? 1 : 0;
  if (blind == r.q_len) return count;
  const int32_t first = std::max(r.context_len(), 0);
  return count + (p.chunk > 0 ? (r.kv_len - 1) / p.chunk - first / p.chunk + 1 : 1);
}
int64_t entries(const Problem& p) {
  int64_t count = 0;
  for (const Request& r : p.requests) count += pieces(p, r);
  return count;
}
int64_t batches(const Problem& p) { return entries(p) + p.padded_rows; }
int64_t table_width(const Problem& p) {
  const int64_t keys = p.chunk > 0 ? std::min(p.chunk, p.max_kv_len()) : p.max_kv_len();
  return (keys + p.page_size - 1) / p.page_size;
}

TensorLayout per_batch(const Problem& p) { return layouts::list(batches(p)); }
TensorLayout starts(const Problem& p) { return layouts::list(batches(p) + 1); }
TensorLayout count(const Problem&) { return layouts::list(1); }
TensorLayout tables(const Problem& p) { return layouts::table_out(p, batches(p), table_width(p)); }

constexpr OperandUse kOperands[] = {
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kBlockTable, Role::kIn, layouts::block_table},
    {Operand::kIndptr, Role::kIn, layouts::csr_indptr},
    {Operand::kIndices, Role::kIn, layouts::csr_indices},
    {Operand::kSlotMap, Role::kIn, layouts::slot_map},
    {Operand::kOutLen, Role::kOut, per_batch},
    {Operand::kOutCuQ, Role::kOut, starts},
    {Operand::kOutCuKv, Role::kOut, starts},
    {Operand::kOutTable, Role::kOut, tables},
    {Operand::kOutRequest, Role::kOut, per_batch},
    {Operand::kOutCounts, Role::kOut, count},
};

constexpr std::string_view kFields[] = {"pad", "page", "blocks", "table", "chunk", "pool"};

constexpr std::string_view kExamples[] = {
    "local_batches page=2 chunk=4 batch=1q4s6_1q10s17_1q5s9 seed=1",
    "local_batches pad=3 page=4 table=token strides=out+table chunk=8 batch=2q3s30_1q0s9_1q9s4 seed=2",
    "local_batches page=8 table=csr batch=2q3s30_1q1s16 seed=3",
    "local_batches pool=full page=4 table=token chunk=8 batch=2q3s30_1q1s16 seed=4"};

void check(const Problem& p) {
  ASSAY_CHECK(p.chunk % p.page_size == 0, "chunks of {} tokens in pages of {}: a chunk begins with a page",
              p.chunk, p.page_size);
}

double bytes(const Problem& p, const BatchSize& b) {
  const double chunk = p.chunk > 0 ? p.chunk : b.longest + 1;
  const double count = b.requests + b.rows / chunk + p.padded_rows;
  return 4 * (2 * b.requests + count * (4 + std::min(chunk, b.longest) / p.page_size));
}

std::string describe(const Problem& p) {
  return fmt::format("cuts      {} requests at chunks of {} tokens into {} batches, tables of {} pages of {}",
                     p.requests.size(), p.chunk, entries(p), table_width(p), p.page_size);
}

}  // namespace

constinit const Op ops::local_batches = list_op({
    .id = ASSAY_OP_LOCAL_BATCHES,
    .name = "local_batches",
    .summary = "Attention in chunks as causal batches, with their page tables.",
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands,
    .fields = kFields,
    .stridable = {.out = true, .table = true},
    .check = check,
    .entries = entries,
    .bytes = bytes,
    .describe = describe,
    .examples = kExamples,
});

}  // namespace assay
