// SPDX-License-Identifier: Apache-2.0
// The probes of the support matrix: a feature and a small case that needs it beyond the plainest one.
// To add a feature to `assay kernels`: one row of the table in probes.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay {

struct Probe {
  std::string feature;  // "mask tree"
  std::string line;     // scenario
};
// For an op name ("paged").
std::vector<Probe> support_probes(std::string_view op);

}  // namespace assay
