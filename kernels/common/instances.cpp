// SPDX-License-Identifier: Apache-2.0
// Support list of the kernels. The table is the product of the per-operand format lists below,
// built once; the remaining conditions (head dimensions, scales, layouts, tables) hold for every row.
#include "kernels/common/instances.hpp"

#include <array>
#include <cstdio>

#include "kernels/common/operands.hpp"

namespace assay_kernels {
namespace {

constexpr int kFormatCount = 8;
constexpr std::array<int32_t, kFormatCount> kFormats = {
    ASSAY_FP32,     ASSAY_BF16,         ASSAY_FP16,         ASSAY_FP8_E4M3,
    ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ, ASSAY_INT8};

// fp32 has 24 significant bits and fp16 11; bf16 keeps 8, enough for the rest.
constexpr bool exact_in_bf16(int32_t format) { return format != ASSAY_FP32 && format != ASSAY_FP16; }

constexpr auto kInstances = [] {
  std::array<Instance, kFormatCount * kFormatCount * kFormatCount> list{};
  int n = 0;
  for (int32_t q : kFormats)
    for (int32_t k : kFormats)
      for (int32_t v : kFormats)
        list[n++] = {q, k, v, exact_in_bf16(q) && exact_in_bf16(k) && exact_in_bf16(v)};
  return list;
}();

constexpr char kFormatList[] = "fp32 bf16 fp16 fp8_e4m3 fp8_e5m2 fp8_e4m3fnuz fp8_e5m2fnuz int8";

const Instance* refuse(char* why, size_t size, const char* required, const char* supported,
                       const char* missing) {
  if (why != nullptr && size > 0)
    snprintf(why, size, "required %s, supported %s, missing %s", required, supported, missing);
  return nullptr;
}

}  // namespace

const Instance* find_instance(const assay_problem* p, int32_t op, char* why, size_t size, bool positions) {
  char text[160];
  if (p->op != op) {
    const auto name = [](int32_t of) {
      return of == ASSAY_OP_PREFILL          ? "prefill"
             : of == ASSAY_OP_PAGED          ? "paged"
             : of == ASSAY_OP_DECODE_SPLITKV ? "decode_splitkv"
                                             : "op ?";
    };
    return refuse(why, size, name(p->op), name(op), "this op");
  }
  if (p->heads_q < 1 || p->heads_kv < 1 || p->heads_q % p->heads_kv != 0) {
    snprintf(text, sizeof text, "%d query heads on %d KV heads", p->heads_q, p->heads_kv);
    return refuse(why, size, text, "a positive multiple", "the group size");
  }
  if (p->head_dim_qk < 1 || p->head_dim_qk > kMaxHeadDim || p->head_dim_v < 1 ||
      p->head_dim_v > kMaxHeadDim) {
    snprintf(text, sizeof text, "head dimensions %d and %d", p->head_dim_qk, p->head_dim_v);
    return refuse(why, size, text, "1..1024", "an instance of this size");
  }
  if (p->o_format != ASSAY_FP32 && p->o_format != ASSAY_BF16 && p->o_format != ASSAY_FP16) {
    snprintf(text, sizeof text, "output %s", format_name(p->o_format));
    return refuse(why, size, text, "fp32 bf16 fp16", "this output format");
  }
  if (p->mask < ASSAY_MASK_CAUSAL || p->mask > ASSAY_MASK_TREE) {
    snprintf(text, sizeof text, "mask %d", p->mask);
    return refuse(why, size, text, "causal full cross tree", "this mask");
  }
  if (p->drafted != 0) return refuse(why, size, "drafts of steps before", "new drafts", "their place");
  if (p->alibi < ASSAY_ALIBI_NONE || p->alibi > ASSAY_ALIBI_SQRT) {
    snprintf(text, sizeof text, "alibi %d", p->alibi);
    return refuse(why, size, text, "none linear sqrt", "this bias");
  }
  for (int32_t kind : {p->q_scale_kind, p->k_scale_kind, p->v_scale_kind})
    if (kind < ASSAY_SCALE_NONE || kind > ASSAY_SCALE_CHANNEL) {
      snprintf(text, sizeof text, "scale kind %d", kind);
      return refuse(why, size, text, "none tensor host head request_head token_head channel",
                    "this granularity");
    }
  if (op != ASSAY_OP_PREFILL) {
    if (p->layout < ASSAY_LAYOUT_NHD || p->layout > ASSAY_LAYOUT_MLA) {
      snprintf(text, sizeof text, "layout %d", p->layout);
      return refuse(why, size, text, "nhd hnd x shuffled mla", "this layout");
    }
    if (p->layout == ASSAY_LAYOUT_MLA && p->heads_kv != 1) {
      snprintf(text, sizeof text, "layout mla with %d KV heads", p->heads_kv);
      return refuse(why, size, text, "1 KV head", "a head axis");
    }
    if (p->table < ASSAY_TABLE_BLOCK || p->table > ASSAY_TABLE_TOKEN || p->page_size < 1) {
      snprintf(text, sizeof text, "table %d with pages of %d", p->table, p->page_size);
      return refuse(why, size, text, "block csr token and pages of at least 1", "this table");
    }
  }
  if (op == ASSAY_OP_DECODE_SPLITKV && (p->max_q_len > 1 || p->states < 1 || p->part_tokens < 0)) {
    snprintf(text, sizeof text, "%d rows of a request, %d parts of %d keys", p->max_q_len, p->states,
             p->part_tokens);
    return refuse(why, size, text, "1 row, at least 1 part, 0 or more keys", "this split");
  }
  if (!positions && (p->first_key != nullptr || p->positions != nullptr))
    return refuse(why, size, p->first_key != nullptr ? "a first key's position" : "positions of rows",
                  "keys from position 0, the last row at the last key", "masks by position");
  for (const Instance& instance : kInstances)
    if (instance.q_format == p->q_format && instance.k_format == p->k_format &&
        instance.v_format == p->v_format)
      return &instance;
  snprintf(text, sizeof text, "q %s, k %s, v %s", format_name(p->q_format), format_name(p->k_format),
           format_name(p->v_format));
  return refuse(why, size, text, kFormatList, "this combination of formats");
}

}  // namespace assay_kernels
