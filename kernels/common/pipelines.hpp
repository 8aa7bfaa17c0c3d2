// SPDX-License-Identifier: Apache-2.0
// The steps of a library: every pipeline (stages.hpp) made of the kernels that the library's kit has for its
// places. A library fills one kit; a pipeline is one line of the table in pipelines.cpp, for all of them.
#pragma once

#include <string>
#include <vector>

#include "kernels/common/stages.hpp"

namespace assay_kernels {

// What a library makes steps of. Kernels live as long as the process.
struct Kit {
  const char* arch;    // of the steps
  const char* suffix;  // of their names: step_unified_SUFFIX
  // A kernel of each op that a place begins with; of several of one op the first.
  std::vector<const assay_kernel*> of_op;
  const assay_kernel* few_rows;        // paged attention where requests have few rows
  const assay_kernel *join, *correct;  // of no op
  const Streams* streams;              // may be null
};

// A kernel for every place of the pipeline, in their order. std::logic_error where the kit has none.
std::vector<assay_stage> stages_of(const Pipeline&, const Kit&);

// step_NAME_SUFFIX of all pipelines.
std::vector<const assay_kernel*> make_steps(const Kit&);

}  // namespace assay_kernels
