// SPDX-License-Identifier: Apache-2.0
// assay mutants as a user runs it, on the small catalogue of harness/mutants/testing.
#include <nlohmann/json.hpp>

#include "harness/cli/testing/program.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Mutants : public Program {
 protected:
  static std::vector<std::string> words(std::vector<std::string> more) {
    std::vector<std::string> all = {"mutants",     "paged h=4/2 d=64 batch=2q1s[33,50]",
                                    "--catalogue", ASSAY_BINARY_DIR "/testing/libassay_fake_catalogue.so",
                                    "--jobs",      "2",
                                    "--peer-cost", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Output mutants(std::vector<std::string> more) const { return run(words(std::move(more))); }
};

TEST_F(Mutants, GoalsHold) {
  const Output o = mutants({"--filter", "^(halved|lse_off|control|legal|legal_too) ", "--seeds", "2",
                            "--legal", "20", "--json", path("score.json")});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("(i) peers' rules on peers' inputs"));
  EXPECT_THAT(o.out, Not(HasSubstr("Goals missed")));
  const nlohmann::json j = nlohmann::json::parse(read_text(path("score.json")));
  EXPECT_EQ(j["goals"]["hold"], true);
  EXPECT_EQ(j["faults"].size(), 3u);
  EXPECT_THAT(o.out, EndsWith(fmt::format("\nkilled 2 of 2 faults, 0 false alarms in {} legal cases\n",
                                          j["goals"]["legal_cases"].get<int>())));
  EXPECT_THAT(o.err, HasSubstr("legal variants")) << "plain progress";
}

// One score for everything; the hostile kernels come from a library that says what is expected of them.
TEST_F(Mutants, AllIsOneScore) {
  const Output without = mutants({"--all", "--hostile", kFake, "--quiet"});
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.err, HasSubstr("none of its kernels says what is expected"));
  const Output nowhere = mutants({"--all", "--hostile", path("nowhere.so")});
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("build the target assay_hostile"));
}

TEST_F(Mutants, ASurvivorAndAFalseAlarmAreExitOneWithTheirLines) {
  const Output o =
      mutants({"--filter", "^(halved|hidden|not_legal) ", "--seeds", "1", "--legal", "3", "--quiet"});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("hidden (proto:hidden) survives in 1 of 1 trials"), HasSubstr("False alarms"),
                    HasSubstr("not_legal wrong  paged h=4/2 d=64"), HasSubstr("killed 1 of 2 faults, ")));
  EXPECT_THAT(o.err, IsEmpty());
}

TEST_F(Mutants, JsonOnStdoutIsJsonAlone) {
  const Output o =
      mutants({"--filter", "^halved ", "--seeds", "1", "--legal", "0", "--quiet", "--json", "-"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(nlohmann::json::parse(o.out)["goals"]["killed"], 1);
  EXPECT_THAT(o.err, EndsWith("killed 1 of 1 faults, 0 false alarms in 0 legal cases\n"));
}

TEST_F(Mutants, BadInputIsExitTwo) {
  EXPECT_EQ(mutants({"--filter", "nothing_like_it"}).code, 2);
  EXPECT_THAT(mutants({"--filter", "("}).err, HasSubstr("not a regular expression"));
  EXPECT_EQ(mutants({"--seeds", "0"}).code, 2);
  const Output cost = mutants({"--cost", "10"});
  EXPECT_EQ(cost.code, 2);
  EXPECT_THAT(cost.err, HasSubstr("raise --cost"));
  EXPECT_EQ(mutants({"--json", path("no/such/folder.json")}).code, 2);
  const Output missing = run({"mutants", "--catalogue", path("nowhere.so")});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("no such file"));
}

TEST_F(Mutants, WhatWasFoundOutIsNotFoundOutAgain) {
  const std::string journal = path("journal.jsonl");
  const auto again = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--filter", "^halved ", "--seeds", "1",    "--legal",
                                    "0",        "--quiet",  "--out",   journal};
    all.insert(all.end(), more.begin(), more.end());
    return mutants(all);
  };
  const Output first = again({});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(again({}).code, 2) << "there is a file";
  const Output resumed = again({"--resume"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, EndsWith("killed 1 of 1 faults, 0 false alarms in 0 legal cases\n"));
  EXPECT_THAT(again({"--resume", "--cost", "3e6"}).err, HasSubstr("is the journal of"));
  EXPECT_THAT(mutants({"--resume"}).err, HasSubstr("add --out FILE"));
}

TEST_F(Mutants, InterruptedAmongHostileKernelsItEnds) {
  const Output o =
      run_shell("timeout -s INT 4 " +
                shell(words({"--all", "--hostile", ASSAY_BINARY_DIR "/testing/libassay_hostile.so",
                             "--filter", "^halved ", "--seeds", "1", "--legal", "0"})) +
                "; echo code $?");
  EXPECT_THAT(o.err, HasSubstr("stopped by SIGINT among the hostile kernels"));
  EXPECT_THAT(o.out, AllOf(HasSubstr("code 124"), Not(HasSubstr("killed"))));
}

TEST_F(Mutants, InterruptedItSaysSoAndLeavesNoProcess) {
  const Output o = run_shell("timeout -s INT 6 " +
                             shell(words({"--filter", "^hanging ", "--seeds", "1", "--timeout", "60"})) +
                             "; echo code $?");
  EXPECT_THAT(o.err, HasSubstr("stopped by SIGINT"));
  // timeout passes on its own code for a time that ran out.
  EXPECT_THAT(o.out, HasSubstr("code 124"));
  EXPECT_THAT(o.out, Not(HasSubstr("killed")));
}

}  // namespace
}  // namespace assay
