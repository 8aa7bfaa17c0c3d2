// SPDX-License-Identifier: Apache-2.0
// See re_aim.hpp.
#include "harness/scenario/re_aim.hpp"

#include <algorithm>

#include "harness/scenario/line_check.hpp"

namespace assay {
namespace {

// Any op that takes the field shows whether it can be read; what it says about others is a matter of rules.
void check_value(const Field& field, Slice value) {
  Scenario scratch;
  for (const Op* op : all_ops())
    if (takes(*op, field.name)) {
      scratch.op = op->id;
      break;
    }
  field.parse(value, scratch);
}

FieldSet given_in(const Scenario& s) {
  FieldSet given = 0;
  const std::span<const Field> all = fields();
  for (int i = 0; i < static_cast<int>(all.size()); ++i)
    if (!all[static_cast<size_t>(i)].is_default(s)) given |= field_bit(i);
  return given;
}

}  // namespace

ReAim::ReAim(const std::string& text, const std::string& source) {
  try {
    GivenFields given;
    for (const Slice word : words_outside_brackets({text, 0})) {
      const auto [field, value] = split_word(word);
      given.add(field, word.offset);
      check_value(fields()[static_cast<size_t>(field)], value);
      values_.emplace_back(field, std::string(value.text));
    }
    if (values_.empty()) throw TextError(0, "fields of a line are expected, such as h=32/8 d=128 page=16");
  } catch (const TextError& error) {
    throw InputError({source, 1, static_cast<int>(error.offset()) + 1}, error.what());
  }
}

std::optional<Scenario> ReAim::operator()(const Scenario& before) {
  if (values_.empty()) return before;
  Scenario s = before;
  FieldSet given = given_in(before);
  for (const auto& [index, value] : values_) {
    const Field& field = fields()[static_cast<size_t>(index)];
    if (!takes(op_of(s.op), field.name)) continue;
    field.parse({value, 0}, s);
    given |= field_bit(index);
  }
  resolve_defaults(s, given);
  const Rule* rule = broken_rule(s);
  if (rule == nullptr) return s;
  if (contradicted_++ == 0) first_ = fmt::format("{}: {}", print(before), rule->message(s));
  return std::nullopt;
}

std::string ReAim::lacking(const Scenario& s) const {
  std::string names;
  for (const auto& [index, value] : values_)
    if (const Field& field = fields()[static_cast<size_t>(index)]; !takes(op_of(s.op), field.name))
      names += (names.empty() ? "" : ", ") + std::string(field.name);
  return names;
}

}  // namespace assay
