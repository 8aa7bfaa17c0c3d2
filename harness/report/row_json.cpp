// SPDX-License-Identifier: Apache-2.0
// Row <-> JSON and the two descriptions of the columns, all from row_fields().
#include "harness/report/row_json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace assay {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

[[noreturn]] void wrong_kind(const SourcePlace& place, std::string_view key, const nlohmann::json& value,
                             const char* expected) {
  // Printing a structured value recurses, and its depth is the sender's choice.
  std::string text = value.is_structured()
                         ? "an " + std::string(value.type_name())
                         : value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 40) + "...";
  throw InputError(place, fmt::format("'{}' is {}; expected {}", key, text, expected));
}

void store(Row& row, const RowField& field, const nlohmann::json& value, const SourcePlace& place) {
  if (auto text = std::get_if<std::string Row::*>(&field.member)) {
    if (!value.is_string()) wrong_kind(place, field.name, value, "a string");
    row.** text = value.get<std::string>();
  } else if (auto integer = std::get_if<int64_t Row::*>(&field.member)) {
    // Numbers past int64 parse as unsigned and would wrap.
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
    if (!fits) wrong_kind(place, field.name, value, "a whole number");
    row.** integer = value.get<int64_t>();
  } else {
    double& number = row.*std::get<double Row::*>(field.member);
    if (value.is_number())
      number = value.get<double>();
    else if (value == "inf")
      number = kInfinity;
    else if (value == "-inf")
      number = -kInfinity;
    else
      wrong_kind(place, field.name, value, "a number, \"inf\" or \"-inf\"");
  }
}

}  // namespace

nlohmann::json json_of(const Row& row) {
  nlohmann::json object = nlohmann::json::object();
  for (const RowField& field : row_fields()) {
    const std::string name(field.name);
    if (auto text = std::get_if<std::string Row::*>(&field.member)) {
      if (!(row.**text).empty()) object[name] = row.**text;
    } else if (auto integer = std::get_if<int64_t Row::*>(&field.member)) {
      if (row.**integer != -1) object[name] = row.**integer;
    } else {
      const double number = row.*std::get<double Row::*>(field.member);
      if (std::isinf(number))
        object[name] = number > 0 ? "inf" : "-inf";
      else if (!std::isnan(number))
        object[name] = number;
    }
  }
  return object;
}

std::string json_line(const Row& row) {
  return json_of(row).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Row row_from_json(const nlohmann::json& object, const SourcePlace& place) {
  if (!object.is_object()) wrong_kind(place, "row", object, "an object of columns");
  const auto fields = row_fields();
  Row row;
  for (const auto& [key, value] : object.items()) {
    auto field =
        std::find_if(fields.begin(), fields.end(), [&name = key](auto& f) { return f.name == name; });
    if (field == fields.end()) {
      std::string names;
      for (const RowField& f : fields) names += (names.empty() ? "" : ", ") + std::string(f.name);
      throw InputError(place, fmt::format("unknown column '{}'; expected some of {}", key, names));
    }
    if (!value.is_null()) store(row, *field, value, place);
  }
  return row;
}

Row row_from_json_line(std::string_view text, const SourcePlace& place) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    SourcePlace at = place;
    at.column = static_cast<int>(std::max<size_t>(e.byte, 1));
    throw InputError(at, "no valid JSON here; expected one object of columns per line");
  } catch (const nlohmann::json::out_of_range&) {
    throw InputError(place, "a number is too large; expected numbers a double can hold");
  }
  return row_from_json(object, place);
}

nlohmann::json columns_json() {
  nlohmann::json columns = nlohmann::json::array();
  for (const RowField& field : row_fields())
    columns.push_back({{"name", field.name}, {"unit", field.unit}, {"meaning", field.meaning}});
  return columns;
}

std::string columns_markdown() {
  std::string text =
      "# Columns of rows.csv\n\n"
      "One line per case, kernel and cache state. A number that is missing is an empty cell. Generated from\n"
      "`row_fields()` in `row.cpp`; a test keeps it equal.\n\n"
      "| column | unit | meaning |\n| :-- | :-- | :-- |\n";
  for (const RowField& field : row_fields())
    text += fmt::format("| `{}` | {} | {} |\n", field.name, field.unit, field.meaning);
  return text;
}

}  // namespace assay
