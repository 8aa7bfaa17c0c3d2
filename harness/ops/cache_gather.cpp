// SPDX-License-Identifier: Apache-2.0
// Copies chunks of cached tokens, dequantised, into packed rows. See enum assay_op.
#include <fmt/format.h>

#include <cmath>

#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/packed_rows.hpp"
#include "harness/ops/text.hpp"

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

constexpr std::string_view kFields[] = {"kv",      "out",    "page",  "blocks", "layout",
                                        "storage", "layers", "slots", "table"};

constexpr std::string_view kExamples[] = {
    "cache_gather h=4/2 d=32 batch=2q5s40_1q0s9_1q33 seed=1",
    "cache_gather h=4/2 d=64 kv=int8:token_head table=token strides=kv+out+table+scales batch=2q17s45 seed=2",
    "cache_gather h=4/1 d=64/32 kv=fp8_e4m3 layout=mla table=csr batch=2q20s33 seed=3",
    "cache_gather h=4/2 d=32 kv=int8:token_head table=token slots=drawn strides=out+last batch=2q17s45 "
    "seed=4"};

constexpr size_t kStartsShown = 12;

// Every cached byte of the chunks, the rows, token_to_batch, starts, and a table entry for each page of the
// chunks at least.
Work work(const Problem& p) {
  Work w;
  w.tokens = p.total_q();
  const auto rows = static_cast<double>(w.tokens), requests = static_cast<double>(p.requests.size());
  const bool latent = p.layout == ASSAY_LAYOUT_MLA;
  const double dims = double{1} * p.head_dim_qk + (latent ? 0 : p.head_dim_v);
  w.kv_bytes = cached_row_bytes(p);
  w.total_bytes = w.kv_bytes + rows * p.heads_kv * dims * format_bytes(p.o_format) + 4 * rows + 8 * requests +
                  4 * (p.table == ASSAY_TABLE_TOKEN ? rows : std::ceil(rows / p.page_size));
  return w;
}

std::string describe(const Problem& p) {
  std::string text =
      fmt::format("gathers   {} rows, {} KV heads of {}/{}, {}, to {}\nstarts    token", p.rows(), p.heads_kv,
                  p.head_dim_qk, p.head_dim_v, kv_text(p), name_of(format_names(), p.o_format));
  const std::vector<int32_t> starts = first_positions(p);
  for (size_t r = 0; r < starts.size() && r < kStartsShown; ++r) text += fmt::format(" {}", starts[r]);
  return text;
}

}  // namespace

constinit const Op ops::cache_gather = {
    .id = ASSAY_OP_CACHE_GATHER,
    .name = "cache_gather",
    .summary = "Copies chunks of cached tokens, dequantised, into packed rows.",
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands,
    .fields = kFields,
    .rows = RowRule::kWithinCache,
    .stridable = {.kv = true, .out = true, .table = true, .scales = true, .last = true},
    .recipes = recipe_set(InputRecipe::kNormal, InputRecipe::kOutlier),
    .recipes_message = "takes input=normal or outlier",
    .work = work,
    .describe = describe,
    .examples = kExamples,
};

}  // namespace assay
