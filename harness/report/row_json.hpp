// SPDX-License-Identifier: Apache-2.0
// Rows as JSON objects (worker protocol, run.json). Names come from row_fields(); missing values are
// left out. JSON has no infinities, so those are the strings "inf" and "-inf".
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "harness/base/error.hpp"
#include "harness/report/row.hpp"

namespace assay {

nlohmann::json json_of(const Row&);
// One line without newline. Bytes that are not UTF-8 (a kernel's error text may hold anything) become
// U+FFFD, so this never throws; plain json::dump() would.
std::string json_line(const Row&);

// InputError at `place` for an unknown key, a value of the wrong kind, or something that is no object.
Row row_from_json(const nlohmann::json&, const SourcePlace& place = {"row", 0, 0});
// Parses first; InputError with the column when the text is no JSON.
Row row_from_json_line(std::string_view text, const SourcePlace& place = {"row", 0, 0});

// [{"name", "unit", "meaning"}]: the key "columns" of run.json, from which the HTML report takes its
// tooltips.
nlohmann::json columns_json();
// COLUMNS.md, whole (a test keeps the committed file equal).
std::string columns_markdown();

}  // namespace assay
