// SPDX-License-Identifier: Apache-2.0
// Reads rows.csv back: for --resume, merge and report. Columns are found by their names in the header
// line, in any order, so files survive a reordering of row_fields(). A run that was killed leaves at
// most one half-written line; that tail is handed back apart, because it can be repaired by cutting the
// file at valid_bytes, while any other damage is an InputError with file, line and column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/report/row.hpp"

namespace assay {

struct RowsFile {
  std::vector<Row> rows;
  // Bytes after the last newline ("" = the file ends properly). Never parsed, even when it looks
  // complete: "1.25" cut to "1.2" is still a number.
  std::string truncated_tail;
  // Length of the whole lines, header included: what to cut the file to before appending. 0 = not even
  // the header is complete; write it anew.
  int64_t valid_bytes = 0;
};

// kAll: exactly the columns of this version. kSome: files of other versions too, to be looked at; columns
// they lack stay missing, columns unknown here are left out, but scenario, kernel and outcome must be there.
enum class Columns { kAll, kSome };

// InputError: unknown, missing or repeated column; wrong number of cells; bad number or quoting; a zero
// byte. The place's column counts bytes of the line from 1.
RowsFile parse_rows(std::string_view text, const std::string& file_name, Columns = Columns::kAll);
// As above for a file; InputError too when it does not exist or cannot be read.
RowsFile read_rows(const std::string& path, Columns = Columns::kAll);

}  // namespace assay
