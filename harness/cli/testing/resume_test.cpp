// SPDX-License-Identifier: Apache-2.0
// Runs that end early, gently and not, and what --resume makes of them: every row once, none missing.
#include <signal.h>

#include <chrono>
#include <thread>

#include "harness/cli/testing/program.hpp"
#include "harness/run/testing/process_end.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kSuite = "paged h=4/2 d=64 page=16,32 layout=nhd,hnd batch=1q1s[1:20:1]";
constexpr size_t kCases = 80;

class Resume : public Program {
 protected:
  std::vector<std::string> words(const std::string& out) const {
    return {"check", kSuite, "--backend", kFake,    "--kernel", "paged_ok_fake",
            "--out", out,    "--quiet",   "--jobs", "2"};
  }
  // Starts a run and returns its process.
  pid_t start(std::vector<std::string> args) const {
    args.insert(args.begin(), kProgram);
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      if (!std::freopen(path("o").c_str(), "w", stdout) || !std::freopen(path("e").c_str(), "w", stderr))
        _exit(99);
      execv(argv[0], argv.data());
      _exit(99);
    }
    return pid;
  }
  static size_t lines(const std::string& file) {
    const std::string text = read_text(file);
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  // Waits until rows are there, sends the signal, returns the wait status.
  int interrupt(pid_t pid, const std::string& out, int signal_number, size_t rows) const {
    for (int i = 0; i < 3000 && lines(out + "/rows.csv") < rows + 1; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    kill(pid, signal_number);
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
  }
  void expect_complete(const std::string& out) const {
    const auto rows = by(out, &Row::scenario);  // fails on a row twice
    EXPECT_EQ(rows.size(), kCases);
    for (const auto& [line, row] : rows) EXPECT_EQ(row.outcome, "passed") << line;
    EXPECT_EQ(read_run_json(out)["complete"], true);
    EXPECT_EQ(read_run_json(out)["rows"], kCases);
  }
};

TEST_F(Resume, AfterATermination) {
  const std::string out = path("run");
  const int status = interrupt(start(words(out)), out, SIGTERM, 5);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 5) << read_text(path("e"));
  EXPECT_THAT(read_text(path("e")), HasSubstr("assay run --resume " + out));
  const size_t before = read_rows(out + "/rows.csv").rows.size();
  EXPECT_GE(before, 5u);
  EXPECT_LT(before, kCases) << "stopped in the middle, else this test shows nothing";
  EXPECT_EQ(read_run_json(out)["complete"], false);
  EXPECT_TRUE(std::filesystem::exists(out + "/junit.xml")) << "what is known was written";

  const Output o = run({"run", "--resume", out});  // nothing else: the folder knows
  EXPECT_EQ(o.code, 0) << o.err << o.out;
  EXPECT_THAT(o.err, HasSubstr(std::to_string(before) + " rows known from before"));
  EXPECT_THAT(o.out, HasSubstr("80 passed"));
  expect_complete(out);
}

TEST_F(Resume, AHangUpThatWasIgnoredAtTheStartStaysIgnored) {
  const std::string out = path("run");
  const auto usual = signal(SIGHUP, SIG_IGN);  // what nohup does
  const pid_t pid = start(words(out));
  signal(SIGHUP, usual);
  const int status = interrupt(pid, out, SIGHUP, 5);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << read_text(path("e"));
  expect_complete(out);
}

TEST_F(Resume, AfterTheParentWasKilledAndItsLastLineTorn) {
  const std::string out = path("run");
  const int status = interrupt(start(words(out)), out, SIGKILL, 5);
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::string rows = out + "/rows.csv";
  std::filesystem::resize_file(rows, std::filesystem::file_size(rows) - 7);
  std::vector<std::string> again = words(out);
  again.push_back("--resume");
  const Output o = run(again);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("half-written line; it was cut off"));
  expect_complete(out);
  EXPECT_EQ(run(again).code, 0) << "resuming a finished run changes nothing";
  expect_complete(out);
}

TEST_F(Resume, WorkersDieWithTheirParent) {
  const std::string out = path("run");
  // The worker hangs in a kernel; its pid stands in /proc as a child of the program.
  const pid_t pid = start({"check", kLine, "--backend", kFake, "--kernel", "paged_hang_fake", "--out", out});
  const std::string children = fmt::format("/proc/{}/task/{}/children", pid, pid);
  pid_t worker = 0;
  for (int i = 0; i < 2000 && worker == 0; ++i) {
    std::ifstream list(children);
    for (pid_t child = 0; list >> child;)  // git and its shell are children for a moment too
      if (read_text(fmt::format("/proc/{}/cmdline", child)).find("worker") != std::string::npos)
        worker = child;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_GT(worker, 0);
  // Until it is inside the kernel: before, the closed connection alone would end it.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_TRUE(ends_within(5, worker));
}

TEST_F(Resume, AnotherRunIsRefused) {
  const std::string out = path("run");
  write("mine.suite", "paged h=4/2 d=64 batch=1q1s7\n");
  const std::vector<std::string> first = {"check", path("mine.suite"), "--kernel", "paged_ok_fake"};
  auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = first;
    all.insert(all.end(), more.begin(), more.end());
    return fake(all);
  };
  ASSERT_EQ(with({"--out", out}).code, 0);
  const Output fresh = with({"--out", out});
  EXPECT_EQ(fresh.code, 2);
  EXPECT_THAT(fresh.err, HasSubstr("continue it with --resume"));
  const Output seeded = with({"--resume", out, "--seed", "3"});
  EXPECT_EQ(seeded.code, 2);
  EXPECT_THAT(seeded.err, AllOf(HasSubstr("seed: null there, 3 here"), HasSubstr("cases_fingerprint")));
  const Output kernel = with({"--resume", out, "--kernel", "paged_nan_fake"});
  EXPECT_EQ(kernel.code, 2);
  EXPECT_THAT(kernel.err,
              HasSubstr("kernels: [\"paged_ok_fake\"] there, [\"paged_ok_fake\",\"paged_nan_fake\"] here"));
  write("mine.suite", "paged h=4/2 d=64 batch=1q1s8\n");
  const Output edited = with({"--resume", out});
  EXPECT_EQ(edited.code, 2);
  EXPECT_THAT(edited.err, HasSubstr("cases_fingerprint"));
  EXPECT_EQ(read_rows(out + "/rows.csv").rows.size(), 1u) << "nothing was added";
}

}  // namespace
}  // namespace assay
