// SPDX-License-Identifier: Apache-2.0
// Everything a user can get wrong ends with exit code 2, a message that says what to do, and nothing
// half-done.
#include "harness/cli/testing/program.hpp"

namespace assay {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class BadInput : public Program {
 protected:
  // Exit code 2, nothing on stdout, all words in the message.
  void expect_refused(const Output& o, const std::vector<std::string>& words) {
    EXPECT_EQ(o.code, 2) << o.err << o.out;
    EXPECT_EQ(o.out, "");
    for (const std::string& w : words) EXPECT_THAT(o.err, HasSubstr(w));
  }
};

TEST_F(BadInput, ScenarioLines) {
  expect_refused(run({"check", "paged hh=4/2 batch=1q1s4"}), {"command line:1:7", "hh"});
  expect_refused(run({"check", "prefill page=16 batch=1q4"}), {"command line:1:9", "page"});
  expect_refused(run({"check", "paged h=4/2 layout=mla batch=1q1s4"}), {"mla"});
  expect_refused(run({"check", "paged h=5/2 batch=1q1s4"}), {"5", "2", "multiple"});
  expect_refused(run({"check", "paged batch=1q-1s4"}), {"command line:1:", "-1"});
  expect_refused(run({"check", "paged"}), {"batch="});
  expect_refused(run({"list", "paged h=4/2,5/2,frog batch=1q1s4"}), {"frog"});
  expect_refused(run({"describe", "paged mask=diagonal batch=1q1s4"}), {"diagonal", "causal"});
}

TEST_F(BadInput, SuiteFiles) {
  expect_refused(run({"list", path("missing.suite")}), {"missing.suite"});
  expect_refused(run({"list", "smokey"}), {"smokey"});
  write("bad.suite", "# fine\npaged batch=1q1s4\npaged batch=1q1s8 d=ten\n");
  expect_refused(run({"check", path("bad.suite"), "--out", path("out")}), {"bad.suite:3:", "ten"});
  EXPECT_FALSE(std::filesystem::exists(path("out"))) << "nothing half-done";
}

// The line itself is fine; the file is read when the case is built, so the case becomes an invalid row and
// the others of the sweep still run.
TEST_F(BadInput, BrokenOrMissingTrace) {
  write("t.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,37,4\n2023-11-16 "
        "18:15:50.9951690,many,5\n");
  const Output o = run({"check", "paged h=4/2 d=64 batch=trace(" + path("t.csv") + ",step=0)", kLine,
                        "--kernel", "*naive*", "--out", path("out")});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("t.csv:3"), HasSubstr("many"), HasSubstr("1 passed"), HasSubstr("1 invalid")));
  const Output missing = run({"check", "paged batch=trace(nowhere.csv,step=0)", "--kernel", "*naive*"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.out, HasSubstr("nowhere.csv"));
}

TEST_F(BadInput, Options) {
  expect_refused(run({}), {"subcommand"});
  expect_refused(run({"chek", kLine}), {"chek", "list, describe"});
  expect_refused(run({"check", kLine, "--frob"}), {"no option --frob", "--help"});
  expect_refused(run({"check"}), {"no suite"});
  expect_refused(run({"check", kLine, "--filter", "h=("}), {"--filter", "regular expression"});
  expect_refused(run({"check", kLine, "--shard", "5/4"}), {"5/4", "2/8"});
  expect_refused(run({"check", kLine, "--seed", "-1"}), {"--seed"});
  expect_refused(run({"check", kLine, "--backend", "cup"}), {"cup", "installed are: ", "cpu"});
  expect_refused(run({"check", kLine, "--backend", "./nothing.so"}), {"./nothing.so", "no such file"});
  expect_refused(run({"check", kLine, "--kernel", "nobody*"}), {"nobody*", "paged_naive_cpu"});
  expect_refused(run({"check", kLine, "--kernel", "*naive*", "--kernel", "paged_naiv_cpu"}),
                 {"--kernel paged_naiv_cpu", "paged_naive_cpu"});
  expect_refused(run({"check", "step batch=1q1s9", "--backend", "cpu", "--kernel",
                      "step_aiter_fa_cpu(decod=paged_naive_cpu)"}),
                 {"has no stage decod", "write, split, prefill"});
  expect_refused(run({"check", "step batch=1q1s9", "--backend", "cpu", "--kernel",
                      "step_aiter_fa_cpu(decode=merge_states_cpu)"}),
                 {"stage decode", "merge_states_cpu", "another op"});
  expect_refused(run({"bench", kLine, "--cache", "lukewarm"}), {"lukewarm"});
  expect_refused(run({"bench", kLine, "--min-samples", "9", "--max-samples", "3"}), {"--max-samples 3"});
  expect_refused(run({"check", kLine, "--timeout", "0"}), {"--timeout"});
  expect_refused(run({"check", kLine, "--junit", path("no/such/folder.xml")}), {"folder.xml"});
  expect_refused(run({"kernels", "--op", "pagd"}), {"pagd", "prefill, paged"});
  expect_refused(run({"check", kLine, "--filter", "no such text"}), {"--filter matches none"});
  expect_refused(run({"report", path("nowhere")}), {"nowhere"});
}

TEST_F(BadInput, ResultsFolders) {
  write("file", "x");
  expect_refused(run({"check", kLine, "--out", path("file")}), {"file", "--out"});
  expect_refused(run({"check", kLine, "--out", path("file/sub")}), {"cannot make"});
  expect_refused(run({"check", kLine, "--out", "/proc/assay-out"}), {"/proc/assay-out", "--out"});
  expect_refused(run({"check", kLine, "--resume", path("nowhere")}), {"run.json"});
  expect_refused(run({"check", kLine, "--resume"}), {"--resume DIR"});
  write("occupied", "");
  std::filesystem::create_directories(path("home"));
  write("home/letter.txt", "dear");
  expect_refused(run({"check", kLine, "--out", path("home")}), {"not empty"});
}

// A library that is no backend cannot be worked with: infrastructure, not usage.
TEST_F(BadInput, LibraryThatIsNoBackend) {
  write("libnot.so", "this is no library");
  const Output o = run({"check", kLine, "--backend", path("libnot.so")});
  EXPECT_EQ(o.code, 6);
  EXPECT_THAT(o.err, AllOf(HasSubstr("libnot.so"), HasSubstr("tried twice"), HasSubstr("cannot be loaded")));
}

}  // namespace
}  // namespace assay
