// SPDX-License-Identifier: Apache-2.0
// Stages q_heads, k_join and o_heads of latent steps (kernels/common/join_heads.hpp), one thread per row.
#include "kernels/common/join_heads.hpp"

#include "kernels/common/stage_list.hpp"
#include "kernels/cpu/kernels.hpp"

namespace assay_cpu {
namespace {

int run(const assay_kernel*, const assay_problem* p, const assay_tensors* t, assay_plan*, void*, char* error,
        size_t size) {
  assay_kernels::JoinedHeads j;
  if (!assay_kernels::make_joined_heads(*p, *t, &j))
    return assay_kernels::say(ASSAY_INVALID_ARGUMENT, "source and rope are no two parts of o", error, size);
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < j.rows; ++row)
    for (int32_t head = 0; assay_kernels::row_is_live(j.live_rows, row) && head < j.heads; ++head)
      for (int32_t d = 0; d < j.dims; ++d) assay_kernels::join_element(j, row, head, d);
  return ASSAY_OK;
}

}  // namespace

constinit const assay_kernel kJoinHeads = [] {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = "join_heads_cpu", k.arch = "x86-64";
  k.description = "heads side by side, repeated or taken";
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT | ASSAY_PROMISE_GRAPH;
  k.supports = assay_kernels::supports_all, k.run = run;
  return k;
}();

}  // namespace assay_cpu
