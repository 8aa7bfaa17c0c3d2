// SPDX-License-Identifier: Apache-2.0
// A random value of one field, from what its row in the table of fields says of itself: the words it accepts
// and the syntax of its value. A field that is added to the table is drawn without anybody remembering it
// here; one whose syntax holds a word nobody knows how to draw is a CheckError that names it (draw_line_test
// draws every field).
#pragma once

#include <cstdint>
#include <string>

#include "harness/campaign/draws.hpp"
#include "harness/scenario/fields.hpp"

namespace assay::campaign {

// What values depend on that were drawn before: the op, and the keys of its longest request.
struct LineSoFar {
  const Op& op;
  int64_t longest = 1;
};

// Text as it stands behind "NAME=". It may break a rule, also within the value (an operand twice).
std::string draw_value(Draws&, const Field&, const LineSoFar&);

// Lengths of requests as such text: written groups, or drawn from a distribution; never a trace, whose file a
// campaign cannot invent. `most_keys`: of one request.
std::string draw_batch(Draws&, const Op&, int64_t most_keys);

}  // namespace assay::campaign
