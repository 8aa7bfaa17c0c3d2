// SPDX-License-Identifier: Apache-2.0
// A declared arithmetic in words and as JSON, for `assay kernels --arithmetic`: what a kernel promises about
// its rounding, which is all that its error bounds are made of. To show a new field of assay_arithmetic: a
// line in arithmetic_words(), a key in arithmetic_json().
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/problem/problem.hpp"

namespace assay {

// {"QK product", "blocks of 16, 25 fraction bits, 23 mantissa bits, truncated"}, ...: the same names in the
// same order for every arithmetic. The problem gives the length of the longest chain.
std::vector<std::pair<std::string, std::string>> arithmetic_words(const Problem&, const assay_arithmetic&);

// Every field by its name in the C header, enumerators by name, and "growth" (see BoundedAttention).
nlohmann::json arithmetic_json(const Problem&, const assay_arithmetic&);

}  // namespace assay
