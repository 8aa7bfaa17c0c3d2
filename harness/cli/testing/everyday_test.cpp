// SPDX-License-Identifier: Apache-2.0
// What one does with results every day: repeat a failure, run failures again, compare runs and kernels.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "harness/cli/testing/program.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Everyday : public Program {};

// The command of a row is run by a shell, from the same folder, and comes to the same outcome: with the
// library given by its path, and with graphs, without which this kernel passes.
TEST_F(Everyday, RepeatCommandsRepeat) {
  ASSERT_EQ(fake({"check", kLine, "--graphs", "--kernel", "paged_frozen_fake", "--kernel", "paged_nan_fake",
                  "--out", path("out"), "--quiet"})
                .code,
            1);
  const auto rows = by(path("out"), &Row::kernel);
  for (const char* kernel : {"paged_frozen_fake", "paged_nan_fake"}) {
    const Row& row = rows.at(kernel);
    ASSERT_EQ(row.outcome, "wrong") << row.reason;
    EXPECT_THAT(row.repeat, AllOf(HasSubstr("--graphs"), HasSubstr("--backend " + kFake)));
    const Output again = run_shell(row.repeat + " --quiet --out " + shell_quote(path(kernel)));
    EXPECT_EQ(again.code, 1) << again.err;
    EXPECT_EQ(by(path(kernel), &Row::kernel).at(kernel).reason, row.reason);
    EXPECT_THAT(again.out, HasSubstr("repeat: " + row.repeat)) << "the same again";
    EXPECT_THAT(read_text(path("out/failures.txt")), HasSubstr(row.repeat + "\n"));
  }
  EXPECT_THAT(read_text(path("out/junit.xml")), HasSubstr("--graphs"));
}

// A folder with the program and the suites may lie anywhere: they need no path of the machine it was built
// on.
TEST_F(Everyday, SuitesThatTravelWithTheProgramAreItsOwn) {
  const std::string elsewhere = path("elsewhere/bin");
  std::filesystem::create_directories(elsewhere);
  std::filesystem::create_directories(path("elsewhere/scenarios"));
  std::filesystem::copy_file(kProgram, elsewhere + "/assay");
  write("elsewhere/scenarios/smoke.suite", kLine + "\n");
  const Output listed = run_shell(shell_quote(elsewhere + "/assay") + " list smoke");
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("paged")) << listed.out;
  EXPECT_EQ(std::count(listed.out.begin(), listed.out.end(), '\n'), 1) << listed.out;
}

// Threads that wait for others must not spin beside other work, and must where their times count; what a user
// sets holds. The workers' OpenMP (GCC's) says how long its threads spin.
TEST_F(Everyday, ThreadsOfWorkersSpinOnlyWhereTheyAreTimed) {
  const auto spins = [&](const std::string& environment, std::vector<std::string> words) {
    const std::string out = path(words[0] + std::to_string(environment.size()));
    for (const std::string& word : {kLine, std::string("--quiet"), std::string("--out"), out})
      words.push_back(word);
    words.insert(words.end(), {"--backend", "cpu", "--kernel", "paged_naive_cpu"});
    EXPECT_EQ(run_shell("OMP_DISPLAY_ENV=verbose " + environment + " " + shell(words)).code, 0);
    const std::string log = read_text(out + "/worker.log");
    const size_t at = log.find("GOMP_SPINCOUNT");
    return at == std::string::npos ? std::string() : log.substr(at, log.find('\n', at) - at);
  };
  const std::string checked = spins("", {"check"});
  if (checked.empty()) GTEST_SKIP() << "another OpenMP";
  EXPECT_THAT(checked, HasSubstr("'0'"));
  EXPECT_THAT(spins("OMP_WAIT_POLICY=active", {"check"}), Not(HasSubstr("'0'")));
  EXPECT_THAT(spins("env -u OMP_WAIT_POLICY", {"bench", "--max-seconds", "0.05"}), Not(HasSubstr("'0'")));
}

TEST_F(Everyday, RerunRunsWhatFailedWithTheOptionsOfTheRun) {
  const std::string other = "paged h=4/2 d=64 batch=3q1s40";
  ASSERT_EQ(
      fake({"check", kLine, other, "--graphs", "--seed", "5", "--kernel", "paged_frozen_fake", "--kernel",
            "paged_segfault_fake", "--kernel", "paged_refuse_fake", "--out", path("out"), "--quiet"})
          .code,
      1);
  const Output all = run({"rerun", path("out"), "--out", path("again"), "--quiet"});
  EXPECT_EQ(all.code, 1) << all.err;
  EXPECT_THAT(all.out, HasSubstr("of 4 rows of " + path("out") + ": 0 pass now, 4 as before"));
  std::set<std::string> keys;
  for (const Row& row : read_rows(path("again/rows.csv")).rows) {
    keys.insert(row.kernel + " " + row.scenario);
    EXPECT_THAT(row.repeat, HasSubstr("--graphs")) << "the options of the run";
    EXPECT_THAT(row.scenario, HasSubstr("seed=5"));
  }
  EXPECT_EQ(keys.size(), 4u) << "what failed, and nothing that was refused";
  EXPECT_EQ(read_run_json(path("again"))["complete"], true);
  // A rerun is a run: it can be run again itself, in part.
  const Output crashed =
      run({"rerun", path("again"), "--outcome", "crashed,timed_out", "--filter", "3q1", "--json"});
  EXPECT_EQ(crashed.code, 1) << crashed.err;
  const auto document = nlohmann::json::parse(crashed.out);
  ASSERT_EQ(document["rows"].size(), 1u);
  EXPECT_EQ(document["rows"][0]["kernel"], "paged_segfault_fake");
  EXPECT_EQ(document["tally"]["crashed"], 1);
  EXPECT_EQ(document["exit_code"], 1);
  const Output none = run({"rerun", path("out"), "--outcome", "invalid"});
  EXPECT_EQ(none.code, 0);
  EXPECT_THAT(none.out, HasSubstr("nothing to run again"));
  // Rows that were lost have not passed.
  const std::string rows = read_text(path("again/rows.csv"));
  std::ofstream(path("again/rows.csv")) << rows.substr(0, rows.find('\n') + 1);
  const Output lost = run({"rerun", path("again")});
  EXPECT_EQ(lost.code, 2) << lost.out;
  EXPECT_THAT(lost.err, HasSubstr("has 0 rows, and run.json says 4"));
  const Output bad = run({"rerun", path("out"), "--outcome", "lost"});
  EXPECT_EQ(bad.code, 2);
}

// Right, and its time means little: no failure, but said.
TEST_F(Everyday, TimesThatMeanLittleAreNoisy) {
  const Output o = fake({"bench", kLine, "--kernel", "paged_ok_fake", "--max-seconds", "0.05", "--noise",
                         "0.000000001", "--out", path("n"), "--junit", path("n.xml")});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("0 invalid, 1 noisy"));
  const Row row = read_rows(path("n") + "/rows.csv").rows.at(0);
  EXPECT_EQ(row.outcome, "noisy");
  EXPECT_THAT(row.reason, HasSubstr("too noisy to say how fast"));
  EXPECT_GT(row.time_us, 0);
  EXPECT_THAT(read_text(path("n.xml")), HasSubstr("failures=\"0\""));
}

// Two runs with times of our own making: the second half as fast on one case, wrong on another.
TEST_F(Everyday, CompareSaysWhatItCanAndWhatItCannot) {
  ASSERT_EQ(
      fake({"bench", kLine, "paged h=4/2 d=64 batch=3q1s40", "--kernel", "paged_ok_fake", "--kernel",
            "paged_noisy_fake", "--max-seconds", "0.05", "--noise", "1000", "--out", path("a"), "--quiet"})
          .code,
      0);
  std::filesystem::create_directory(path("b"));
  std::string rows = csv_header() + "\n";
  for (Row row : read_rows(path("a/rows.csv")).rows) {
    if (row.kernel == "paged_noisy_fake" && row.scenario == kLine) {
      row.outcome = "wrong";
      row.reason = "made up";
      row.set_mode("");
      row.time_us = NAN;
    }
    row.time_us *= 2;
    row.time_low_us *= 2;
    row.time_high_us *= 2;
    row.device = "Another CPU";
    rows += csv_line(row) + "\n";
  }
  write("b/rows.csv", rows);
  nlohmann::json facts = read_run_json(path("a"));
  facts["build"]["commit"] = "0123456789abcdef";
  write("b/run.json", facts.dump());
  const Output o = run({"compare", path("a"), path("b")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("not interleaved"), HasSubstr("here"), HasSubstr("Another CPU"),
                    HasSubstr("commit of the program: "), HasSubstr("0123456789ab"), HasSubstr("2.000"),
                    HasSubstr("1 outcome changed"), HasSubstr("passed -> wrong  paged_noisy_fake")));
  const auto document =
      nlohmann::json::parse(run({"compare", path("a"), path("b"), "--json", "--group", "batch"}).out);
  EXPECT_EQ(document["interleaved"], false);
  const auto& one = document["runs"][0];
  ASSERT_EQ(one["rows"].size(), 3u);
  for (const auto& row : one["rows"]) EXPECT_DOUBLE_EQ(row["ratio"].get<double>(), 2);
  ASSERT_EQ(one["groups"].size(), 2u);
  EXPECT_EQ(one["groups"][0]["group"], "batch=2q1s33");
  EXPECT_DOUBLE_EQ(one["groups"][0]["geometric_mean"].get<double>(), 2);
  EXPECT_EQ(one["outcome_changes"].size(), 1u);

  const Output kernels = run({"compare", path("a"), "--kernels", "paged_noisy_fake,*ok*", "--json"});
  EXPECT_EQ(kernels.code, 0) << kernels.err;
  const auto ops = nlohmann::json::parse(kernels.out)["ops"];
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_EQ(ops[0]["baseline"], "paged_noisy_fake");
  EXPECT_EQ(ops[0]["kernels"][0]["rows"].size(), 2u);
  EXPECT_THAT(run({"compare", path("a")}).out,
              HasSubstr("paged, baseline paged_ok_fake, against paged_noisy_fake"));
  EXPECT_THAT(run({"compare", path("a"), path("b"), "--group", "bacth"}).err,
              HasSubstr("did you mean \"batch\""));
  EXPECT_EQ(run({"compare", path("nowhere")}).code, 2);
}

// Nothing but the document on stdout, and all of it.
TEST_F(Everyday, Json) {
  const Output check =
      fake({"check", kLine, "--kernel", "paged_ok_fake", "--kernel", "paged_nan_fake", "--json"});
  EXPECT_EQ(check.code, 1);
  const auto document = nlohmann::json::parse(check.out);
  EXPECT_EQ(document["rows"].size(), 2u);
  EXPECT_EQ(document["rows"][0]["scenario"], kLine);
  EXPECT_EQ(document["tally"]["wrong"], 1);
  EXPECT_TRUE(document["results"].is_null());
  const Output list = run({"list", "paged h=4/2 d=64,128 batch=1q1s7", "--json"});
  std::istringstream lines(list.out);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    EXPECT_THAT(nlohmann::json::parse(line)["scenario"].get<std::string>(), HasSubstr("batch=1q1s7"));
    ++count;
  }
  EXPECT_EQ(count, 2);
  EXPECT_EQ(
      nlohmann::json::parse(run({"list", "paged d=64,128 batch=1q1", "--json", "--count"}).out)["cases"], 2);
}

TEST_F(Everyday, MistypedWordsGetSuggestions) {
  const struct {
    std::vector<std::string> words;
    const char* meant;
  } cases[] = {{{"chek", kLine}, "check"},
               {{"comapre", "a"}, "compare"},
               {{"check", kLine, "--kernal", "x"}, "--kernel"},
               {{"check", kLine, "--jnuit=x.xml"}, "--junit"},
               {{"merge", "a", "--uot", "b"}, "--out"},
               {{"check", kLine, "--backend", "cup"}, "cpu"},
               {{"check", kLine, "--backend", "cpu", "--kernel", "paged_navie_cpu"}, "paged_naive_cpu"},
               {{"check", kLine, "--kernel-lib", "x.so"}, "--backend"},
               {{"explain", kLine, "--library=x.so"}, "--backend"},
               {{"kernels", "--shared-lib", "x.so"}, "--backend"},
               {{"run", kLine, "--output-dir", "x"}, "--out"},
               {{"bench", kLine, "--kernel-name", "x"}, "--kernel"},
               {{"check", kLine, "--num-threads", "2"}, "--jobs"},
               {{"check", "smokee"}, "smoke"},
               {{"check", kLine, "--sort", "time"}, "time_us"},
               {{"kernels", "--op", "pagd"}, "paged"},
               {{"describe", "fields", "windw"}, "window"}};
  for (const auto& c : cases) {
    const Output o = run(c.words);
    EXPECT_EQ(o.code, 2) << c.meant;
    EXPECT_EQ(o.out, "");
    EXPECT_THAT(o.err, HasSubstr(std::string("did you mean \"") + c.meant + "\"?"));
  }
}

TEST_F(Everyday, NumbersThatAreNone) {
  for (const char* option : {"--timeout", "--precision", "--largest", "--max-seconds", "--rows-budget"})
    for (const char* value : {"nan", "inf", "-1", "0", "1e400", "x", ""}) {
      const Output o = run({"bench", kLine, option, value});
      EXPECT_EQ(o.code, 2) << option << " " << value;
      EXPECT_THAT(o.err, HasSubstr(option));
    }
}

TEST_F(Everyday, OneField) {
  const Output o = run({"describe", "fields", "window"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out,
              AllOf(::testing::StartsWith("window"), HasSubstr("default:"), Not(HasSubstr("softcap "))));
}

TEST_F(Everyday, ValuesOfAFieldAreExplained) {
  EXPECT_THAT(
      run({"describe", "fields", "input"}).out,
      AllOf(HasSubstr("steep       the middle third of the keys"), HasSubstr("incidence   known answer")));
  EXPECT_THAT(run({"describe", "fields", "strides"}).out,
              AllOf(HasSubstr("lie transposed"), HasSubstr("with a token_head scale")));
}

// What two commands take by default where they differ, what explain does with a case that is not wrong, where
// a line a row is to be had.
TEST_F(Everyday, HelpSaysWhatDiffersBetweenCommands) {
  EXPECT_THAT(run({"check", "--help"}).out,
              AllOf(HasSubstr("all installed; explain asks cpu"), HasSubstr("rows.csv")));
  EXPECT_THAT(run({"explain", "--help"}).out,
              AllOf(HasSubstr("check asks all installed"), HasSubstr("crashes"), HasSubstr("does not end")));
}

TEST_F(Everyday, HelpShowsOneValuePerKernelOption) {
  EXPECT_THAT(run({"check", "--help"}).out, AllOf(HasSubstr("--kernel GLOB"), Not(HasSubstr("GLOB ..."))));
  const Output o = fake({"check", "--kernel", "paged_ok_fake", kLine, "--quiet"});
  EXPECT_EQ(o.code, 0) << "the word behind the value is a suite: " << o.err;
}

// The script as bash runs it, with the words of a half-typed command line.
TEST_F(Everyday, CompletionInBash) {
  const auto offers = [&](const std::string& typed, const std::vector<std::string>& words) {
    std::string script =
        "eval \"$(" + shell({"completion", "bash"}) + ")\"; COMP_WORDS=(" + shell_quote(kProgram);
    for (const std::string& word : words) script += " " + shell_quote(word);
    script +=
        "); COMP_CWORD=" + std::to_string(words.size()) + "; _assay; printf '%s\\n' \"${COMPREPLY[@]}\"";
    const Output o = run_shell("bash -c " + shell_quote(script));
    EXPECT_EQ(o.code, 0) << typed << o.err;
    return "\n" + o.out;
  };
  EXPECT_EQ(offers("commands", {"re"}), "\nreport\nrerun\n");
  EXPECT_THAT(offers("options", {"check", "--ju"}), HasSubstr("\n--junit\n"));
  EXPECT_EQ(offers("values", {"bench", "--cache", "co"}), "\ncold\n");
  EXPECT_THAT(offers("suites", {"check", "smo"}), HasSubstr("\nsmoke\n"));
  EXPECT_EQ(offers("kernels", {"check", "--backend", kFake, "--kernel", "paged_segf"}),
            "\npaged_segfault_fake\n");
  EXPECT_EQ(offers("a line in quotes", {"check", "'paged h=4/2 wind"}), "\npaged h=4/2 window=\n");
  EXPECT_EQ(offers("fields", {"describe", "fields", "wind"}), "\nwindow\n");
  EXPECT_EQ(offers("names of files", {"rerun", "x"}), "\n\n");
}

}  // namespace
}  // namespace assay
