// SPDX-License-Identifier: Apache-2.0
// Two hypotheses as one: what a kernel with both mistakes computes.
#pragma once

#include "harness/explain/rules.hpp"

namespace assay {

// False: both set a step that has room for one change.
bool compose(const Rules& right, const Rules& first, const Rules& second, Rules* both);

}  // namespace assay
