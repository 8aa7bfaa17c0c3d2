// SPDX-License-Identifier: Apache-2.0
// Folders in every state a user can bring: fresh, half-written, of another run, in use, impossible.
#include "harness/run/results_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "harness/base/error.hpp"
#include "harness/report/row_reader.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Folder : public testing::Test {
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
  EXPECT_THAT(e, testing::Not(HasSubstr("cases_fingerprint")));
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
  EXPECT_THAT(error_of([&] { ResultsFolder::resume(p, kRun); }), HasSubstr("is not a JSON object"));
  std::ofstream(p + "/run.json") << "{\"schema_version\": 99}";
  EXPECT_THAT(error_of([&] { ResultsFolder::resume(p, kRun); }), HasSubstr("schema_version is 99"));
}

TEST_F(Folder, PagesHoldTheFailuresAsCommands) {
  ResultsFolder f = ResultsFolder::create(path("run"), kRun);
  f.append(row("paged batch=1q1s1", "a"));
  f.append(row("paged batch=1q1s2", "b", "wrong"));
  f.append(row("paged batch=1q1s3", "b", "unsupported"));
  f.write_pages();
  EXPECT_EQ(text_of(path("run/failures.txt")), "assay check 'paged batch=1q1s2' --kernel b\n");
  EXPECT_THAT(text_of(path("run/table.txt")), HasSubstr("1 passed, 1 wrong, 1 unsupported"));
  EXPECT_THAT(text_of(path("run/junit.xml")), HasSubstr("<testsuite"));
  EXPECT_THAT(text_of(path("run/summary.md")), HasSubstr("1 wrong"));
}

}  // namespace
}  // namespace assay
