// SPDX-License-Identifier: Apache-2.0
// Attention of ragged Q over the pages of a cache. See enum assay_op.
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"
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
    {Operand::kSinks, Role::kIn, layouts::sinks},
    {Operand::kTreeMask, Role::kIn, layouts::tree_mask},
    {Operand::kTreeIndptr, Role::kIn, layouts::tree_indptr},
    {Operand::kFirstKey, Role::kIn, layouts::first_key},
    {Operand::kPositions, Role::kIn, layouts::positions},
    {Operand::kO, Role::kOut, layouts::o},
    {Operand::kLse, Role::kOut, layouts::lse},
};

constexpr std::string_view kFields[] = {"q",       "kv",     "out",   "page",     "blocks", "layout",
                                        "storage", "layers", "slots", "table",    "index",  "mask",
                                        "bits",    "window", "chunk", "cap",      "alibi",  "scale",
                                        "sinks",   "relate", "first", "positions"};

constexpr std::string_view kExamples[] = {
    "paged h=4/2 d=32 batch=2q1s40_1q9s20_1q0s5 seed=1",
    "paged h=4/2 d=64 kv=fp8_e4m3:head layout=shuffled table=csr alibi=linear batch=2q3s70p32 seed=2",
    "paged h=4/1 d=64/32 kv=int8:token_head layout=mla table=token strides=table+scales batch=3q1s50 seed=3",
    "paged h=2/1 d=32 mask=tree first=drawn positions=depth batch=2q5s20 seed=4",
    "paged h=4/2 d=32 kv=int8:token_head table=token slots=drawn strides=q+kv+out+last batch=2q3s50p16 "
    "seed=5"};

Work work(const Problem& p) { return attention_work(p, static_cast<double>(p.total_q())); }

}  // namespace

constinit const Op ops::paged = {
    .id = ASSAY_OP_PAGED,
    .name = "paged",
    .summary = "Attention of ragged Q over the pages of a cache.",
    .attends_rows = true,
    .whole_context = true,
    .has_cache = true,
    .shares_pages = true,
    .operands = kOperands,
    .fields = kFields,
    .work = work,
    .multiply_adds = attention_multiply_adds,
    .describe = attention_text,
    .examples = kExamples,
};

}  // namespace assay
