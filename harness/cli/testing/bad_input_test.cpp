// SPDX-License-Identifier: Apache-2.0
// Everything a user can get wrong ends with exit code 2, a message that says what to do, and nothing
// half-done.
#include "harness/cli/testing/program.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  expect_refused(run({"check", "step h=4/2 mask=tree drafted=3 batch=2q4s15"}),
                 {"command line:1:", "drafted=3", "make s at least 4 q"});
  expect_refused(run({"check", "step h=4/2 drafted=3 batch=2q4s16"}),
                 {"command line:1:", "draft steps of several branches", "write mask=tree"});
  // All lines are read before one is run, and what was wrong is said to have stopped all of them.
  expect_refused(run({"check", kLine, "paged h=5/2 batch=1q1s4"}), {"multiple", "; nothing was run"});
  EXPECT_THAT(run({"check", "paged h=5/2 batch=1q1s4"}).err, Not(HasSubstr("nothing was run")));
  expect_refused(run({"describe", "paged mask=diagonal batch=1q1s4"}), {"diagonal", "causal"});
}

// Where positions end is known from the line; memory runs out by other fields than the batch, too.
TEST_F(BadInput, NumbersThatAreTooLarge) {
  expect_refused(run({"check", "paged h=4/2 d=64 first=2147483647 batch=3q2s9"}),
                 {"command line:1:", "2147483656", "positions go up to 2147483647"});
  const Output o = run(
      {"check", "chunk_metadata budget=2147483647 batch=2q1s9", "--backend", "cpu", "--worker-memory", "2G"});
#if !defined(ASSAY_SANITIZED)
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_THAT(o.out, HasSubstr("smaller (batch, budget)"));
#endif
}

// Of the field that is wrong and of no other, at its place.
TEST_F(BadInput, FieldsOfOtherOps) {
  const auto message = [&](const std::string& line) {
    const Output o = run({"list", line});
    EXPECT_EQ(o.code, 2) << line;
    return o.err;
  };
  EXPECT_THAT(message("step batch=1q1s1 from=codes"),
              AllOf(HasSubstr("command line:1:"), HasSubstr("step reads fp32, bf16 or fp16"),
                    HasSubstr("cache_write"), Not(HasSubstr("states")), Not(HasSubstr("pad"))));
  EXPECT_THAT(message("merge_states batch=1q1 states=3 from=codes"),
              AllOf(HasSubstr("merge_states reads fp32"), Not(HasSubstr("pad"))));
  EXPECT_THAT(message("decode_splitkv batch=1q1s9 states=4"),
              AllOf(HasSubstr("add part=0"), Not(HasSubstr("from"))));
  EXPECT_THAT(
      message("cache_write h=4/2 d=16 batch=5q3s200p64"),
      AllOf(HasSubstr("every request of cache_write has pages of its own"), Not(HasSubstr("no pages"))));
  EXPECT_THAT(message("step h=4/2 d=16 batch=5q3s200p198"),
              AllOf(HasSubstr("ends before the new tokens"), HasSubstr("make p at most s - q")));
  EXPECT_THAT(message("step h=4/2 d=16 prefix=64 batch=5q3s200p63"), HasSubstr("give the group p64 or more"));
  EXPECT_THAT(message("step h=4/2 d=16 out=fp8_e4m3 batch=1q1s9"),
              AllOf(HasSubstr("command line:1:"), HasSubstr("fp8_e4m3"), HasSubstr("bf16")));
  EXPECT_THAT(message("prefill h=4/2 d=192/128 out=int8 batch=1q9"), HasSubstr("int8"));
  EXPECT_THAT(message("step h=4/2 d=16 mask=full batch=1q1s9"),
              AllOf(HasSubstr("rows of an encoder"), HasSubstr("write write=off and groups without s")));
  EXPECT_THAT(message("prefill h=4/2 d=16 batch=5q3s200p64"), HasSubstr("prefill has no pages"));
  const Output blocks = run({"describe", "step blocks=1 batch=4q1s100"});
  EXPECT_THAT(blocks.out, HasSubstr("cache     31 blocks"));
  EXPECT_THAT(run({"describe", "fields", "blocks"}).out, HasSubstr("Least blocks of the cache"));
}

// What steps and their stages cannot be, with what is accepted.
TEST_F(BadInput, Steps) {
  const auto refused = [&](const std::string& line, const std::vector<std::string>& words) {
    expect_refused(run({"check", line}), words);
  };
  // More drafts than keys, more branches than drafts.
  refused("step h=4/2 mask=tree batch=2q9s4", {"command line:1:", "mask=tree", "make s at least q"});
  refused("step h=4/2 mask=tree drafted=3 batch=2q8s16", {"command line:1:", "make s at least 4 q"});
  refused("step h=4/2 budget=0 batch=2q9s40",
          {"command line:1:", "budget: 0 is too small", "a whole number from 1"});
  refused("step h=4/2 mask=cross window=7 batch=1q1s9",
          {"command line:1:", "window", "to which rows have no distance", "window= is not for it"});
  refused("step h=4/2 window=7+9 batch=1q1s9",
          {"command line:1:20", "window: unexpected \"+9\"", "a whole number"});
  refused("step h=4/2 encoder=9 table=csr batch=1q1s9", {"command line:1:", "take table=block or token"});
  refused("paged h=4/2 pool=full batch=1q1s9", {"command line:1:", "pool"});
  // A draft mask of another size than the drafts, or that is no tree where rows stand by their depth.
  refused("step h=4/2 threshold=4 mask=tree bits=1/11/101 batch=2q3s40",
          {"command line:1:", "bits=: the draft mask has 3 rows of 1 to 3 bits",
           "requests of 3 drafts need 3 rows of 3"});
  refused("step h=4/2 threshold=4 mask=tree bits=100/110/101 batch=2q4s40",
          {"command line:1:", "bits=: the draft mask has 3 rows of 3 bits",
           "requests of 4 drafts need 4 rows of 4"});
  refused("step h=4/2 threshold=4 mask=tree bits=100/110/121 batch=2q3s40",
          {"command line:1:48", "bits: unexpected \"2\"", "rows of 0 and 1 joined by /"});
  refused("step h=4/2 threshold=4 mask=tree bits=100/110/001 positions=depth batch=2q3s40_1q4s9",
          {"give all groups the same number of new rows"});
  refused("step h=4/2 threshold=4 mask=tree bits=100/010/111 positions=depth batch=2q3s40",
          {"are a tree", "100/110/101"});
  write("mask.suite", "# fine\nstep batch=1q1s4\nstep threshold=4 mask=tree bits=10/11 batch=1q3s9\n");
  expect_refused(run({"check", path("mask.suite")}),
                 {"mask.suite:3:", "the draft mask has 2 rows of 2 bits", "3 drafts need 3 rows of 3"});
  // New tokens in pages that requests share: their slots would be written twice.
  refused("step h=4/2 d=16 batch=5q3s200p198",
          {"command line:1:17", "slot", "written twice", "make p at most s - q"});
  write("slots.suite", "# fine\nstep batch=1q1s4\ncache_write h=4/2 d=16 batch=5q3s200p64\n");
  expect_refused(run({"check", path("slots.suite")}),
                 {"slots.suite:3:", "every request of cache_write has pages of its own", "written twice"});
  write("steps.suite", "# fine\nstep batch=1q1s4\nstep mask=cross alibi=linear batch=1q1s4\n");
  expect_refused(run({"check", path("steps.suite")}), {"steps.suite:3:", "to which rows have no distance"});
  const std::string step = "step h=4/2 d=64 batch=1q1s9";
  const auto kernel = [&](const std::string& line, const std::string& name) {
    return run({"check", line, "--backend", "cpu", "--kernel", name});
  };
  expect_refused(kernel(step, "step_aiter_fa_cpu(decode=no_such_kernel)"),
                 {"(decode=no_such_kernel):1:26: there is no kernel no_such_kernel",
                  "for stage decode there are decode_splitkv_cpu"});
  expect_refused(kernel(step, "step_no_such(decode=paged_naive_cpu)"), {"step_no_such"});
  expect_refused(kernel(step, "step_sglang_fa_cpu(decode=paged_naive_cpu;decode=paged_online_cpu)"),
                 {":1:43: ", "stage decode is given twice"});
  // A stage of a library that is not there, or is none.
  expect_refused(kernel(step, "step_aiter_fa_cpu(decode=mine@/nowhere/mine.so)"),
                 {"(decode=mine@/nowhere/mine.so):1:31: ", "/nowhere/mine.so: no such file"});
  write("mine.so", "no library");
  expect_refused(kernel(step, "step_aiter_fa_cpu(decode=mine@" + path("mine.so") + ")"),
                 {":1:31: ", "mine.so", "expected a shared library that exports assay_backend_open"});
  // A stage, or the pipeline, that refuses: the row says which and why. Where nothing else was asked, nothing
  // was verified, and that is exit code 1.
  const auto unsupported = [&](const std::string& line, const std::string& name, const std::string& why) {
    const Output o = kernel(line, name);
    EXPECT_EQ(o.code, 1) << name;
    EXPECT_THAT(o.out, HasSubstr("1 unsupported")) << name;
    EXPECT_THAT(o.err, AllOf(HasSubstr("every kernel refused every case"), HasSubstr(why)));
  };
  unsupported("step h=4/2 d=64 mask=tree threshold=6 batch=1q6s30",
              "step_sglang_fa_cpu(draft=paged_online_cpu)",
              "stage draft by paged_online_cpu, which does not promise to read lengths in memory");
  unsupported("step h=4/2 d=64 write=off mask=cross batch=1q1s9", "step_aiter_fa_cpu",
              "required cross attention, supported attention to a request's own tokens");
  unsupported("step h=4/2 d=64 kv=fp8_e4m3 write=off mask=full batch=1q9", "step_ixformer_fa_cpu",
              "required an encoder beside a cache of codes, supported fp32 bf16 fp16");
}

TEST_F(BadInput, SuiteFiles) {
  expect_refused(run({"list", path("missing.suite")}), {"missing.suite"});
  expect_refused(run({"list", "smokey"}), {"smokey"});
  write("bad.suite", "# fine\npaged batch=1q1s4\npaged batch=1q1s8 d=ten\n");
  expect_refused(run({"check", path("bad.suite"), "--out", path("out")}),
                 {"bad.suite:3:", "ten", "nothing was run"});
  EXPECT_FALSE(std::filesystem::exists(path("out"))) << "nothing half-done";
  // All that is wrong at once, with what was typed beside, and in each command that reads lines.
  write("three.suite", "paged batch=1q1s8 d=ten\npaged batch=1q1s4\nprefill page=16 batch=1q4 hh=2\n");
  for (const char* command : {"check", "list", "describe"})
    expect_refused(run({command, path("three.suite"), kLine, "paged h=5/2 batch=1q1s4"}),
                   {"assay: 4 mistakes", "three.suite:1:21: d: ", "three.suite:3:9: ", "three.suite:3:27: ",
                    "\ncommand line:3:7: "});
  expect_refused(run({"check", path("three.suite"), "--backend", "cpu"}), {"3 mistakes; nothing was run\n"});
  // What editors of other systems leave: a mark in front that nobody sees, or no UTF-8 at all.
  write("mark.suite", "\xef\xbb\xbfpaged batch=1q1s4\r\n");
  EXPECT_EQ(run({"list", path("mark.suite")}).out, "paged batch=1q1s4\n");
  write("wide.suite", std::string("# x\npa\0g\0", 9));
  expect_refused(run({"list", path("wide.suite")}), {"wide.suite:2:3: zero byte; expected UTF-8 text"});
}

// A chunk budget below the extends, and a cascade where there is a bias: the steps are right
// (scenarios/README).
TEST_F(BadInput, StepsThatAreRightAreNotRefused) {
  const auto passed = [&](const std::string& line, const std::string& name, const std::string& stage) {
    const Output o = run({"check", line, "--backend", "cpu", "--kernel", name});
    EXPECT_EQ(o.code, 0) << line;
    EXPECT_THAT(o.out, HasSubstr("1 passed, 0 wrong, 0 unsupported")) << line;
    EXPECT_THAT(run({"describe", line, "--backend", "cpu", "--kernel", name}).out, HasSubstr(stage)) << line;
  };
  const std::string common = "step h=4/2 d=64 ";
  passed(common + "budget=2 batch=3q9s20 seed=1", "step_aiter_fa_cpu", "11 chunks of 1 tokens each");
  const std::string prefix = "page=16 prefix=256 workers=4 batch=8q1s300p256 seed=2";
  passed(common + prefix, "step_ixformer_fa_cpu", "cascade: ");
  passed(common + "alibi=linear " + prefix, "step_ixformer_fa_cpu", "decode: ");
  EXPECT_THAT(run({"describe", common + "alibi=linear " + prefix, "--backend", "cpu"}).out,
              Not(HasSubstr("cascade: ")));
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
  expect_refused(
      run({"check", "step batch=1q1s9", "--backend", "cpu", "--kernel",
           "step_aiter_fa_cpu(decod=paged_naive_cpu)"}),
      {"(decod=paged_naive_cpu):1:19: step_aiter_fa_cpu has no stage decod", "write, split, prefill"});
  expect_refused(run({"check", "step batch=1q1s9", "--backend", "cpu", "--kernel",
                      "step_aiter_fa_cpu(decode=paged_naive_cpu;decod=paged_naive_cpu)"}),
                 {":1:42: step_aiter_fa_cpu has no stage decod"});
  expect_refused(
      run({"check", "step batch=1q1s9", "--backend", "cpu", "--kernel", "step_aiter_fa_cpu(decode)"}),
      {":1:19: expected STAGE=KERNEL at 'decode'"});
  expect_refused(run({"check", "step batch=1q1s9", "--backend", "cpu", "--kernel",
                      "step_aiter_fa_cpu(decode=merge_states_cpu)"}),
                 {":1:19: stage decode", "merge_states_cpu", "another op",
                  "for stage decode there are decode_splitkv_cpu"});
  expect_refused(run({"bench", kLine, "--cache", "lukewarm"}), {"lukewarm"});
  expect_refused(run({"bench", kLine, "--cache", "cold,,hot"}), {"''", "several with commas"});
  expect_refused(run({"bench", kLine, "--min-samples", "9", "--max-samples", "3"}), {"--max-samples 3"});
  expect_refused(run({"check", kLine, "--timeout", "0"}), {"--timeout"});
  expect_refused(run({"check", kLine, "--out", ""}), {"--out", "a value is expected"});
  expect_refused(run({"check", kLine, "--junit", ""}), {"--junit", "a value is expected"});
  expect_refused(run({"check", kLine, "--junit", path("no/such/folder.xml")}), {"folder.xml"});
  expect_refused(run({"calibrate", "--backend", "cpu", "--out", "/dev/null/c.json"}),
                 {"--out /dev/null/c.json"});
  expect_refused(run({"campaign", "--alarms", "/dev/null/a.suite"}), {"--alarms /dev/null/a.suite"});
  expect_refused(run({"kernels", "--op", "pagd"}), {"pagd", "prefill, paged"});
  expect_refused(run({"check", kLine, "--filter", "no such text"}), {"--filter matches none"});
  expect_refused(run({"report", path("nowhere")}), {"nowhere"});
}

// As of suites: whoever mends a command wants to know everything that is wrong with it.
TEST_F(BadInput, EveryWrongWord) {
  const Output o =
      run({"bench", kLine, "--frob", "3", "--kernal=x", "--seed", "x", "--shard", "3/2", "--cache",
           "lukewarm", "--timeout", "nan", "--sort", "time", "--limit", "-1", "--worker-memory", "3q"});
  expect_refused(o, {"9 mistakes; assay bench --help says more\n", "has no option --frob",
                     "has no option --kernal (did you mean \"--kernel\"?)\n",
                     "--seed: 'x' is no whole number from 0 to 2^64 - 1\n", "--shard: '3/2' is no part",
                     "--cache: 'lukewarm' is none of hot", "--timeout: 'nan' is no number above 0\n",
                     "--sort: 'time' is no column", "--limit: '-1' is no whole number", "'3q' is no size"});
  expect_refused(run({"merge", path("a"), "--uot", "b"}),
                 {"2 mistakes", "no option --uot", "--out is missing"});
  expect_refused(run({"bench", kLine, "--report", "--json", "--min-samples", "9", "--max-samples", "3"}),
                 {"2 mistakes", "--max-samples 3", "--report and --json"});
  expect_refused(run({"campaign", "--seed", "x", "--shard", "3/2"}), {"2 mistakes", "--seed: ", "--shard: "});
}

// What a stranger typed: the words of the message are about the word that is wrong, and say what is expected.
TEST_F(BadInput, WordsThatAreNoValues) {
  const std::vector<std::string> check = {"check", kLine};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), check.begin(), check.end());
    return run(more);
  };
  // A variable of a script that was not set.
  for (const char* option : {"--seed", "--set", "--filter", "--out"})
    expect_refused(with({option, ""}), {option, "a value is expected, not an empty word"});
  // In range, were it a whole number.
  expect_refused(with({"--races", "3.7"}), {"--races: '3.7' is no whole number from 0 to 1000000"});
  expect_refused(with({"--jobs", "0"}), {"--jobs: '0' is no whole number from 1 to 4096"});
  for (const char* size : {"3q", "", "-1", "1e400G"})
    expect_refused(with({"--worker-memory", size}),
                   {std::string("--worker-memory: '") + size + "' is no size", "such as 8G"});
  // There, and no library.
  expect_refused(with({"--backend", path("")}), {"is a folder; a library is expected"});
  expect_refused(with({"--backend", "/dev/null"}), {"/dev/null: is no plain file; a library is expected"});
  const Output trace = run({"check", "paged batch=trace(" + root.string() + ",step=0)", "--backend", "cpu",
                            "--kernel", "paged_naive_cpu"});
  EXPECT_EQ(trace.code, 2);
  EXPECT_THAT(trace.out, HasSubstr("is a folder; a trace file is expected"));
  // An argument that is missing has the name that the help gives it.
  expect_refused(run({"facts"}), {"assay: KERNELS is missing: names or globs; assay facts --help"});
  expect_refused(run({"compare"}), {"RUNS is missing"});
  expect_refused(run({"merge", path("a")}), {"--out is missing: results folder to make"});
  // Kernels that are not there, with those that are.
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"facts", "paged_naiv_cpu"},
        {"kernels", "--kernel", "paged_naiv_cpu"},
        {"kernels", "--arithmetic", "--json", "--kernel", "paged_naiv_cpu"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--backend", "cpu"});
    const Output o = run(all);
    EXPECT_EQ(o.code, 2);
    EXPECT_THAT(o.err, AllOf(HasSubstr("no kernel called paged_naiv_cpu"),
                             HasSubstr("did you mean \"paged_naive_cpu\"?"), HasSubstr("merge_states_cpu")));
  }
}

// Which of several reasons left nothing, with how many lines and the first of them.
TEST_F(BadInput, NothingLeftSaysWhy) {
  write("two.suite", "paged h=4/2 d=64 batch=2q1s33\npaged h=4/2 d=64 batch=1q1s7\n");
  const std::string suite = path("two.suite");
  for (const char* command : {"check", "list", "describe"}) {
    expect_refused(run({command, suite, "--set", "h=5/2"}),
                   {"no case", "2 contradict --set, first paged h=4/2 d=64 batch=2q1s33: 5 query heads"});
    expect_refused(run({command, suite, "--filter", "q3"}), {"no case", "--filter matches none of 2"});
    expect_refused(run({command, suite, "--largest", "1000"}),
                   {"no case", "2 have more than 1000 multiply-adds (--largest)"});
  }
  for (const char* command : {"check", "list"})
    expect_refused(run({command, suite, "--limit", "0"}), {"no case", "--limit is 0"});
  expect_refused(run({"check", suite, "--set", "d=32", "--filter", "s33", "--largest", "1000"}),
                 {"--filter matches none of 1; 1 have more than 1000 multiply-adds"});
}

#if !defined(ASSAY_SANITIZED)  // which have no limit of addresses
// In place of a worker that dies of it.
TEST_F(BadInput, WorkerMemoryTooSmallToStart) {
  for (const char* size : {"1k", "6M", "20M"})
    expect_refused(run({"check", kLine, "--backend", "cpu", "--worker-memory", size, "--no-table"}),
                   {"--worker-memory", "does not start", "at least "});
}
#endif

TEST_F(BadInput, ResultsFolders) {
  write("file", "x");
  expect_refused(run({"check", kLine, "--out", path("file")}), {"file", "--out"});
  expect_refused(run({"check", kLine, "--out", path("file/sub")}), {"cannot make"});
  expect_refused(run({"check", kLine, "--out", "/proc/assay-out"}), {"/proc/assay-out", "--out"});
  expect_refused(run({"check", kLine, "--resume", path("nowhere")}), {"run.json"});
  expect_refused(run({"check", kLine, "--resume"}), {"--resume DIR"});
  // Continued by its folder alone a run has options of its own; nothing that was typed goes unheard.
  const std::vector<std::string> kernel = {"--backend", "cpu", "--kernel", "paged_naive_cpu"};
  ASSERT_EQ(run({"check", kLine, "--out", path("ended"), kernel[0], kernel[1], kernel[2], kernel[3]}).code,
            0);
  EXPECT_EQ(run({"check", "--resume", path("ended"), kernel[0], kernel[1], kernel[2], kernel[3]}).code, 0);
  expect_refused(run({"check", "--resume", path("ended"), "--seed", "4", "--kernel", "*naive*"}),
                 {"--resume " + path("ended"), "kernels, seed", "leave them out"});
  std::filesystem::remove(path("ended/rows.csv"));
  expect_refused(run({"check", "--resume", path("ended")}), {"rows.csv: is not there"});
  EXPECT_FALSE(std::filesystem::exists(path("ended/rows.csv")));
  write("occupied", "");
  std::filesystem::create_directories(path("home"));
  write("home/letter.txt", "dear");
  expect_refused(run({"check", kLine, "--out", path("home")}), {"not empty"});
}

// A library that is no backend is bad input, of every command that takes one.
TEST_F(BadInput, LibraryThatIsNoBackend) {
  write("libnot.so", "this is no library");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"check", kLine}, {"kernels"}, {"describe", kLine}, {"facts", "paged_*"}})
    for (const auto& [library, why] :
         {std::pair{path("libnot.so"), "exports assay_backend_open"},
          {std::string(ASSAY_BINARY_DIR "/testing/libassay_bad_1.so"), "not serve interface version"}}) {
      std::vector<std::string> all = words;
      all.insert(all.end(), {"--backend", library});
      expect_refused(run(all), {library, why});
    }
  expect_refused(run({"mutants", "--catalogue", kFake, "--quiet"}), {kFake, "assay_fault_catalogue_open"});
  expect_refused(run({"explain", kLine, "--kernel", "paged_naive_cpu", "--json", "/nonexistent/a.json"}),
                 {"--json", "/nonexistent/a.json"});
  expect_refused(run({"explain", kLine, "--kernel", "paged_naive_cpu", "--picture", "/nonexistent/a.png"}),
                 {"--picture", "/nonexistent/a.png"});
}

TEST_F(BadInput, DescribeOfUnknownKernels) {
  const std::string step = "step h=4/2 d=64 batch=1q1s9";
  expect_refused(run({"describe", step, "--backend", "cpu", "--kernel", "nokernel"}),
                 {"--kernel nokernel: no kernel of that name", "step_aiter_fa_cpu"});
  expect_refused(run({"describe", step, "--kernel", "step*"}), {"--kernel step*", "--backend"});
}

TEST_F(BadInput, OpsThatACommandDoesNotServe) {
  const std::string step = "step h=4/2 d=64 batch=1q1s9";
  expect_refused(run({"explain", step, "--kernel", "nobody"}), {"backend cpu has no kernel nobody"});
  expect_refused(run({"explain", step, "--kernel", "step_unified_cpu(attend=nobody)"}),
                 {"(attend=nobody):1:25: there is no kernel nobody", "for stage attend there are"});
  expect_refused(run({"explain", step, "--kernel", "paged_naive_cpu"}),
                 {"kernel paged_naive_cpu is for another op"});
  expect_refused(run({"explain", step + " ranks=2", "--kernel", "nobody"}),
                 {"backend cpu has no kernel nobody"});
  expect_refused(run({"explain", "merge_states h=4 d=64 batch=1q1", "--kernel", "merge_states_cpu"}),
                 {"prefill, paged and step", "merge_states is another op ("});
  EXPECT_THAT(run({"explain", "--help"}).out, HasSubstr("of prefill, paged or step"));
  EXPECT_THAT(run({"facts", "--help"}).out, HasSubstr("of a data op"));
}

TEST_F(BadInput, CountsAndFlagsThatExcludeEachOther) {
  const Output limit = run({"list", kLine, "--limit", "-1"});
  expect_refused(limit, {"--limit", "'-1' is no whole number from 0"});
  EXPECT_LT(limit.err.size(), 300u) << "not the digits of the largest double";
  expect_refused(run({"list", kLine, "--coverage", "--count"}), {"--coverage", "--count"});
}

// Lines stay as they are in fields that their op lacks, and that is said.
TEST_F(BadInput, SetFieldsThatALineCannotHave) {
  for (const char* command : {"list", "describe"}) {
    const Output o = run({command, "merge_states h=4 d=64 batch=1q1", "--set", "page=32 workers=2 d=32"});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_THAT(o.out, HasSubstr("merge_states h=4 d=32 batch=1q1"));
    EXPECT_THAT(o.err, HasSubstr("no field page, workers in 1 case of merge_states"));
  }
  const Output check = run({"check", kLine, "--backend", "cpu", "--kernel", "*naive*", "--set", "workers=2"});
  EXPECT_THAT(check.out, HasSubstr("no field workers in 1 case of paged"));
}

}  // namespace
}  // namespace assay
