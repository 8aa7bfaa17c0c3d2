// SPDX-License-Identifier: Apache-2.0
// Cases checked side by side (--jobs): the rows of one after the other, in their order, and nobody is blamed
// for what only happens beside others.
#include <signal.h>

#include <chrono>
#include <thread>

#include "harness/cli/testing/program.hpp"
#include "harness/report/row_json.hpp"
#include "harness/run/testing/process_end.hpp"

namespace assay {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;

const std::string kTwelve = "paged h=4/2 d=64 page=16,32 batch=1q1s[1:6:1]";

class Beside : public Program {
 protected:
  std::vector<Row> rows(const std::string& jobs, const std::vector<std::string>& kernels, int code) const {
    std::vector<std::string> words = {"check", kTwelve, "--backend", kFake,    "--jobs",
                                      jobs,    "--out", path(jobs),  "--quiet"};
    for (const std::string& kernel : kernels) words.insert(words.end(), {"--kernel", kernel});
    const Output o = run(words);
    EXPECT_EQ(o.code, code) << o.out << o.err;
    EXPECT_EQ(read_run_json(path(jobs))["complete"], true);
    return read_rows(path(jobs) + "/rows.csv").rows;
  }
  // Workers of the process with a part of the processors, whoever of its threads started them.
  static std::vector<pid_t> workers_beside(pid_t parent) {
    std::vector<pid_t> workers;
    std::error_code gone;
    for (const auto& thread :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/task", parent), gone)) {
      std::ifstream list(thread.path() / "children");
      for (pid_t child = 0; list >> child;)
        if (read_text(fmt::format("/proc/{}/cmdline", child)).find("--threads") != std::string::npos)
          workers.push_back(child);
    }
    return workers;
  }
};

TEST_F(Beside, RowsAreThoseOfOneAfterTheOther) {
  const std::vector<std::string> kernels = {"paged_ok_fake", "paged_droppage_fake", "paged_segfault_fake",
                                            "paged_refuse_fake"};
  const std::vector<Row> one = rows("1", kernels, 1), three = rows("3", kernels, 1);
  ASSERT_EQ(one.size(), 48u);
  ASSERT_EQ(three.size(), one.size());
  for (size_t i = 0; i < one.size(); i += 4) {  // of one case: which kernel ran again comes last
    std::map<std::string, const Row*> known;
    for (size_t k = i; k < i + 4; ++k) known[one[k].kernel] = &one[k];
    for (size_t k = i; k < i + 4; ++k) {
      nlohmann::json a = json_of(*known[three[k].kernel]), b = json_of(three[k]);
      for (const char* time : {"case_s", "reference_s"}) a.erase(time), b.erase(time);
      EXPECT_EQ(a, b);
    }
  }
}

TEST_F(Beside, WhatEndsBadlyBesideOthersRunsAgainAlone) {
  const std::vector<Row> found = rows("2", {"paged_beside_fake", "paged_ok_fake"}, 0);
  EXPECT_EQ(found.size(), 24u);
  EXPECT_THAT(found, Each(Field(&Row::outcome, "passed")));
}

TEST_F(Beside, WorkersAreThereAtOnceAndDieWithTheirParent) {
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string out = path("run");
    execl(kProgram.c_str(), kProgram.c_str(), "check", kTwelve.c_str(), "--backend", kFake.c_str(),
          "--kernel", "paged_hang_fake", "--jobs", "3", "--quiet", "--no-table", "--out", out.c_str(),
          nullptr);
    _exit(99);
  }
  std::vector<pid_t> workers;
  for (int i = 0; i < 3000 && workers.size() < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    workers = workers_beside(pid);
  }
  EXPECT_EQ(workers.size(), 3u);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  for (const pid_t worker : workers) EXPECT_TRUE(ends_within(10, worker));
}

TEST_F(Beside, FewCasesHaveAllThreads) {
  const Output o = fake({"check", "paged h=4/2 d=64 batch=1q1s[1:7:1]", "--kernel", "paged_beside_fake",
                         "--jobs", "2", "--quiet"});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("7 passed"));
}

TEST_F(Beside, TimesAreNeverTakenBesideOthers) {
  const Output o = fake({"bench", kLine, "--jobs", "2"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("--jobs"));
}

}  // namespace
}  // namespace assay
