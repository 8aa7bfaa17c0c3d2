// SPDX-License-Identifier: Apache-2.0
// Attention by a schedule and the merge behind it (persistent_prefill, persistent_paged, reduce of enum
// assay_op) as plain data, for kernels on any device.
#pragma once

#include "kernels/common/operands.hpp"

namespace assay_kernels {

// int32 lists of a schedule, strides in elements; see ps_metadata.
struct ScheduleView {
  int32_t workers;
  const int32_t *work_indptr, *work_info, *reduce_indptr, *reduce_final_map, *reduce_partial_map;
  int64_t work_indptr_stride, work_info_stride[2], reduce_indptr_stride, reduce_final_map_stride[2],
      reduce_partial_map_stride;
};

// Partial results of tiles, [partial, row of the tile, head of the KV head (, dim)].
struct TilesView {
  float *o, *lse;
  int64_t o_stride[4], lse_stride[3];
};

struct Work {
  int32_t request, kv_head, first_row, end_row, first_key, end_key, partial;
};
ASSAY_INLINE Work work_at(const ScheduleView& s, int64_t i) {
  const int32_t* row = s.work_info + i * s.work_info_stride[0];
  const int64_t step = s.work_info_stride[1];
  return {row[0], row[step], row[2 * step], row[3 * step], row[4 * step], row[5 * step], row[6 * step]};
}
ASSAY_INLINE int32_t first_work(const ScheduleView& s, int64_t worker) {
  return s.work_indptr[worker * s.work_indptr_stride];
}

struct PersistentOperands {
  Operands a;  // under the op prefill or paged
  ScheduleView schedule;
  TilesView tiles;
};
// The op whose mathematics it is: prefill or paged.
ASSAY_INLINE int32_t attention_of(int32_t op) {
  return op == ASSAY_OP_PERSISTENT_PREFILL ? ASSAY_OP_PREFILL : ASSAY_OP_PAGED;
}
// False and a text where operands are missing or contradict the problem.
bool make_persistent_operands(const assay_problem*, const assay_tensors*, PersistentOperands*, char* error,
                              size_t size);
// supports() of kernels that take all that prefill or paged can be, but for what the ops have not.
int persistent_supports(const assay_kernel*, const assay_problem*, const assay_tensors*, const assay_device*,
                        char* why, size_t size);

struct ReduceOperands {
  assay_problem p;
  ScheduleView schedule;
  TilesView tiles;
  unsigned char* o;
  int64_t o_stride[3];
  float* lse;
  int64_t lse_stride[2];
};
bool make_reduce_operands(const assay_problem*, const assay_tensors*, ReduceOperands*, char* error,
                          size_t size);
int reduce_supports(const assay_kernel*, const assay_problem*, const assay_tensors*, const assay_device*,
                    char* why, size_t size);

}  // namespace assay_kernels
