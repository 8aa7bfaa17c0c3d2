// SPDX-License-Identifier: Apache-2.0
// What the kernels on 16-bit matrix instructions accept, promise and launch. The list of compiled shapes is
// mma_shape(): supports, arithmetic, workspace and run all ask it, so they cannot disagree.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "kernels/common/fill_struct.hpp"
#include "kernels/common/instances.hpp"
#include "kernels/portable/entry.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/portable/launch.hpp"

namespace assay_gpu {
namespace {

using assay_kernels::element_bytes;
using assay_kernels::format_name;

bool mma_shape(const assay_problem& p, int32_t op, MmaShape* shape, char* why, size_t size) {
  if (assay_kernels::find_instance(&p, op, why, size) == nullptr) return false;
  char text[128];
  const int32_t q = p.q_format, k = p.k_format, v = p.v_format;
  const bool q_bytes = element_bytes(q) == 1;
  shape->format = q == ASSAY_FP16 ? ASSAY_FP16 : ASSAY_BF16;
  shape->bytes = element_bytes(k) == 1;
  const bool alike = shape->bytes ? element_bytes(v) == 1 : k == shape->format && v == shape->format;
  if ((q != ASSAY_BF16 && q != ASSAY_FP16 && !q_bytes) || !alike) {
    std::snprintf(text, sizeof text, "q %s, k %s, v %s", format_name(q), format_name(k), format_name(v));
    return refuse(why, size, text,
                  "q bf16, fp16 or 8-bit; k and v both 8-bit or both in the 16-bit format of q",
                  "an instance of the matrix kernel (the simple kernel takes it)");
  }
  const int32_t widest = std::max(p.head_dim_qk, p.head_dim_v);
  shape->dims = widest <= 64 ? 64 : widest <= 128 ? 128 : 256;
  if (widest > 256) {
    std::snprintf(text, sizeof text, "head dimensions %d and %d", p.head_dim_qk, p.head_dim_v);
    return refuse(why, size, text, "up to 256", "an instance of this width (the simple kernel takes it)");
  }
  if (shape->format == ASSAY_FP16 && p.v_scale_kind == ASSAY_SCALE_TOKEN_HEAD)
    return refuse(why, size, "per-token scales of V with fp16", "them with bf16",
                  "a P that keeps its range when it is scaled");
  return true;
}

// Two blocks to a multiprocessor, twice.
int32_t mma_parts(const assay_problem& p) { return even_parts(p, kTileRows, 2, 128); }

int64_t mma_workspace(const assay_kernel*, const assay_problem* p) {
  const int32_t parts = mma_parts(*p);
  return parts > 1 ? partial_bytes(*p, parts) : 0;
}

int mma_supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*,
                 const assay_device* device, char* why, size_t size) {
  MmaShape shape;
  if (!mma_shape(*p, self->op, &shape, why, size)) return ASSAY_UNSUPPORTED;
  // CDNA 2 takes subnormal operands for zero, and in fp16 small weights and 8-bit codes are subnormal: no
  // declared arithmetic covers that.
  if (shape.format == ASSAY_FP16 && device != nullptr && std::strncmp(device->arch, "gfx90a", 6) == 0) {
    refuse(why, size, "fp16 on gfx90a", "bf16 there, both on gfx942",
           "matrix instructions that keep subnormals");
    return ASSAY_UNSUPPORTED;
  }
  return ASSAY_OK;
}

int mma_arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  MmaShape shape;
  if (!mma_shape(*p, p->op, &shape, nullptr, 0)) return ASSAY_UNSUPPORTED;
  const int32_t group = p->heads_q / p->heads_kv;
  bool shared = false, whole = false;  // requests whose warps share the keys, and others
  for (int r = 0; r < p->requests; ++r)
    if (p->q_len[r] > 0) (p->q_len[r] * group <= kSharedRows ? shared : whole) = true;
  const int32_t parts = mma_parts(*p);

  assay_arithmetic m{};
  // mma.sync from Hopper on: one block of 16, measured on an H200 (gpu/probes). Ampere and Ada: blocks of 8
  // (Khattak and Mikaitis, doi 10.1145/3830409). CDNA 3: blocks of 8 too, with roundings finer than these
  // (kernels/emulator/matrix.cpp); CDNA 2: pairs of fp32 sums, which err less.
  m.qk = m.pv = {ASSAY_ACC_BLOCK, 8, 24, 23};
  if constexpr (gpu::kWarp == 32) {
    if (nvidia_arch == 0 || nvidia_arch >= 90) m.qk = m.pv = {ASSAY_ACC_BLOCK, 16, 25, 23};
    m.qk_instruction = m.pv_instruction = shape.format == ASSAY_BF16 ? "mma.sync bf16" : "mma.sync fp16";
    m.exp_instruction = "exp2f";
  }
  m.tile_keys = 16;
  // Warps that share the keys of a request are parts of a split too, and parts take their tiles in turn.
  // Where warps share the keys of some requests and not of others, two parts of up to max_kv_len keys cover
  // both: the longer chain and the merge. A scale of V per token goes into P before P is rounded.
  m.splits = shared && !whole ? parts * 4 : parts;
  if (shared && whole) m.splits = std::max(2, parts);
  m.split_interleaved = m.splits > 1;
  m.order_declared = !(shared && whole) && p->v_scale_kind != ASSAY_SCALE_TOKEN_HEAD;
  m.row_sum_chain = 4 * ((p->max_kv_len + 15) / 16) + 4 + m.splits;
  m.p_format = shape.format;
  m.partial_format = m.partial_lse_format = ASSAY_FP32;
  m.exp_relative_error = 0x1p-22;  // ex2.approx, and the scaling round it for small arguments
  m.tanh_relative_error = 0x1p-22;
  m.tanh_instruction = "tanhf";
  const bool folded = p->q_scale_kind == ASSAY_SCALE_CHANNEL || p->k_scale_kind == ASSAY_SCALE_CHANNEL;
  if (folded) m.q_replayed_format = shape.format, m.q_replayed_factor = 1, m.q_replayed_scales = 1;
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

int mma_run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*,
            void* stream, char* error, size_t size) {
  MmaShape shape;
  if (!mma_shape(*p, self->op, &shape, error, size)) return ASSAY_UNSUPPORTED;
  Call call{};
  if (!make_call(p, t, &call, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->total_q == 0) return ASSAY_OK;
  call.splits = mma_parts(*p);
  if (call.splits > 1 && !place_parts(*t, &call, error, size)) return ASSAY_INVALID_ARGUMENT;
  const auto on = static_cast<gpu::Stream>(stream);
  const bool tokens = p->k_scale_kind == ASSAY_SCALE_TOKEN_HEAD || p->v_scale_kind == ASSAY_SCALE_TOKEN_HEAD;
  const bool rows = call.op.k.dim_pack == INT32_MAX && call.op.v.dim_pack == INT32_MAX;
  shape.plain = call.k_whole && call.v_whole && rows && !tokens && !(p->softcap > 0) &&
                p->alibi == ASSAY_ALIBI_NONE && p->mask != ASSAY_MASK_TREE;
  const gpu::Status status =
      shape.format == ASSAY_BF16 ? launch_mma_bf16(call, shape, on) : launch_mma_fp16(call, shape, on);
  if (const int bad = answer(status, "matrix kernel", error, size); bad != ASSAY_OK) return bad;
  return call.splits > 1 ? answer(merge_parts(call, on), "merge", error, size) : ASSAY_OK;
}

constexpr assay_kernel mma_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k = entry(op, 0, name, description);
  k.arch = gpu::kWarp == 32 ? "sm_80" : "gfx90a";
  k.supports = mma_supports, k.arithmetic = mma_arithmetic, k.workspace_bytes = mma_workspace;
  k.run = mma_run;
  return k;
}

constexpr assay_kernel kPrefillMma =
    mma_kernel(ASSAY_OP_PREFILL, "prefill_mma_gpu",
               "ragged prefill on 16-bit matrix instructions, operands straight from global memory");
constexpr assay_kernel kPagedMma =
    mma_kernel(ASSAY_OP_PAGED, "paged_mma_gpu",
               "paged attention on 16-bit matrix instructions, split keys, 8-bit caches by table");

}  // namespace

std::vector<const assay_kernel*> mma_kernels() { return {&kPrefillMma, &kPagedMma}; }

}  // namespace assay_gpu
