// SPDX-License-Identifier: Apache-2.0
// One call of a kernel, with a plan that serves it alone.
#pragma once

#include "harness/device/backend.hpp"

namespace assay {

// Plans, refreshes, runs and waits for the device; the plan is freed whatever came of it. Not ok: what the
// first of them that failed said. The workspace is the tensors'.
inline CallResult call_once(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem,
                            const assay_tensors* tensors) {
  assay_plan* plan = nullptr;
  CallResult r = call_plan(backend, kernel, problem, tensors, &plan);
  if (r.ok()) r = call_run(backend, kernel, problem, tensors, plan);
  call_free_plan(kernel, plan);
  return r;
}

}  // namespace assay
