// SPDX-License-Identifier: Apache-2.0
// The whole program on kernels that work and kernels that misbehave in every known way.
#include "harness/cli/testing/program.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Misbehaving : public Program {};

// One sweep over all of them: every death is told apart, and the sweep goes on behind each.
TEST_F(Misbehaving, EveryKindGetsItsOutcomeAndTheSweepGoesOn) {
  const struct {
    const char *kernel, *outcome, *reason;
  } expected[] = {
      {"ok", "passed", ""},
      {"noisy", "passed", ""},
      {"undeclared", "passed", ""},
      {"lean", "passed", ""},  // within every bound; its aggregates need more rows than this line has
      {"leanonce", "passed", ""},
      {"segfault", "crashed", "SIGSEGV while running paged_segfault_fake"},
      {"abort", "crashed", "SIGABRT while running paged_abort_fake"},
      {"exit", "crashed", "exit code 0 while running paged_exit_fake"},
      {"hang", "timed_out", "while running paged_hang_fake"},
      {"throw", "crashed", "fake kernel threw"},
      {"throwint", "crashed", "exception"},
      {"fail", "crashed", "failed on purpose"},
      {"allocate", "crashed", "bad_alloc"},
      {"lose", "crashed", "the fake device is gone"},  // and those behind it get a new worker
      {"pending", "crashed", "an error was left behind"},
      {"frozen", "passed", ""},     // wrong in replayed graphs only
      {"gridbound", "passed", ""},  // likewise
      {"padding", "passed", ""},    // likewise
      {"refuse", "unsupported", "missing everything"},
      {"silent", "wrong", "not written"},
      {"skiprow", "wrong", "not written"},
      {"nan", "wrong", "NaN"},
      {"onenan", "wrong", "NaN"},
      {"zeros", "wrong", ""},
      {"overrun", "wrong", "outside its buffers"},
      {"overrunfar", "wrong", "outside its buffers"},
      {"underrun", "wrong", "outside its buffers"},
      {"writeinput", "wrong", "k"},
      {"flaky", "wrong", ""},
      {"droppage", "wrong", ""},
      {"leak", "wrong", ""},
      {"peek", "wrong", "unused memory"},
      {"vague", "untrusted", "zeros"},
      {"lse2", "wrong", "LSE"},
      {"unscaled", "wrong", "O"},
      {"refuseplan", "unsupported", ""},
      {"refuserun", "unsupported", ""},
      {"refusewrote", "wrong", "refuses and writes all the same"},
      {"refuselater", "wrong", "refuses a second run"},
      {"packedonly", "passed", ""},
      {"defaults", "passed", ""},
      {"semaphore", "passed", ""},
      {"dirty", "wrong", "a second run differs"},
      {"greedy", "crashed", "zeroed bytes"},
      {"refreshed", "passed", ""},
      {"stale", "passed", ""},  // wrong in replayed graphs only
      {"spill", "passed", ""},  // writes beside a strided output; this line has none
      // These three hide behind a table, a stride and a size that this line does not have.
      {"slotsinorder", "passed", ""},
      {"slotsinordersaid", "passed", ""},
      {"lastpacked", "passed", ""},
      {"elements32", "passed", ""},
      {"bytes32", "passed", ""},
      {"copiesnan", "wrong", "O is NaN or infinite"},
      {"planned", "wrong", "it keeps what it read then"},
      {"leaksaid", "passed", ""},
      {"peeksaid", "wrong", "unused memory"},
      {"lse2said", "passed", ""},
      {"lse2lie", "wrong", "LSE"},
      {"nolse", "wrong", "LSE not written"},
      {"nolsesaid", "passed", ""},
      {"headsfirst", "wrong", "LSE"},
      {"headsfirstsaid", "passed", ""},
      {"headsfirstlie", "wrong", "LSE"},
      {"noempty", "passed", ""},  // this line has no empty request
      {"noemptysaid", "passed", ""},
      {"paddingsaid", "passed", ""},
      {"frozensaid", "passed", ""},
      {"contradiction", "wrong", "which exclude each other"},
      {"unheardof", "wrong", "does not have"},
      {"droppagenolse", "wrong", "O wrong"},
      {"leanfinite", "passed", ""},
      {"leannolse", "passed", ""},
      {"refreshout", "wrong", "refresh writes what only a run may"},
      {"eatsrefresh", "wrong", "after one refresh"},
      {"onebadrow", "passed", ""},  // this line has no row 137
      {"wildread", "crashed", ", the nearest operand"},
      {"nullread", "crashed",
       "SIGSEGV while running paged_nullread_fake; a read 24 bytes from a null pointer"},
      {"wildaddress", "crashed", "an access to an address that no memory can have"},
      {"lastwords", "crashed",
       "SIGABRT while running paged_lastwords_fake; it last printed: last words: no tile of 7 rows"},
      {"readpast", "crashed", "a read 64 bytes past the end of q"},
      {"restore", "crashed", "a write to byte 0 of k, which is only to be read"},
      {"beside", "passed", ""},
      {"oneshape", "unsupported", "required another shape"},
      {"seldom", "passed", ""},  // wrong in one call of twenty
      {"kept", "passed", ""},    // the call before was right
  };
  const Output o = fake({"check", kLine, "--timeout", "8", "--worker-memory", "1G", "--out", path("out"),
                         "--junit", path("j.xml")});
  EXPECT_EQ(o.code, 1);
  const auto rows = by(path("out"), &Row::kernel);
  EXPECT_EQ(rows.size(), std::size(expected)) << "every kernel of the op, once";
  for (const auto& e : expected) {
    const std::string name = std::string("paged_") + e.kernel + "_fake";
    SCOPED_TRACE(name);
    ASSERT_TRUE(rows.contains(name));
    EXPECT_EQ(rows.at(name).outcome, e.outcome) << rows.at(name).reason;
    EXPECT_THAT(rows.at(name).reason, HasSubstr(e.reason));
    EXPECT_EQ(rows.at(name).scenario, kLine);
    const bool failing = std::string(e.outcome) != "passed" && std::string(e.outcome) != "unsupported";
    EXPECT_EQ(o.out.find("--kernel " + name) != std::string::npos, failing) << "command that repeats it";
  }
  std::map<std::string, int64_t> tally;
  for (const auto& e : expected) ++tally[e.outcome];
  EXPECT_THAT(o.out,
              HasSubstr(fmt::format(
                  "{} passed, {} wrong, {} unsupported, {} untrusted, {} crashed, {} timed out, 0 invalid",
                  tally["passed"], tally["wrong"], tally["unsupported"], tally["untrusted"], tally["crashed"],
                  tally["timed_out"])));
  const int64_t failing_rows =
      static_cast<int64_t>(std::size(expected)) - tally["passed"] - tally["unsupported"];
  EXPECT_THAT(read_text(path("out/worker.log")), HasSubstr("fake kernel was here too"));
  EXPECT_THAT(o.out + o.err, Not(HasSubstr("was here"))) << "output of kernels stays out of ours";
  const std::string failures = read_text(path("out/failures.txt"));
  EXPECT_EQ(std::count(failures.begin(), failures.end(), '\n'), failing_rows);
  EXPECT_THAT(read_text(path("j.xml")), AllOf(HasSubstr("<testsuite"), HasSubstr("paged_hang_fake")));
  const nlohmann::json run = read_run_json(path("out"));
  EXPECT_EQ(run["complete"], true);
  EXPECT_EQ(run["tally"]["crashed"], tally["crashed"]);
  EXPECT_EQ(run["rows"], std::size(expected));
  for (const char* key :
       {"machine", "compiler", "commit", "clocks", "command", "start", "end", "seed", "columns"})
    EXPECT_TRUE(run.contains(key)) << key;
  EXPECT_TRUE(run["seed"].is_null());
  EXPECT_FALSE(run["seed_reason"].get<std::string>().empty()) << "missing values carry a reason";
}

// A crash while being timed: the kernels behind it still get their rows. What is neither right nor wrong is
// timed, too.
TEST_F(Misbehaving, BenchTimesOnlyWhatIsRight) {
  const Output o = fake({"bench", kLine, "--kernel", "paged_ok_fake", "--kernel", "paged_nan_fake",
                         "--kernel", "paged_segfault_fake", "--kernel", "paged_vague_fake", "--max-seconds",
                         "0.2", "--noise", "1000", "--cache", "both", "--out", path("out")});
  EXPECT_EQ(o.code, 1) << o.err;
  std::map<std::string, Row> rows;
  for (const Row& r : read_rows(path("out/rows.csv")).rows) rows[r.kernel + " " + r.cache] = r;
  ASSERT_EQ(rows.size(), 6u);
  for (const char* mode : {"hot", "cold"}) {
    const Row& r = rows.at(std::string("paged_ok_fake ") + mode);
    EXPECT_EQ(r.outcome, "passed");
    EXPECT_GT(r.time_us, 0);
    EXPECT_LE(r.time_q1_us, r.time_us);
    EXPECT_GE(r.time_q3_us, r.time_us);
    EXPECT_GE(r.samples, 1);
    // 2 requests x 33 keys x 4 heads x 2 (64 + 64) FLOP, over the median.
    EXPECT_NEAR(r.tflops * 1e12 * r.time_us * 1e-6, 2 * 33 * 4 * 256, 1);
    EXPECT_NEAR(r.tokens_per_s * r.time_us * 1e-6, 2, 1e-6);
    const Row& vague = rows.at(std::string("paged_vague_fake ") + mode);
    EXPECT_EQ(vague.outcome, "untrusted") << "timed, and marked";
    EXPECT_GT(vague.time_us, 0);
  }
  EXPECT_EQ(rows.at("paged_nan_fake ").outcome, "wrong");
  EXPECT_EQ(rows.at("paged_segfault_fake ").outcome, "crashed");
}

TEST_F(Misbehaving, UntilWrongAKernelMeetsNothingBehindItsFailure) {
  const std::vector<std::string> words = {
      "check",     kLine,      kLine + " seed=2", "--until-wrong", "--out",
      path("out"), "--kernel", "paged_ok_fake",   "--kernel",      "paged_zeros_fake"};
  EXPECT_EQ(fake(words).code, 1);
  std::map<std::string, int> rows;
  for (const Row& row : read_rows(path("out/rows.csv")).rows) ++rows[row.kernel];
  EXPECT_EQ(rows["paged_ok_fake"], 2);
  EXPECT_EQ(rows["paged_zeros_fake"], 1);
  // Going on asks for nothing more.
  std::vector<std::string> again = words;
  again.emplace_back("--resume");
  EXPECT_EQ(fake(again).code, 1);
  EXPECT_EQ(read_rows(path("out/rows.csv")).rows.size(), 3u);
}

TEST_F(Misbehaving, NothingVerifiedIsNotGreen) {
  const Output o = fake({"check", kLine, "--kernel", "paged_refuse_fake"});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, AllOf(HasSubstr("nothing was verified"), HasSubstr("_fake: "))) << "and says why";
  const Output other = fake({"check", "prefill h=4/2 d=64 batch=1q8", "--kernel", "paged_ok_fake"});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.out, HasSubstr("1 case with an op of no kernel"));
}

TEST_F(Misbehaving, RowsJudgedInPartAreCountedInWords) {
  const Output one =
      fake({"check", "paged h=4/2 d=64 batch=1q40s90", "--kernel", "paged_ok_fake", "--rows-budget", "100"});
  EXPECT_THAT(one.out, HasSubstr("1 row judged on a sample of query rows"));
  const Output none = fake({"check", kLine, "--kernel", "paged_ok_fake"});
  EXPECT_THAT(none.out, Not(HasSubstr("judged on a sample")));
}

class Commands : public Program {};

TEST_F(Commands, CpuKernelsPassAndTheProgramSaysSo) {
  const Output o = run({"check", kLine, "--kernel", "*naive*", "--kernel", "*online*"});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("paged_naive_cpu"), HasSubstr("0 wrong, 0 unsupported"), HasSubstr(kLine)));
}

TEST_F(Commands, HelpOfEveryCommandHasExamples) {
  for (const char* command : {"list", "describe", "kernels", "check", "bench", "run", "rerun", "compare",
                              "merge", "report", "explain", "calibrate", "mutants"}) {
    const Output o = run({command, "--help"});
    EXPECT_EQ(o.code, 0);
    EXPECT_THAT(o.out, AllOf(HasSubstr("Examples:"), HasSubstr(std::string("  assay ") + command)));
  }
  EXPECT_THAT(run({"--help"}).out, HasSubstr("Exit codes"));
  EXPECT_THAT(run({"--version"}).out, StartsWith("assay 0."));
}

TEST_F(Commands, ListIsCanonicalSeededFilteredAndLimited) {
  const std::string suite = "paged kv=bf16 d=64,128 h=4/2 batch=1q1s7";
  EXPECT_EQ(run({"list", suite}).out, "paged h=4/2 d=64 batch=1q1s7\npaged h=4/2 batch=1q1s7\n");
  EXPECT_EQ(run({"list", suite, "--seed", "9", "--filter", "d=64"}).out,
            "paged h=4/2 d=64 batch=1q1s7 seed=9\n");
  EXPECT_EQ(run({"list", suite, "--limit", "1"}).out, "paged h=4/2 d=64 batch=1q1s7\n");
  EXPECT_THAT(run({"list", suite, suite, "--count"}).out, HasSubstr("4 cases"));
  const Output piped = run_shell(shell({"list", "paged batch=1q1s[1:100000:1]"}) + " | head -1");
  EXPECT_EQ(piped.out, "paged batch=1q1\n");
  EXPECT_EQ(piped.err, "");
}

// A step's kernels are asked without operands here, and say what they do with them: in check as well.
TEST_F(Commands, KernelsOfStepsAnswerAsInCheck) {
  const std::string line = "step h=4/2 d=64 page=8 budget=16 batch=1q9s43_1q5s40_1q7s8 seed=2";
  const std::string composed = "step_aiter_fa_cpu(unified=paged_online_cpu)";
  for (const std::string& kernel : {std::string("step_aiter_fa_cpu"), composed}) {
    EXPECT_EQ(run({"check", line, "--backend", "cpu", "--kernel", kernel}).code, 0);
    const Output declared =
        run({"kernels", "--arithmetic", line, "--backend", "cpu", "--kernel", kernel, "--json"});
    ASSERT_EQ(declared.code, 0) << declared.err;
    const nlohmann::json answers = nlohmann::json::parse(declared.out)[0]["kernels"];
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0]["kernel"], kernel);
    EXPECT_EQ(answers[0]["status"], 0) << answers[0]["why"];
    EXPECT_TRUE(answers[0].contains("arithmetic"));
  }
  const Output matrix = run({"kernels", "--op", "step", "--backend", "cpu", "--kernel", "step_aiter_fa_cpu",
                             "--kernel", composed, "--kernel", "step_mla_prefill_cpu"});
  EXPECT_EQ(matrix.code, 0) << matrix.err;
  EXPECT_THAT(
      matrix.out,
      AllOf(HasSubstr("step_aiter_fa_cpu  plainest h=4/2 d=64"),
            HasSubstr(composed + "  plainest h=4/2 d=64"), HasSubstr("all three together"),
            HasSubstr("step_mla_prefill_cpu  plainest h=4/2 d=64"), Not(HasSubstr("none of those asked"))));
}

TEST_F(Commands, DescribeShowsTheProblem) {
  const Output o = run({"describe", "paged window=3 page=4 batch=1q4s10"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("  0 ...####..."), HasSubstr("  3 ......####"), HasSubstr("16 visible pairs")));
  EXPECT_THAT(o.out, ::testing::ContainsRegex("rules     all [0-9]+ hold\n"));
  EXPECT_THAT(run({"describe", "paged positions=drawn page=4 batch=1q3s30 seed=2"}).out,
              ::testing::ContainsRegex("rows at [0-9]+ [0-9]+ [0-9]+\n"));
  // What decides of a sentence about a step whether it is true: who sees what, where new keys go.
  const std::string tree = run({"describe", "step page=8 mask=tree drafted=1 pad=1 batch=1q4s24 seed=3"}).out;
  EXPECT_THAT(
      tree, AllOf(HasSubstr("mask      request 0: row down"), ::testing::ContainsRegex("  0 #{16}[#.]{8}\n"),
                  ::testing::ContainsRegex("slots     new keys of request 0: [0-9]+ [0-9]+ [0-9]+ "
                                           "[0-9]+\n          padded rows: -1\n")));
  EXPECT_THAT(run({"describe", "step page=8 encoder=16 pool=full batch=2q1s20 seed=3"}).out,
              AllOf(::testing::ContainsRegex("behind an encoder of [0-9]+"),
                    ::testing::ContainsRegex("pool      block of the table > of the cache: [0-9]+>0 ")));
  EXPECT_THAT(run({"describe", "fields"}).out, AllOf(HasSubstr("window"), HasSubstr("nhd, hnd")));
  EXPECT_THAT(run({"describe", "fields", "batch"}).out,
              AllOf(HasSubstr("COUNTqQ[sS][pP]"), HasSubstr("1q5s3"), Not(HasSubstr(".hpp"))));
}

TEST_F(Commands, KernelsPrintsTheMatrix) {
  const Output o = fake(
      {"kernels", "--op", "paged", "--kernel", "paged_ok_fake", "--kernel", "paged_refuse_fake", "--why"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, ::testing::ContainsRegex("plain bf16 +yes +-"));
  EXPECT_THAT(o.out, ::testing::ContainsRegex("mask tree +- +-"));
  EXPECT_THAT(o.out, HasSubstr("paged_refuse_fake mask tree: required this problem"));
  EXPECT_THAT(o.out, Not(HasSubstr("prefill")));
  EXPECT_THAT(o.out, HasSubstr(": fake device (fake), 1 thread, 16.0 GiB\n"));
  // The header lets a library leave fields of a device empty.
  const std::string bare = ASSAY_BINARY_DIR "/examples/libexample_bare.so";
  EXPECT_THAT(run({"kernels", "--backend", bare}).out,
              HasSubstr(": a CPU (x86-64), threads unknown, memory unknown\n"));
}

// Cases that no chosen kernel is for have rows too, and progress counts on them.
TEST_F(Commands, RowsOfNoKernelAreExpected) {
  const Output o = run(
      {"check", kLine, "prefill h=4/2 d=64 batch=1q9", "--backend", "cpu", "--kernel", "paged_naive_cpu"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("  none "), HasSubstr("1 case with an op of no kernel")));
  EXPECT_THAT(o.err, AllOf(HasSubstr("2 cases, 2 rows"), Not(HasSubstr("2/1 rows"))));
}

TEST_F(Commands, InstalledBackendsWithoutADeviceAreLeftOutUnlessAskedFor) {
  // A program of our own with two backends beside it, one for a device this machine does not have.
  for (const auto& [from, to] :
       {std::pair{kProgram, "assay"},
        {kFake, "libassay_fake.so"},
        {std::string(ASSAY_BINARY_DIR "/testing/libassay_bad_5.so"), "libassay_absent.so"}})
    std::filesystem::copy_file(from, path(to));
  const std::string check =
      shell_quote(path("assay")) + " check " + shell_quote(kLine) + " --kernel paged_ok_fake --quiet";
  const Output all = run_shell(check);
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out + all.err,
              AllOf(HasSubstr("1 passed"), HasSubstr("left out: backend bad: this machine has no device")));
  const Output asked = run_shell(check + " --backend absent");
  EXPECT_EQ(asked.code, 6);
  EXPECT_THAT(asked.err, HasSubstr("this machine has no device for it"));
  EXPECT_THAT(run_shell(shell_quote(path("assay")) + " kernels").out,
              AllOf(HasSubstr("paged_ok_fake"), HasSubstr("no device")));
}

TEST_F(Commands, ShardsMergeToTheWholeRun) {
  const std::string suite = "paged h=4/2 d=64 page=16,32 batch=1q1s[1:12:1]";
  ASSERT_EQ(fake({"check", suite, "--kernel", "paged_ok_fake", "--out", path("whole"), "--quiet"}).code, 0);
  std::vector<std::string> words = {"merge", "--out", path("sum")};
  size_t parts = 0;
  for (const char* s : {"1", "2", "3"}) {
    const std::string out = path(std::string("part") + s);
    ASSERT_EQ(
        fake({"check", suite, "--kernel", "paged_ok_fake", "--out", out, "--shard", std::string(s) + "/3"})
            .code,
        0);
    parts += read_rows(out + "/rows.csv").rows.size();
    words.push_back(out);
  }
  EXPECT_EQ(parts, 24u);
  const Output o = run(words);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("24 passed"));
  const auto whole = by(path("whole"), &Row::scenario), sum = by(path("sum"), &Row::scenario);
  ASSERT_EQ(whole.size(), 24u);
  for (const auto& [line, row] : whole) EXPECT_TRUE(sum.contains(line)) << line;
  words.pop_back();
  words[2] = path("sum2");
  const Output missing = run(words);
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("missing shards: 3/3"));
}

TEST_F(Commands, KernelsSayWhatTheyDeclare) {
  const Output text = fake({"kernels", "--arithmetic", kLine, "--kernel", "paged_[ouv][kna]*_fake"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("declared for: paged h=4/2 d=64 batch=2q1s33"), HasSubstr("paged_ok_fake"),
                    HasSubstr("paged_undeclared_fake *"), HasSubstr("fp32 multiply-add, 16 lanes"),
                    HasSubstr("33 keys"), HasSubstr("* declares nothing")));
  const Output refused = fake({"kernels", "--arithmetic", kLine, "--kernel", "paged_refuse_fake"});
  EXPECT_THAT(refused.out, HasSubstr("paged_refuse_fake: required this problem"));
  const Output json = fake({"kernels", "--arithmetic", kLine, "--kernel", "paged_vague_fake", "--json"});
  const auto document = nlohmann::json::parse(json.out);
  ASSERT_EQ(document.size(), 1u);
  EXPECT_EQ(document[0]["kernels"][0]["arithmetic"]["exp_relative_error"], 0.6);
  EXPECT_EQ(fake({"kernels", "--arithmetic", "--kernel", "no_such"}).code, 2);
  const Output bad = fake({"kernels", "--arithmetic", "paged window=x"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("command line:1:"));
  EXPECT_EQ(fake({"kernels", "--json"}).code, 2);
}

TEST_F(Commands, RepeatedLinesRunOnceAndPlainOutputHasNoEscapes) {
  const Output o = fake({"check", kLine, kLine, "--kernel", "paged_nan_fake"});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.out, AllOf(HasSubstr("1 line left out"), HasSubstr("0 passed, 1 wrong")));
  EXPECT_THAT(o.out + o.err, Not(HasSubstr("\033")));
  EXPECT_THAT(fake({"check", kLine, "--kernel", "paged_nan_fake", "--color", "always"}).out,
              HasSubstr("\033["));
}

}  // namespace
}  // namespace assay
