// SPDX-License-Identifier: Apache-2.0
// Readers of request traces: both formats, and every kind of broken row with its place and what was expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "harness/base/input_errors.hpp"
#include "harness/trace/trace.hpp"

namespace assay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kCsvHeader = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

TEST(TraceCsv, ReadsAzureRows) {
  // CRLF, seven decimals, a last line without an end: as the public file has them.
  const auto t = read_trace_csv(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-12-31 23:59:59.9999999,374,44\r\n2024-01-01 "
      "00:00:00.0000001,1,2",
      "t.csv");
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t[0].arrival_s, 0);
  EXPECT_EQ(t[0].input_tokens, 374);
  EXPECT_EQ(t[0].output_tokens, 44);
  EXPECT_NEAR(t[1].arrival_s, 2e-7, 1e-15);
  EXPECT_EQ(t[1].input_tokens, 1);
  EXPECT_EQ(t[1].output_tokens, 2);
  EXPECT_TRUE(t[1].blocks.empty());
}

TEST(TraceCsv, FindsColumnsByNameAndReadsTheZoneOf2024) {
  const auto t = read_trace_csv(
      "id, GeneratedTokens ,TIMESTAMP,ContextTokens\nx,7,2024-05-10 00:00:00.009930+00:00,9\n\n"
      "y,8,2024-05-10 01:00:01.009930+01:00,10\n",
      "t.csv");
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t[0].input_tokens, 9);
  EXPECT_EQ(t[0].output_tokens, 7);
  EXPECT_NEAR(t[1].arrival_s, 1.0, 1e-12);
}

TEST(TraceJson, ReadsMooncakeRows) {
  const auto t = read_trace_jsonl(
      "{\"timestamp\": 500, \"input_length\": 513, \"output_length\": 2, \"hash_ids\": [0, 5]}\n"
      "{\"timestamp\": 3500, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [-3], \"extra\": "
      "null}\n"
      "{\"timestamp\": 3500, \"input_length\": 1, \"output_length\": 1}",
      "t.jsonl");
  ASSERT_EQ(t.size(), 3u);
  EXPECT_EQ(t[0].arrival_s, 0);
  EXPECT_THAT(t[0].blocks, ElementsAre(0, 5));
  EXPECT_DOUBLE_EQ(t[1].arrival_s, 3.0);
  EXPECT_THAT(t[1].blocks, ElementsAre(-3));
  EXPECT_TRUE(t[2].blocks.empty());
}

struct Broken {
  const char* name;
  bool json;
  std::string text;
  int line, column;
  const char* says;
};

std::string csv(const std::string& rows) { return kCsvHeader + rows; }

class BrokenTrace : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenTrace, NamesPlaceAndWhatWasExpected) {
  const Broken& b = GetParam();
  try {
    b.json ? read_trace_jsonl(b.text, "file") : read_trace_csv(b.text, "file");
    FAIL() << "accepted";
  } catch (const InputError& e) {
    EXPECT_EQ(e.place().file, "file");
    EXPECT_EQ(e.place().line, b.line) << e.what();
    EXPECT_EQ(e.place().column, b.column) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(b.says));
    EXPECT_THAT(e.what(), HasSubstr("xpected"));
  }
}

const std::string kGood = "2023-11-16 18:15:46.6805900,374,44\n";
const std::string kGoodJson = R"({"timestamp": 9, "input_length": 5, "output_length": 2, "hash_ids": [1]})"
                              "\n";

INSTANTIATE_TEST_SUITE_P(
    Csv, BrokenTrace,
    ::testing::Values(
        Broken{"Empty", false, "", 1, 1, "empty"}, Broken{"Blank", false, "\n \n", 1, 1, "empty"},
        Broken{"NoRows", false, csv(""), 1, 1, "no rows"},
        Broken{"MissingColumn", false, "TIMESTAMP,ContextTokens\n1,2\n", 1, 1,
               "ContextTokens and GeneratedTokens"},
        Broken{"DoubledColumn", false, "TIMESTAMP,TIMESTAMP,ContextTokens,GeneratedTokens\n", 1, 1,
               "bad header"},
        Broken{"NoHeader", false, kGood, 1, 1, "bad header"},
        Broken{"FewCells", false, csv(kGood + "2023-11-16 18:15:47,9\n" + kGood), 3, 22,
               "2 columns; expected 3"},
        Broken{"ManyCells", false, csv("2023-11-16 18:15:47,9,9,9\n"), 2, 26, "4 columns; expected 3"},
        Broken{"CutShort", false, csv(kGood + "2023-11-16 18:1"), 3, 16, "cut short"},
        Broken{"CutShortCell", false, csv(kGood + "2023-11-16 18:15:48,9,"), 3, 23, "bad GeneratedTokens ''"},
        Broken{"BadTime", false, csv("yesterday,9,9\n"), 2, 1, "bad TIMESTAMP 'yesterday'"},
        Broken{"BadDay", false, csv("2023-02-29 00:00:00,9,9\n"), 2, 1, "bad TIMESTAMP"},
        Broken{"BadHour", false, csv("2023-02-28 24:00:00,9,9\n"), 2, 1, "bad TIMESTAMP"},
        Broken{"TimeTail", false, csv("2023-02-28 23:00:00.5x,9,9\n"), 2, 1, "bad TIMESTAMP"},
        Broken{"Unordered", false, csv(kGood + "2023-11-16 18:15:46.6805899,9,9\n"), 3, 1,
               "order of arrival"},
        Broken{"NotANumber", false, csv(kGood + "2023-11-16 18:15:47,ten,9\n"), 3, 21,
               "bad ContextTokens 'ten'"},
        Broken{"Fraction", false, csv("2023-11-16 18:15:47,9,1.5\n"), 2, 23, "bad GeneratedTokens '1.5'"},
        Broken{"Negative", false, csv("2023-11-16 18:15:47,-4,9\n"), 2, 21, "bad ContextTokens '-4'"},
        Broken{"Zero", false, csv("2023-11-16 18:15:47,0,9\n"), 2, 21, "from 1 to"},
        Broken{"ZeroOutput", false, csv("2023-11-16 18:15:47,9,0\n"), 2, 23, "from 1 to"},
        Broken{"TooLarge", false, csv("2023-11-16 18:15:47,99999999999999999999,9\n"), 2, 21, "from 1 to"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Json, BrokenTrace,
    ::testing::Values(
        Broken{"Empty", true, "", 1, 1, "empty"}, Broken{"Blank", true, "\n\n", 1, 1, "empty"},
        Broken{"NotJson", true, kGoodJson + "timestamp 9\n", 2, 2, "no valid JSON"},
        Broken{"NotAnObject", true, "[1]\n", 1, 1, "not a JSON object"},
        Broken{"CutShort", true, kGoodJson + R"({"timestamp": 10, "input_l)", 2, 27, "cut short"},
        Broken{"CutShortIds", true, kGoodJson + R"({"timestamp": 10, "hash_ids": [1,)", 2, 34, "cut short"},
        Broken{"NoInput", true, R"({"timestamp": 1, "output_length": 2})", 1, 1, "input_length is missing"},
        Broken{"NoTime", true, R"({"input_length": 1, "output_length": 2})", 1, 1, "timestamp is missing"},
        Broken{"TextNumber", true, R"({"timestamp": 1, "input_length": "9", "output_length": 2})", 1, 18,
               "bad input_length '9'"},
        Broken{"Fraction", true, R"({"timestamp": 1, "input_length": 9.5, "output_length": 2})", 1, 18,
               "bad input_length 9.5"},
        Broken{"Zero", true, R"({"timestamp": 1, "input_length": 0, "output_length": 2})", 1, 18,
               "from 1 to"},
        Broken{"ZeroOutput", true, R"({"timestamp": 1, "input_length": 1, "output_length": 0})", 1, 37,
               "from 1 to"},
        Broken{"NegativeTime", true, R"({"timestamp": -1, "input_length": 1, "output_length": 1})", 1, 2,
               "from 0 to"},
        Broken{"HugeNumber", true,
               R"({"timestamp": 18446744073709551615, "input_length": 1, "output_length": 1})", 1, 2,
               "from 0 to"},
        Broken{"HugeDouble", true, R"({"timestamp": 1, "input_length": 1e400, "output_length": 1})", 1, 34,
               "1e400 is too large"},
        Broken{"HugeDoubleElsewhere", true, kGoodJson + R"({"timestamp": 10, "extra": -2e999})", 2, 28,
               "-2e999 is too large"},
        Broken{"Null", true, R"({"timestamp": null, "input_length": 1, "output_length": 1})", 1, 2,
               "bad timestamp null"},
        Broken{"Deep", true,
               R"({"timestamp": 1, "input_length": )" + std::string(2'000'000, '[') +
                   std::string(2'000'000, ']') + R"(, "output_length": 1})",
               1, 18, "bad input_length an array"},
        Broken{"Unordered", true,
               kGoodJson + R"({"timestamp": 8, "input_length": 1, "output_length": 2, "hash_ids": [1]})", 2,
               2, "order of arrival"},
        Broken{"FewIds", true,
               R"({"timestamp": 1, "input_length": 513, "output_length": 2, "hash_ids": [1]})", 1, 59,
               "1 hash_ids for input_length 513; expected 2"},
        Broken{"ManyIds", true,
               R"({"timestamp": 1, "input_length": 512, "output_length": 2, "hash_ids": [1,2]})", 1, 59,
               "expected 1"},
        Broken{"BadId", true,
               R"({"timestamp": 1, "input_length": 600, "output_length": 2, "hash_ids": [1,null]})", 1, 59,
               "id 1 of hash_ids"},
        Broken{"IdsNoArray", true,
               R"({"timestamp": 1, "input_length": 6, "output_length": 2, "hash_ids": {}})", 1, 57, "array"}),
    [](const auto& info) { return info.param.name; });

template <class Read>
std::vector<std::string> mistakes_of(const Read& read) {
  std::vector<std::string> all;
  try {
    read();
  } catch (const InputErrors& errors) {
    for (const InputError& e : errors.all())
      all.push_back(fmt::format("{}:{} {}", e.place().line, e.place().column, e.message().substr(0, 20)));
    EXPECT_EQ(errors.more(), 0u);
  }
  return all;
}

// Rows behind a broken one are held against the last time that could be read.
TEST(BrokenTraces, EveryBadCellAndRow) {
  const std::string table = "bad,x,0\n" + kGood + "2023-11-16 18:15:45,-1,9\n" + kGood + "1,2\n";
  EXPECT_THAT(
      mistakes_of([&] { read_trace_csv(csv(table), "file"); }),
      ElementsAre("2:1 bad TIMESTAMP 'bad';", "2:5 bad ContextTokens 'x", "2:7 bad GeneratedTokens ",
                  "4:21 bad ContextTokens '-", "4:1 TIMESTAMP is before ", "6:4 row with 2 columns; "));
  const std::string lines = R"({"timestamp": 1, "input_length": 0})"
                            "\nno\n" +
                            kGoodJson +
                            R"({"timestamp": 8, "input_length": "x", "output_length": 1, "hash_ids": [1]})"
                            "\n" +
                            kGoodJson;
  EXPECT_THAT(mistakes_of([&] { read_trace_jsonl(lines, "file"); }),
              ElementsAre("1:18 bad input_length 0; ", "1:1 field output_length ", "2:2 no valid JSON here; ",
                          "4:18 bad input_length 'x'", "4:2 timestamp is before "));
}

// In time that grows with the file, not with its square.
TEST(BrokenTraces, ManyAreCounted) {
  std::string rows;
  for (int i = 0; i < 200000; ++i) rows += "x,1,1\n";
  try {
    read_trace_csv(csv(rows), "file");
    FAIL() << "accepted";
  } catch (const InputErrors& e) {
    EXPECT_EQ(e.all().size(), InputErrors::kKept);
    EXPECT_EQ(e.more(), 200000 - InputErrors::kKept);
  }
}

TEST(TraceFile, UnknownExtensionAndMissingFile) {
  EXPECT_THROW(
      {
        try {
          read_trace("trace.parquet");
        } catch (const InputError& e) {
          EXPECT_THAT(e.what(), HasSubstr("*.csv"));
          throw;
        }
      },
      InputError);
  EXPECT_THROW(read_trace("no/such/file.csv"), InputError);
  EXPECT_THROW(read_trace("."), InputError);
  const std::string pipe = ::testing::TempDir() + fmt::format("assay_trace_test_{}.csv", getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  try {
    read_trace(pipe);
    ADD_FAILURE();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("is a pipe, no plain file; expected a trace file"));
  }
  unlink(pipe.c_str());
}

}  // namespace
}  // namespace assay
