// SPDX-License-Identifier: Apache-2.0
// Where the program writes: samples beside the rows, pipes in the place of files, folders that go away, disks
// that are full, rows of another run.
#include <sys/stat.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "harness/cli/testing/program.hpp"
#include "harness/measure/measure.hpp"
#include "harness/run/samples.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class OutputTest : public Program {
 protected:
  const std::vector<std::string> kBench = {"bench",         kLine,  "--kernel", "paged_naive_cpu",
                                           "--backend",     "cpu",  "--cache",  "both",
                                           "--max-seconds", "0.02", "--noise",  "1000"};
  Output bench(const std::vector<std::string>& more) const {
    std::vector<std::string> words = kBench;
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

// What a row says of its times is a function of the samples beside it, to the bit; in Python as well. The
// interval takes in what runs differ by, besides.
TEST_F(OutputTest, RowsCanBeComputedAgainFromTheirSamples) {
  const Output o = bench({"--out", path("out")});
  ASSERT_EQ(o.code, 0) << o.err;
  const std::vector<Row> rows = read_rows(path("out/rows.csv")).rows;
  ASSERT_EQ(rows.size(), 2u);
  const SamplesFile file = read_samples(path("out/samples.bin"), rows.size());
  check_samples("samples", rows, file);
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_GE(rows[i].samples, 1);
    std::vector<double> kept;
    double last = 0;
    for (const TimedSample& s : file.of_row[i]) {
      if (!s.dropped) kept.push_back(s.us);
      EXPECT_GE(s.at_s, last);
      last = s.at_s;
    }
    const Timing t = summarize(kept);
    EXPECT_EQ(t.median_us, rows[i].time_us);
    EXPECT_EQ(t.q1_us, rows[i].time_q1_us);
    EXPECT_EQ(t.q3_us, rows[i].time_q3_us);
    if (rows[i].samples >= 6) {
      EXPECT_GE(t.low_us, rows[i].time_low_us);
      EXPECT_LE(t.high_us, rows[i].time_high_us);
    }
  }
  const std::string script = std::string(ASSAY_SOURCE_DIR) + "/scripts/reporting/samples.py";
  if (run_shell("/usr/bin/python3 -c 'import numpy, pandas'").code != 0)
    GTEST_SKIP() << "no numpy and pandas";
  const Output python = run_shell("/usr/bin/python3 " + shell_quote(script) + " " + shell_quote(path("out")));
  EXPECT_EQ(python.code, 0) << python.err;
  EXPECT_THAT(python.out, HasSubstr("2 timed rows agree with their samples"));
  std::filesystem::resize_file(path("out/samples.bin"),
                               std::filesystem::file_size(path("out/samples.bin")) - 24);
  EXPECT_EQ(run_shell("/usr/bin/python3 " + shell_quote(script) + " " + shell_quote(path("out"))).code, 1);
}

// Of 16 bits the ratio is the output's own rounding; without it no more is left than the same kernel errs by
// before it, which its results in fp32 show.
TEST_F(OutputTest, RowsHaveTheRatioBeforeRounding) {
  const auto row_of = [&](const std::string& format) {
    const std::string line = "paged h=4/2 d=64 page=16 batch=2q3s200 seed=3 out=" + format;
    const Output o =
        run({"check", line, "--kernel", "paged_naive_cpu", "--backend", "cpu", "--out", path(format)});
    EXPECT_EQ(o.code, 0) << o.err;
    return read_rows(path(format + "/rows.csv")).rows.at(0);
  };
  const Row rounded = row_of("bf16"), whole = row_of("fp32");
  EXPECT_GT(rounded.o_ratio, 0.5);
  EXPECT_LE(rounded.o_ratio_unrounded, whole.o_ratio);
  EXPECT_LE(rounded.o_median_unrounded, rounded.o_ratio_unrounded);
  EXPECT_LT(whole.o_ratio, 0.5);
  EXPECT_GT(whole.o_ratio_unrounded, 0.5 * whole.o_ratio);
  EXPECT_LE(whole.o_ratio_unrounded, whole.o_ratio);
  EXPECT_GT(whole.o_median_unrounded, 0);
  EXPECT_LT(whole.o_median_unrounded, whole.o_ratio_unrounded);
  // Of the same bounds, and the same is most of them.
  EXPECT_EQ(rounded.o_mostly, whole.o_mostly);
  EXPECT_NE(whole.o_mostly, "");
  EXPECT_NE(whole.lse_mostly, "");
}

// What a row says is what everybody hears who asks: of kernels that declare much, little and nothing.
TEST_F(OutputTest, RowsStateWhatTheyWereJudgedBy) {
  const std::string line = "paged h=4/2 d=64 page=16 batch=2q3s200 seed=3";
  const Output judged = run({"check", line, "--backend", "cpu", "--out", path("out")});
  EXPECT_EQ(judged.code, 0) << judged.err;
  const Output asked = run({"kernels", "--arithmetic", line, "--backend", "cpu", "--json"});
  EXPECT_EQ(asked.code, 0) << asked.err;
  std::map<std::string, std::string> heard;
  const nlohmann::json answer = nlohmann::json::parse(asked.out);
  for (const auto& kernel : answer.at(0).at("kernels"))
    if (kernel.contains("declaration")) heard[kernel["kernel"]] = kernel["declaration"];
  std::set<std::string> different;
  for (const Row& row : read_rows(path("out/rows.csv")).rows) {
    if (row.outcome != "passed") continue;
    EXPECT_EQ(row.declaration, heard[row.kernel]) << row.kernel;
    EXPECT_NE(row.declaration, "") << row.kernel;
    different.insert(row.declaration);
  }
  EXPECT_GT(different.size(), 1u);
}

TEST_F(OutputTest, JUnitGoesThroughAPipe) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::string xml;
  std::thread reader([&] { xml = read_text(path("pipe")); });
  const Output o =
      run({"check", kLine, "--kernel", "paged_naive_cpu", "--backend", "cpu", "--junit", path("pipe")});
  reader.join();
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(xml, AllOf(HasSubstr("<?xml"), HasSubstr("</testsuites>")));
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
}

TEST_F(OutputTest, JUnitOnStdoutStandsBesideTheTable) {
  const Output o =
      run({"check", kLine, "--kernel", "paged_naive_cpu", "--backend", "cpu", "--junit", "/dev/stdout"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("<?xml"), HasSubstr("</testsuites>"), HasSubstr("1 passed")));
}

TEST_F(OutputTest, AFullDiskBehindStdoutIsNoSuccess) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"check", kLine, "--kernel", "paged_naive_cpu", "--backend", "cpu"},
        {"list", kLine}}) {
    const int status = std::system((shell(words) + " >/dev/full 2>" + shell_quote(path("stderr"))).c_str());
    EXPECT_EQ(WEXITSTATUS(status), 6) << words[0];
    EXPECT_THAT(read_text(path("stderr")),
                HasSubstr(words[0] == "list" ? "cannot write the list" : "could not be written"));
  }
}

// The rows found so far are shown, and the run ends at the next row, not at its end.
TEST_F(OutputTest, AFolderDeletedWhileRunningIsFoundAtOnce) {
  const std::string command = shell({"check", "paged h=4/2 d=64 batch=2q1s[16:400:1]", "--kernel",
                                     "paged_naive_cpu", "--backend", "cpu", "--out", path("out")});
  const Output o =
      run_shell("(while ! grep -q passed " + shell_quote(path("out/rows.csv")) +
                " 2>/dev/null; do sleep 0.02; done; rm -rf " + shell_quote(path("out")) + ") & " + command);
  EXPECT_EQ(o.code, 6);
  EXPECT_THAT(o.err, AllOf(HasSubstr("deleted or moved while it was written"), HasSubstr("rows.csv")));
  EXPECT_THAT(o.out, AllOf(HasSubstr("paged_naive_cpu"), HasSubstr(" passed,")));
  EXPECT_THAT(o.out, Not(HasSubstr("385 passed"))) << "found at the end only";
}

TEST_F(OutputTest, RowsOfAnotherRunAreNotResumed) {
  const std::vector<std::string> kernel = {"--kernel", "paged_naive_cpu", "--backend", "cpu"};
  const auto check = [&](std::vector<std::string> words) {
    words.insert(words.end(), kernel.begin(), kernel.end());
    return run(words);
  };
  ASSERT_EQ(check({"check", kLine, "--out", path("one")}).code, 0);
  ASSERT_EQ(check({"check", "paged h=4/2 d=64 batch=1q1s7", "--out", path("two")}).code, 0);
  // As a killed run leaves it: without the fingerprint of its end.
  nlohmann::json run_json = read_run_json(path("one"));
  run_json.erase("rows_fingerprint");
  write("one/run.json", run_json.dump());
  const std::string rows = read_text(path("one/rows.csv"));
  std::filesystem::copy_file(path("two/rows.csv"), path("one/rows.csv"),
                             std::filesystem::copy_options::overwrite_existing);
  const Output o = run({"check", "--resume", path("one")});
  EXPECT_EQ(o.code, 2) << o.out;
  EXPECT_THAT(o.err, AllOf(HasSubstr("rows.csv:2"), HasSubstr("1q1s7"), HasSubstr("no case of this run")));
  std::string other = rows;
  other.replace(other.find("paged_naive_cpu"), 15, "paged_other_cpu");
  write("one/rows.csv", other);
  EXPECT_THAT(run({"check", "--resume", path("one")}).err, HasSubstr("kernel paged_other_cpu"));
  write("one/rows.csv", rows);
  EXPECT_EQ(run({"check", "--resume", path("one")}).code, 0);
}

}  // namespace
}  // namespace assay
