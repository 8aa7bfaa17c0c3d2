// SPDX-License-Identifier: Apache-2.0
// Attention of ragged Q over K and V that lie packed, one request behind the other. See enum assay_op.
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/text.hpp"

namespace assay {
namespace {

constexpr OperandUse kOperands[] = {
    {Operand::kQ, Role::kIn, layouts::q_read},
    {Operand::kQScale, Role::kIn, layouts::q_scale},
    {Operand::kK, Role::kIn, layouts::k_ragged},
    {Operand::kV, Role::kIn, layouts::v_ragged},
    {Operand::kKScale, Role::kIn, layouts::k_scale_ragged},
    {Operand::kVScale, Role::kIn, layouts::v_scale_ragged},
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kCuKv, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kAlibiSlopes, Role::kIn, layouts::alibi_slopes},
    {Operand::kSinks, Role::kIn, layouts::sinks},
    {Operand::kTreeMask, Role::kIn, layouts::tree_mask},
    {Operand::kTreeIndptr, Role::kIn, layouts::tree_indptr},
    {Operand::kFirstKey, Role::kIn, layouts::first_key},
    {Operand::kPositions, Role::kIn, layouts::positions},
    {Operand::kO, Role::kOut, layouts::o},
    {Operand::kLse, Role::kOut, layouts::lse},
};

constexpr std::string_view kFields[] = {"q",   "kv",    "out",   "mask",  "bits",   "window", "chunk",
                                        "cap", "alibi", "scale", "sinks", "relate", "first",  "positions"};

constexpr std::string_view kExamples[] = {
    "prefill h=4/2 d=32 batch=2q9s20_1q1s33_1q0s5 seed=1",
    "prefill h=2/1 d=48/32 kv=int8:token_head strides=q+kv+out+scales "
    "window=7 sinks=on batch=1q30_1q3s40 seed=2",
    "prefill h=2/1 d=48/32 kv=fp8_e4m3:head strides=q+kv+out+last batch=1q30_1q3s40 seed=3"};

Work work(const Problem& p) { return attention_work(p, static_cast<double>(p.total_q())); }

}  // namespace

constinit const Op ops::prefill = {
    .id = ASSAY_OP_PREFILL,
    .name = "prefill",
    .summary = "Attention of ragged Q over K and V that lie packed, one request behind the other.",
    .attends_rows = true,
    .whole_context = true,
    .operands = kOperands,
    .fields = kFields,
    .work = work,
    .multiply_adds = attention_multiply_adds,
    .describe = attention_text,
    .examples = kExamples,
};

}  // namespace assay
