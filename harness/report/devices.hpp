// SPDX-License-Identifier: Apache-2.0
// Several devices of one kind in one run: which of them is slower than its fellows.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/report/row.hpp"

namespace assay {

// A device counts as slow when its median time, over the cases it has in common with the others of the same
// name, is more than this share above the median of those others.
inline constexpr double kSlowDevice = 0.05;

// One line per slow device: "cuda:3 (GPU-...) takes 1.12 times as long as the other 7 NVIDIA H200 over 12
// timings". Devices are told apart by backend label and UUID; empty with fewer than two of a name.
std::vector<std::string> slow_devices(std::span<const Row>);

}  // namespace assay
