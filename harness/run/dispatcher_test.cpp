// SPDX-License-Identifier: Apache-2.0
// The parent's side with scripted workers: what it makes of every order of messages and deaths.
#include "harness/run/dispatcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "harness/base/error.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Scripted : public ::testing::Test {
 protected:
  fs::path root = fs::temp_directory_path() / ("assay_dispatcher_test_" + std::to_string(getpid()));
  std::FILE* log = std::tmpfile();
  RunOptions options;
  std::vector<Row> rows;
  std::atomic<bool> stop{false};
  void SetUp() override {
    fs::create_directories(root);
    options.timeout_s = 3;
  }
  void TearDown() override {
    fs::remove_all(root);
    std::fclose(log);
  }
  static Ready ready() {
    Ready r;
    r.backend = "b";
    r.device.name = "dev";
    return r;
  }
  // A worker that says ready, then for its n-th start runs the body n (the last one from then on).
  WorkerCommand worker(const std::vector<std::string>& bodies) {
    const std::string script = (root / "worker.sh").string(), count = (root / "starts").string();
    std::ofstream out(script);
    out << "read -r hello <&3; secret=${hello#*secret\\\":\\\"}; secret=${secret%%\\\"*}; lines=0\n"
        << "say() { lines=$((lines + 1)); printf '%s %s %s\\n' \"$secret\" \"$lines\" \"$1\" >&3; }\n"
        << "start() { say "
           "\"{\\\"event\\\":\\\"starting\\\",\\\"kernel\\\":\\\"$1\\\",\\\"stage\\\":\\\"$2\\\",\\\"allow_"
           "s\\\":0}\"; }\n"
        << "row() { say \"{\\\"event\\\":\\\"row\\\",\\\"row\\\":{\\\"scenario\\\":\\\"paged "
           "x\\\",\\\"kernel\\\":\\\"$1\\\","
           "\\\"outcome\\\":\\\"$2\\\",\\\"cache\\\":\\\"$3\\\"},\\\"samples\\\":[],\\\"short_of_memory\\\":$"
           "{4:-false}}\"; }\n"
        << "too_fast() { say \"{\\\"event\\\":\\\"row\\\",\\\"row\\\":{\\\"scenario\\\":\\\"paged "
           "x\\\",\\\"kernel\\\":\\\"$1\\\",\\\"outcome\\\":\\\"implausible\\\",\\\"check\\\":\\\"limits\\\","
           "\\\"cache\\"
           "\":\\\"$2\\\",\\\"launch\\\":\\\"eager\\\",\\\"reason\\\":\\\"fast\\\"},\\\"samples\\\":[],"
           "\\\"short_of_memory\\\":false}\"; }\n"
        << "done_() { say '{\"event\":\"done\"}'; }\n"
        << "lost() { say '{\"event\":\"device_lost\",\"message\":\"sticky\"}'; sleep 300; }\n"
        << "echo x >>" << count << "\nn=$(wc -l <" << count << ")\n"
        << "left() { say '{\"event\":\"left\",\"what\":\"2 threads\"}'; }\n"
        << "spent() { say '{\"event\":\"spent\",\"message\":\"full\"}'; sleep 300; }\n"
        << "say '" << encode_message(WorkerAnswer(Here{kWorkerSchema}), "event").dump() << "'\n"
        << "say '" << encode_message(WorkerAnswer(ready()), "event").dump() << "'\n"
        << "read -r request <&3\n";
    for (size_t i = 0; i < bodies.size(); ++i)
      out << "[ $n " << (i + 1 == bodies.size() ? "-ge " : "-eq ") << i + 1 << " ] && { " << bodies[i]
          << "\n}\n";
    out << "sleep 300 <&3\n";
    return {.argv = {"/bin/sh", script}};
  }
  bool run(Dispatcher& d, const std::vector<std::string>& kernels,
           const std::vector<std::string>& modes = {}) {
    CaseRequest request{"paged x", "place", {}};
    for (const std::string& k : kernels) request.kernels.push_back({k, modes});
    return d.run(
        request, [&](const Row& r, const Samples&) { rows.push_back(r); }, [](const auto&, const auto&) {},
        stop);
  }
  std::vector<std::string> outcomes() const {
    std::vector<std::string> all;
    for (const Row& r : rows)
      all.push_back(r.kernel + ":" + r.outcome + (r.cache.empty() ? "" : ":" + r.cache));
    return all;
  }
  using Texts = std::vector<std::string>;
};

TEST_F(Scripted, RowsArriveInOrder) {
  Dispatcher d(worker({"start '' problem; start a check; row a passed; start b check; row b wrong; done_"}),
               fileno(log), options);
  EXPECT_TRUE(run(d, {"a", "b"}));
  EXPECT_EQ(outcomes(), (Texts{"a:passed", "b:wrong"}));
}

TEST_F(Scripted, DeathInAKernelIsItsRowAndTheOthersGoOn) {
  Dispatcher d(worker({"start a check; row a passed; start b check; kill -SEGV $$",
                       "start b check; echo last words >&2; kill -SEGV $$",
                       "case $request in *name*a*name*c*) start a check; row a again;; esac; start c check; "
                       "row c passed; done_"}),
               fileno(log), options);
  EXPECT_TRUE(run(d, {"a", "b", "c"}));
  EXPECT_EQ(outcomes(), (Texts{"a:passed", "b:crashed", "c:passed"})) << "a is settled: not asked for again";
  EXPECT_EQ(rows[1].reason, "SIGSEGV while running b; it last printed: last words");
  EXPECT_EQ(rows[1].device, "dev");
}

// Nothing of theirs had run: the case is invalid, for all of them at once. Other signals may be a library's.
TEST_F(Scripted, DeathWhileBuildingIsNoKernelsFault) {
  for (const auto& [end, outcome] : {std::pair("kill -KILL $$", "invalid"), {"kill -SEGV $$", "crashed"}}) {
    rows.clear();
    Dispatcher d(worker({std::string("start '' problem; start '' inputs; ") + end}), fileno(log), options);
    EXPECT_TRUE(run(d, {"a", "b"}));
    EXPECT_EQ(outcomes(), (Texts{std::string("a:") + outcome, std::string("b:") + outcome}));
    EXPECT_THAT(rows[0].reason, HasSubstr("while building the case"));
    EXPECT_EQ(rows[0].reason.find("too large for this machine") != std::string::npos,
              std::string(outcome) == "invalid");
  }
}

// The row was said, then freeing its buffers killed the worker: one row, crashed, not two.
TEST_F(Scripted, DeathAfterTheRowReplacesIt) {
  Dispatcher d(worker({"start a check; row a passed; kill -ABRT $$", "start b check; row b passed; done_"}),
               fileno(log), options);
  EXPECT_TRUE(run(d, {"a", "b"}));
  EXPECT_EQ(outcomes(), (Texts{"a:crashed", "b:passed"}));
  EXPECT_EQ(rows[0].reason, "SIGABRT while running a; before that: passed");
}

TEST_F(Scripted, MeasuredModesSurviveALaterDeath) {
  Dispatcher d(worker({"start a check; start a cold; row a passed cold; start a hot; kill -SEGV $$"}),
               fileno(log), options);
  EXPECT_TRUE(run(d, {"a"}, {"cold", "hot"}));
  EXPECT_EQ(outcomes(), (Texts{"a:passed:cold", "a:crashed"}));
  EXPECT_EQ(rows[1].reason, "SIGSEGV while timing a (hot)");
}

TEST_F(Scripted, SilenceIsATimeOut) {
  options.timeout_s = 1.5;  // also for what is right, on a busy machine
  Dispatcher d(worker({"start a check; sleep 300", "start b check; row b passed; done_"}), fileno(log),
               options);
  EXPECT_TRUE(run(d, {"a", "b"}));
  EXPECT_EQ(outcomes(), (Texts{"a:timed_out", "b:passed"}));
  EXPECT_EQ(rows[0].reason, "no result within 1.5 s while running a");
}

TEST_F(Scripted, GarbageAndBugsAreRowsToo) {
  Dispatcher d(worker({"start a check; say 'not json'",
                       "start b check; say '{\"event\":\"failed\",\"message\":\"a bug\"}'",
                       "start c check; row c passed; done_"}),
               fileno(log), options);
  EXPECT_TRUE(run(d, {"a", "b", "c"}));
  EXPECT_EQ(outcomes(), (Texts{"a:crashed", "b:crashed", "c:passed"}));
  EXPECT_THAT(rows[0].reason, HasSubstr("garbled"));
  EXPECT_THAT(rows[1].reason, HasSubstr("assay itself failed while running b: a bug"));
}

TEST_F(Scripted, ALostDeviceIsReplacedAndTheRowStands) {
  Dispatcher d(worker({"start a check; row a crashed; lost", "start b check; row b passed; done_"}),
               fileno(log), options);
  EXPECT_TRUE(run(d, {"a", "b"}));
  EXPECT_EQ(outcomes(), (Texts{"a:crashed", "b:passed"}));
}

TEST_F(Scripted, APassThatLosesTheDeviceIsACrash) {
  Dispatcher d(worker({"start a check; start a hot; row a passed hot; start b check; row b passed; lost",
                       "start b check; row b passed; lost", "start c check; row c wrong; lost",
                       "start d check; row d passed; done_"}),
               fileno(log), options);
  EXPECT_TRUE(run(d, {"a", "b", "c", "d"}, {"hot"}));
  EXPECT_EQ(outcomes(), (Texts{"a:passed:hot", "b:crashed", "c:wrong", "d:passed"}));
  EXPECT_EQ(rows[1].reason,
            "the device could not be used any more while running b: sticky; before that: passed");
}

// Kernels share the process with their worker and can write to its connection: whatever comes costs the
// kernel that runs, nothing else.
TEST_F(Scripted, AMessageThatIsNoneCostsOneRow) {
  const std::map<std::string, std::string> bad = {
      {R"({"event":"starting","kernel":"b","stage":"hot"})", "message starting: field 'allow_s' is missing"},
      {R"({"event":"starting","kernel":"b","stage":"hot","allow_s":"inf"})", "allow_s is inf"},
      {R"({"event":"starting","kernel":7,"stage":"hot","allow_s":0})",
       "field 'kernel' is 7; expected a string"},
      {R"({"event":"row","row":{"kernel":[]},"samples":[]})", "field 'kernel' is an array"},
      {R"({"event":"row","row":{},"samples":[[1]]})",
       "field 'samples.0' is an array; expected an array of time"},
      {R"({"event":"row","samples":[]})", "message row: field 'row' is missing"},
      {R"({"event":"row","row":{"speed":1},"samples":[]})", "field 'speed' is unknown"},
      {R"({"event":"bow"})", "field 'event' is 'bow'; expected one of here, ready"},
      {R"({"event":"done","now":true})", "message done: field 'now' is unknown"},
      {R"([1])", "no message"}};
  for (const auto& [message, reason] : bad) {
    rows.clear();
    fs::remove(root / "starts");
    Dispatcher d(
        worker({"start b check; say '" + message + "'; sleep 300", "start c check; row c passed; done_"}),
        fileno(log), options);
    EXPECT_TRUE(run(d, {"b", "c"}));
    EXPECT_EQ(outcomes(), (Texts{"b:crashed", "c:passed"})) << message;
    EXPECT_THAT(rows[0].reason, HasSubstr("garbled while running b"));
    EXPECT_THAT(rows[0].reason, HasSubstr(reason));
  }
}

// Forged with every field in its place: each wanted kernel still gets exactly its own rows.
TEST_F(Scripted, EveryWantedKernelHasItsRows) {
  const std::map<std::string, std::string> bad = {
      {"done_", "that it was done, without a row for b"},
      {"left", "that something was left, before a row"},
      {"spent", "that it is spent, without a row"},
      {"row c passed", "a row of another kernel, 'c'"},
      {"row b perfect", "a row of outcome 'perfect'"},
      {"row b passed cold", "a row of mode 'cold', which nobody asked for"},
      {"row b passed; row b passed", "a second row"},
      {"start c check", "that the next kernel starts, without a row for this one"},
      {"start a check", "that a kernel starts which is not its turn"},
      {"start '' inputs", "that a kernel starts which is not its turn"},
      {R"(say '{"event":"row","row":{"scenario":"paged y","kernel":"b","outcome":"passed"},"samples":[],"short_of_memory":false}')",
       "a row of another case"},
      {R"(say '{"event":"row","row":{"scenario":"paged x","kernel":"b","outcome":"passed","cache":"hot",)"
       R"("samples":2},"samples":[[1,0,null,false],[1,0,null,true]],"short_of_memory":false}')",
       "a row of 2 samples with 1 of them"}};
  for (const auto& [script, reason] : bad) {
    rows.clear();
    fs::remove(root / "starts");
    Dispatcher d(
        worker({"start b check; " + script + "; sleep 300", "start c check; row c passed hot; done_"}),
        fileno(log), options);
    EXPECT_TRUE(run(d, {"b", "c"}, {"hot"}));
    EXPECT_EQ(outcomes(), (Texts{"b:crashed", "c:passed:hot"})) << script;
    EXPECT_THAT(rows[0].reason, HasSubstr(reason));
  }
}

// What ends beside other kernels is run again alone before anybody is blamed.
TEST_F(Scripted, WhoDoesWellAloneIsNotBlamed) {
  const std::string well =
      "start b check; row b passed; done_; read -r request <&3; start c check; row c passed; done_";
  for (const std::string end : {"kill -KILL $$", "say nonsense; sleep 300", "sleep 300",
                                "say '{\"event\":\"failed\",\"message\":\"a bug\"}'; sleep 300",
                                "row b invalid '' true; sleep 300"}) {
    rows.clear();
    fs::remove(root / "starts");
    Dispatcher d(worker({"start a check; row a passed; start b check; " + end, well}), fileno(log), options);
    EXPECT_TRUE(run(d, {"a", "b", "c"}));
    EXPECT_EQ(outcomes(), (Texts{"a:passed", "b:passed", "c:passed"})) << end;
    EXPECT_EQ(d.unexplained().empty(), end.starts_with("row")) << "want of memory explains itself";
  }
}

TEST_F(Scripted, ALogThatWasFilledIsBegunAnew) {
  Dispatcher d(worker({"start a check; head -c 70000000 /dev/zero; row a passed; done_; read -r request <&3; "
                       "echo hello; start b check; row b passed; done_"}),
               fileno(log), options);
  EXPECT_TRUE(run(d, {"a"}));
  EXPECT_TRUE(run(d, {"b"}));
  struct stat s {};
  ASSERT_EQ(fstat(fileno(log), &s), 0);
  EXPECT_EQ(s.st_size, 6) << "hello";
}

TEST_F(Scripted, WhatEndsAloneTooIsBlamedOnceAndHangsAreNotWaitedForAgain) {
  options.timeout_s = 1.5;  // also for what is right, on a busy machine
  Dispatcher d(
      worker({"start a check; row a passed; start b check; sleep 300", "start b check; sleep 300",
              "start a check; row a passed; start b check; sleep 300", "start c check; row c passed; done_"}),
      fileno(log), options);
  EXPECT_TRUE(run(d, {"a", "b"}));
  EXPECT_TRUE(run(d, {"a", "b", "c"}));
  EXPECT_EQ(outcomes(), (Texts{"a:passed", "b:timed_out", "a:passed", "b:timed_out", "c:passed"}));
}

TEST_F(Scripted, ACaseThatCannotBeBuiltInAUsedWorkerIsTriedInANewOne) {
  Dispatcher d(
      worker({"start a check; row a passed; done_; read -r request <&3; start '' inputs; kill -KILL $$",
              "start a check; row a passed; start b check; row b passed; done_"}),
      fileno(log), options);
  EXPECT_TRUE(run(d, {"a"}));
  EXPECT_TRUE(run(d, {"a", "b"}));
  EXPECT_EQ(outcomes(), (Texts{"a:passed", "a:passed", "b:passed"}));
}

// A thread of a takes the worker down while b runs, which does well alone.
TEST_F(Scripted, WhatAKernelLeftRunningIsItsOwn) {
  Dispatcher d(worker({"start a check; row a passed; left; start b check; kill -SEGV $$",
                       "start b check; row b passed; done_"}),
               fileno(log), options);
  EXPECT_TRUE(run(d, {"a", "b"}));
  EXPECT_EQ(outcomes(), (Texts{"b:passed", "a:crashed"}));
  EXPECT_THAT(rows[1].reason,
              ::testing::AllOf(HasSubstr("left 2 threads running"), HasSubstr("SIGSEGV while running b")));
}

// Beside such a thread a wrong result is looked at again, too.
TEST_F(Scripted, AWrongResultBesideLeftThreadsIsLookedAtAgain) {
  for (const char* alone : {"wrong", "passed"}) {
    rows.clear();
    fs::remove(root / "starts");
    Dispatcher d(worker({"start a check; row a passed; left; start b check; row b wrong; sleep 300",
                         std::string("start b check; row b ") + alone + "; done_"}),
                 fileno(log), options);
    EXPECT_TRUE(run(d, {"a", "b"}));
    const bool innocent = std::string(alone) == "passed";
    EXPECT_EQ(outcomes(), (Texts{std::string("b:") + alone, innocent ? "a:crashed" : "a:passed"}));
  }
}

// Two kernels may have done it, and the row of one that did it a case ago is written.
TEST_F(Scripted, AnEndThatNobodyRepeatsIsTold) {
  Dispatcher d(
      worker({"start a check; row a passed; left; done_; read -r request <&3; start c check; row c passed; "
              "left; start b check; kill -SEGV $$",
              "start b check; row b passed; done_"}),
      fileno(log), options);
  EXPECT_TRUE(run(d, {"a"}));
  EXPECT_TRUE(run(d, {"c", "b"}));
  EXPECT_EQ(outcomes(), (Texts{"a:passed", "b:passed", "c:passed"}));
  ASSERT_EQ(d.unexplained().size(), 1u);
  EXPECT_EQ(d.unexplained()[0],
            "paged x: SIGSEGV while running b, and not when run alone; left something running before: a, c");
}

TEST_F(Scripted, ASpentWorkerIsReplacedAndItsRowsStand) {
  Dispatcher d(worker({"start a check; row a passed; spent", "start b check; row b passed; spent",
                       "start a check; row a passed; done_"}),
               fileno(log), options);
  EXPECT_TRUE(run(d, {"a", "b"}));
  EXPECT_TRUE(run(d, {"a"}));
  EXPECT_EQ(outcomes(), (Texts{"a:passed", "b:passed", "a:passed"}));
}

TEST_F(Scripted, LimitsThatAreNoneAreNotMeasured) {
  LimitsAnswer infinite;
  infinite.limits.limits.read_bytes_per_s = std::numeric_limits<double>::infinity();
  Dispatcher d(worker({"say '" + encode_message(WorkerAnswer(infinite), "event").dump() + "'",
                       "start a check; row a passed; done_"}),
               fileno(log), options);
  d.measure_limits(stop);
  ASSERT_TRUE(d.limits());
  EXPECT_EQ(d.limits()->limits.read_bytes_per_s, 0);
  ASSERT_EQ(d.limits()->missing.size(), 1u);
  EXPECT_THAT(d.limits()->missing[0], HasSubstr("read_bytes_per_s is inf"));
  EXPECT_TRUE(run(d, {"a"}));
  EXPECT_EQ(outcomes(), (Texts{"a:passed"}));
}

// A worker's answer to the question for limits.
std::string says_rate(double flops) {
  LimitsAnswer said;
  said.limits.limits.matrix_flops_bf16 = flops;
  return "say '" + encode_message(WorkerAnswer(said), "event").dump() + "'; read -r request <&3; ";
}

// Limits of a device that others used at the start are too low; the kernel is not to blame.
TEST_F(Scripted, ATimeThatLimitsRuleOutIsMeasuredAgainWhereTheyRise) {
  Dispatcher d(worker({says_rate(2e14) + "start a check; row a passed cold; too_fast a hot; done_",
                       says_rate(9e14) + "case $request in *cold*) start a check; row a again;; esac; "
                                         "start a check; row a passed hot; done_; read -r request <&3; "
                                         "start b check; too_fast b hot; done_",
                       says_rate(5e14)}),
               fileno(log), options);
  d.measure_limits(stop);
  EXPECT_TRUE(run(d, {"a"}, {"cold", "hot"}));
  EXPECT_EQ(outcomes(), (Texts{"a:passed:cold", "a:passed:hot"}));
  EXPECT_EQ(d.limits()->limits.matrix_flops_bf16, 9e14);
  rows.clear();
  EXPECT_TRUE(run(d, {"b"}, {"hot"}));
  EXPECT_EQ(outcomes(), (Texts{"b:implausible:hot"}));
  EXPECT_EQ(d.limits()->limits.matrix_flops_bf16, 9e14) << "the larger of all measurements";
}

TEST_F(Scripted, ATimeThatLimitsRuleOutTwiceIsARowAndSoonBelievedAtOnce) {
  const std::string again = says_rate(2e14) + "start a check; too_fast a hot; done_; read -r request <&3; ";
  Dispatcher d(worker({again + "echo unasked >&2"}), fileno(log), options);
  d.measure_limits(stop);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(run(d, {"a"}, {"hot"}));
    EXPECT_EQ(rows.back().reason, "fast; measured once more, they say the same");
  }
  EXPECT_TRUE(run(d, {"a"}, {"hot"}));
  EXPECT_EQ(rows.back().reason, "fast");
  EXPECT_EQ(outcomes(), Texts(4, "a:implausible:hot"));
}

TEST_F(Scripted, LimitsOfElsewhereAreMeasuredAgainThere) {
  Dispatcher d(worker({"start a check; too_fast a hot; done_; read -r request <&3; start a check; row a "
                       "passed hot; done_"}),
               fileno(log), options);
  double rate = 1e14;
  d.use_limits(
      [&](const std::atomic<bool>&) {
        MeasuredLimits said;
        said.limits.matrix_flops_bf16 = rate *= 3;
        return said;
      },
      stop);
  EXPECT_TRUE(run(d, {"a"}, {"hot"}));
  EXPECT_EQ(outcomes(), (Texts{"a:passed:hot"}));
}

TEST(Unanswered, ARowPerModeOrOneForAll) {
  const auto row = [](const char* kernel, const char* mode) {
    Row r;
    r.kernel = kernel;
    r.set_mode(mode);
    return r;
  };
  const std::vector<WantedKernel> wanted = {{"a", {"hot", "graph"}}, {"b", {"hot"}}, {"c", {}}};
  using Names = std::vector<std::string>;
  EXPECT_EQ(unanswered(wanted, {}), (Names{"a", "b", "c"}));
  EXPECT_EQ(unanswered(wanted, std::vector{row("a", "hot"), row("b", "hot"), row("c", "")}), (Names{"a"}));
  EXPECT_EQ(
      unanswered(wanted, std::vector{row("a", "hot"), row("a", "graph"), row("b", ""), row("c", "hot")}),
      (Names{"c"}));
}

TEST_F(Scripted, AStopLeavesNoRowBehind) {
  Dispatcher d(worker({"start a check; row a passed; sleep 300"}), fileno(log), options);
  stop = true;
  EXPECT_FALSE(run(d, {"a"}));
  EXPECT_TRUE(rows.empty());
}

TEST_F(Scripted, AWorkerThatDoesNotStartTwiceIsInfrastructure) {
  for (const WorkerCommand& bad :
       {WorkerCommand{.argv = {"/bin/false"}}, WorkerCommand{.argv = {"/no/such/program"}}}) {
    try {
      Dispatcher d(bad, fileno(log), options);
      FAIL();
    } catch (const InfrastructureError& e) {
      EXPECT_THAT(e.what(), HasSubstr("tried twice"));
    }
  }
}

}  // namespace
}  // namespace assay
