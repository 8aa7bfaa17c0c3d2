// SPDX-License-Identifier: Apache-2.0
// See line_check.hpp. The messages here are what a user meets first, so each says what to write.
#include "harness/scenario/line_check.hpp"

#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"

namespace assay {

std::string missing_op_message(std::string_view found) {
  return fmt::format("a scenario starts with its op{}; accepted: {}",
                     found.empty() ? "" : fmt::format(", not \"{}\"", found), accepted(op_names()));
}

void require_op_word(Slice word) {
  if (word.text.find('=') != std::string_view::npos)
    throw TextError(word.offset, missing_op_message(word.text));
}

std::pair<int, Slice> split_word(Slice word) {
  const size_t equals = word.text.find('=');
  if (equals == std::string_view::npos) {
    if (const int named = field_index(word.text); named > 0)
      throw TextError(word.offset, fmt::format("\"{}\" needs a value, {}=VALUE; accepted: {}", word.text,
                                               word.text, fields()[named].accepted));
    const auto names = std::span(field_names()).subspan(1);
    throw TextError(word.offset, fmt::format("\"{}\" is not NAME=VALUE{}; accepted fields: {}", word.text,
                                             did_you_mean(word.text, names), join(names)));
  }
  const int field = require_field(word.sub(0, equals));
  if (field == 0) throw TextError(word.offset, "the op stands first in the line, without \"op=\"");
  const Slice value = word.sub(equals + 1);
  if (value.text.empty())
    throw TextError(value.offset, fmt::format("{}: value expected; accepted: {}", fields()[field].name,
                                              fields()[field].accepted));
  return {field, value};
}

void GivenFields::add(int field, size_t offset) {
  if (has(field))
    throw TextError(offset, fmt::format("field \"{}\" is given twice; leave one out", fields()[field].name));
  set_ |= field_bit(field);
  offset_[field] = offset;
}

size_t GivenFields::place_of(const Rule& rule) const {
  size_t best = offset_[0];
  for (const std::string_view name : rule.fields) {
    const int field = field_index(name);
    if (field > 0 && has(field)) best = std::max(best, offset_[field]);
  }
  return best;
}

}  // namespace assay
