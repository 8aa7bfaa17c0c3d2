// SPDX-License-Identifier: Apache-2.0
// Entries of the simple kernels (simple.hpp): every feature, fp32, tiles of 128 keys.
#include "kernels/portable/entry.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/portable/launch.hpp"

namespace assay_gpu {
namespace {

int simple_run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*,
               void* stream, char* error, size_t size) {
  return run_call(self, p, t, error, size, [&](const Call& call) {
    return answer(launch_simple(call, static_cast<gpu::Stream>(stream)), "simple kernel", error, size);
  });
}

constexpr assay_kernel simple_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k = entry(op, ASSAY_PROMISE_BATCH_INVARIANT | ASSAY_PROMISE_LSE_OPTIONAL, name, description);
  k.supports = every_supports<true>, k.arithmetic = one_block_arithmetic, k.run = simple_run;
  return k;
}

constexpr assay_kernel kPrefillSimple = simple_kernel(
    ASSAY_OP_PREFILL, "prefill_simple_gpu", "ragged prefill, a block per row and head, fp32, every feature");
constexpr assay_kernel kPagedSimple = simple_kernel(
    ASSAY_OP_PAGED, "paged_simple_gpu", "paged attention, a block per row and head, fp32, every feature");

}  // namespace

std::vector<const assay_kernel*> simple_kernels() { return {&kPrefillSimple, &kPagedSimple}; }

}  // namespace assay_gpu
