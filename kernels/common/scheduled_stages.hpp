// SPDX-License-Identifier: Apache-2.0
// Stages of attention by a schedule: its lists (place "schedule"), attention that follows them, and the merge
// of the tiles that were cut (place "reduce"). What passes between them is fp32.
#pragma once

#include <string>

#include "kernels/common/step_stages.hpp"

namespace assay_kernels {

struct TileShape {
  int32_t rows, keys;
};

// Lists for the step's rows and keys, and for so many KV heads.
StageCall& make_schedule(Calls&, const std::string& what, TileShape, int32_t heads_kv);
// `call` attends by the lists into O and an LSE of its own, and the merge comes behind it.
void follow_schedule(Calls&, const std::string& what, StageCall& call, const StageCall& schedule);

}  // namespace assay_kernels
