// SPDX-License-Identifier: Apache-2.0
// The parts of the rule table that have a file of their own; rules() joins them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "harness/scenario/scenario.hpp"

namespace assay {

std::vector<Rule> input_rules();     // which problems a recipe with a known answer fits
std::vector<Rule> storage_rules();   // what a cache leaves undefined
std::vector<Rule> step_rules();      // what steps take
std::vector<Rule> op_rules();        // what the op of the line takes
std::vector<Rule> tree_rules();      // which draft masks fit
std::vector<Rule> relation_rules();  // where a relation has something to compare

// Those of the fields that the line sets, for messages: "window= is", "first= and positions= are".
std::string given_fields(const Scenario&, std::initializer_list<std::string_view> names);

}  // namespace assay
