// SPDX-License-Identifier: Apache-2.0
// Rows through CSV and JSON and back, every error of the readers with its place, and the committed
// description of the columns.
#include "harness/report/row.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>

#include "harness/report/row_json.hpp"
#include "harness/report/row_reader.hpp"
#include "harness/report/sample_rows.hpp"
#include "harness/report/text.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string file_of(const std::vector<Row>& rows) {
  std::string text = csv_header() + "\n";
  for (const Row& row : rows) text += csv_line(row) + "\n";
  return text;
}

// The cell of one column of csv_line, for rows without commas in texts.
std::string cell_of(const Row& row, std::string_view column) {
  std::string line = csv_line(row) + ",";
  for (const RowField& field : row_fields()) {
    const size_t comma = line.find(',');
    if (field.name == column) return line.substr(0, comma);
    line.erase(0, comma + 1);
  }
  return "no such column";
}

TEST(Row, StartsWithEveryNumberMissing) {
  const Row row;
  EXPECT_EQ(csv_line(row), std::string(row_fields().size() - 1, ','));
  EXPECT_EQ(json_line(row), "{}");
}

TEST(Row, FieldsAreDistinctAndDescribed) {
  std::set<std::string_view> names;
  for (const RowField& field : row_fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_TRUE(field.meaning.ends_with('.')) << field.name;
  }
  // Each member once: filling member i changes cell i and no other.
  for (size_t i = 0; i < row_fields().size(); i++) {
    Row row;
    std::visit(
        [&](auto member) {
          if constexpr (std::is_same_v<decltype(member), std::string Row::*>)
            row.*member = "7";
          else
            row.*member = 7;
        },
        row_fields()[i].member);
    std::string expected(row_fields().size() - 1, ',');
    expected.insert(expected.begin() + static_cast<long>(i), '7');
    EXPECT_EQ(csv_line(row), expected) << row_fields()[i].name;
  }
}

TEST(Row, UnitsAgreeWithNames) {
  for (const RowField& field : row_fields()) {
    if (field.name.ends_with("_us")) {
      EXPECT_EQ(field.unit, "us") << field.name;
    }
    if (field.name.ends_with("_percent")) {
      EXPECT_EQ(field.unit, "%") << field.name;
    }
  }
}

TEST(Row, KeyTellsCasesApart) {
  Row row = sample::row("paged batch=1q1", "k", "passed");
  row.cache = "hot";
  EXPECT_EQ(row.key(), "paged batch=1q1|k|cpu|hot");
}

TEST(CsvLine, QuotesPerRfc4180) {
  Row row;
  row.scenario = "trace(a,b)";
  row.kernel = "say \"hi\"";
  row.backend = " plain ";
  EXPECT_THAT(csv_line(row), ::testing::StartsWith("\"trace(a,b)\",\"say \"\"hi\"\"\", plain ,,"));
}

TEST(CsvLine, IsOneLineOfUtf8WhateverTheReasonHolds) {
  Row row;
  row.reason = std::string("two\nlines\r\n\ttab\0zero", 20) + "\xFF\xC3(\xED\xA0\x80\xC3\xA9\x7F";
  EXPECT_EQ(cell_of(row, "reason"), "two lines   tab zero?\?(???\xC3\xA9 ");
}

TEST(CsvLine, NumbersAreShortestAndExact) {
  Row row;
  auto time = [&](double x) { return row.time_us = x, cell_of(row, "time_us"); };
  EXPECT_EQ(time(0.1), "0.1");
  EXPECT_EQ(time(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(time(1e300), "1e+300");
  EXPECT_EQ(time(5e-324), "5e-324");
  EXPECT_EQ(time(-0.0), "-0");
  EXPECT_EQ(time(kInf), "inf");
  EXPECT_EQ(time(-kInf), "-inf");
  EXPECT_EQ(time(NAN), "");
  row.samples = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(cell_of(row, "samples"), "9223372036854775807");
  row.samples = 0;
  EXPECT_EQ(cell_of(row, "samples"), "0");
}

TEST(RoundTrip, RandomRowsThroughCsvAndJson) {
  std::mt19937_64 g(2);
  std::vector<Row> rows;
  for (int i = 0; i < 500; i++) rows.push_back(sample::random(g));
  const RowsFile file = parse_rows(file_of(rows), "rows.csv");
  ASSERT_EQ(file.rows.size(), rows.size());
  EXPECT_EQ(file.truncated_tail, "");
  EXPECT_EQ(file.valid_bytes, static_cast<int64_t>(file_of(rows).size()));
  for (size_t i = 0; i < rows.size(); i++) {
    EXPECT_TRUE(sample::same(file.rows[i], rows[i])) << csv_line(rows[i]);
    EXPECT_TRUE(sample::same(row_from_json_line(json_line(rows[i])), rows[i])) << json_line(rows[i]);
  }
}

TEST(ReadRows, ColumnsInAnyOrderWindowsLineEndsAndByteOrderMark) {
  std::string header, line;
  for (const RowField& field : row_fields()) {
    header = std::string(field.name) + (header.empty() ? "" : "," + header);
    line = (field.name == "kernel"    ? "\"k\""
            : field.name == "samples" ? "7"
                                      : "") +
           (&field == &row_fields()[0] ? "" : "," + line);
  }
  const RowsFile file = parse_rows("\xEF\xBB\xBF" + header + "\r\n" + line + "\r\n", "rows.csv");
  ASSERT_EQ(file.rows.size(), 1u);
  EXPECT_EQ(file.rows[0].kernel, "k");
  EXPECT_EQ(file.rows[0].samples, 7);
}

TEST(ReadRows, EveryCutOfAFileIsAWholePartAndATail) {
  const std::string text = file_of(sample::run());
  for (size_t n = 0; n < text.size(); n++) {
    const RowsFile file = parse_rows(text.substr(0, n), "rows.csv");
    const size_t whole = text.substr(0, n).rfind('\n') + 1;  // npos + 1 == 0
    EXPECT_EQ(file.valid_bytes, static_cast<int64_t>(whole));
    EXPECT_EQ(file.truncated_tail, text.substr(whole, n - whole));
    const long lines = std::count(text.begin(), text.begin() + static_cast<long>(n), '\n');
    EXPECT_EQ(static_cast<long>(file.rows.size()), std::max(0l, lines - 1)) << n;
  }
}

struct Broken {
  std::string what, text, place, message;
};

std::string read_error(const std::string& text) {
  try {
    parse_rows(text, "rows.csv");
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

TEST(ReadRows, ErrorsNamePlaceAndWhatIsAccepted) {
  const std::string header = csv_header() + "\n", good = csv_line(sample::run()[0]) + "\n";
  const std::string empty(row_fields().size() - 1, ',');
  const size_t samples = [&] {
    size_t i = 0;
    while (row_fields()[i].name != "samples") i++;
    return i;
  }();
  auto with_samples = [&](const std::string& cell) {
    std::string line = empty;
    return line.insert(samples, cell) + "\n";
  };
  std::string unknown = header, twice = header, missing = header;
  unknown.replace(unknown.find("kernel"), 6, "kernal");
  twice.replace(twice.find("kernel"), 6, "scenario");
  missing.replace(missing.find(",kernel"), 7, "");
  const std::string at = fmt::format("rows.csv:3:{}: ", samples + 1);
  const Broken cases[] = {
      {"unknown column", unknown,
       "rows.csv:1:10: ", "unknown column 'kernal'; expected the columns scenario, kernel,"},
      {"repeated column", twice, "rows.csv:1:10: ", "column 'scenario' appears twice; expected it once"},
      {"missing column", missing, fmt::format("rows.csv:1:{}: ", missing.size()),
       "column 'kernel' is missing; expected the columns"},
      {"short line", header + good + "a,b\n",
       "rows.csv:3:4: ", fmt::format("2 cells; expected {}, one per column", row_fields().size())},
      {"empty line", header + "\n" + good, "rows.csv:2:1: ", "1 cells; expected"},
      {"long line", header + good + empty + ",x\n", fmt::format("rows.csv:3:{}: ", empty.size() + 2),
       fmt::format("{} cells; expected {}", row_fields().size() + 1, row_fields().size())},
      {"no number", header + good + with_samples("seven"), at,
       "'seven' is no number in column 'samples'; expected a whole number, or nothing"},
      {"fraction", header + good + with_samples("7.5"), at, "'7.5' is no number in column 'samples'"},
      {"too big", header + good + with_samples("9223372036854775808"), at,
       "is out of range in column 'samples'"},
      {"nan", header + good + empty + "nan\n", fmt::format("rows.csv:3:{}: ", empty.size() + 1),
       "'nan' is no number in column 'case_s'; expected a number or inf"},
      {"blank", header + good + empty + " 1\n", fmt::format("rows.csv:3:{}: ", empty.size() + 1),
       "' 1' is no number"},
      {"open quote", header + good + "\"abc" + empty + "\n",
       "rows.csv:3:1: ", "quoted cell is not closed on its line"},
      {"after quote", header + good + "\"abc\"x" + empty + "\n",
       "rows.csv:3:6: ", "'x' after a closing quote; expected ','"},
      {"inner quote", header + good + "ab\"c" + empty + "\n",
       "rows.csv:3:3: ", "quote inside a cell that does not start with one"},
      {"zero byte", header + good + "ab" + std::string(1, '\0') + empty + "\n",
       "rows.csv:3:3: ", "zero byte"},
      {"another file", "hello", "rows.csv:1:1: ", "no line of columns; expected a rows.csv written by assay"},
  };
  for (const Broken& broken : cases) {
    const std::string error = read_error(broken.text);
    EXPECT_THAT(error, ::testing::StartsWith(broken.place)) << broken.what;
    EXPECT_THAT(error, HasSubstr(broken.message)) << broken.what;
  }
}

TEST(ReadRows, FileThatIsNotThere) {
  try {
    read_rows("no/such/rows.csv");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("no/such/rows.csv: cannot be opened: No such file or directory"));
  }
  EXPECT_THROW(read_rows("."), InputError);
}

TEST(ReadRows, FromDisk) {
  const std::string path = ::testing::TempDir() + "row_test_rows.csv";
  const std::string text = file_of(sample::run());
  std::ofstream(path, std::ios::binary) << text << "half";
  const RowsFile file = read_rows(path);
  std::remove(path.c_str());
  ASSERT_EQ(file.rows.size(), sample::run().size());
  for (size_t i = 0; i < file.rows.size(); i++) EXPECT_TRUE(sample::same(file.rows[i], sample::run()[i]));
  EXPECT_EQ(file.truncated_tail, "half");
  EXPECT_EQ(file.valid_bytes, static_cast<int64_t>(text.size()));
}

TEST(RowJson, OnlyKnownValuesAreWritten) {
  Row row;
  row.kernel = "k\"";
  row.samples = 3;
  row.time_us = 0.1;
  row.o_ratio = kInf;
  row.lse_ratio = -kInf;
  EXPECT_EQ(json_line(row),
            R"({"kernel":"k\"","lse_ratio":"-inf","o_ratio":"inf","samples":3,"time_us":0.1})");
  row = Row();
  row.reason = "bad \xFF byte";
  EXPECT_EQ(json_line(row), "{\"reason\":\"bad \xEF\xBF\xBD byte\"}");
}

TEST(RowJson, ErrorsNameColumnAndWhatIsAccepted) {
  auto error = [](std::string_view text) -> std::string {
    try {
      row_from_json_line(text, {"worker 0", 4, 0});
    } catch (const InputError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("{\"kernel\":"), ::testing::StartsWith("worker 0:4:11: the text ends inside the JSON"));
  EXPECT_THAT(error("[[1]]"), HasSubstr("row is an array; expected an object of columns"));
  EXPECT_THAT(error(R"({"kernal":"x"})"),
              HasSubstr("row: field 'kernal' is unknown; expected scenario, kernel,"));
  EXPECT_THAT(error(R"({"kernel":1})"), HasSubstr("'kernel' is 1; expected a string"));
  EXPECT_THAT(error(R"({"samples":1.5})"), HasSubstr("'samples' is 1.5; expected a whole number"));
  EXPECT_THAT(error(R"({"samples":9223372036854775808})"), HasSubstr("expected a whole number"));
  EXPECT_THAT(error(R"({"time_us":"fast"})"), HasSubstr("'time_us' is 'fast'; expected a number, \"inf\""));
  EXPECT_THAT(error(R"({"time_us":1e999})"), HasSubstr("worker 0:4:12: the number 1e999 is too large"));
  EXPECT_EQ(error(R"({"time_us":1,"samples":null,"kernel":"x"})"), "no error");
}

TEST(Columns, RunJsonGetsEveryColumn) {
  const nlohmann::json columns = columns_json();
  ASSERT_EQ(columns.size(), row_fields().size());
  EXPECT_EQ(columns[0]["name"], "scenario");
  for (size_t i = 0; i < columns.size(); i++)
    EXPECT_EQ(columns[i]["meaning"], std::string(row_fields()[i].meaning));
}

TEST(ReadRows, FilesOfOtherVersionsToLookAt) {
  const std::string text = "kernel,outcome,speed,scenario,time_us\nk,passed,11,paged batch=1q1,2.5\n";
  EXPECT_THROW(parse_rows(text, "rows.csv"), InputError);
  const RowsFile file = parse_rows(text, "rows.csv", Columns::kSome);
  ASSERT_EQ(file.rows.size(), 1u);
  EXPECT_EQ(file.rows[0].kernel, "k");
  EXPECT_EQ(file.rows[0].scenario, "paged batch=1q1");
  EXPECT_EQ(file.rows[0].time_us, 2.5);
  EXPECT_EQ(file.rows[0].samples, -1);
  EXPECT_THROW(parse_rows("kernel,outcome\nk,passed\n", "rows.csv", Columns::kSome), InputError);
}

// Spreadsheets run cells that begin with = + - or @; ours never do, and every text comes back.
TEST(ReadRows, TextsAreNoFormulas) {
  for (const std::string text : {"=1+1", "@x", "+1", "-1", "'=", "''", "'a", "", "'", "=\"q\",x"}) {
    Row row = sample::row("paged batch=1q1", text, "passed", text);
    const std::string line = csv_line(row);
    for (const char* start : {",=", ",+", ",-", ",@", "\"=", "\"@"})
      EXPECT_EQ(line.find(start), std::string::npos) << line;
    const RowsFile file = parse_rows(csv_header() + "\n" + line + "\n", "rows.csv");
    EXPECT_EQ(file.rows.at(0).kernel, text);
    EXPECT_EQ(file.rows.at(0).reason, text);
  }
}

TEST(Columns, CommittedDescriptionIsCurrent) {
  const std::string path = ASSAY_SOURCE_DIR "/harness/report/COLUMNS.md";
  std::ifstream in(path, std::ios::binary);
  const std::string committed{std::istreambuf_iterator<char>(in), {}};
  if (committed == columns_markdown()) return;
  const std::string wanted = ASSAY_BINARY_DIR "/COLUMNS.md";
  std::ofstream(wanted, std::ios::binary) << columns_markdown();
  FAIL() << "harness/report/COLUMNS.md is out of date: copy " << wanted << " over it";
}

TEST(Text, Utf8Length) {
  EXPECT_EQ(utf8_length(""), 0u);
  EXPECT_EQ(utf8_length("a"), 1u);
  EXPECT_EQ(utf8_length("\xC3\xA9z"), 2u);
  EXPECT_EQ(utf8_length("\xE2\x82\xAC"), 3u);
  EXPECT_EQ(utf8_length("\xF0\x9F\x98\x80"), 4u);
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xC3("})
    EXPECT_EQ(utf8_length(bad), 0u) << bad;
}

}  // namespace
}  // namespace assay
