// SPDX-License-Identifier: Apache-2.0
// Covering arrays: every combination of any t axis values that some valid case has occurs in at least
// one row. Deterministic: the same axes give the same rows on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace assay {

// A constraint over some axes: `allowed` is asked only when every axis in `axes` has a value, with the
// full assignment (other entries are -1 and must not be looked at).
struct CoverConstraint {
  std::vector<int> axes;
  std::function<bool(std::span<const int> assignment)> allowed;
};

struct CoverProblem {
  std::vector<int> levels;  // values per axis, each >= 1
  int strength = 2;         // 2..4; at most the number of axes counts
  std::vector<CoverConstraint> constraints;
};

// Rows of value indices, one per axis. Throws CheckError when no valid row exists.
std::vector<std::vector<int>> covering_array(const CoverProblem&);

}  // namespace assay
