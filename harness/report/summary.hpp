// SPDX-License-Identifier: Apache-2.0
// summary.md for CI job pages: tally first, failing cases with their commands, then the rows folded
// away. Kept under a size, because GitHub drops an oversized summary whole; what was cut is said.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "harness/report/row.hpp"

namespace assay {

struct SummaryOptions {
  std::string_view title = "assay";
  size_t max_bytes = 900'000;  // GitHub's limit is 1 MiB
  size_t max_failures = 50;
};
std::string summary_markdown(std::span<const Row>, const SummaryOptions& = {});

}  // namespace assay
