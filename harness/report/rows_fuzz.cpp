// SPDX-License-Identifier: Apache-2.0
// Fuzzes the readers of rows: the first byte chooses CSV (with or without a good header in front) or
// JSON. Whatever is accepted must survive writing and reading again; everything else must be an
// InputError.
//   cmake --preset sanitize && cmake --build --preset sanitize --target rows_fuzz && build-sanitize/rows_fuzz
//   -max_total_time=60
#include <cstdint>
#include <cstdlib>

#include "harness/report/junit.hpp"
#include "harness/report/row_json.hpp"
#include "harness/report/row_reader.hpp"
#include "harness/report/table.hpp"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void csv(const std::string& text) {
  const assay::RowsFile file = assay::parse_rows(text, "rows.csv");
  require(file.valid_bytes + static_cast<int64_t>(file.truncated_tail.size()) ==
          static_cast<int64_t>(text.size()));
  std::string again = assay::csv_header() + "\n";
  for (const assay::Row& row : file.rows) again += assay::csv_line(row) + "\n";
  const assay::RowsFile second = assay::parse_rows(again, "again");
  require(second.rows.size() == file.rows.size() && second.truncated_tail.empty());
  for (size_t i = 0; i < file.rows.size(); i++)
    require(assay::csv_line(second.rows[i]) == assay::csv_line(file.rows[i]));
  assay::format_table(file.rows, {{}, 100});
  assay::junit_xml(file.rows);
}

void json(std::string_view text) {
  const assay::Row row = assay::row_from_json_line(text);
  require(assay::csv_line(assay::row_from_json_line(assay::json_line(row))) == assay::csv_line(row));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 3 == 0)
      csv(text);
    else if (data[0] % 3 == 1)
      csv(assay::csv_header() + "\n" + text);
    else
      json(text);
  } catch (const assay::InputError&) {
  }
  return 0;
}
