// SPDX-License-Identifier: Apache-2.0
// What the values of a field mean where a name does not say it: a line each in `assay describe fields`. A new
// value of such a field: a row in value_notes.cpp (value_notes_test compares them with what is accepted).
#pragma once

#include <span>
#include <string_view>

namespace assay {

struct ValueNote {
  std::string_view value;
  std::string_view meaning;  // and its condition, where it has one
};

// Empty for fields whose values need none (numbers, formats, on and off).
std::span<const ValueNote> value_notes(std::string_view field);

}  // namespace assay
