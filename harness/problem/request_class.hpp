// SPDX-License-Identifier: Apache-2.0
// How a step tells its requests apart, and how it cuts their contexts: for the ops that do so and for the
// bounds of what is done in between.
#pragma once

#include <algorithm>
#include <cstdint>

#include "harness/abi/assay_kernel.h"
#include "harness/problem/problem.hpp"

namespace assay {

// What a request of that step is.
inline assay_request_class request_class(const Problem& step, const Request& r) {
  if (r.q_len <= step.threshold) return ASSAY_REQUEST_DECODE;
  return r.context_len() > 0 ? ASSAY_REQUEST_EXTEND : ASSAY_REQUEST_PREFILL;
}

// Keys of a chunk where so many requests, at least one, share the budget of tokens (chunk_metadata).
inline int64_t chunk_keys(const Problem& p, int64_t requests) {
  return std::max<int64_t>(1, p.token_budget / requests);
}

}  // namespace assay
