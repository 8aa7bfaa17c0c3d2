// SPDX-License-Identifier: Apache-2.0
// How much memory a case takes, before anything of it is built: a wrong digit in a length ends in a
// message, not in an exhausted machine. Upper bounds for drawn lengths; exact for written ones; a trace
// is only known once it is read, so make_problem() asks again with the drawn requests.
#pragma once

#include <span>
#include <string>

#include "harness/scenario/scenario.hpp"

namespace assay {

struct Extent {
  double requests = 0;
  double total_q = 0, total_kv = 0;  // tokens
  double max_kv = 0;                 // tokens of the longest request
  double tree_entries = 0;           // sum of q_len^2
};

Extent extent_of(const BatchSpec&);
Extent extent_of(std::span<const Request>);
// About the bytes of all operands, small ones (tables, starts, slopes) left out.
double case_bytes(const Scenario&, const Extent&);
bool case_fits(const Scenario&, const Extent&);
// What is too large, by how much, and what to change.
std::string case_size_message(const Scenario&, const Extent&);

}  // namespace assay
