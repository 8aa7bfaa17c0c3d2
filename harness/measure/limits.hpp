// SPDX-License-Identifier: Apache-2.0
// What the device can do, measured through the backend at the start of a run, and which limit a case
// is nearer to. A rate the backend cannot measure stays 0 and is named in `missing`.
#pragma once

#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "harness/measure/measure.hpp"
#include "harness/ops/work.hpp"

namespace assay {

struct MeasuredLimits {
  Limits limits;
  std::vector<std::string> missing;  // "matrix_flops_bf16: no measure_matrix_rate in backend cpu"
};
// Moves 512 MiB (an eighth of the memory where that is less), so the figure is memory's, not a cache's.
MeasuredLimits measure_limits(const assay_backend&, const assay_device&);

// How long a case must take at the measured limits, and which one says so. Reading all operands once
// and doing all visible multiply-adds overlap at best, so the longer of the two counts. A hot case
// that fits a cache may legitimately come out above 100 %.
struct LimitTime {
  double seconds = 0;  // 0 when the limit was not measured
  std::string name;    // "read", "matrix", "copy" (data ops) or ""
};
LimitTime limit_time(const Work&, const Problem&, const Limits&);

// Why no call can take as little as `us`: the arithmetic alone, or the bytes that no cache of `cache_bytes`
// holds, would take longer at a generous multiple of what was measured (twice as generous where host and
// kernel share a processor that others use too); nothing at all moves a hundred times as fast as memory. ""
// when it can be.
std::string too_fast(const Work&, const Problem&, const Limits&, int64_t cache_bytes, bool shares_host,
                     double us);
// Of the machine's processors, all levels; what a hot call on the host may find there.
int64_t host_cache_bytes(const assay_device&);

}  // namespace assay
