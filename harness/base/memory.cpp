// SPDX-License-Identifier: Apache-2.0
// See memory.hpp.
#include "harness/base/memory.hpp"

#include <malloc.h>

#include <climits>

namespace assay {

void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, INT_MAX);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}  // namespace assay
