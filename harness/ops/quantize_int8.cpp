// SPDX-License-Identifier: Apache-2.0
// Quantises rows to int8 or fp8 with given or with computed scales. See enum assay_op.
#include <fmt/format.h>

#include "harness/base/error.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/text.hpp"

namespace assay {
namespace {

constexpr OperandUse kOperands[] = {
    {Operand::kSource, Role::kIn, layouts::source},
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kQ, Role::kOut, layouts::q_written},
    {Operand::kQScale, Role::kIn, layouts::q_scale, Role::kOut},
};

constexpr std::string_view kFields[] = {"q", "from", "scales"};

constexpr std::string_view kExamples[] = {
    "quantize_int8 h=4 d=32 batch=3q7_1q0 seed=1",
    "quantize_int8 h=4 d=64 q=int8:channel from=fp32 strides=q+out batch=2q9 seed=2",
    "quantize_int8 h=4 d=64 strides=scales batch=2q9 input=exact seed=3",
    "quantize_int8 h=4 d=64 q=fp8_e4m3 batch=3q7_1q0 seed=4",
    "quantize_int8 h=4 d=32 strides=out+last batch=2q9 seed=5",
    "quantize_int8 h=4 d=64 q=int8:channel scales=computed batch=3q7_1q0 seed=6"};

bool writable(const Quantization& q) {
  return format_is_quantized(q.format) && q.scale != ASSAY_SCALE_REQUEST_HEAD;
}

void check(const Problem& p) {
  ASSAY_CHECK(writable({p.q_format, p.q_scale}),
              "quantize_int8 writes {}:{}, accepted are int8 and fp8 with any scale but those of a request",
              name_of(format_names(), p.q_format), name_of(scale_names(), p.q_scale));
  ASSAY_CHECK(!p.computed_scales || p.q_scale == ASSAY_SCALE_CHANNEL,
              "computed scales are those of channels");
}

Work work(const Problem& p) {
  Work w;
  w.tokens = p.total_q();
  const auto rows = static_cast<double>(w.tokens), requests = static_cast<double>(p.requests.size());
  // Scales of channels are known behind the last row, so rows are read twice.
  const double reads = p.computed_scales ? 2 : 1;
  w.total_bytes = rows * p.heads_q * p.head_dim_qk * (reads * format_bytes(p.source_format) + 1) +
                  scale_bytes(p.q_scale, p.heads_q, p.head_dim_qk, requests, rows);
  return w;
}

std::string describe(const Problem& p) {
  return fmt::format("quantises {} rows, {} heads of {}, {}, to {}{}", p.rows(), p.heads_q, p.head_dim_qk,
                     name_of(format_names(), p.source_format), quantization_text(p.q_format, p.q_scale),
                     p.computed_scales ? ", scales from all rows, handed on" : "");
}

}  // namespace

constinit const Op ops::quantize_int8 = {
    .id = ASSAY_OP_QUANTIZE_INT8,
    .name = "quantize_int8",
    .summary = "Quantises rows to int8 or fp8 with given or with computed scales.",
    .operands = kOperands,
    .fields = kFields,
    .default_q = {ASSAY_INT8, ASSAY_SCALE_TOKEN_HEAD},
    .stridable = {.q = true, .out = true, .scales = true, .last = true},
    .recipes = recipe_set(InputRecipe::kNormal, InputRecipe::kOutlier, InputRecipe::kExact),
    .recipes_message = "takes input=normal, outlier or exact (ties of the rounding)",
    .q_rule = {writable,
               "quantize_int8 writes int8 or fp8 with computed scales (q=int8:token_head) or given ones "
               "(tensor, host, "
               "head, channel)"},
    .check = check,
    .work = work,
    .describe = describe,
    .examples = kExamples,
};

}  // namespace assay
