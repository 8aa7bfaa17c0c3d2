// SPDX-License-Identifier: Apache-2.0
// What a single scenario and a suite line check in the same way: the op word in front, NAME=VALUE words,
// fields given twice, and the word an error message about a rule points at.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "harness/scenario/fields.hpp"
#include "harness/scenario/scenario.hpp"
#include "harness/scenario/text.hpp"

namespace assay {

std::string missing_op_message(std::string_view found);
// TextError unless the first word can be an op (a field or nothing stands there instead).
void require_op_word(Slice word);
// Index of the field and its value; TextError for a word without "=", an unknown field, no value.
std::pair<int, Slice> split_word(Slice word);

// Which fields a line gives, and where.
class GivenFields {
 public:
  void add(int field, size_t offset);  // TextError when given before
  FieldSet set() const { return set_; }
  bool has(int field) const { return set_ & field_bit(field); }
  // Offset of the last given field that the rule looks at (the one a reader would change), else of the
  // op.
  size_t place_of(const Rule&) const;

 private:
  FieldSet set_ = 0;
  std::array<size_t, 64> offset_{};
};

}  // namespace assay
