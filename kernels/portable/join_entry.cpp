// SPDX-License-Identifier: Apache-2.0
// The entry of the stages that join heads (join.hpp), which is of no op and in no list.
#include "kernels/common/stage_list.hpp"
#include "kernels/portable/entry.hpp"
#include "kernels/portable/join.hpp"

namespace assay_gpu {
namespace {

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  assay_kernels::JoinedHeads j;
  if (!assay_kernels::make_joined_heads(*p, *t, &j))
    return assay_kernels::say(ASSAY_INVALID_ARGUMENT, "source and rope are no two parts of o", error, size);
  if (j.rows == 0) return ASSAY_OK;
  return answer(launch_join(j, static_cast<gpu::Stream>(stream)), self->name, error, size);
}

}  // namespace

constinit const assay_kernel kJoinHeads = [] {
  assay_kernel k =
      entry(0, ASSAY_PROMISE_BATCH_INVARIANT, "join_heads_gpu", "heads side by side, repeated or taken");
  k.supports = assay_kernels::supports_all, k.run = run;
  return k;
}();

}  // namespace assay_gpu
