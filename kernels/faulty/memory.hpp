// SPDX-License-Identifier: Apache-2.0
// Faults that spoil memory, or read what no key occupies, rather than compute wrong numbers.
#pragma once

#include "kernels/faulty/stream.hpp"

namespace assay_faulty {

// Adds 0 * V of slots that hold no key of the row to its result: nothing, unless they hold NaN.
void leak_values(const Call&, int request, int32_t kv_head, const Stream&, float* o);

// True when the entry behind the last page of a request names a block the cache does not have, or lies
// outside the table: on a device that fetch is an illegal access.
bool fetch_faults(const Call&, int request);

// After all rows: what is cleared, overwritten or scribbled over beside them.
void spoil_memory(const Call&);

}  // namespace assay_faulty
