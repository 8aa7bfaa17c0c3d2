// SPDX-License-Identifier: Apache-2.0
// Lines come from the LineReader of the Fast C++ CSV Parser. Its CSVReader does not fit: the number of
// columns and the variables they land in are template and call arguments, while ours are data
// (row_fields()), and its errors know the line but not the column. So the splitting of a line into
// cells (RFC 4180, without line breaks inside quotes: csv_line never writes any) is done here.
#include "harness/report/row_reader.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "harness/base/files.hpp"
#include "harness/report/text.hpp"

#define CSV_IO_NO_THREAD  // the text is in memory already: nothing to overlap
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"  // clang has no -Wstringop-truncation
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wstringop-truncation"  // the library cuts long file names on purpose
#include <libfccp/csv.h>
#pragma GCC diagnostic pop

namespace assay {
namespace {

struct Cell {
  std::string text;
  int column;  // of its first byte, from 1
};

std::vector<Cell> split(std::string_view line, SourcePlace place) {
  std::vector<Cell> cells;
  size_t i = 0;
  auto fail = [&](size_t at, const std::string& message) {
    place.column = static_cast<int>(at) + 1;
    throw InputError(place, message);
  };
  while (true) {
    Cell cell{"", static_cast<int>(i) + 1};
    if (i < line.size() && line[i] == '"') {
      const size_t open = i++;
      while (true) {
        const size_t quote = line.find('"', i);
        if (quote == std::string_view::npos)
          fail(open, "quoted cell is not closed on its line; expected a closing '\"'");
        cell.text += line.substr(i, quote - i);
        i = quote + 1;
        if (i >= line.size() || line[i] != '"') break;
        cell.text += '"';
        i++;
      }
      if (i < line.size() && line[i] != ',')
        fail(i, fmt::format("'{}' after a closing quote; expected ',' or the end of the line", line[i]));
    } else {
      const size_t end = std::min(line.find(',', i), line.size());
      cell.text = line.substr(i, end - i);
      const size_t quote = cell.text.find('"');
      if (quote != std::string::npos)
        fail(i + quote,
             "quote inside a cell that does not start with one; expected the whole cell in quotes, "
             "with quotes inside doubled");
      i = end;
    }
    cells.push_back(std::move(cell));
    if (i >= line.size()) return cells;
    i++;  // the comma
  }
}

std::string quoted_excerpt(std::string_view text) {
  constexpr size_t kMost = 40;
  return text.size() <= kMost ? fmt::format("'{}'", text) : fmt::format("'{}...'", text.substr(0, kMost));
}

std::string known_columns() {
  std::string names;
  for (const RowField& field : row_fields()) names += (names.empty() ? "" : ", ") + std::string(field.name);
  return names;
}

std::vector<const RowField*> read_header(std::string_view line, SourcePlace place, Columns columns) {
  const auto fields = row_fields();
  std::vector<const RowField*> order;
  for (const Cell& cell : split(line, place)) {
    place.column = cell.column;
    auto field = std::find_if(fields.begin(), fields.end(), [&](auto& f) { return f.name == cell.text; });
    if (field == fields.end() && columns == Columns::kSome) {
      order.push_back(nullptr);
      continue;
    }
    if (field == fields.end())
      throw InputError(place, fmt::format("unknown column {}; expected the columns {}",
                                          quoted_excerpt(cell.text), known_columns()));
    if (std::find(order.begin(), order.end(), &*field) != order.end())
      throw InputError(place, fmt::format("column '{}' appears twice; expected it once", cell.text));
    order.push_back(&*field);
  }
  for (const RowField& field : fields) {
    if (std::find(order.begin(), order.end(), &field) != order.end()) continue;
    if (columns == Columns::kSome && field.name != "scenario" && field.name != "kernel" &&
        field.name != "outcome")
      continue;
    place.column = static_cast<int>(line.size()) + 1;
    throw InputError(
        place, fmt::format("column '{}' is missing; expected the columns {}", field.name, known_columns()));
  }
  return order;
}

template <class T>
T number(const Cell& cell, const RowField& field, SourcePlace place, const char* expected) {
  T value{};
  const char* end = cell.text.data() + cell.text.size();
  const auto [stop, error] = std::from_chars(cell.text.data(), end, value);
  // Of "nan" and "inf" only infinities are ever written; NaN is the empty cell.
  if (error == std::errc() && stop == end && value == value) return value;
  place.column = cell.column;
  const bool too_big = error == std::errc::result_out_of_range;
  throw InputError(place, fmt::format("{} {} in column '{}'; expected {}, or nothing when it is missing",
                                      quoted_excerpt(cell.text), too_big ? "is out of range" : "is no number",
                                      field.name, expected));
}

void store(Row& row, const Cell& cell, const RowField& field, const SourcePlace& place) {
  if (auto text = std::get_if<std::string Row::*>(&field.member)) {
    row.** text = unguard_formula(cell.text);
  } else if (cell.text.empty()) {
    return;  // Row() holds the missing value
  } else if (auto integer = std::get_if<int64_t Row::*>(&field.member)) {
    row.** integer = number<int64_t>(cell, field, place, "a whole number");
  } else {
    row.*std::get<double Row::*>(field.member) = number<double>(cell, field, place, "a number or inf");
  }
}

// LineReader hands out C strings, so a zero byte would silently cut its line.
void reject_zero_bytes(std::string_view text, const std::string& file) {
  const size_t zero = text.find('\0');
  if (zero == std::string_view::npos) return;
  const size_t newline = text.rfind('\n', zero);
  const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
  const auto line = std::count(text.begin(), text.begin() + static_cast<long>(zero), '\n') + 1;
  throw InputError({file, static_cast<int>(line), static_cast<int>(zero - line_start) + 1},
                   "zero byte; expected text (the disk or a crash damaged the file)");
}

}  // namespace

RowsFile parse_rows(std::string_view text, const std::string& file, Columns columns) {
  RowsFile result;
  const size_t last_newline = text.rfind('\n');
  const size_t valid = last_newline == std::string_view::npos ? 0 : last_newline + 1;
  result.truncated_tail = text.substr(valid);
  result.valid_bytes = static_cast<int64_t>(valid);
  if (valid == 0) {
    // Started and killed at once, or not our file at all?
    if (text.size() > csv_header().size() || !csv_header().starts_with(text))
      throw InputError({file, 1, 1},
                       "no line of columns; expected a rows.csv written by assay, which starts with " +
                           csv_header().substr(0, 40) + "...");
    return result;
  }
  text = text.substr(0, valid);
  reject_zero_bytes(text, file);

  io::LineReader lines(file, text.data(), text.data() + text.size());
  std::vector<const RowField*> order;
  try {
    while (const char* line = lines.next_line()) {
      const SourcePlace place{file, static_cast<int>(lines.get_file_line()), 0};
      if (order.empty()) {
        order = read_header(line, place, columns);
        continue;
      }
      const std::vector<Cell> cells = split(line, place);
      if (cells.size() != order.size()) {
        SourcePlace at = place;
        at.column = cells.size() > order.size() ? cells[order.size()].column
                                                : static_cast<int>(std::string_view(line).size()) + 1;
        throw InputError(
            at, fmt::format("{} cells; expected {}, one per column of line 1", cells.size(), order.size()));
      }
      Row row;
      for (size_t i = 0; i < cells.size(); i++)
        if (order[i]) store(row, cells[i], *order[i], place);
      result.rows.push_back(std::move(row));
    }
  } catch (const io::error::line_length_limit_exceeded&) {
    throw InputError({file, static_cast<int>(lines.get_file_line()), 0},
                     "line longer than 16 MiB; expected one row per line");
  }
  return result;
}

RowsFile read_rows(const std::string& path, Columns columns) {
  constexpr int64_t kMaxBytes = int64_t{8} << 30;
  return parse_rows(read_text_file({path}, path, kMaxBytes, "the rows.csv of a results folder"), path,
                    columns);
}

}  // namespace assay
