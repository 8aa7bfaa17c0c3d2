// SPDX-License-Identifier: Apache-2.0
// The error bound written out per element: sums over keys with |v - o| inside, nothing estimated. Slow;
// it is what the fast form in bounds.cpp is tested against, and what to read first.
#pragma once

#include "reference/bounds.hpp"

namespace assay {

BoundedAttention bounded_attention_elementwise(const Problem&, const HostOperands&, const std::vector<RowId>&,
                                               const assay_arithmetic&);

}  // namespace assay
