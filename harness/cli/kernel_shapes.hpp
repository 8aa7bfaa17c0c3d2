// SPDX-License-Identifier: Apache-2.0
// Which shapes a kernel takes, asked in its worker: the plainest one first (a kernel may be compiled for one
// alone), then features and other shapes from there. For `assay kernels` and `assay facts`.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/cli/probes.hpp"
#include "harness/run/dispatcher.hpp"

namespace assay {

// What one kernel said to the probes of its own shape.
struct KernelAnswers {
  std::string name;
  Shape shape;  // the plainest it takes; the first candidate where it takes none
  bool takes_it = false;
  std::vector<KernelSupport> features;                    // as support_probes()
  std::vector<std::pair<std::string, std::string>> axes;  // "d", "64 128": the values it takes
};

// Asks a kernel of the op. A probe that does not go with the kernel's shape counts as refused.
KernelAnswers ask_kernel(Dispatcher&, std::string_view op, const std::string& kernel);

}  // namespace assay
