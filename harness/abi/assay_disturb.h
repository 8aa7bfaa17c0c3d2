/* SPDX-License-Identifier: Apache-2.0
 *
 * Trouble beside a kernel: work on the same device that changes who is late, so that threads which do not
 * wait for each other are seen (`assay check --races N`). A library may export it next to its backend (the
 * kit for CUDA and HIP does); for others an installed library that works on the same device does it. Nothing
 * of a disturbance touches memory that a kernel may use, but for what nobody may rely on: shared memory left
 * by others holds other values each time.
 */
#ifndef ASSAY_DISTURB_H_
#define ASSAY_DISTURB_H_

#include "assay_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum assay_disturbance {
  /* Some threads of a block are slower than others for a while, each in its turn. */
  ASSAY_DISTURB_SKEW = 0,
  /* Caches and memory are busy with other data: copies arrive late, and not in the usual order. */
  ASSAY_DISTURB_MEMORY = 1,
  /* Part of the multiprocessors (of the processors of a host) is taken. */
  ASSAY_DISTURB_FEWER = 2,
  /* Blocks start late and one by one, in another order. */
  ASSAY_DISTURB_STAGGER = 3,
  /* Threads are held up behind barriers, where the kernel itself was built to do so (assay_delays.hpp). */
  ASSAY_DISTURB_DELAY = 4,
  ASSAY_DISTURBANCE_COUNT
};

#define ASSAY_DISTURB_LONGEST_US 50000.0

typedef struct assay_disturber {
  uint32_t struct_size;
  uint32_t kinds; /* bits 1 << enum assay_disturbance of those it has */
  /* Begins one on the device in use and returns at once; what a call before began must have ended. `seed`
   * says who is late. It lasts so long by itself (at most ASSAY_DISTURB_LONGEST_US), or until end(); a kernel
   * that cannot go on without what it has taken waits for that. One at a time, from one thread. */
  int (*begin)(int32_t kind, uint64_t seed, double microseconds, char* error, size_t error_size);
  /* Waits until it is gone. */
  int (*end)(char* error, size_t error_size);
} assay_disturber;

/* Another exported symbol of such a library; NULL where it speaks another version. */
const assay_disturber* assay_disturber_open(uint32_t abi_version);
typedef const assay_disturber* (*assay_disturber_open_fn)(uint32_t abi_version);

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_DISTURB_H_ */
