// SPDX-License-Identifier: Apache-2.0
// Mechanisms in parts and tiles, where the kernel cuts keys in none of the usual ways.
#pragma once

#include <vector>

#include "harness/explain/rank.hpp"
#include "harness/explain/tester.hpp"

namespace assay {

// What the families propose in each of the unusual ways in parts and tiles (further_layouts_of), as far as it
// takes away much of the error of the first wrong samples.
Hypotheses recut(const Clues&, Tester&, const Choice&, size_t probes);

}  // namespace assay
