// SPDX-License-Identifier: Apache-2.0
// Folders in every state a user can bring: fresh, half-written, of another run, in use, impossible.
#include "harness/run/results_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "harness/base/error.hpp"
#include "harness/report/row_reader.hpp"
#include "harness/run/samples.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Folder : public ::testing::Test {
 protected:
  fs::path root = fs::temp_directory_path() / ("assay_folder_test_" + std::to_string(getpid()));
  void SetUp() override { fs::create_directories(root); }
  void TearDown() override { fs::remove_all(root); }
  std::string path(const char* name) { return (root / name).string(); }
  static std::string text_of(const std::string& p) {
    std::ifstream in(p);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

Row row(const std::string& scenario, const std::string& kernel, const std::string& outcome = "passed",
        const std::string& cache = "") {
  Row r;
  r.scenario = scenario;
  r.kernel = kernel;
  r.backend = "cpu";
  r.outcome = outcome;
  r.cache = cache;
  r.op = "paged";
  return r;
}

const nlohmann::json kRun = {{"cases_fingerprint", "1"}, {"kernels", {"a", "b"}}};

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const InputError& e) {
    return e.what();
  }
  return "no InputError";
}

TEST_F(Folder, RowsComeBackAndOnlyTheRestIsLeft) {
  const std::string p = path("run");
  {
    ResultsFolder f = ResultsFolder::create(p, kRun);
    f.append(row("paged batch=1q1s1", "a"));
    f.append(row("paged batch=1q1s1", "b", "passed", "hot"));
    f.append(row("paged batch=1q1s2", "b", "wrong"));
    const std::string written = text_of(p + "/rows.csv");
    EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 4)
        << "rows are on the disk before the folder is closed";
  }
  const ResultsFolder f = ResultsFolder::resume(p, kRun);
  EXPECT_EQ(f.rows().size(), 3u);
  EXPECT_EQ(f.repaired(), "");
  EXPECT_TRUE(f.left("paged batch=1q1s1", "a", "cpu", {}).done);
  EXPECT_FALSE(f.left("paged batch=1q1s3", "a", "cpu", {}).done);
  EXPECT_FALSE(f.left("paged batch=1q1s1", "a", "other", {}).done);
  const auto half = f.left("paged batch=1q1s1", "b", "cpu", {"cold", "hot"});
  EXPECT_FALSE(half.done);
  EXPECT_EQ(half.modes, std::vector<std::string>{"cold"});
  EXPECT_TRUE(f.left("paged batch=1q1s1", "b", "cpu", {"hot"}).done);
  EXPECT_TRUE(f.left("paged batch=1q1s2", "b", "cpu", {"cold", "hot"}).done) << "a failure ends all modes";
}

TEST_F(Folder, TheSameRowTwiceIsABug) {
  ResultsFolder f = ResultsFolder::create(path("run"), kRun);
  f.append(row("paged batch=1q1s1", "a"));
  EXPECT_THROW(f.append(row("paged batch=1q1s1", "a", "wrong")), CheckError);
}

TEST_F(Folder, HalfWrittenLineIsCutOffAndNothingElse) {
  const std::string p = path("run");
  {
    ResultsFolder f = ResultsFolder::create(p, kRun);
    f.append(row("paged batch=1q1s1", "a"));
    f.append(row("paged batch=1q1s2", "a"));
  }
  const std::string whole = text_of(p + "/rows.csv");
  // Killed anywhere inside the last line, its newline included.
  const size_t last_line = whole.rfind('\n', whole.size() - 2) + 1;
  for (size_t cut = last_line + 1; cut < whole.size(); ++cut) {
    fs::resize_file(p + "/rows.csv", cut);
    {
      ResultsFolder f = ResultsFolder::resume(p, kRun);
      ASSERT_EQ(f.rows().size(), 1u) << cut;
      ASSERT_EQ(f.repaired(), whole.substr(last_line, cut - last_line));
      f.append(row("paged batch=1q1s2", "a"));
    }
    ASSERT_EQ(text_of(p + "/rows.csv"), whole) << cut;
  }
}

TEST_F(Folder, RowsThatSayNothingAboutTheirKernelAreTakenBack) {
  const std::string p = path("run");
  Row memory = row("paged batch=1q1s2", "a", "crashed"), assay = row("paged batch=1q1s3", "a", "invalid");
  memory.check = kMemoryCheck, assay.check = kAssayCheck;
  Row first = row("paged batch=1q1s1", "a", "passed", "hot"),
      last = row("paged batch=1q1s4", "a", "passed", "hot");
  first.samples = 1, last.samples = 2;
  {
    ResultsFolder f = ResultsFolder::create(p, kRun);
    f.append(first, {TimedSample(1)});
    f.append(memory);
    f.append(assay);
    f.append(row("paged batch=1q1s5", "a", "crashed"));
    f.append(last, {TimedSample(2), TimedSample(3)});
  }
  ResultsFolder f = ResultsFolder::resume(p, kRun);
  EXPECT_EQ(f.taken_back(), 2);
  EXPECT_EQ(f.rows().size(), 3u);
  EXPECT_FALSE(f.left("paged batch=1q1s2", "a", "cpu", {}).done);
  EXPECT_FALSE(f.left("paged batch=1q1s3", "a", "cpu", {}).done);
  EXPECT_TRUE(f.left("paged batch=1q1s5", "a", "cpu", {}).done) << "a crash of its own stays";
  f.append(row("paged batch=1q1s2", "a"));
  const std::vector<Row> rows = read_rows(p + "/rows.csv").rows;
  ASSERT_EQ(rows.size(), 4u);
  const SamplesFile calls = read_samples(p + "/samples.bin", rows.size());
  check_samples(p + "/samples.bin", rows, calls);
  EXPECT_EQ(calls.of_row[2][1].us, 3) << "samples stay with their rows";
}

TEST_F(Folder, KilledBeforeTheHeaderWasWhole) {
  const std::string p = path("run");
  ResultsFolder::create(p, kRun);
  for (size_t bytes : {0u, 5u}) {
    fs::resize_file(p + "/rows.csv", bytes);
    { ResultsFolder::resume(p, kRun).append(row("paged batch=1q1s1", "a")); }
    EXPECT_EQ(read_rows(p + "/rows.csv").rows.size(), 1u);
  }
  fs::remove(p + "/rows.csv");
  { ResultsFolder::resume(p, kRun).append(row("paged batch=1q1s1", "a")); }
  EXPECT_EQ(read_rows(p + "/rows.csv").rows.size(), 1u);
}

TEST_F(Folder, AnotherRunIsRefusedWithWhatDiffers) {
  { ResultsFolder::create(path("run"), kRun); }
  nlohmann::json other = kRun;
  other["kernels"] = {"a"};
  other["seed"] = 7;
  const std::string e = error_of([&] { ResultsFolder::resume(path("run"), other); });
  EXPECT_THAT(e, HasSubstr("kernels: [\"a\",\"b\"] there, [\"a\"] here"));
  EXPECT_THAT(e, HasSubstr("seed: null there, 7 here"));
  EXPECT_THAT(e, ::testing::Not(HasSubstr("cases_fingerprint")));
}

TEST_F(Folder, UsedAndForeignFoldersAreNotTouched) {
  { ResultsFolder::create(path("run"), kRun); }
  EXPECT_THAT(error_of([&] { ResultsFolder::create(path("run"), kRun); }),
              HasSubstr("continue it with --resume"));
  fs::create_directories(root / "thesis");
  std::ofstream(root / "thesis/chapter1.tex") << "text";
  EXPECT_THAT(error_of([&] { ResultsFolder::create(path("thesis"), kRun); }), HasSubstr("is not empty"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root / "thesis"), {}), 1);
  EXPECT_THAT(error_of([&] { ResultsFolder::resume(path("thesis"), kRun); }), HasSubstr("run.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root / "thesis"), {}), 1);
}

TEST_F(Folder, FilesInTheWayAndImpossiblePlaces) {
  std::ofstream(root / "file") << "x";
  EXPECT_THAT(error_of([&] { ResultsFolder::create(path("file"), kRun); }),
              HasSubstr("choose another with --out"));
  EXPECT_THAT(error_of([&] { ResultsFolder::create(path("file") + "/sub", kRun); }),
              HasSubstr("cannot make"));
  EXPECT_THAT(error_of([&] { ResultsFolder::create("/proc/assay-results", kRun); }),
              HasSubstr("cannot make"));
  EXPECT_THAT(error_of([&] { ResultsFolder::resume(path("nothing"), kRun); }), HasSubstr("--out"));
}

TEST_F(Folder, OneWriterAtATime) {
  const ResultsFolder first = ResultsFolder::create(path("run"), kRun);
  EXPECT_THAT(error_of([&] { ResultsFolder::resume(path("run"), kRun); }),
              HasSubstr("another assay is writing"));
}

TEST_F(Folder, DamagedRunJsonAndRows) {
  const std::string p = path("run");
  { ResultsFolder::create(p, kRun).append(row("paged batch=1q1s1", "a")); }
  std::ofstream(p + "/rows.csv", std::ios::app) << "a,b,c\n";
  EXPECT_THAT(error_of([&] { ResultsFolder::resume(p, kRun); }), HasSubstr("rows.csv:3"));
  std::ofstream(p + "/run.json") << "{\"schema_version\": 1, ";
  EXPECT_THAT(error_of([&] { ResultsFolder::resume(p, kRun); }),
              HasSubstr("run.json:1:23: the text ends inside the JSON"));
  std::ofstream(p + "/run.json") << "{\"schema_version\": 99}";
  EXPECT_THAT(error_of([&] { ResultsFolder::resume(p, kRun); }), HasSubstr("schema_version is 99"));
}

TEST_F(Folder, RunJsonOfTheWrongKindsIsNamed) {
  const std::string p = path("run");
  { ResultsFolder::create(p, kRun); }
  const nlohmann::json good = read_run_json(p);
  for (const char* key : {"identity", "complete", "rows", "rows_fingerprint", "start", "resumed"})
    for (const nlohmann::json& bad :
         {nlohmann::json(nullptr), nlohmann::json(1.5), nlohmann::json(R"([{}])")}) {
      nlohmann::json j = good;
      j[key] = bad;
      if (bad.is_string() && j[key].is_string() &&
          (key == std::string("start") || std::string(key).ends_with("print")))
        continue;
      std::ofstream(p + "/run.json") << j.dump();
      EXPECT_THAT(error_of([&] { ResultsFolder::resume(p, kRun); }),
                  HasSubstr(fmt::format("run.json: field '{}' is", key)));
    }
  std::ofstream(p + "/run.json") << R"({"schema_version": 1, "rows": 1e400})";
  EXPECT_THAT(error_of([&] { ResultsFolder::resume(p, kRun); }),
              HasSubstr("run.json:1:31: the number 1e400"));
}

// Rows are appended in the order of csv_header(): under other columns they would be lies.
TEST_F(Folder, ColumnsInAnotherOrderAreRefused) {
  const std::string p = path("run");
  { ResultsFolder::create(p, kRun).append(row("paged batch=1q1s1", "a")); }
  std::string text = text_of(p + "/rows.csv");
  const size_t o = text.find("o_ratio"), lse = text.find("lse_ratio");
  text.replace(lse, 9, "o_ratio").replace(o, 7, "lse_ratio");
  std::ofstream(p + "/rows.csv") << text;
  EXPECT_THAT(error_of([&] { ResultsFolder::resume(p, kRun); }),
              HasSubstr("rows.csv:1:1: the columns stand"));
}

TEST_F(Folder, RowsThatRunJsonDoesNotKnowAreRefused) {
  const std::string p = path("run");
  {
    ResultsFolder f = ResultsFolder::create(p, kRun);
    f.append(row("paged batch=1q1s1", "a"));
    nlohmann::json run = f.run_json();
    run["rows_fingerprint"] = rows_fingerprint(f.rows());
    f.write_run_json(run);
  }
  { EXPECT_EQ(ResultsFolder::resume(p, kRun).rows().size(), 1u); }
  std::ofstream(p + "/rows.csv") << csv_header() << "\n" << csv_line(row("paged batch=1q1s9", "a")) << "\n";
  EXPECT_THAT(error_of([&] { ResultsFolder::resume(p, kRun); }), HasSubstr("other cases than run.json says"));
}

TEST_F(Folder, DeletedOrMovedWhileItIsWritten) {
  for (const bool moved : {false, true}) {
    const std::string p = path("run");
    ResultsFolder f = ResultsFolder::create(p, kRun);
    f.append(row("paged batch=1q1s1", "a"));
    moved ? fs::rename(p, path("elsewhere")) : void(fs::remove_all(p));
    try {
      f.append(row("paged batch=1q1s2", "a"));
      FAIL();
    } catch (const InfrastructureError& e) {
      EXPECT_THAT(e.what(), HasSubstr("deleted or moved while it was written"));
    }
    EXPECT_EQ(f.rows().size(), 1u) << "what was found before is still there to be shown";
  }
}

// By a kernel that finds the folder, too: cut short, longer, at the same length it is not seen.
TEST_F(Folder, RowsThatSomebodyElseWroteEndTheRun) {
  for (const bool longer : {false, true}) {
    const std::string p = path(longer ? "longer" : "shorter");
    ResultsFolder f = ResultsFolder::create(p, kRun);
    f.append(row("paged batch=1q1s1", "a"));
    const std::string rows = p + "/rows.csv";
    fs::resize_file(rows, longer ? fs::file_size(rows) + 9 : 10);
    try {
      f.append(row("paged batch=1q1s2", "a"));
      FAIL();
    } catch (const InfrastructureError& e) {
      EXPECT_THAT(e.what(), HasSubstr("somebody else wrote there"));
    }
    EXPECT_EQ(f.rows().size(), 1u);
  }
}

Samples calls(std::initializer_list<double> us) {
  Samples all;
  for (const double t : us) {
    all.emplace_back(t);
    all.back().at_s = 0.5 * static_cast<double>(all.size());
  }
  return all;
}

Row timed(const std::string& scenario, int64_t samples, int64_t throttled = -1) {
  Row r = row(scenario, "a", "passed", "hot");
  r.samples = samples;
  r.throttled = throttled;
  return r;
}

TEST_F(Folder, SamplesAreKeptByRow) {
  const std::string p = path("run"), file = p + "/samples.bin";
  Samples second = calls({3.25, 900, 0.1});
  second[1].dropped = true;
  second[2].sm_mhz = 1980;
  {
    ResultsFolder f = ResultsFolder::create(p, kRun);
    f.append(row("paged batch=1q1s1", "a"));
    EXPECT_FALSE(fs::exists(file)) << "nothing was timed yet";
    f.append(timed("paged batch=1q1s2", 2), calls({1, 2}));
    f.append(timed("paged batch=1q1s3", 2, 1), second);
  }
  const std::vector<Row> rows = read_rows(p + "/rows.csv").rows;
  const SamplesFile s = read_samples(file, rows.size());
  EXPECT_EQ(s.valid_bytes, 5 * 24);
  EXPECT_EQ(static_cast<uintmax_t>(s.valid_bytes), fs::file_size(file));
  check_samples(file, rows, s);
  ASSERT_EQ(s.of_row.size(), 3u);
  EXPECT_TRUE(s.of_row[0].empty());
  EXPECT_EQ(s.of_row[1].size(), 2u);
  ASSERT_EQ(s.of_row[2].size(), 3u);
  EXPECT_EQ(s.of_row[2][2].us, 0.1) << "to the bit";
  EXPECT_EQ(s.of_row[2][2].sm_mhz, 1980);
  EXPECT_EQ(s.of_row[2][2].at_s, 1.5);
  EXPECT_TRUE(std::isnan(s.of_row[2][1].sm_mhz));
  EXPECT_TRUE(s.of_row[2][1].dropped);
  EXPECT_FALSE(s.of_row[2][0].dropped);
}

// Killed anywhere: in the samples, or between them and their row.
TEST_F(Folder, SamplesWithoutTheirRowAreCutOff) {
  const std::string p = path("run"), file = p + "/samples.bin";
  {
    ResultsFolder f = ResultsFolder::create(p, kRun);
    f.append(timed("paged batch=1q1s1", 2), calls({1, 2}));
  }
  for (const size_t bytes : {1u, 24u, 47u, 72u}) {
    { std::ofstream(file, std::ios::app) << sample_bytes(1, calls({7, 8, 9})).substr(0, bytes); }
    { EXPECT_EQ(ResultsFolder::resume(p, kRun).rows().size(), 1u); }
    EXPECT_EQ(fs::file_size(file), 48u) << bytes;
  }
  ResultsFolder::resume(p, kRun).append(timed("paged batch=1q1s2", 1), calls({4}));
  const SamplesFile s = read_samples(file, 2);
  EXPECT_EQ(s.of_row[0].size(), 2u);
  ASSERT_EQ(s.of_row[1].size(), 1u);
  EXPECT_EQ(s.of_row[1][0].us, 4);
}

TEST_F(Folder, DamagedSamplesAreNamed) {
  const std::string file = path("samples.bin");
  const auto error = [&](const std::string& bytes, const std::vector<Row>& rows) {
    std::ofstream(file) << bytes;
    return error_of([&] { check_samples(file, rows, read_samples(file, rows.size())); });
  };
  const std::vector<Row> rows = {timed("a", 1), timed("b", 1, 1)};
  Samples two = calls({1, 2});
  two[0].dropped = true;
  EXPECT_EQ(error(sample_bytes(0, calls({1})) + sample_bytes(1, two), rows), "no InputError");
  EXPECT_THAT(error(sample_bytes(1, two) + sample_bytes(0, calls({1})), rows),
              HasSubstr("record 2 is out of order"));
  EXPECT_THAT(error(sample_bytes(0, calls({-1})), rows), HasSubstr("record 0"));
  EXPECT_THAT(error(sample_bytes(0, calls({1})), rows),
              HasSubstr("0 timed calls of row 1 of rows.csv, which says 2"));
}

TEST_F(Folder, PagesHoldTheFailuresAsCommands) {
  ResultsFolder f = ResultsFolder::create(path("run"), kRun);
  f.append(row("paged batch=1q1s1", "a"));
  Row wrong = row("paged batch=1q1s2", "b", "wrong");
  wrong.repeat = "assay check 'paged batch=1q1s2' --kernel b";
  f.append(wrong);
  f.append(row("paged batch=1q1s3", "b", "unsupported"));
  f.write_pages();
  EXPECT_EQ(text_of(path("run/failures.txt")), "assay check 'paged batch=1q1s2' --kernel b\n");
  EXPECT_THAT(text_of(path("run/table.txt")), HasSubstr("1 passed, 1 wrong, 1 unsupported"));
  EXPECT_THAT(text_of(path("run/junit.xml")), HasSubstr("<testsuite"));
  EXPECT_THAT(text_of(path("run/summary.md")), HasSubstr("1 wrong"));
}

}  // namespace
}  // namespace assay
