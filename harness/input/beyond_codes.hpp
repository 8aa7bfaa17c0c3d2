// SPDX-License-Identifier: Apache-2.0
// How many values that a call writes into a cache of codes lie beyond the largest code of their scale. Where
// none does, a kernel that lets such values wrap around passes, so whoever reads a verdict wants the number.
#pragma once

#include <cstdint>

#include "harness/input/inputs.hpp"

namespace assay {

struct BeyondCodes {
  int64_t values = 0;  // that become codes under a scale that is given, or under none
  int64_t beyond = 0;  // of these, those that no code is nearest to: they saturate
};

// Of the new keys, or of the new values. Nothing is counted where the call writes no cache, where what it
// writes are codes already, where the cache holds none, and under scales that follow from the values: the
// largest value is the largest code there.
BeyondCodes beyond_codes(const Inputs&, bool of_v);

}  // namespace assay
