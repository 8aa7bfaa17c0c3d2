// SPDX-License-Identifier: Apache-2.0
// In which rows a misreading holds that does not hold in all of them: those of one sort, which the code of a
// step handles apart, or nothing that could be said.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/problem/problem.hpp"

namespace assay {

// Sorts of requests and of rows, the plainest first. A new one: a line in row_kinds.cpp.
//
// Those that hold all of `in` and none of `out`, both by packed row: "extends". `step` has the lengths, the
// threshold and the page size.
std::vector<std::string> told_by_kinds(const Problem& step, const std::vector<uint8_t>& in,
                                       const std::vector<uint8_t>& out);

}  // namespace assay
