// SPDX-License-Identifier: Apache-2.0
// What the portable kernels accept, promise and launch, and what every entry of the C table shares.
#include "kernels/gpu/kernels.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "kernels/common/instances.hpp"
#include "kernels/gpu/launch.hpp"

namespace assay_gpu {

int multiprocessors = 1;

bool refuse(char* why, size_t size, const char* required, const char* supported, const char* missing) {
  if (why != nullptr && size > 0)
    std::snprintf(why, size, "required %s, supported %s, missing %s", required, supported, missing);
  return false;
}

// A row of the view may be read 8 elements at a time: neighbours in memory, every step a multiple of 8
// elements.
bool reads_vectors(const assay_kernels::KvView& v, int32_t dims) {
  const int64_t bytes = 8 * v.element_bytes;
  const auto whole = [](int64_t stride) { return stride % 8 == 0; };
  return v.dim_inner == 1 && v.dim_pack == INT32_MAX && dims % 8 == 0 &&
         reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(bytes) == 0 && whole(v.block_stride) &&
         whole(v.head_stride) && whole(v.slot_outer) && whole(v.slot_inner);
}

bool make_call(const assay_problem* p, const assay_tensors* t, Call* call, char* error, size_t size) {
  if (!assay_kernels::make_operands(p, t, &call->op, error, size)) return false;
  call->kv_len = static_cast<const int32_t*>(t->kv_len.data);
  call->kv_len_stride = t->kv_len.stride[0];
  call->splits = 1;
  return true;
}

int answer(gpu::Status status, const char* what, char* error, size_t size) {
  if (gpu::ok(status, what, error, size)) return ASSAY_OK;
  (void)GPU_API(GetLastError)();  // reported here, so no launch behind it may find it again
  return status == GPU_API(ErrorMemoryAllocation) ? ASSAY_OUT_OF_MEMORY : ASSAY_FAILED;
}

namespace {

template <int32_t kOp>
int simple_supports(const assay_problem* p, const assay_device*, char* why, size_t size) {
  return assay_kernels::find_instance(p, kOp, why, size) != nullptr ? ASSAY_OK : ASSAY_UNSUPPORTED;
}

int simple_arithmetic(const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic m{};
  m.struct_size = sizeof m;
  m.qk = m.pv = {ASSAY_ACC_FMA, 1, 0, 23};
  m.tile_keys = 128;
  m.splits = 1;
  m.row_sum_chain = 7 + (p->max_kv_len + 127) / 128;
  m.p_format = ASSAY_FP32;
  m.partial_format = m.partial_lse_format = ASSAY_FP32;
  // CUDA's expf and tanhf: at most 2 ulp, by the programming guide's table of the standard functions.
  m.exp_relative_error = 0x1p-22;
  m.tanh_relative_error = 0x1p-22;
  const bool folded = p->q_scale_kind == ASSAY_SCALE_CHANNEL || p->k_scale_kind == ASSAY_SCALE_CHANNEL;
  m.q_rounding = folded ? 2 * 0x1p-24 : 0;
  m.order_declared = 1;
  *out = m;
  return ASSAY_OK;
}

template <int32_t kOp>
int simple_run(const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream, char* error,
               size_t size) {
  if (simple_supports<kOp>(p, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  Call call{};
  if (!make_call(p, t, &call, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->total_q == 0) return ASSAY_OK;
  return answer(launch_simple(call, static_cast<gpu::Stream>(stream)), "simple kernel", error, size);
}

template <int32_t kOp>
constexpr assay_kernel simple_kernel(const char* name, const char* description) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.description = description, k.arch = "any";
  k.op = kOp, k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT;
  k.supports = simple_supports<kOp>, k.arithmetic = simple_arithmetic, k.run = simple_run<kOp>;
  return k;
}

constexpr assay_kernel kPrefillSimple = simple_kernel<ASSAY_OP_PREFILL>(
    "prefill_simple_gpu", "ragged prefill, a block per row and head, fp32, every feature");
constexpr assay_kernel kPagedSimple = simple_kernel<ASSAY_OP_PAGED>(
    "paged_simple_gpu", "paged attention, a block per row and head, fp32, every feature");

}  // namespace

std::vector<const assay_kernel*> portable_kernels() { return {&kPrefillSimple, &kPagedSimple}; }

}  // namespace assay_gpu
