// SPDX-License-Identifier: Apache-2.0
// Entry of step_fused_gpu (fused.cu): attention that writes the new keys itself. By itself, or in the place
// of a pipeline that takes such a kernel (decode of step_ixformer_fa_gpu), where new rows may be codes
// already.
#include "kernels/common/stage_list.hpp"
#include "kernels/portable/entry.hpp"
#include "kernels/portable/fused.hpp"
#include "kernels/portable/kernels.hpp"

namespace assay_gpu {
namespace {

assay_problem as(const assay_problem& p, int32_t op) {
  assay_problem other = p;
  other.op = op;
  return other;
}

// What one block cannot know of, or knows otherwise; null: nothing.
const char* refused(const assay_problem& p) {
  if (p.mask == ASSAY_MASK_CROSS) return "cross attention";
  if (p.encoder_len != nullptr) return "a table that begins with an encoder";
  if (p.full_pool != 0) return "a table of another pool";
  if (p.ranks > 1) return "ranks";
  if (p.layout == ASSAY_LAYOUT_MLA) return "latent keys";
  return p.two_sources != 0 ? "latent and rope parts in two tensors" : nullptr;
}

int supports(const assay_kernel*, const assay_problem* p, const assay_tensors*, const assay_device*,
             char* why, size_t size) {
  if (p->struct_size < sizeof(assay_problem) || p->op != ASSAY_OP_STEP)
    return assay_kernels::say(ASSAY_UNSUPPORTED, "required another op, supported step, missing this op", why,
                              size);
  if (const char* what = refused(*p))
    return assay_kernels::say(
        ASSAY_UNSUPPORTED, std::string("required ") + what + ", supported none, missing " + what, why, size);
  const assay_problem write = as(*p, ASSAY_OP_CACHE_WRITE), attend = as(*p, ASSAY_OP_PAGED);
  if (p->no_write == 0)
    if (const int status = assay_kernels::supports_data_op(&write, write.op, why, size); status != ASSAY_OK)
      return status;
  return assay_kernels::find_instance(&attend, attend.op, why, size, true) != nullptr ? ASSAY_OK
                                                                                      : ASSAY_UNSUPPORTED;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  if (supports(self, p, t, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  const assay_problem write = as(*p, ASSAY_OP_CACHE_WRITE), attend = as(*p, ASSAY_OP_PAGED);
  FusedCall c{};
  if (!make_call(&attend, t, &c.call, error, size, true)) return ASSAY_INVALID_ARGUMENT;
  if (p->total_q == 0) return ASSAY_OK;
  if (p->no_write == 0) {
    DataOpOperands b;
    if (!assay_kernels::make_data_op_operands(&write, t, &b, error, size)) return ASSAY_INVALID_ARGUMENT;
    c.slots = b.slots, c.slots_stride = b.slots_stride;
    c.k = {
        b.dense_k,    b.k, b.k_scale, b.dense_k_scale, {b.dense_k_scale_stride[0], b.dense_k_scale_stride[1]},
        b.ready_codes};
    c.v = {
        b.dense_v,    b.v, b.v_scale, b.dense_v_scale, {b.dense_v_scale_stride[0], b.dense_v_scale_stride[1]},
        b.ready_codes};
  }
  return answer(launch_fused(c, static_cast<gpu::Stream>(stream)), self->name, error, size);
}

int arithmetic(const assay_kernel* self, const assay_problem* p, assay_arithmetic* out) {
  return in_tiles(*p) ? tiled_arithmetic(self, p, out) : one_block_arithmetic(self, p, out);
}

constexpr assay_kernel kFused = [] {
  assay_kernel k =
      entry(ASSAY_OP_STEP, ASSAY_PROMISE_BATCH_INVARIANT | ASSAY_PROMISE_LSE_OPTIONAL, "step_fused_gpu",
            "a whole step in one launch, a block per request and KV head, fp32");
  k.supports = supports, k.arithmetic = arithmetic, k.run = run;
  return k;
}();

}  // namespace

std::vector<const assay_kernel*> fused_kernels() { return {&kFused}; }

}  // namespace assay_gpu
