// SPDX-License-Identifier: Apache-2.0
// Fields whose value is a list joined by + ("strides=q+kv", "relate=pages+alone"): reading in any order,
// printing in the order of their tables. To add a member: one row of a table in field_lists.cpp.
#pragma once

#include <string>

#include "harness/scenario/scenario.hpp"
#include "harness/scenario/text.hpp"

namespace assay {

void parse_strides(Slice, Scenario&);
void print_strides(const Scenario&, std::string& out);

void parse_relate(Slice, Scenario&);
void print_relate(const Scenario&, std::string& out);

}  // namespace assay
