// SPDX-License-Identifier: Apache-2.0
// See json_fields.hpp: what does not depend on the struct.
#include "harness/base/json_fields.hpp"

#include <cmath>

namespace assay {
namespace {

using nlohmann::json;

std::string subject(const JsonPlace& at) {
  return at.path.empty() ? at.what : fmt::format("{}: field '{}'", at.what, at.path);
}

// Keys come from outside: they may be of any length and hold anything.
std::string short_key(const std::string& key) {
  std::string text;
  for (const char c : key.substr(0, 40)) text += c >= 32 && c < 127 ? c : '?';
  return key.size() > 40 ? text + "..." : text;
}

SourcePlace place_after(SourcePlace start, std::string_view before) {
  const size_t newline = before.rfind('\n');
  start.line += static_cast<int>(std::count(before.begin(), before.end(), '\n'));
  start.column = newline == std::string_view::npos ? start.column + static_cast<int>(before.size())
                                                   : static_cast<int>(before.size() - newline);
  return start;
}

}  // namespace

json parse_json(std::string_view text, const SourcePlace& start, const std::string& expected) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& e) {
    // Of the first byte that does not fit, from 1; one past the end when something is missing there.
    const size_t at = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());
    throw InputError(place_after(start, text.substr(0, at)),
                     fmt::format("{}; expected {}",
                                 e.byte > text.size() ? "the text ends inside the JSON (is it cut short?)"
                                                      : "no valid JSON here",
                                 expected));
  } catch (const json::out_of_range& e) {  // its text is "... number overflow parsing '1e400'"
    const std::string_view what = e.what();
    const size_t open = what.find('\'');
    const std::string_view token =
        open == std::string_view::npos ? "" : what.substr(open + 1, what.rfind('\'') - open - 1);
    const size_t at = token.empty() ? 0 : std::min(text.find(token), text.size());
    throw InputError(place_after(start, text.substr(0, at)),
                     fmt::format("the number {} is too large for a double; expected {}",
                                 short_key(std::string(token)), expected));
  }
}

JsonPlace JsonPlace::inside(std::string_view field) const {
  return {place, what, path.empty() ? std::string(field) : path + "." + std::string(field)};
}

std::string json_shown(const json& value) {
  // Printing recurses, and how deep a value is was the sender's choice.
  if (value.is_structured()) return fmt::format("an {}", value.type_name());
  if (value.is_string()) return "'" + short_key(value.get_ref<const std::string&>()) + "'";
  return value.dump();
}

void json_missing(const JsonPlace& at, const std::string& expected) {
  throw InputError(at.place, fmt::format("{} is missing; expected {}", subject(at), expected));
}

void json_mistyped(const JsonPlace& at, const json& value, const std::string& expected) {
  throw InputError(at.place, fmt::format("{} is {}; expected {}", subject(at), json_shown(value), expected));
}

void json_impossible(const JsonPlace& at, const std::string& why) {
  throw InputError(at.place, fmt::format("{} is impossible: {}", subject(at), why));
}

void json_unknown(const JsonPlace& at, const std::string& key, const std::vector<std::string_view>& known) {
  std::string names;
  for (const std::string_view name : known) names += (names.empty() ? "" : ", ") + std::string(name);
  throw InputError(at.place, fmt::format("{}: field '{}' is unknown; expected {}", subject(at),
                                         short_key(key), names.empty() ? "no fields" : names));
}

int64_t whole_of(const json& value, int64_t low, int64_t high, const JsonPlace& at) {
  // Numbers past int64 parse as unsigned and would wrap.
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() ||
                                                  value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  const int64_t whole = fits ? value.get<int64_t>() : 0;
  if (fits && whole >= low && whole <= high) return whole;
  json_mistyped(at, value,
                low == INT64_MIN ? std::string("a whole number")
                                 : fmt::format("a whole number from {} to {}", low, high));
}

uint64_t unsigned_of(const json& value, const JsonPlace& at) {
  // A document built in memory holds small numbers as signed ones.
  if (value.is_number_unsigned() || (value.is_number_integer() && value.get<int64_t>() >= 0))
    return value.get<uint64_t>();
  json_mistyped(at, value, "a whole number that is not negative");
}

json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

double number_of(const json& value, const JsonPlace& at) {
  if (value.is_number()) return value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  json_mistyped(at, value, "a number, \"inf\", \"-inf\" or \"nan\"");
}

size_t word_of(const json& value, std::span<const std::string_view> words, const JsonPlace& at) {
  if (value.is_string())
    for (size_t i = 0; i < words.size(); ++i)
      if (value.get_ref<const std::string&>() == words[i]) return i;
  std::string expected;
  for (const std::string_view word : words) expected += (expected.empty() ? "" : ", ") + std::string(word);
  json_mistyped(at, value, "one of " + expected);
}

}  // namespace assay
