// SPDX-License-Identifier: Apache-2.0
// How much of its bounds a kernel uses, by what its cases ask for: a bound that no case comes near to lets
// faults through. Features are the words of the scenario line, so a new field is a new feature by itself.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/report/row.hpp"

namespace assay {

// The largest ratio of a case should be at least this in half of the cases (reference/bounds/BOUNDS.md).
inline constexpr double kLooseBelow = 0.05;

struct Looseness {
  std::string kernel, feature;  // "cap=30"; "all" for every case of the kernel
  size_t cases = 0;
  // Median over the cases of a case's largest ratio: of O before its rounding, and of the LSE. NaN where no
  // case has one.
  double o, lse;
  // Cases below kLooseBelow, of O by the first that holds: what O's own rounding may be fills the interval,
  // so that no error before it shows; tier P declined in some rows; or else by Row::o_mostly, of these
  // without a replay and of those with one. Of the LSE by Row::lse_mostly.
  size_t hidden = 0, declined = 0;
  std::map<std::string, size_t> unreplayed, other, loose_lse;
  bool loose() const { return o < kLooseBelow || lse < kLooseBelow; }
};
// Attention that passed, but for inputs with a known answer, whose errors are none: kernels in alphabetical
// order, "all" first, then features; groups of at least `least` cases.
std::vector<Looseness> looseness_of(std::span<const Row>, size_t least = 3);

// Which of its cases are loose and what the rows say of why, of O and of the LSE; empty when it is not.
std::string o_reason(const Looseness&);
std::string lse_reason(const Looseness&);

// A section in Markdown: every kernel, and its features whose bounds are loose. Empty without such rows.
std::string looseness_section(std::span<const Row>);

}  // namespace assay
