// SPDX-License-Identifier: Apache-2.0
// What a person at a terminal sees and does: the progress line, Ctrl-C, and a disk that fills up.
#include <poll.h>
#include <pty.h>
#include <signal.h>

#include <chrono>

#include "harness/cli/testing/program.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kShownSuite = "paged h=4/2 d=64 page=16,32 layout=nhd,hnd batch=1q1s[1:100:1]";
constexpr size_t kShownCases = 400;  // about a second: the line is redrawn ten times in it

class Terminal : public Program {
 protected:
  struct Session {
    std::string text;  // all the terminal received
    int code = -1;
  };
  // Runs the program on a terminal of its own; types Ctrl-C once `interrupt_at` has been shown. `pause_ms`:
  // what the fake kernel sleeps in every call.
  Session on_terminal(std::vector<std::string> words, const std::string& interrupt_at = "",
                      const std::string& pause_ms = "") const {
    words.insert(words.begin(), kProgram);
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    winsize size{};
    size.ws_row = 40;
    size.ws_col = 90;
    int master = -1;
    const pid_t pid = forkpty(&master, nullptr, nullptr, &size);
    if (pid == 0) {
      if (!pause_ms.empty()) setenv("ASSAY_FAKE_PAUSE_MS", pause_ms.c_str(), 1);
      execv(argv[0], argv.data());
      _exit(99);
    }
    Session session;
    bool typed = interrupt_at.empty();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (std::chrono::steady_clock::now() < end) {
      pollfd ready{master, POLLIN, 0};
      if (poll(&ready, 1, 1000) <= 0) continue;
      char buffer[4096];
      const ssize_t n = read(master, buffer, sizeof(buffer));
      if (n <= 0) break;  // EIO: the last process on the terminal ended
      session.text.append(buffer, static_cast<size_t>(n));
      if (!typed && session.text.find(interrupt_at) != std::string::npos) {
        typed = true;
        EXPECT_EQ(::write(master, "\x03", 1), 1);
      }
    }
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == 0) {
      kill(pid, std::chrono::steady_clock::now() < end ? 0 : SIGKILL);
      waitpid(pid, &status, 0);
    }
    close(master);
    session.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return session;
  }
  std::vector<std::string> check(const std::string& kernel, const std::string& out,
                                 const std::string& suite = kShownSuite) const {
    return {"check", suite, "--backend", kFake, "--kernel", kernel, "--out", out};
  }
};

TEST_F(Terminal, ProgressIsOneLineThatIsRedrawnAndLeavesNoTrace) {
  const Session s = on_terminal(check("paged_ok_fake", path("run")));
  EXPECT_EQ(s.code, 0) << s.text;
  EXPECT_THAT(s.text,
              ::testing::ContainsRegex(
                  "\r\033\\[K\\[[1-9][0-9]*/400\\] [0-9:]+ left  (building|paged_ok_fake)  paged h=4/2"));
  EXPECT_THAT(s.text, HasSubstr("400 passed"));
  // After the last redraw the line is cleared, and only then comes the table.
  const size_t last = s.text.rfind("/400]"), table = s.text.find("scenario", last);
  ASSERT_NE(last, std::string::npos);
  EXPECT_LT(s.text.find("\r\033[K", last), table);
  // No redrawn line is wider than the terminal.
  for (size_t at = s.text.find("\r\033[K["); at != std::string::npos; at = s.text.find("\r\033[K[", at + 1))
    EXPECT_LT(std::min(s.text.find('\r', at + 1), s.text.find('\n', at)) - at - 4, 90u);
}

TEST_F(Terminal, PlainLinesWhereThereIsNoTerminal) {
  const Output o = run(check("paged_ok_fake", path("run")));
  EXPECT_THAT(o.err, AllOf(HasSubstr("400 cases, 400 rows"), HasSubstr("200/400 rows, 0 failing"),
                           Not(HasSubstr("\r"))));
}

TEST_F(Terminal, ControlCKeepsTheRowsAndSaysHowToGoOn) {
  // A quarter of a minute of cases at least, asleep: the key is typed in time however late a busy machine
  // shows the first rows. The others are computed awake.
  const std::string suite = "paged h=4/2 d=64 page=16,32 layout=nhd,hnd batch=1q1s[1:40:1]";
  constexpr size_t cases = 160;
  const std::string out = path("run");
  const Session s = on_terminal(check("paged_ok_fake", out, suite), " left  ", "100");  // rows are done
  EXPECT_EQ(s.code, 5) << s.text;
  EXPECT_THAT(s.text, HasSubstr("assay run --resume " + out));
  const size_t before = read_rows(out + "/rows.csv").rows.size();
  EXPECT_GE(before, 1u);
  EXPECT_LT(before, cases) << "stopped in the middle, else this test shows nothing";
  for (const Row& row : read_rows(out + "/rows.csv").rows)
    EXPECT_EQ(row.outcome, "passed") << "the case being run when Ctrl-C came is not blamed on its kernel";
  EXPECT_EQ(run({"run", "--resume", out}).code, 0);
  EXPECT_EQ(read_rows(out + "/rows.csv").rows.size(), cases);
}

TEST_F(Terminal, AFullDiskLosesNothingAndTheRunGoesOnLater) {
  // A limit on the size of files stands for the disk. 32 KiB hold run.json, which grows with the paths and
  // kernels it names, and some rows.
  const std::string out = path("run");
  const std::string limited =
      "trap '' XFSZ; ulimit -f {}; " + shell(check("paged_ok_fake", out)) + " --quiet";
  const Output full = run_shell(fmt::format(fmt::runtime(limited), 64));
  EXPECT_EQ(full.code, 6) << full.err;
  EXPECT_THAT(full.err,
              AllOf(HasSubstr("rows.csv: cannot be written: File too large"), HasSubstr("--resume")));
  EXPECT_GT(read_rows(out + "/rows.csv").rows.size(), 10u);
  const Output again = run({"run", "--resume", out});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_rows(out + "/rows.csv").rows.size(), kShownCases);
  EXPECT_EQ(read_run_json(out)["complete"], true);
}

TEST_F(Terminal, AFullDiskAtTheStartLeavesNothingBehind) {
  const std::string out = path("run");
  const Output full =
      run_shell("trap '' XFSZ; ulimit -f 2; " + shell(check("paged_ok_fake", out)) + " --quiet");
  EXPECT_EQ(full.code, 6) << full.err;
  EXPECT_FALSE(std::filesystem::exists(out)) << "the same command can simply be given again";
}

}  // namespace
}  // namespace assay
