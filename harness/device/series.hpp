// SPDX-License-Identifier: Apache-2.0
// Calls timed one behind the other by the backend's library (harness/abi/assay_series.h).
#pragma once

#include <cstddef>
#include <vector>

#include "harness/abi/assay_series.h"
#include "harness/device/backend.hpp"

namespace assay {

// Bytes that go to an operand on the device.
struct Change {
  void* to;
  std::vector<std::byte> bytes;
};
using Changes = std::vector<Change>;

const assay_series* series_of(const Backend&);  // null where its library has none
// A call behind each of `before`; `microseconds` gets as many times.
CallResult call_time_runs(const assay_series&, const assay_kernel&, const assay_problem*,
                          const assay_tensors*, assay_plan*, int64_t flush_bytes,
                          const std::vector<Changes>& before, std::vector<double>& microseconds);

}  // namespace assay
