// SPDX-License-Identifier: Apache-2.0
// What the data ops of this backend share: how a call begins, and the entry of the C table.
#pragma once

#include "kernels/common/data_op_operands.hpp"
#include "kernels/common/fill_struct.hpp"
#include "kernels/cpu/kernels.hpp"

namespace assay_cpu {

inline int data_op_supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*,
                            const assay_device*, char* why, size_t size) {
  return assay_kernels::supports_data_op(p, self->op, why, size);
}

// Refuses, reads the operands, then calls work(const DataOpOperands&), which cannot fail.
template <class Work>
int run_data_op(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, char* error,
                size_t size, const Work& work) {
  if (data_op_supports(self, p, t, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  assay_kernels::DataOpOperands b;
  if (!assay_kernels::make_data_op_operands(p, t, &b, error, size)) return ASSAY_INVALID_ARGUMENT;
  work(b);
  return ASSAY_OK;
}

// Rows or tokens are worked on independently and in order, hence both promises.
inline assay_kernel data_op_kernel(int32_t op, const char* name, const char* description,
                                   decltype(assay_kernel::arithmetic) arithmetic,
                                   decltype(assay_kernel::run) run) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.op = op, k.arch = "x86-64", k.description = description;
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT;
  k.supports = data_op_supports, k.arithmetic = arithmetic, k.run = run;
  return k;
}

}  // namespace assay_cpu
