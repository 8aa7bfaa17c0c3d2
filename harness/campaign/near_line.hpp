// SPDX-License-Identifier: Apache-2.0
// Lines next to trouble. What a random line meets once in a hundred thousand lies beside a line that
// condemned a kernel once, or where a kernel's own numbers end: a tile more or less, a part, its lag, one
// step of the grid that it rounds P to. Either is drawn here; a kind of neighbour is a case of change() in
// near_line.cpp, a kind of corner one of corner_batch() or corner_fields().
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "harness/abi/assay_kernel.h"
#include "harness/campaign/draw_line.hpp"
#include "harness/campaign/draws.hpp"

namespace assay::campaign {

// The scenario with another seed and one to three further changes: cap, scale, a key or row more or less,
// heads, dimensions, another input, a field that is added, drawn anew or taken away. Nothing when no change
// that was tried is legal and costs at most `largest`.
std::optional<Line> neighbour(Draws&, const Scenario&, double largest);

// What a kernel says of itself for a case.
using Declares = std::function<assay_arithmetic(const Problem&)>;
// A line of this op at the corners of the arithmetic that is declared for its heads, dimensions and formats.
std::optional<Line> corner_line(Draws&, const Op&, const Declares&, double largest);

}  // namespace assay::campaign
