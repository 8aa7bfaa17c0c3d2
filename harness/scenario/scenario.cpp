// SPDX-License-Identifier: Apache-2.0
// parse_scenario() and print(): a walk over the field table. Everything about one field is in
// fields.cpp, everything between fields in rules.cpp.
#include "harness/scenario/scenario.hpp"

#include "harness/scenario/fields.hpp"
#include "harness/scenario/line_check.hpp"
#include "harness/scenario/text.hpp"

namespace assay {
namespace {

Scenario read_scenario(std::string_view text) {
  const std::vector<Slice> words = words_outside_brackets({text, 0});
  if (words.empty()) throw TextError(0, missing_op_message(""));
  require_op_word(words[0]);
  Scenario scenario;
  fields()[0].parse(words[0], scenario);
  GivenFields given;
  given.add(0, words[0].offset);
  for (size_t i = 1; i < words.size(); ++i) {
    const auto [field, value] = split_word(words[i]);
    given.add(field, words[i].offset);
    require_applicable(fields()[field], scenario.op, words[i].offset);
    try {
      fields()[field].parse(value, scenario);
    } catch (const TextError& error) {
      if (value.text.find_first_of("[{") == std::string_view::npos &&
          split_outside_brackets(value, ',').size() == 1)
        throw;
      throw TextError(error.offset(),
                      fmt::format("{}; a single scenario takes one value: axes (a,b {{a,b}} [a:b:s]) "
                                  "belong in a suite",
                                  error.what()));
    }
  }
  resolve_defaults(scenario, given.set());
  if (const Rule* rule = broken_rule(scenario))
    throw TextError(given.place_of(*rule), rule->message(scenario));
  return scenario;
}

}  // namespace

Scenario parse_scenario(std::string_view text, const SourcePlace& place) {
  try {
    return read_scenario(text);
  } catch (const TextError& error) {
    SourcePlace at = place;
    at.column += static_cast<int>(error.offset());
    throw InputError(at, error.what());
  }
}

std::string print(const Scenario& scenario) {
  std::string out;
  out.reserve(160);
  const std::span<const Field> all = fields();
  all[0].print(scenario, out);
  for (const Field& field : all.subspan(1)) {
    if (field.is_default(scenario)) continue;
    out += ' ';
    out += field.name;
    out += '=';
    field.print(scenario, out);
  }
  return out;
}

}  // namespace assay
