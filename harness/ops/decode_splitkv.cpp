// SPDX-License-Identifier: Apache-2.0
// Attention of one row per request, as partial results over parts of its keys. See enum assay_op.
#include <fmt/format.h>

#include <algorithm>

#include "harness/base/error.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/parts.hpp"
#include "harness/ops/text.hpp"

namespace assay {
namespace {

constexpr OperandUse kOperands[] = {
    {Operand::kQ, Role::kIn, layouts::q_read},
    {Operand::kQScale, Role::kIn, layouts::q_scale},
    {Operand::kK, Role::kIn, layouts::k_paged},
    {Operand::kV, Role::kIn, layouts::v_paged},
    {Operand::kKScale, Role::kIn, layouts::k_scale_paged},
    {Operand::kVScale, Role::kIn, layouts::v_scale_paged},
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kBlockTable, Role::kIn, layouts::block_table},
    {Operand::kIndptr, Role::kIn, layouts::csr_indptr},
    {Operand::kIndices, Role::kIn, layouts::csr_indices},
    {Operand::kLastPageLen, Role::kIn, layouts::csr_last_page_len},
    {Operand::kAlibiSlopes, Role::kIn, layouts::alibi_slopes},
    {Operand::kTreeMask, Role::kIn, layouts::tree_mask},
    {Operand::kTreeIndptr, Role::kIn, layouts::tree_indptr},
    {Operand::kFirstKey, Role::kIn, layouts::first_key},
    {Operand::kPositions, Role::kIn, layouts::positions},
    {Operand::kPartialO, Role::kOut, layouts::partial_o_written},
    {Operand::kPartialLse, Role::kOut, layouts::partial_lse_written},
};

constexpr std::string_view kFields[] = {
    "q",     "kv",   "out",  "states", "part",  "page", "blocks", "layout", "storage", "layers",   "slots",
    "table", "mask", "bits", "window", "chunk", "cap",  "alibi",  "scale",  "first",   "positions"};

constexpr std::string_view kExamples[] = {
    "decode_splitkv h=4/2 d=32 part=16 batch=1q1s40_1q1s16_1q0s5_1q1s0 seed=1",
    "decode_splitkv h=4/2 d=64 kv=int8:token_head states=3 part=0 table=csr strides=q+out window=20 "
    "batch=2q1s70 seed=2",
    "decode_splitkv h=4/2 d=32 part=16 table=token slots=drawn strides=kv+last batch=2q1s70 seed=3"};

void check(const Problem& p) {
  ASSAY_CHECK(!p.sinks, "the sinks of decode_splitkv belong to the merge");
  ASSAY_CHECK(
      p.part_tokens >= 0 && (p.part_tokens == 0 || int64_t{p.states} * p.part_tokens >= p.max_kv_len()),
      "{} parts of {} keys for up to {} keys", p.states, p.part_tokens, p.max_kv_len());
}

// O and LSE of every part in which the row sees a key; of a tree the whole range.
Work work(const Problem& p) {
  int64_t parts = 0;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r) {
    if (p.requests[r].q_len == 0) continue;
    const KeyRange seen = visible_range(p, r, 0);
    for (int32_t s = 0; s < p.states; ++s) {
      const KeyRange own = part_keys(p, p.requests[r].kv_len, s);
      parts += std::max(own.begin, seen.begin) < std::min(own.end, seen.end) ? 1 : 0;
    }
  }
  return attention_work(p, static_cast<double>(parts));
}

std::string describe(const Problem& p) {
  return fmt::format(
      "attends   {} rows, {} query heads on {} KV heads of {}/{}, {}\nparts     {} of {}, O {}", p.rows(),
      p.heads_q, p.heads_kv, p.head_dim_qk, p.head_dim_v, kv_text(p), p.states,
      p.part_tokens > 0 ? fmt::format("{} keys", p.part_tokens) : "whole pages, shared out evenly",
      name_of(format_names(), p.o_format));
}

}  // namespace

constinit const Op ops::decode_splitkv = {
    .id = ASSAY_OP_DECODE_SPLITKV,
    .name = "decode_splitkv",
    .summary = "Attention of one row per request, as partial results over parts of its keys.",
    .attends_rows = true,
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands,
    .fields = kFields,
    .default_out = ASSAY_FP32,
    .rows = RowRule::kOneAtMost,
    .recipes = kRecipesOfParts,
    .recipes_message = kRecipesOfPartsMessage,
    .foreign_fields = "sinks, index and relations (sinks also to the merge)",
    .check = check,
    .work = work,
    .describe = describe,
    .examples = kExamples,
};

}  // namespace assay
