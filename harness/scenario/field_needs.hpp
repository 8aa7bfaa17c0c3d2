// SPDX-License-Identifier: Apache-2.0
// What a field asks of the others before it says anything: tried, not written down. A plain line of each op
// gets the field with a value, and the rule that refuses it, if one does, says what is missing.
#pragma once

#include <string>
#include <vector>

#include "harness/scenario/fields.hpp"

namespace assay {

struct FieldNeed {
  std::string values;   // "swa"; of numbers empty: whatever the number
  OpSet ops = 0;        // in which a plain line with it is refused
  std::string message;  // the rule's: "index=swa keeps the pages ...; it needs a window to the left ..."
};

// Empty where plain lines take every value.
std::vector<FieldNeed> field_needs(const Field&);

}  // namespace assay
