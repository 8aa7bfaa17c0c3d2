// SPDX-License-Identifier: Apache-2.0
// Entry of merge_states (merge.cu).
#include "kernels/common/fill_struct.hpp"
#include "kernels/portable/entry.hpp"
#include "kernels/portable/kernels.hpp"
#include "kernels/portable/merge.hpp"

namespace assay_gpu {
namespace {

int arithmetic(const assay_kernel*, const assay_problem*, assay_arithmetic* out) {
  assay_arithmetic m{};
  // CUDA's exp2f: at most 2 ulp, by the programming guide's table of the standard functions; HIP's is no
  // worse.
  m.exp_relative_error = 0x1p-22;
  assay_kernels::fill_struct(out, m);
  return ASSAY_OK;
}

gpu::Status merge_states(const DataOpOperands& b, gpu::Stream stream) {
  const assay_problem& p = b.a.p;
  Merge a{};
  a.states = p.states, a.heads = p.heads_q, a.dims = p.head_dim_v, a.rows = p.rows;
  a.live_rows = b.live_rows;
  a.o = b.partial_o.data, a.o_format = b.partial_o.format;
  a.o_stride[0] = b.partial_o.state, a.o_stride[1] = b.partial_o.row;
  a.o_stride[2] = b.partial_o.head, a.o_stride[3] = b.partial_o.dim;
  a.lse = b.partial_lse;
  for (int i = 0; i < 3; ++i) a.lse_stride[i] = b.partial_lse_stride[i];
  a.out = b.o.data, a.out_format = b.o.format;
  a.out_stride[0] = b.o.row, a.out_stride[1] = b.o.head, a.out_stride[2] = b.o.dim;
  a.out_lse = b.lse;
  for (int i = 0; i < 2; ++i) a.out_lse_stride[i] = b.lse_stride[i];
  if (p.has_sinks) a.sinks = b.a.sinks, a.sinks_stride = b.a.sinks_stride;
  return launch_defined_merge(a, stream);
}

constexpr assay_kernel kMergeStates = [] {
  assay_kernel k = entry(ASSAY_OP_MERGE_STATES, ASSAY_PROMISE_BATCH_INVARIANT, "merge_states_gpu",
                         "merge of N partial results, a warp per row and head");
  k.supports = rows_supports, k.arithmetic = arithmetic, k.run = run_rows<merge_states>;
  return k;
}();

}  // namespace

std::vector<const assay_kernel*> merge_kernels() { return {&kMergeStates}; }

}  // namespace assay_gpu
