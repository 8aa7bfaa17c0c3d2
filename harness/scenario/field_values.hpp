// SPDX-License-Identifier: Apache-2.0
// Values that several fields of a line have: read from their words, with an error (TextError) that says at
// which place what is accepted, and printed. `what`: the field, for that error.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/problem/names.hpp"
#include "harness/scenario/fields.hpp"
#include "harness/scenario/text.hpp"

namespace assay {

// Formats Q, K and V may have; what O may have; what a source may have (ready codes have none); table kinds
// and scales a line may name.
const std::vector<Name>& operand_formats();
const std::vector<Name>& output_formats();
const std::vector<Name>& source_formats();
const std::vector<Name>& paged_tables();
const std::vector<Name>& granularities();

// The value of one of the names.
int32_t parse_name(Slice, std::string_view what, std::span<const Name>);
// FORMAT or FORMAT:SCALE.
Quantization parse_quantization(Slice, std::string_view what);
void print_quantization(const Quantization&, std::string& out);
// A or A/B, each from 1 to high; B defaults to A.
void parse_pair(Slice, std::string_view what, int64_t high, int32_t& first, int32_t& second);
void print_pair(int32_t first, int32_t second, std::string& out);
// Tokens, or -1: no end.
int32_t parse_window_side(Slice, std::string_view what);
// none, drawn, a count, and depth where that is allowed.
int32_t parse_position(Slice, std::string_view what, bool depth);
void print_position(int32_t, std::string& out);
// Rows of 0 and 1 joined by /, or "drawn", which is empty here.
std::string parse_bits(Slice, std::string_view what);
// A number from kMinMagnitude to kMaxMagnitude, or 0 where that is allowed.
double parse_magnitude(Slice, std::string_view what, bool zero);

}  // namespace assay
