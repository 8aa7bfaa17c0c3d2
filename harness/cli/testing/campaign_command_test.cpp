// SPDX-License-Identifier: Apache-2.0
// assay campaign as a user runs it: on the CPU kernels, which are right, and on the small catalogue of
// harness/mutants/testing, two of whose legal variants are not.
#include <nlohmann/json.hpp>

#include "harness/cli/testing/program.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::string kCatalogue = ASSAY_BINARY_DIR "/testing/libassay_fake_catalogue.so";

class CampaignCommand : public Program {
 protected:
  Output campaign(std::vector<std::string> more) const {
    more.insert(more.begin(), {"campaign", "--jobs", "1", "--largest", "3e4"});
    return run(more);
  }
  // The shipped kernels alone.
  Output clean(std::vector<std::string> more) const {
    more.insert(more.end(), {"--per-line", "0", "--catalogue", kCatalogue});
    return campaign(std::move(more));
  }
};

TEST_F(CampaignCommand, RightKernelsAreNotCondemned) {
  const Output o = clean({"--seed", "5", "--cases", "60", "--at-least", "60"});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("paged_naive_cpu"), HasSubstr("Clopper-Pearson"),
                           ContainsRegex("\n0 false alarms in [0-9]+ judged cases\n$")));
  EXPECT_THAT(o.err, HasSubstr("seed 5"));
  const Output few = clean({"--seed", "5", "--cases", "60", "--at-least", "100000", "--quiet"});
  EXPECT_EQ(few.code, 1);
  EXPECT_THAT(few.err, HasSubstr("--at-least 100000 were asked for"));
}

TEST_F(CampaignCommand, AnAlarmIsShownRepeatableAndKeptAsASuite) {
  const Output o = campaign({"--seed", "3", "--cases", "80", "--catalogue", kCatalogue, "--quiet", "--alarms",
                             path("alarms.suite")});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, AllOf(HasSubstr("alarm     paged_not_legal wrong"),
                           HasSubstr("paged_legal_crash crashed"), HasSubstr("repeat: ")));
  // The first command that repeats one does.
  const size_t at = o.err.find("repeat: ", o.err.find("_not_legal wrong"));
  const Output again = run_shell(o.err.substr(at + 8, o.err.find('\n', at) - at - 8));
  EXPECT_EQ(again.code, 1) << again.out << again.err;
  EXPECT_THAT(again.out, HasSubstr("0 passed, 1 wrong"));
  const Output replay =
      campaign({"--replay", path("alarms.suite"), "--catalogue", kCatalogue, "--quiet", "--json"});
  EXPECT_EQ(replay.code, 1);
  const nlohmann::json j = nlohmann::json::parse(replay.out);
  EXPECT_EQ(j["passed"], 0);
  EXPECT_GT(j["alarms"], 3);
  EXPECT_EQ(j["alarm_list"].size(), j["alarms"].get<size_t>());
}

TEST_F(CampaignCommand, AnAlarmIsPrintedOnce) {
  const Output o = campaign(
      {"--seed", "3", "--cases", "80", "--catalogue", kCatalogue, "--quiet", "--out", path("t.jsonl")});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("alarm     paged_not_legal wrong"));
  EXPECT_THAT(o.out, ::testing::Not(HasSubstr("alarm      paged_not_legal wrong")));
  // Who adds up files has seen none of them.
  EXPECT_THAT(run({"campaign", "--sum", path("t.jsonl")}).out, HasSubstr("alarm      paged_not_legal wrong"));
}

TEST_F(CampaignCommand, IllegalLinesOfASuiteAreSaidAndLeftOut) {
  write("some.suite",
        "# alarm: paged_legal: wrong (x)\npaged h=3/2 batch=1q1\n"
        "# alarm: paged_legal: wrong (x)\npaged h=4/2 d=64 batch=2q1s40 seed=1\n"
        "# alarm: paged_legal: wrong (x)\npaged h=4/2 shade=9 batch=1q1\n");
  const Output o = campaign({"--replay", path("some.suite"), "--catalogue", kCatalogue, "--quiet"});
  EXPECT_EQ(o.code, 2) << o.out << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("some.suite:2:"), HasSubstr("some.suite:6:")));
  EXPECT_THAT(o.out, HasSubstr("0 false alarms in 1 judged cases"));
}

TEST_F(CampaignCommand, NearLinesOfASuite) {
  write("near.suite", "# alarm: paged_not_legal: wrong (x)\npaged h=4/2 d=64 batch=2q1s40 seed=1\n");
  const Output o = campaign({"--near", path("near.suite"), "--cases", "60", "--seed", "2", "--per-line", "0",
                             "--catalogue", kCatalogue, "--quiet"});
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_THAT(o.err, HasSubstr("alarm     paged_not_legal wrong"));
  EXPECT_EQ(clean({"--near", path("nowhere.suite"), "--cases", "9"}).code, 2);
}

TEST_F(CampaignCommand, AStoppedOneGoesOn) {
  const std::string out = path("totals.jsonl");
  const std::vector<std::string> words = {"campaign", "--jobs",    "1", "--largest",  "3e4", "--seed",
                                          "8",        "--minutes", "9", "--per-line", "0",   "--catalogue",
                                          kCatalogue, "--out",     out, "--quiet"};
  // Once a chunk is on the disk, however busy the machine is.
  const Output stopped =
      run_shell(shell(words) + " & while [ \"$(cat " + shell_quote(out) +
                " 2>/dev/null | wc -l)\" -lt 2 ]; do sleep 0.05; done; kill -TERM $!; wait $!; echo code $?");
  EXPECT_THAT(stopped.out, HasSubstr("code 5"));
  EXPECT_THAT(stopped.err, HasSubstr("stopped by SIGTERM; the same command with --resume goes on"));
  const Output before = run({"campaign", "--sum", out, "--json"});
  const int64_t judged = nlohmann::json::parse(before.out)["judged"];
  EXPECT_GT(judged, 0);
  const Output more =
      clean({"--resume", "--out", out, "--cases", std::to_string(judged + 50), "--quiet", "--json"});
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_GE(nlohmann::json::parse(more.out)["judged"], judged + 50);
  EXPECT_EQ(run({"campaign", "--sum", out, "--sum", out}).code, 2) << "the same shard twice";
}

TEST_F(CampaignCommand, BadInputIsExitTwo) {
  EXPECT_EQ(clean({"--shard", "3/2"}).code, 2);
  EXPECT_EQ(clean({"--cases", "0"}).code, 2);
  EXPECT_EQ(clean({"--seed", "x"}).code, 2);
  EXPECT_THAT(clean({"--backend", "nowhere"}).err, HasSubstr("neither installed nor a file"));
  EXPECT_THAT(clean({"--resume"}).err, HasSubstr("--out FILE"));
  write("no.suite", "paged batch=1q1\n");
  EXPECT_THAT(clean({"--replay", path("no.suite")}).err, HasSubstr("a line without its kernel"));
  write("is.jsonl", "");
  EXPECT_THAT(clean({"--out", path("is.jsonl")}).err, HasSubstr("is there already"));
  EXPECT_EQ(campaign({"--catalogue", path("nowhere.so")}).code, 2);
}

}  // namespace
}  // namespace assay
