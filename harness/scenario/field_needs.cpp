// SPDX-License-Identifier: Apache-2.0
// See field_needs.hpp.
#include "harness/scenario/field_needs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "harness/base/error.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

// The first of them that an op takes is its plain line.
constexpr const char* kPlain[] = {"batch=2q2s40", "batch=2q1s40", "batch=2q9"};
// Of a number one that some line takes.
constexpr const char* kNumbers[] = {"1", "2", "3", "4", "8", "16", "64"};

std::optional<std::string> refusal(const std::string& line) {
  try {
    parse_scenario(line);
    return std::nullopt;
  } catch (const InputError& e) {
    return e.message();
  }
}

bool parses(const Field& field, std::string_view value) {
  Scenario scratch;
  try {
    field.parse({value, 0}, scratch);
    return !field.is_default(scratch);
  } catch (const TextError&) {
    return false;
  }
}

// "full, swa" has values, "1 to 4096" has none.
std::vector<std::string> named_values(const Field& field) {
  std::vector<std::string> values;
  for (const Slice& piece : split_outside_brackets({field.accepted, 0}, ','))
    if (const Slice value = trim(piece); parses(field, value.text)) values.emplace_back(value.text);
  return values;
}

// What an op says to each of the values; nothing where it takes one of them.
std::string refused_by(int32_t op, const Field& field, const std::vector<std::string>& values) {
  std::string first;
  for (const char* plain : kPlain) {
    const std::string line = fmt::format("{} {}", name_of(op_names(), op), plain);
    if (refusal(line)) continue;
    for (const std::string& value : values) {
      const std::optional<std::string> why = refusal(fmt::format("{} {}={}", line, field.name, value));
      if (!why) return {};
      if (first.empty()) first = *why;
    }
  }
  return first;
}

// A refusal that asks for another field, or for another batch, is a need; any other says where the value has
// no meaning at all.
bool names_another(const Field& field, const std::string& message) {
  return std::any_of(fields().begin() + 1, fields().end(), [&](const Field& f) {
    return f.name != field.name && message.find(fmt::format("{}=", f.name)) != std::string::npos;
  });
}

}  // namespace

std::vector<FieldNeed> field_needs(const Field& field) {
  std::vector<FieldNeed> needs;
  const auto look = [&](const std::string& shown, const std::vector<std::string>& values) {
    for (int32_t op = 0; op < kOpValues; ++op) {
      if ((field.ops & op_bit(op)) == 0) continue;
      const std::string why = refused_by(op, field, values);
      if (why.empty() || !names_another(field, why)) continue;
      const auto same =
          std::find_if(needs.begin(), needs.end(), [&](const FieldNeed& n) { return n.message == why; });
      if (same == needs.end())
        needs.push_back({shown, op_bit(op), why});
      else
        same->ops |= op_bit(op);
    }
  };
  if (field.name == "op" || field.name == "batch" || field.name == "d" || field.name == "h") return needs;
  const std::vector<std::string> named = named_values(field);
  for (const std::string& value : named) look(value, {value});
  if (!named.empty()) return needs;
  std::vector<std::string> numbers;
  for (const char* number : kNumbers)
    if (parses(field, number)) numbers.emplace_back(number);
  if (!numbers.empty()) look("", numbers);
  return needs;
}

}  // namespace assay
