// SPDX-License-Identifier: Apache-2.0
// The entry of stage "correct" (correct.hpp), which is of no op and in no list.
#include "kernels/common/stage_list.hpp"
#include "kernels/portable/correct.hpp"
#include "kernels/portable/entry.hpp"

namespace assay_gpu {
namespace {

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void* stream,
        char* error, size_t size) {
  Correct a{};
  a.ranks = static_cast<int32_t>(t->partial_lse.shape[0]), a.rank = p->states, a.dims = p->head_dim_v;
  a.own = t->partial_lse.shape[2] * t->partial_lse.shape[3];
  a.part = static_cast<const float*>(t->partial_o.data), a.out = static_cast<float*>(t->o.data);
  a.lse = static_cast<const float*>(t->partial_lse.data), a.total = static_cast<float*>(t->lse.data);
  return answer(launch_correct(a, static_cast<gpu::Stream>(stream)), self->name, error, size);
}

}  // namespace

constinit const assay_kernel kLseCorrect = [] {
  assay_kernel k = entry(0, ASSAY_PROMISE_BATCH_INVARIANT, "lse_correct_gpu",
                         "parts of this rank as addends of all ranks' sum");
  k.supports = assay_kernels::supports_all, k.run = run;
  return k;
}();

}  // namespace assay_gpu
