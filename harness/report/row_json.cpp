// SPDX-License-Identifier: Apache-2.0
// Row <-> JSON and the two descriptions of the columns, all from row_fields().
#include "harness/report/row_json.hpp"

#include <algorithm>
#include <cmath>

#include "harness/base/json_fields.hpp"

namespace assay {
namespace {

void store(Row& row, const RowField& field, const nlohmann::json& value, const JsonPlace& at) {
  std::visit([&](auto member) { decode(value, row.*member, at); }, field.member);
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
      if (!std::isnan(number)) object[name] = json_number(number);
    }
  }
  return object;
}

std::string json_line(const Row& row) {
  return json_of(row).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Row row_from_json(const nlohmann::json& object, const SourcePlace& place) {
  const JsonPlace at{place, "row", ""};
  if (!object.is_object()) json_mistyped(at, object, "an object of columns");
  const auto fields = row_fields();
  Row row;
  for (const auto& [key, value] : object.items()) {
    auto field =
        std::find_if(fields.begin(), fields.end(), [&name = key](auto& f) { return f.name == name; });
    if (field == fields.end()) {
      std::vector<std::string_view> names;
      for (const RowField& f : fields) names.push_back(f.name);
      json_unknown(at, key, names);
    }
    if (!value.is_null()) store(row, *field, value, at.inside(key));
  }
  return row;
}

Row row_from_json_line(std::string_view text, const SourcePlace& place) {
  SourcePlace start = place;
  start.column = 1;
  return row_from_json(parse_json(text, start, "one object of columns per line"), place);
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
