// SPDX-License-Identifier: Apache-2.0
// Forward error bounds for a declared arithmetic: reference values and, per element, a half-width B
// such that a correct kernel of that arithmetic lies within rnd(o - B) .. rnd(o + B) before and after
// its output rounding. Tier D: deterministic, never rejects a correct kernel on any input. Derivation:
// reference/README.md, section "Bounds".
#pragma once

#include <vector>

#include "harness/abi/assay_kernel.h"
#include "reference/attention.hpp"

namespace assay {

struct BoundedAttention {
  AttentionResult value;
  std::vector<double> o_bound;    // half-widths, shape of value.o
  std::vector<double> lse_bound;  // shape of value.lse; 0 where the LSE is exactly -inf
  // exp(growth) entered the accumulation bound; > 1 means the declared arithmetic guarantees nothing.
  double growth = 0;
};

// Defaults for what a kernel leaves undeclared (documented in reference/README.md).
assay_arithmetic default_arithmetic();

BoundedAttention bounded_attention(const Problem&, const HostOperands&, const std::vector<RowId>&,
                                   const assay_arithmetic&);

}  // namespace assay
