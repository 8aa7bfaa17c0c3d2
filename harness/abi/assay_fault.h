/* SPDX-License-Identifier: Apache-2.0
 *
 * A catalogue of kernels whose verdict is known beforehand: planted faults, which every suite worth its
 * name must reject, and legal variants (other tiles, orders, splits, formats), which it must accept. The
 * library of kernels/faulty exports one next to its backend; anybody's library may. The kernels of the
 * catalogue are those of the backend, so `check` and `explain` take them by name like any other.
 */
#ifndef ASSAY_FAULT_H_
#define ASSAY_FAULT_H_

#include "assay_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One planted fault, or one legal variant when `cause` is NULL. Strings live as long as the library. */
typedef struct assay_fault {
  uint32_t struct_size;
  const char* name;    /* "window_short"; its kernels are paged_<name> and prefill_<name> */
  const char* summary; /* what the kernel does, one line */
  const char* stage;  /* metadata, addressing, dequant, mask, scores, softmax, values, merge, output, state */
  const char* museum; /* ids of the bug museum, "SG-01 FI-16"; "proto:NAME" a mutant of the numerics
                         prototype; "spec:5.2" a fault of the seeds; NULL for variants */
  const char* cause;  /* name of the cause an explanation must give (harness/explain/causes.hpp), or several
                         with spaces between them, any of which is right; "none" where none of them is */
  int32_t equivalent; /* no output differs from a legal one by more than a legal kernel may: a control */
  const assay_kernel* prefill; /* NULL where the fault cannot exist */
  const assay_kernel* paged;
  /* 1 when this problem reaches the planted code and the wrong code computes something else; a case where it
   * does not proves nothing about the fault. May be NULL: always. */
  int (*reached)(const assay_problem*);
  /* Faults of one family are the same mistake in several sizes, the larger the worse; `unit` says of what
   * ("relative error of one key's weight"). NULL, NULL, 0 for a fault that comes in one size. */
  const char *family, *unit;
  double size;
  const char* line; /* a scenario on which results are wrong; NULL: none is named, `reached` tells */
  /* A fault of a step, in place of prefill and paged; then `line` is named, and `place` what is wrong:
   * "write", a stage on its own inputs; "wiring write", what that stage is given; "end write", that part of a
   * step without stages. */
  const assay_kernel* step;
  const char* place;
} assay_fault;

/* Entry i of a list: who filled it may know a shorter struct than who reads it. */
static inline const assay_fault* assay_fault_at(const assay_fault* list, int32_t i) {
  return (const assay_fault*)((const char*)list + (size_t)i * list->struct_size);
}

typedef struct assay_fault_catalogue {
  uint32_t struct_size;
  int32_t fault_count, variant_count;
  const assay_fault* faults;
  const assay_fault* variants;
} assay_fault_catalogue;

/* The second exported symbol of such a library. */
const assay_fault_catalogue* assay_fault_catalogue_open(uint32_t abi_version);
typedef const assay_fault_catalogue* (*assay_fault_catalogue_open_fn)(uint32_t abi_version);

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_FAULT_H_ */
