// SPDX-License-Identifier: Apache-2.0
// The list of `assay explain --causes`: what it has names for, in the groups that who asks wants: kernels and
// steps, symptoms apart, and of a step what can be said of one without stages.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace assay {

// A heading, which ends with a colon, and two spaces before each name.
std::string causes_text();
// [{"cause", "meaning", "kind": "cause" or "symptom", "of": "kernel" or "step", "said": "any", "stage",
// "replay" or "ranks", "same": [names]}, ...] in the order of the text.
nlohmann::json causes_json();

}  // namespace assay
