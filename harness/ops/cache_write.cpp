// SPDX-License-Identifier: Apache-2.0
// Writes new rows of K and V, quantised if the cache is, to their slots of a cache. See enum assay_op.
#include <fmt/format.h>

#include "harness/base/error.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/text.hpp"

namespace assay {
namespace {

constexpr OperandUse kOperands[] = {
    {Operand::kDenseK, Role::kIn, layouts::dense_k_read},
    {Operand::kDenseV, Role::kIn, layouts::dense_v_read},
    {Operand::kDenseKScale, Role::kIn, layouts::dense_k_scale},
    {Operand::kDenseVScale, Role::kIn, layouts::dense_v_scale},
    {Operand::kSlotMapping, Role::kIn, layouts::slot_mapping},
    {Operand::kK, Role::kInOut, layouts::k_paged},
    {Operand::kV, Role::kInOut, layouts::v_paged},
    {Operand::kKScale, Role::kIn, layouts::k_scale_paged, Role::kInOut},
    {Operand::kVScale, Role::kIn, layouts::v_scale_paged_unless_latent, Role::kInOut},
};

constexpr std::string_view kFields[] = {"kv",     "from",    "pad",    "page",  "blocks",
                                        "layout", "storage", "layers", "slots", "sources"};

constexpr std::string_view kExamples[] = {
    "cache_write h=4/2 d=32 pad=3 batch=2q5s20_1q0s9_1q1s33 seed=1",
    "cache_write h=4/2 d=64 kv=int8:token_head/fp8_e4m3:head layout=hnd strides=q+kv+scales batch=2q9s20 "
    "seed=2",
    "cache_write h=4/1 d=64/32 kv=int8:token_head pad=1 layout=mla batch=2q5s33 seed=3",
    "cache_write h=4/2 d=64 kv=int8:channel batch=2q9s20 input=exact seed=4",
    "cache_write h=4/2 d=64 kv=int8:token_head/bf16 from=codes strides=scales batch=2q9s20 seed=5",
    "cache_write h=4/1 d=64/48 from=fp16 sources=2 layout=mla batch=2q9s20 seed=6",
    "cache_write h=4/2 d=64 kv=fp8_e4m3:token_head layout=shuffled batch=2q9s40 seed=7",
    "cache_write h=4/2 d=32 kv=int8:token_head pad=1 layout=hnd slots=drawn strides=q+kv+last batch=2q9s20 "
    "seed=8"};

bool writable(const Quantization& q) { return q.scale != ASSAY_SCALE_REQUEST_HEAD; }

void check(const Problem& p) {
  for (const Quantization& q : {Quantization{p.k_format, p.k_scale}, Quantization{p.v_format, p.v_scale}})
    ASSAY_CHECK(writable(q), "cache_write writes {}:{}, but its rows know no request",
                name_of(format_names(), q.format), name_of(scale_names(), q.scale));
}

// Padded rows are no work.
Work work(const Problem& p) {
  Work w;
  w.tokens = p.total_q();
  w.kv_bytes = cached_row_bytes(p);
  w.total_bytes = w.kv_bytes + new_row_bytes(p);
  return w;
}

std::string describe(const Problem& p) {
  return fmt::format(
      "writes    {} rows ({} of them padded), {} KV heads of {}/{}, {}, into a cache of {}", p.rows(),
      p.padded_rows, p.heads_kv, p.head_dim_qk, p.head_dim_v,
      p.source_format == ASSAY_FORMAT_NONE ? "as codes" : name_of(format_names(), p.source_format),
      kv_text(p));
}

}  // namespace

constinit const Op ops::cache_write = {
    .id = ASSAY_OP_CACHE_WRITE,
    .name = "cache_write",
    .summary = "Writes new rows of K and V, quantised if the cache is, to their slots of a cache.",
    .has_cache = true,
    .operands = kOperands,
    .fields = kFields,
    .rows = RowRule::kWithinCache,
    .stridable = {.q = true, .kv = true, .scales = true, .last = true},
    .recipes = recipe_set(InputRecipe::kNormal, InputRecipe::kOutlier, InputRecipe::kExact),
    .recipes_message = "takes input=normal, outlier or exact (ties of the rounding)",
    .kv_rule =
        {writable,
         "cache_write knows no request (no request_head scales); take scales tensor, host, head, channel or "
         "token_head"},
    .check = check,
    .work = work,
    .describe = describe,
    .examples = kExamples,
};

}  // namespace assay
