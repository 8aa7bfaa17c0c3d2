/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls timed one behind the other. A device that waits for the host between two calls rests, and a kernel
 * that draws much power then runs at a clock that it would not keep at work. A library may export this next
 * to its backend (the kit for CUDA and HIP does); elsewhere calls are timed one by one, by time_run.
 */
#ifndef ASSAY_SERIES_H_
#define ASSAY_SERIES_H_

#include "assay_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the host that go to an operand on the device. */
typedef struct assay_change {
  void* to;
  const void* from;
  int64_t bytes;
} assay_change;

typedef struct assay_series {
  uint32_t struct_size;
  /* `count` calls of kernel->run, each timed as by time_run of the backend: its time to `microseconds`.
   * Before call i the changes first[i] .. first[i + 1] - 1 arrive, in order (first has count + 1 numbers).
   * The device waits for the host before the first call alone. Returns when the device is done; what failed
   * in between ends it. */
  int (*time_runs)(const assay_kernel* kernel, const assay_problem*, const assay_tensors*, assay_plan*,
                   int64_t flush_bytes, int32_t count, const assay_change* changes, const int32_t* first,
                   double* microseconds, char* error, size_t error_size);
} assay_series;

/* Another exported symbol of such a library; NULL where it speaks another version. */
const assay_series* assay_series_open(uint32_t abi_version);
typedef const assay_series* (*assay_series_open_fn)(uint32_t abi_version);

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_SERIES_H_ */
