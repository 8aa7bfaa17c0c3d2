// SPDX-License-Identifier: Apache-2.0
// Entries of attention by a schedule (persistent.cu): persistent_prefill_gpu, persistent_paged_gpu, and
// reduce_gpu, which merges what they cut.
#include "kernels/common/fill_struct.hpp"
#include "kernels/portable/entry.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/portable/persistent.hpp"

namespace assay_gpu {
namespace {

int persistent_run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*,
                   void* stream, char* error, size_t size) {
  if (assay_kernels::persistent_supports(self, p, t, nullptr, error, size) != ASSAY_OK)
    return ASSAY_UNSUPPORTED;
  assay_kernels::PersistentOperands b;
  if (!assay_kernels::make_persistent_operands(p, t, &b, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->total_q == 0) return ASSAY_OK;
  PersistentCall call{{}, b.schedule, b.tiles};
  call.call.op = b.a, call.call.splits = 1;
  call.call.kv_len = static_cast<const int32_t*>(t->kv_len.data),
  call.call.kv_len_stride = t->kv_len.stride[0];
  return answer(launch_persistent(call, static_cast<gpu::Stream>(stream)), self->name, error, size);
}

int reduce_arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* out) {
  assay_arithmetic m{};
  m.exp_relative_error = 0x1p-22;  // expf: 2 ulp at most, by the programming guide
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

int reduce_run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*,
               void* stream, char* error, size_t size) {
  if (assay_kernels::reduce_supports(self, p, t, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  assay_kernels::ReduceOperands b;
  if (!assay_kernels::make_reduce_operands(p, t, &b, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->rows == 0) return ASSAY_OK;
  return answer(launch_reduce(b, static_cast<gpu::Stream>(stream)), self->name, error, size);
}

constexpr assay_kernel persistent_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k = entry(op, 0, name, description);
  k.supports = assay_kernels::persistent_supports, k.arithmetic = one_block_arithmetic,
  k.run = persistent_run;
  return k;
}
constexpr assay_kernel kPrefill =
    persistent_kernel(ASSAY_OP_PERSISTENT_PREFILL, "persistent_prefill_gpu",
                      "ragged prefill by a schedule, a block per worker, fp32, every feature");
constexpr assay_kernel kPaged =
    persistent_kernel(ASSAY_OP_PERSISTENT_PAGED, "persistent_paged_gpu",
                      "paged attention by a schedule, a block per worker, fp32, every feature");
constexpr assay_kernel kReduce = [] {
  assay_kernel k =
      entry(ASSAY_OP_REDUCE, 0, "reduce_gpu", "merge of the tiles that a schedule cut, blocks per tile");
  k.supports = assay_kernels::reduce_supports, k.arithmetic = reduce_arithmetic, k.run = reduce_run;
  return k;
}();

}  // namespace

std::vector<const assay_kernel*> persistent_kernels() { return {&kPrefill, &kPaged, &kReduce}; }

}  // namespace assay_gpu
