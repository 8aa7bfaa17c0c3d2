// SPDX-License-Identifier: Apache-2.0
// See persistent.hpp.
#include "kernels/common/persistent.hpp"

#include <cstdio>

#include "kernels/common/instances.hpp"
#include "kernels/common/operand_reader.hpp"

namespace assay_kernels {
namespace {

const int32_t* list(OperandReader& reader, const assay_tensor& t, const char* name, int64_t* stride,
                    int32_t rank = 1) {
  for (int32_t i = 0; i < rank; ++i) stride[i] = t.stride[i];
  return static_cast<const int32_t*>(
      reader.take(t, name, ASSAY_INT32, rank, t.rank == rank && t.shape[0] == 0));
}

TilesView tiles(OperandReader& reader, const assay_tensors& t) {
  TilesView view{};
  view.o =
      static_cast<float*>(const_cast<void*>(reader.take(t.partial_o, "partial_o", ASSAY_FP32, 4, false)));
  view.lse =
      static_cast<float*>(const_cast<void*>(reader.take(t.partial_lse, "partial_lse", ASSAY_FP32, 3, false)));
  for (int i = 0; i < 4; ++i) view.o_stride[i] = t.partial_o.stride[i];
  for (int i = 0; i < 3; ++i) view.lse_stride[i] = t.partial_lse.stride[i];
  return view;
}

int refuse(const char* required, const char* supported, char* why, size_t size) {
  if (why != nullptr && size > 0)
    std::snprintf(why, size, "required %s, supported %s, missing %s", required, supported, required);
  return ASSAY_UNSUPPORTED;
}

bool known(const assay_problem* p, const assay_tensors* t, OperandReader& reader) {
  if (p == nullptr || t == nullptr)
    reader.fail("problem or tensors", "is a null pointer");
  else if (p->struct_size < sizeof(assay_problem) || t->struct_size < sizeof(assay_tensors))
    reader.fail("problem or tensors", "is of an interface without schedules");
  return reader.ok();
}

}  // namespace

bool make_persistent_operands(const assay_problem* p, const assay_tensors* t, PersistentOperands* out,
                              char* error, size_t size) {
  OperandReader reader(error, size);
  if (!known(p, t, reader)) return false;
  PersistentOperands b{};
  assay_problem attention = *p;
  attention.op = attention_of(p->op);
  if (!make_operands(&attention, t, &b.a, error, size)) return false;
  b.schedule.workers = p->workers;
  b.schedule.work_indptr = list(reader, t->work_indptr, "work_indptr", &b.schedule.work_indptr_stride);
  b.schedule.work_info = list(reader, t->work_info, "work_info", b.schedule.work_info_stride, 2);
  b.tiles = tiles(reader, *t);
  *out = b;
  return reader.ok();
}

int persistent_supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*,
                        const assay_device*, char* why, size_t size) {
  if (p->op != self->op) return refuse("another op", self->name, why, size);
  if (p->mask != ASSAY_MASK_CAUSAL) return refuse("another mask", "causal", why, size);
  if (p->has_sinks != 0) return refuse("sinks", "none: tiles are merged", why, size);
  if (p->workers < 1 || p->tile_rows < 1) return refuse("an empty schedule", "1 worker and row", why, size);
  assay_problem attention = *p;
  attention.op = attention_of(p->op);
  return find_instance(&attention, attention.op, why, size) != nullptr ? ASSAY_OK : ASSAY_UNSUPPORTED;
}

bool make_reduce_operands(const assay_problem* p, const assay_tensors* t, ReduceOperands* out, char* error,
                          size_t size) {
  OperandReader reader(error, size);
  if (!known(p, t, reader)) return false;
  ReduceOperands b{};
  b.p = *p;
  ScheduleView& s = b.schedule;
  s.workers = p->workers;
  s.reduce_indptr = list(reader, t->reduce_indptr, "reduce_indptr", &s.reduce_indptr_stride);
  s.reduce_final_map = list(reader, t->reduce_final_map, "reduce_final_map", s.reduce_final_map_stride, 2);
  s.reduce_partial_map =
      list(reader, t->reduce_partial_map, "reduce_partial_map", &s.reduce_partial_map_stride);
  b.tiles = tiles(reader, *t);
  const bool no_rows = p->rows == 0;
  b.o = static_cast<unsigned char*>(const_cast<void*>(reader.take(t->o, "o", p->o_format, 3, no_rows)));
  b.lse = static_cast<float*>(const_cast<void*>(reader.take(t->lse, "lse", ASSAY_FP32, 2, no_rows)));
  for (int i = 0; i < 3; ++i) b.o_stride[i] = t->o.stride[i];
  for (int i = 0; i < 2; ++i) b.lse_stride[i] = t->lse.stride[i];
  *out = b;
  return reader.ok();
}

int reduce_supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*,
                    const assay_device*, char* why, size_t size) {
  if (p->op != self->op) return refuse("another op", self->name, why, size);
  if (p->head_dim_v > kMaxHeadDim) return refuse("a larger head", "1024 dims", why, size);
  if (p->o_format != ASSAY_FP32 && p->o_format != ASSAY_BF16 && p->o_format != ASSAY_FP16)
    return refuse("another output format", "fp32, bf16 and fp16", why, size);
  return ASSAY_OK;
}

}  // namespace assay_kernels
