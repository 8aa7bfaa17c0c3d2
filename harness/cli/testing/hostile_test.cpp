// SPDX-License-Identifier: Apache-2.0
// Every hostile kernel and library (harness/run/testing/hostile_table.hpp): its own row says what it did, all
// rows that were asked for are there, what runs beside it passes with the figures it has without it, and
// nothing of it outlives the run.
#include <dirent.h>

#include <cmath>
#include <future>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/cli/testing/program.hpp"
#include "harness/run/testing/hostile_table.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kHostile = ASSAY_BINARY_DIR "/testing/libassay_hostile.so";
const std::string kSmall = "paged h=2 d=32 page=8 batch=1q2s13";
constexpr int kParts = 4;              // side by side in ctest
constexpr const char* kTimeout = "2";  // also for what is right, on a busy machine

int living(const std::string& mark) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream name(entry.path() / "comm");
    std::string text;
    if (std::getline(name, text) && text == mark) ++count;
  }
  return count;
}

class Hostile : public Program {
 protected:
  // Where no children of another test are taken for ours.
  std::string mark = "hostile" + std::to_string(getpid() % 100000000);
  void SetUp() override {
    Program::SetUp();
    setenv("ASSAY_HOSTILE_MARK", mark.c_str(), 1);
  }
  void TearDown() override {
    EXPECT_EQ(living(mark), 0) << "processes outlive the run";
    Program::TearDown();
  }
  // The library under a name that makes it misbehave as a whole.
  std::string library(const std::string& deed) const {
    const std::string name = path("libassay_hostile-" + deed + ".so");
    fs::create_symlink(kHostile, name);
    return name;
  }
};

class HostileKernels : public Hostile, public ::testing::WithParamInterface<int> {};

TEST_P(HostileKernels, EachCostsItsOwnRow) {
  std::vector<std::string> words = {"check", kSmall,      "--backend", kHostile,
                                    "--out", path("out"), "--timeout", kTimeout};
  std::vector<hostile::Expected> asked;
  for (size_t i = GetParam(); i < std::size(hostile::kKernels); i += kParts)
    asked.push_back(hostile::kKernels[i]);
  for (const hostile::Expected& e : asked)
    for (const char* kind : {"_hostile", "_beside"}) {
      words.insert(words.end(), {"--kernel", std::string("paged_") + e.name + kind});
    }
  const Output out = run(words);
  EXPECT_EQ(out.code, 1) << out.err;
  std::map<std::string, Row> rows = by(path("out"), &Row::kernel);
  EXPECT_EQ(rows.size(), 2 * asked.size());
  std::set<double> ratios;
  for (const hostile::Expected& e : asked) {
    const Row& row = rows[std::string("paged_") + e.name + "_hostile"];
    EXPECT_EQ(row.outcome, e.outcome) << e.name << ": " << row.reason;
    EXPECT_THAT(row.reason, HasSubstr(e.reason)) << e.name;
    EXPECT_LT(row.reason.size(), 5000u) << e.name;
    const Row& beside = rows[std::string("paged_") + e.name + "_beside"];
    EXPECT_EQ(beside.outcome, "passed") << "beside " << e.name << ": " << beside.reason;
    ratios.insert(beside.lse_ratio);
  }
  EXPECT_EQ(ratios.size(), 1u) << "the arithmetic of a kernel changed beside another";
  EXPECT_THAT(read_text(path("out/run.json")), HasSubstr("\"complete\": true"));
}

INSTANTIATE_TEST_SUITE_P(Table, HostileKernels, ::testing::Range(0, kParts));

// Of a library that tells judges something else the row states that, and not what all others hear.
TEST_F(Hostile, RowsStateWhatJudgesHear) {
  const std::string kernel = "paged_arithmetic_of_judges_hostile";
  const Output judged =
      run({"check", kSmall, "--backend", kHostile, "--kernel", kernel, "--out", path("out")});
  EXPECT_EQ(judged.code, 1) << judged.err;
  const Output asked =
      run({"kernels", "--arithmetic", kSmall, "--backend", kHostile, "--kernel", kernel, "--json"});
  EXPECT_EQ(asked.code, 0) << asked.err;
  const std::vector<Row> rows = read_rows(path("out/rows.csv")).rows;
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_THAT(rows[0].declaration, HasSubstr("q_rounding=0.001953125"));
  std::string heard;
  const nlohmann::json answer = nlohmann::json::parse(asked.out);
  for (const auto& k : answer.at(0).at("kernels"))
    if (k["kernel"] == kernel) heard = k.value("declaration", "nothing");
  EXPECT_NE(heard, "");
  EXPECT_THAT(heard, Not(HasSubstr("q_rounding")));
}

// What is left of one case meets the next one, too.
TEST_F(Hostile, NothingIsLeftForALaterCase) {
  const Output out =
      run({"check", kSmall, "paged h=2 d=32 page=8 batch=1q3s14", "--backend", kHostile, "--out", path("out"),
           "--kernel", "paged_sockets_wait_not_*", "--kernel", "paged_few_processes_*"});
  EXPECT_EQ(out.code, 0) << out.out << out.err;
  const std::vector<Row> rows = read_rows(path("out/rows.csv")).rows;
  EXPECT_EQ(rows.size(), 8u);
  for (const Row& row : rows) EXPECT_EQ(row.outcome, "passed") << row.kernel << ": " << row.reason;
}

// What the system was asked to do when something comes, and comes while the next kernel runs.
TEST_F(Hostile, RequestsThatAreLeftMeetNobody) {
  for (const char* deed : {"ring_reads_later", "signal_when_ready"}) {
    fs::remove_all(path("out"));
    const Output out =
        run({"check", kSmall, "--backend", kHostile, "--out", path("out"), "--kernel",
             std::string("paged_") + deed + "_hostile", "--kernel", "paged_feeds_what_waits_hostile"});
    EXPECT_EQ(out.code, 0) << deed << out.out << out.err;
    for (const Row& row : read_rows(path("out/rows.csv")).rows)
      EXPECT_EQ(row.outcome, "passed") << deed << ", " << row.kernel << ": " << row.reason;
  }
}

// The kernel that another worker has to run, since its neighbour ended the first one, is in that one's list
// alone.
TEST_F(Hostile, AListThatChangesCostsTheKernelThatIsGone) {
  const Output out =
      run({"check", kSmall, "--backend", library("lists_once"), "--out", path("out"), "--kernel",
           "paged_exit_hostile", "--kernel", "paged_exit_beside", "--kernel", "paged_abort_beside"});
  EXPECT_EQ(out.code, 1) << out.err;
  std::map<std::string, Row> rows = by(path("out"), &Row::kernel);
  EXPECT_EQ(rows["paged_exit_beside"].outcome, "crashed");
  EXPECT_THAT(rows["paged_exit_beside"].reason,
              HasSubstr("the library has no kernel paged_exit_beside in this process"));
  EXPECT_EQ(rows["paged_abort_beside"].outcome, "passed");
}

// Beside a library that does not load a name may be that of one of its kernels.
TEST_F(Hostile, ALibraryThatDoesNotLoadHidesNoReason) {
  const Output out = run({"check", kSmall, "--backend", library("open_null"), "--backend", kFake, "--kernel",
                          "paged_ok_fake", "--kernel", "paged_exit_beside", "--out", path("out")});
  EXPECT_EQ(out.code, 1) << out.err;
  std::map<std::string, Row> rows = by(path("out"), &Row::kernel);
  EXPECT_THAT(rows["none"].reason, HasSubstr("does not serve"));
  EXPECT_EQ(rows["paged_ok_fake"].outcome, "passed");
  const Output alone = run({"check", kSmall, "--backend", library("open_throws"), "--backend", kFake,
                            "--kernel", "paged_exit_beside"});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("from open"));
}

// Explain calls kernels in processes of its own: what they do to those around them, and leave, ends there.
TEST_F(Hostile, ExplainIsNotReached) {
  for (const char* deed : {"daemon", "session_then_exit", "kill_group", "kill_parent", "terminate_parent",
                           "stop_parent", "writes_everywhere"}) {
    const Output out = run({"explain", kSmall, "--backend", kHostile, "--kernel",
                            std::string("paged_") + deed + "_hostile", "--timeout", "1.5"});
    EXPECT_TRUE(out.code == 0 || out.code == 1) << deed << ": " << out.code << out.out << out.err;
    EXPECT_EQ(living(mark), 0) << deed;
  }
}

// Ends its worker long after its row is known, in the time of one that does well alone.
TEST_F(Hostile, AThreadThatDiesLaterIsItsKernels) {
  const Output out = run({"check", kSmall, "--backend", kHostile, "--out", path("out"), "--kernel",
                          "paged_thread_dies_late_hostile", "--kernel", "paged_slow_hostile", "--kernel",
                          "paged_slow_beside"});
  EXPECT_EQ(out.code, 1);
  std::map<std::string, Row> rows = by(path("out"), &Row::kernel);
  EXPECT_EQ(rows["paged_thread_dies_late_hostile"].outcome, "crashed");
  EXPECT_THAT(rows["paged_thread_dies_late_hostile"].reason,
              HasSubstr("SIGABRT while running paged_slow_hostile"));
  EXPECT_EQ(rows["paged_slow_hostile"].outcome, "passed");
  EXPECT_EQ(rows["paged_slow_beside"].outcome, "passed");
}

// A library that no worker can load has a row of its own beside those of another.
TEST_F(Hostile, ALibraryThatDoesNotLoadCostsItsRow) {
  const struct {
    const char *deed, *reason;
  } expected[] = {
      {"load_segfault", "SIGSEGV"},          {"load_exit", "exit code 0"},
      {"load_hang", "no sign of life"},      {"load_stops", "no sign of life"},
      {"load_speaks", "protocol"},           {"open_throws", "from open"},
      {"open_hangs", "no sign of life"},     {"open_null", "does not serve"},
      {"count_throws", "from device_count"}, {"odd_names", "the name of kernel 0"},
  };
  // Those that hang cost their time limit and nothing else: they wait beside the others.
  const auto run_one = [&](const std::string& deed) {
    return run_shell(shell({"check", kSmall, "--backend", library(deed), "--backend", kFake, "--kernel",
                            "paged_ok_fake", "--out", path("out-" + deed), "--timeout", "1.5"}),
                     deed);
  };
  std::map<std::string, std::future<Output>> waiting;
  for (const auto& e : expected) {
    const bool hangs = std::string(e.reason) == "no sign of life";
    waiting[e.deed] =
        std::async(hangs ? std::launch::async : std::launch::deferred, run_one, std::string(e.deed));
  }
  for (const auto& e : expected) {
    const Output out = waiting[e.deed].get();
    EXPECT_EQ(out.code, 1) << e.deed << out.err;
    std::map<std::string, Row> rows = by(path(std::string("out-") + e.deed), &Row::kernel);
    ASSERT_EQ(rows.size(), 2u) << e.deed;
    EXPECT_EQ(rows["none"].outcome, "crashed") << e.deed;
    EXPECT_THAT(rows["none"].reason, HasSubstr(e.reason)) << e.deed;
    EXPECT_EQ(rows["paged_ok_fake"].outcome, "passed") << e.deed;
  }
}

// Those that load, with something odd about them: their kernels are judged all the same.
TEST_F(Hostile, ALibraryThatIsOddIsJudged) {
  for (const char* deed : {"load_forks", "info_unended", "count_huge"}) {
    const Output out = run({"check", kSmall, "--backend", library(deed), "--kernel", "paged_exit_beside"});
    EXPECT_EQ(out.code, 0) << deed << out.out << out.err;
  }
}

// Limits that are none are said to be missing; times that are none fail their kernel.
TEST_F(Hostile, NumbersThatAreNone) {
  for (const char* deed :
       {"limits_negative", "limits_nan", "limits_infinite", "limits_crash", "limits_hang"}) {
    const Output out = run({"bench", kSmall, "--backend", library(deed), "--kernel", "paged_exit_beside",
                            "--cache", "hot", "--timeout", "1.5"});
    EXPECT_EQ(out.code, 0) << deed << out.out << out.err;
    EXPECT_THAT(out.out, HasSubstr("not measured")) << deed;
  }
  for (const char* deed : {"times_negative", "times_nan", "times_infinite", "times_zero", "times_tenth",
                           "times_half", "times_more"}) {
    fs::remove_all(path("out"));
    const Output out = run({"bench", kSmall, "--backend", library(deed), "--kernel", "paged_exit_beside",
                            "--cache", "hot", "--out", path("out")});
    EXPECT_EQ(out.code, 1) << deed << out.err;
    std::map<std::string, Row> rows = by(path("out"), &Row::kernel);
    const bool none = rows["paged_exit_beside"].reason.find("is no time") != std::string::npos;
    EXPECT_EQ(rows["paged_exit_beside"].outcome, none ? "crashed" : "implausible") << deed;
    EXPECT_EQ(
        none,
        std::set<std::string>({"times_negative", "times_nan", "times_infinite", "times_zero"}).contains(deed))
        << deed;
  }
}

// Who hurries the clock of the process is slower by it, and nobody else is.
TEST_F(Hostile, AClockOfItsOwnIsNobodyElses) {
  const Output out = run({"bench", kSmall, "--backend", kHostile, "--out", path("out"), "--cache", "hot",
                          "--max-seconds", "0.2", "--noise", "1000", "--kernel", "paged_cheat_stops_beside",
                          "--kernel", "paged_leaves_a_clock_*"});
  EXPECT_EQ(out.code, 1) << out.err;
  std::map<std::string, Row> rows = by(path("out"), &Row::kernel);
  EXPECT_EQ(rows["paged_leaves_a_clock_hostile"].outcome, "implausible");
  EXPECT_EQ(rows["paged_leaves_a_clock_hostile"].check, "clock");
  const Row& beside = rows["paged_leaves_a_clock_beside"];
  EXPECT_EQ(beside.outcome, "passed") << beside.reason;
  EXPECT_LT(beside.time_us, 4 * rows["paged_cheat_stops_beside"].time_us);
}

// Kernels that look fast because they do less when they are timed, or keep what they computed.
TEST_F(Hostile, CheatsAreWrongOrShowTheirTime) {
  std::vector<std::string> words = {
      "bench", kSmall,          "--backend", kHostile,  "--out", path("out"), "--cache",
      "hot",   "--max-seconds", "0.2",       "--noise", "1000",  "--kernel",  "paged_cheat_stops_beside"};
  for (const hostile::Cheat& cheat : hostile::kCheats)
    words.insert(words.end(), {"--kernel", std::string("paged_") + cheat.name + "_hostile"});
  EXPECT_EQ(run(words).code, 1);
  std::map<std::string, Row> rows = by(path("out"), &Row::kernel);
  EXPECT_EQ(rows.size(), std::size(hostile::kCheats) + 1);
  for (const hostile::Cheat& cheat : hostile::kCheats) {
    const Row& row = rows[std::string("paged_") + cheat.name + "_hostile"];
    // A late writer may meet buffers that are gone, which is its end and not another's.
    const bool late = std::string(cheat.name).ends_with("_late") && row.outcome == "crashed";
    const bool shown = cheat.least_us > 0 && row.outcome == "passed";
    EXPECT_TRUE(row.outcome == cheat.outcome || late || shown)
        << cheat.name << ": " << row.outcome << ": " << row.reason;
    EXPECT_EQ(std::isnan(row.time_us), row.outcome != "passed") << cheat.name;
    if (std::isnan(row.time_us)) continue;
    EXPECT_GE(row.time_us, cheat.least_us) << cheat.name;
    EXPECT_GE(row.total_us, std::max(row.time_us, cheat.least_total_us)) << cheat.name;
  }
  const Row& honest = rows["paged_cheat_stops_beside"];
  EXPECT_EQ(honest.outcome, "passed");
  EXPECT_GE(honest.total_us, honest.time_us);
  EXPECT_GE(honest.others_percent, 0);
  EXPECT_GT(honest.load, 0);
  for (const char* cheat : {"knows_q", "knows_pointers", "plan_computes", "knows_one_value", "keeps_output",
                            "knows_turns", "keeps_k", "keeps_v", "looks_at_few"}) {
    const Row& row = rows[std::string("paged_cheat_") + cheat + "_hostile"];
    EXPECT_THAT(row.reason, HasSubstr("other values in the same buffers"))
        << cheat << ": nobody else sees it";
    EXPECT_EQ(row.check, "values");
  }
  // Or it writes to memory that is gone.
  const Row& late = rows["paged_cheat_corrupts_late_hostile"];
  EXPECT_TRUE(late.check == "late" || late.outcome == "crashed") << late.check << ": " << late.reason;
}

// A library that times calls in a row: values are new before each of them all the same, and its times have to
// be times.
TEST_F(Hostile, CallsInARow) {
  const std::vector<std::string> bench = {
      "bench",   kSmall, "--cache", "hot",       "--max-seconds", "0.1",
      "--noise", "1000", "--out",   path("out"), "--kernel",      "paged_cheat_stops_beside"};
  const auto outcome_of = [&](const std::string& deed, const std::vector<std::string>& cheats) {
    fs::remove_all(path("out"));
    std::vector<std::string> words = bench;
    words.insert(words.end(), {"--backend", library(deed)});
    for (const std::string& cheat : cheats) words.insert(words.end(), {"--kernel", cheat});
    run(words);
    return by(path("out"), &Row::kernel);
  };
  const std::vector<std::string> cheats = {"paged_cheat_stops_hostile", "paged_cheat_keeps_output_hostile",
                                           "paged_cheat_knows_one_value_hostile",
                                           "paged_cheat_keeps_v_hostile", "paged_cheat_random_calls_hostile"};
  std::map<std::string, Row> rows = outcome_of("series_right", cheats);
  EXPECT_EQ(rows["paged_cheat_stops_beside"].outcome, "passed") << rows["paged_cheat_stops_beside"].reason;
  EXPECT_GE(rows["paged_cheat_stops_beside"].samples, 16);
  for (const std::string& cheat : cheats) EXPECT_EQ(rows[cheat].outcome, "wrong") << cheat;
  const struct {
    const char *deed, *outcome, *reason;
  } expected[] = {{"series_more", "implausible", "by the host's"},
                  {"series_nan", "crashed", "is no time"},
                  {"series_fails", "crashed", "failed while being timed"}};
  for (const auto& e : expected) {
    const Row row = outcome_of(e.deed, {})["paged_cheat_stops_beside"];
    EXPECT_EQ(row.outcome, e.outcome) << e.deed << ": " << row.reason;
    EXPECT_THAT(row.reason, HasSubstr(e.reason)) << e.deed;
  }
}

// What a call leaves on a stream of its own does the next one's work while caches are flushed.
TEST_F(Hostile, WorkBetweenCalls) {
  const std::string between = library("times_between");
  for (const char* cache : {"cold", "dirty"}) {
    fs::remove_all(path("out"));
    const Output out = run({"bench", kSmall, "--cache", cache, "--max-seconds", "0.1", "--noise", "1000",
                            "--out", path("out"), "--kernel", "paged_exit_beside", "--backend", between});
    EXPECT_EQ(out.code, 1) << out.err;
    const Row row = by(path("out"), &Row::kernel)["paged_exit_beside"];
    EXPECT_EQ(row.outcome, "implausible") << row.reason;
    EXPECT_EQ(row.check, "clock");
    EXPECT_THAT(row.reason,
                HasSubstr("2030 us or more where nothing was left on the device, and the others 30 us"));
  }
}

// Commands that load libraries to measure or to score them do so apart from themselves.
TEST_F(Hostile, CommandsSurviveTheirLibraries) {
  const std::string dies = library("load_segfault");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"calibrate", "--backend", dies, "--out", path("c.json")},
        {"mutants", "--catalogue", dies},
        {"campaign", "--catalogue", dies, "--cases", "1"},
        {"power", "--catalogue", dies, "--quick"},
        {"explain", "--score", "--backend", dies},
        {"explain", kSmall, "--backend", dies, "--kernel", "paged_exit_beside"},
        {"kernels", "--backend", dies},
        {"check", kSmall, "--backend", dies}}) {
    const Output out = run(words);
    EXPECT_EQ(out.code, 6) << words[0] << out.out << out.err;
    EXPECT_THAT(out.err, HasSubstr("SIGSEGV")) << words[0];
  }
  for (const std::string program : {"assay-gbench", "assay-choices paged_exit_beside"}) {
    if (!fs::exists(ASSAY_BINARY_DIR "/" + program.substr(0, program.find(' ')))) continue;  // not built here
    const Output out = run_shell(shell_quote(ASSAY_BINARY_DIR) + "/" + program + " " + shell_quote(kSmall) +
                                 " --backend " + shell_quote(dies));
    EXPECT_EQ(out.code, 6) << program << out.out << out.err;
    EXPECT_THAT(out.err, HasSubstr("SIGSEGV")) << program;
  }
}

// Asking is done in workers too: a kernel that does not survive it has that as its answer.
TEST_F(Hostile, QuestionsCostTheKernelThatIsAsked) {
  const Output out = run({"kernels", "--backend", kHostile, "--why", "--kernel", "*_supports_*", "--op",
                          "paged", "--timeout", "1.5"});
  EXPECT_EQ(out.code, 0) << out.err;
  EXPECT_THAT(out.out, HasSubstr("paged_hang_supports_hostile plain bf16: no answer within"));
  EXPECT_THAT(out.out, HasSubstr("paged_throw_supports_hostile plain bf16: supports threw"));
  EXPECT_THAT(out.out, ::testing::Not(HasSubstr("_beside plain")));
}

}  // namespace
}  // namespace assay
