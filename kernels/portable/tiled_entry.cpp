// SPDX-License-Identifier: Apache-2.0
// Entries of the kernels for many rows (tiled.hpp): every feature, fp32.
#include "kernels/common/fill_struct.hpp"
#include "kernels/portable/entry.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/portable/launch.hpp"

namespace assay_gpu {
int tiled_arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  const int32_t keys = tiled_keys(dims_of(*p));
  assay_arithmetic m = fp32_arithmetic(*p, keys);
  // A thread adds its keys of a tile (a sixteenth) to its sum, sixteen threads add theirs at the end.
  m.row_sum_chain = (keys / 16) * tiles_of(*p, keys) + 4;
  m.order_declared = 1;
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

namespace {

int tiled_run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*,
              void* stream, char* error, size_t size) {
  return run_call(self, p, t, error, size, [&](const Call& call) {
    return answer(launch_tiled(call, static_cast<gpu::Stream>(stream)), "tiled kernel", error, size);
  });
}

constexpr assay_kernel tiled_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k = entry(op, ASSAY_PROMISE_BATCH_INVARIANT | ASSAY_PROMISE_LSE_OPTIONAL, name, description);
  k.supports = every_supports<false>, k.arithmetic = tiled_arithmetic, k.run = tiled_run;
  return k;
}

constexpr assay_kernel kPrefillTiled = tiled_kernel(
    ASSAY_OP_PREFILL, "prefill_tiled_gpu", "ragged prefill, fp32, keys through shared memory for many rows");
constexpr assay_kernel kPagedTiled = tiled_kernel(
    ASSAY_OP_PAGED, "paged_tiled_gpu", "paged attention of many rows, fp32, keys through shared memory");

}  // namespace

std::vector<const assay_kernel*> tiled_kernels() { return {&kPrefillTiled, &kPagedTiled}; }

}  // namespace assay_gpu
