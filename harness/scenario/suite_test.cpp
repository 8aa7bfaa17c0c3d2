// SPDX-License-Identifier: Apache-2.0
// Suites: axes of every kind, names, includes, exceptions, counts, laziness, and the place of every
// mistake. Covering arrays are suite_cover_test.cpp.
#include "harness/scenario/suite.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "harness/scenario/lengths.hpp"

namespace assay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

Suite suite_of(const std::string& text) { return Suite::from_text(text, {"t.suite", 1, 1}); }

std::vector<std::string> lines_of(Suite suite, SuiteCounts* counts = nullptr) {
  std::vector<std::string> out;
  while (const std::optional<SuiteCase> c = suite.next()) out.push_back(print(c->scenario));
  if (counts) *counts = suite.counts();
  return out;
}
std::vector<std::string> lines_of(const std::string& text, SuiteCounts* counts = nullptr) {
  return lines_of(suite_of(text), counts);
}

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / fmt::format("assay_suite_test_{}", ::getpid())) {
    fs::create_directories(path_ / "sub");
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

TEST(Suite, ProductLastAxisFastest) {
  EXPECT_THAT(lines_of("paged d=64,96 batch=1q1,2q1 cap=0,5"),
              ElementsAre("paged d=64 batch=1q1", "paged d=64 cap=5 batch=1q1", "paged d=64 batch=2q1",
                          "paged d=64 cap=5 batch=2q1", "paged d=96 batch=1q1", "paged d=96 cap=5 batch=1q1",
                          "paged d=96 batch=2q1", "paged d=96 cap=5 batch=2q1"));
}

TEST(Suite, ZipsAdvanceTogether) {
  EXPECT_THAT(lines_of("paged page={16,64} layout={nhd,hnd} batch=1q1,2q1"),
              ElementsAre("paged batch=1q1", "paged batch=2q1", "paged page=64 layout=hnd batch=1q1",
                          "paged page=64 layout=hnd batch=2q1"));
  EXPECT_THAT(lines_of("paged batch={1,8}q1s{8k,1k}"),
              ElementsAre("paged batch=1q1s8k", "paged batch=8q1s1k"));
  EXPECT_THAT(lines_of("paged cap={[1:3]} batch={4q1,[5,6]q1}"),
              ElementsAre("paged cap=1 batch=4q1", "paged cap=2 batch=5q1", "paged cap=3 batch=6q1"));
}

TEST(Suite, RangesAndListsInsideValues) {
  EXPECT_THAT(
      lines_of("paged batch=1q1s[1k:8k:*2]"),
      ElementsAre("paged batch=1q1s1k", "paged batch=1q1s2k", "paged batch=1q1s4k", "paged batch=1q1s8k"));
  EXPECT_THAT(lines_of("paged batch=1q1s[1:10:*3]"),
              ElementsAre("paged batch=1q1", "paged batch=1q1s3", "paged batch=1q1s9"));
  EXPECT_THAT(lines_of("paged batch=[1:7:3]q1"),
              ElementsAre("paged batch=1q1", "paged batch=4q1", "paged batch=7q1"));
  EXPECT_THAT(lines_of("paged window=[-1:1] batch=1q1"),
              ElementsAre("paged batch=1q1", "paged window=0 batch=1q1", "paged window=1 batch=1q1"));
  EXPECT_THAT(lines_of("paged kv=int8:[head,channel]/[bf16,fp16] batch=1q1").size(), 4u);
  EXPECT_THAT(lines_of("paged batch=1q[1, 2]"), ElementsAre("paged batch=1q1", "paged batch=1q2"));
  // Alternatives of one comma list may hold ranges; together they are one axis.
  EXPECT_THAT(lines_of("paged batch=9q1,[1,2]q[1:2],8q1"),
              ElementsAre("paged batch=9q1", "paged batch=1q1", "paged batch=1q2", "paged batch=2q1",
                          "paged batch=2q2", "paged batch=8q1"));
  // Commas and spaces inside ( ) belong to the value.
  EXPECT_THAT(lines_of("paged batch=uniform(n=4, s=1:9),2q1"),
              ElementsAre("paged batch=uniform(n=4,q=1,s=1:9)", "paged batch=2q1"));
  EXPECT_THAT(lines_of("paged batch=uniform(n=[4,5],s={1,2}) cap={3,4}").size(), 4u);
  EXPECT_THAT(lines_of("paged seed=[9223372036854775806:9223372036854775807] batch=1q1").back(),
              HasSubstr("seed=9223372036854775807"));
}

TEST(Suite, SeveralOps) {
  EXPECT_THAT(lines_of("prefill,paged d=64,96 batch=2q3"),
              ElementsAre("prefill d=64 batch=2q3", "prefill d=96 batch=2q3", "paged d=64 batch=2q3",
                          "paged d=96 batch=2q3"));
}

TEST(Suite, DefaultsFollowTheAxis) {
  EXPECT_THAT(lines_of("prefill q=bf16,fp16,fp8_e4m3 batch=1q1"),
              ElementsAre("prefill batch=1q1", "prefill q=fp16 batch=1q1", "prefill q=fp8_e4m3 batch=1q1"));
  EXPECT_THAT(lines_of("prefill q=bf16,fp16 out=bf16 batch=1q1"),
              ElementsAre("prefill batch=1q1", "prefill q=fp16 out=bf16 batch=1q1"));
}

TEST(Suite, NamesCommentsAndBlankLines) {
  EXPECT_THAT(
      lines_of("# heads\n\nlet small = h=4/2 d=64  # little\nlet both = $small cap=5\r\n  paged $both "
               "batch=1q1 # end\n"
               "paged ${small} batch=2q1\nlet n = 3\npaged batch=${n}q1_${n}q2"),
      ElementsAre("paged h=4/2 d=64 cap=5 batch=1q1", "paged h=4/2 d=64 batch=2q1", "paged batch=3q1_3q2"));
}

TEST(Suite, InvalidCombinationsAreLeftOutAndCounted) {
  SuiteCounts counts;
  EXPECT_THAT(lines_of("paged h=4/2,5/1,8/3 layout=nhd,mla batch=1q1\nprefill batch=1q1,2q2", &counts),
              ElementsAre("paged h=4/2 batch=1q1", "paged h=5/1 batch=1q1",
                          "paged h=5/1 layout=mla batch=1q1", "prefill batch=1q1", "prefill batch=2q2"));
  EXPECT_EQ(counts.cases, 5);
  EXPECT_EQ(counts.excluded, 3);
  EXPECT_EQ(counts.lines, 2);
  EXPECT_EQ(counts.skipped, 0);
}

TEST(Suite, Exceptions) {
  SuiteCounts counts;
  EXPECT_THAT(lines_of("paged kv=bf16,int8,fp8_e4m3:head mask=causal,tree batch=1q1 except(kv=int8 "
                       "mask=tree) except(kv=fp8* mask=causal)",
                       &counts),
              ElementsAre("paged batch=1q1", "paged mask=tree batch=1q1", "paged kv=int8 batch=1q1",
                          "paged kv=fp8_e4m3:head mask=tree batch=1q1"));
  EXPECT_EQ(counts.excluded, 2);
  // Values compare as they print, whatever they look like: 1024 is 1k, the default of kv follows q.
  EXPECT_THAT(lines_of("paged window=512,1024,2048 batch=1q1 except(window=1024,2k)"),
              ElementsAre("paged window=512 batch=1q1"));
  EXPECT_THAT(lines_of("paged q=bf16,fp16 batch=1q1 except(kv=fp16)"), ElementsAre("paged batch=1q1"));
  EXPECT_THAT(lines_of("paged cap=[1:5] batch=1q1 except(cap=[2:4])").size(), 2u);
}

TEST(Suite, PlaceOfEachCase) {
  Suite suite = suite_of("\npaged batch=1q1,2q1\n   paged batch=3q1");
  EXPECT_EQ(suite.next()->place.line, 2);
  EXPECT_EQ(suite.next()->place.line, 2);
  const SourcePlace third = suite.next()->place;
  EXPECT_EQ(third.file, "t.suite");
  EXPECT_EQ(third.line, 3);
  EXPECT_EQ(third.column, 4);
  EXPECT_FALSE(suite.next());
  EXPECT_FALSE(suite.next());
}

TEST(Suite, MistakesWithPlace) {
  const struct {
    const char* text;
    int line, column;
    const char* message;
  } mistakes[] = {
      {"paged batch=1q1\npaged bach=1q1", 2, 7, "unknown field \"bach\" (did you mean \"batch\"?)"},
      {"paged mask=causal,tre batch=1q1", 1, 19, "mask: unknown value \"tre\""},
      {"paged mask=causal, tree batch=1q1", 1, 19, "empty value in a list"},
      {"paged d=64,,96 batch=1q1", 1, 12, "empty value in a list"},
      {"paged d=[64,] batch=1q1", 1, 13, "empty element"},
      {"paged d=[64:32] batch=1q1", 1, 10, "the range [64:32] runs backwards"},
      {"paged d=[1:9:0] batch=1q1", 1, 14, "range: step: 0 is too small"},
      {"paged d=[1:9:*1] batch=1q1", 1, 15, "range: factor: 1 is too small"},
      {"paged d=[0:9:*2] batch=1q1", 1, 10, "powers start at 1 or more, not at 0"},
      {"paged d=[1:9:2:3] batch=1q1", 1, 16, "a range is [FIRST:LAST]"},
      {"paged d=[1:x] batch=1q1", 1, 12, "range: last: \"x\" is not a number"},
      {"paged d=[[1,2],3] batch=1q1", 1, 10, "axes cannot stand inside [ ]"},
      {"paged d=64,{96,128} batch=1q1", 1, 12, "a { } list cannot stand inside another list"},
      {"paged d={64,96} cap={1,2,3} batch=1q1", 1, 21,
       "the { } lists of a line advance together and must be equally long; this one has 3 values, the first "
       "one 2"},
      {"paged d=[64,96 batch=1q1", 1, 9, "\"[\" is never closed; expected \"]\""},
      {"paged seed=[0:9223372036854775807] batch=[1:1000]q1,2q1 d=[0:9223372036854775807:1]", 1, 12,
       "the axis has more than 2^62 values"},
      {"paged h=32/7 batch=1q1", 1, 7, "32 query heads cannot share 7 KV heads evenly"},
      {"paged h=32/7 d=64,96 batch=1q1", 1, 7, "32 query heads cannot share 7 KV heads evenly"},
      {"paged h=32/7,8/3 batch=1q1", 1, 1,
       "every combination of this line is left out, the last one because of: 8 query heads"},
      {"paged d=64,96 batch=1q1 except(d=64,96)", 1, 1,
       "every combination of this line is left out, the last one because of: an except()"},
      {"prefill,paged page=4,8 batch=1q1", 1, 15, "field \"page\" has no meaning for prefill"},
      {"paged d=64 d=96 batch=1q1", 1, 12, "field \"d\" is given twice"},
      {"paged batch=1q1 except(d)", 1, 24, "\"d\" is not NAME=VALUE[,VALUE...]"},
      {"paged batch=1q1 except(dd=4)", 1, 24, "unknown field \"dd\" (did you mean \"d\"?)"},
      {"paged batch=1q1 except(d=64,x)", 1, 29, "d: \"x\" is not a number"},
      {"paged batch=1q1 except()", 1, 17, "except() leaves out everything"},
      {"paged batch=1q1 except(d=4)x", 1, 17, "nothing may follow the \")\""},
      {"paged batch=1q1 cover=3", 1, 17, "cover= needs axes"},
      {"paged batch=1q1 d=64,96 cover=5", 1, 31,
       "cover: 5 is too large; expected a whole number from 2 to 4"},
      {"paged batch=1q1,2q1 cover=2 cover=3", 1, 29, "cover= is given twice"},
      {"optional", 1, 1, "a scenario starts with its op; accepted: prefill, paged"},
      // A number computed by a range points at the range.
      {"paged batch=4q1s[1:2000000000:1999999999]_1q[1:5000000000:4999999999]", 1, 45,
       "batch: new tokens (q): 5000000000 is too large"},
      {"paged batch=[7:8]", 1, 13, "batch: \"q\" and the new tokens expected"},
      // Names.
      {"paged $smal batch=1q1", 1, 7, "\"$smal\" is not defined; names defined before this line: none"},
      {"let small = d=64\npaged $smal batch=1q1", 2, 7,
       "\"$smal\" is not defined (did you mean \"small\"?); names defined before this line: small"},
      {"let small d=64", 1, 5, "\"small d\" is not a name"},
      {"let x-y = 3", 1, 5, "\"x-y\" is not a name; expected let NAME = TEXT"},
      {"let x =", 1, 8, "expected let NAME = TEXT"},
      {"let x = d=64\nlet x = d=96", 2, 5, "\"x\" is already defined at t.suite:1:5"},
      {"let bad = d=64 mask=tre\n\npaged $bad batch=1q1", 1, 21,
       "mask: unknown value \"tre\" (did you mean \"tree\"?); accepted: causal, full, cross, tree (in $bad, "
       "used at t.suite:3:7)"},
      {"include", 1, 1, "include needs a file"},
      {"paged batch=1q1\ninclude nowhere.suite", 2, 1,
       "\"nowhere.suite\" cannot be opened: No such file or directory; expected a suite file"},
  };
  for (const auto& m : mistakes) {
    try {
      // Bounded: some of these lines would go on for a while before they fail.
      Suite suite = suite_of(m.text);
      for (int i = 0; i < 100 && suite.next(); ++i) {
      }
      ADD_FAILURE() << "accepted: " << m.text;
    } catch (const InputError& error) {
      EXPECT_EQ(error.place().file, "t.suite") << m.text;
      EXPECT_EQ(error.place().line, m.line) << m.text << "\n" << error.what();
      EXPECT_EQ(error.place().column, m.column) << m.text << "\n" << error.what();
      EXPECT_THAT(error.message(), StartsWith(m.message)) << m.text;
    }
  }
}

TEST(Suite, NamesThatMultiplyAreStopped) {
  std::string text = "let a0 = d=64 ";
  for (int i = 1; i < 12; ++i) {
    text += fmt::format("\nlet a{} =", i);
    for (int j = 0; j < 10; ++j) text += fmt::format(" $a{}", i - 1);
  }
  EXPECT_THROW(lines_of(text), InputError);
}

TEST(Suite, Includes) {
  Folder folder;
  folder.file("shapes.inc", "let tiny = h=2 d=8\n");
  folder.file("sub/inner.suite", "include ../shapes.inc\npaged $tiny batch=2q1\n");
  const std::string outer = folder.file("outer.suite",
                                        "include shapes.inc\npaged $tiny batch=1q1\ninclude "
                                        "sub/inner.suite\ninclude shapes.inc\npaged $tiny batch=3q1");
  EXPECT_THAT(lines_of(Suite::open(outer)),
              ElementsAre("paged h=2 d=8 batch=1q1", "paged h=2 d=8 batch=2q1", "paged h=2 d=8 batch=3q1"));
  // A mistake in an included file is reported there.
  folder.file("broken.inc", "\npaged d=0 batch=1q1\n");
  const std::string uses = folder.file("uses.suite", "include broken.inc\n");
  try {
    lines_of(Suite::open(uses));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.place().file, HasSubstr("broken.inc"));
    EXPECT_EQ(error.place().line, 2);
    EXPECT_EQ(error.place().column, 9);
  }
}

TEST(Suite, NamesBelongToTheirFile) {
  Folder folder;
  folder.file("a.suite", "let n = d=8\nlet own = d=4\npaged h=1 $n batch=1q1\n");
  folder.file("b.suite", "let n = d=16\npaged h=1 $n batch=1q1\n");
  folder.file("c.suite",
              "let own = d=5\ninclude a.suite\ninclude b.suite\npaged h=1 $n batch=2q1\npaged h=1 $own "
              "batch=2q1\nlet n = d=32\n"
              "paged h=1 $n batch=3q1\n");
  // The last include wins over the one before, the file's own names over both.
  EXPECT_THAT(lines_of(Suite::open(folder.path() + "/c.suite")),
              ElementsAre("paged h=1 d=8 batch=1q1", "paged h=1 d=16 batch=1q1", "paged h=1 d=16 batch=2q1",
                          "paged h=1 d=5 batch=2q1", "paged h=1 d=32 batch=3q1"));
  // A file does not see the names of the file that includes it.
  folder.file("d.suite", "paged $outer batch=1q1\n");
  const std::string e = folder.file("e.suite", "let outer = d=8\ninclude d.suite\n");
  EXPECT_THROW(lines_of(Suite::open(e)), InputError);
  // A file included twice is read once; its names arrive both times.
  folder.file("f.suite", "include a.suite\npaged h=1 $n batch=4q1\n");
  const std::string g = folder.file("g.suite", "include a.suite\ninclude f.suite\n");
  EXPECT_THAT(lines_of(Suite::open(g)), ElementsAre("paged h=1 d=8 batch=1q1", "paged h=1 d=8 batch=4q1"));
}

TEST(Suite, IncludeLoops) {
  Folder folder;
  folder.file("a.suite", "include sub/b.suite\n");
  folder.file("sub/b.suite", "paged batch=1q1\n  include ../sub/../a.suite\n");
  Suite suite = Suite::open(folder.path() + "/a.suite");
  EXPECT_TRUE(suite.next());
  try {
    suite.next();
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.message(), StartsWith("include loop: "));
    EXPECT_THAT(error.place().file, HasSubstr("b.suite"));
    EXPECT_EQ(error.place().line, 2);
    EXPECT_EQ(error.place().column, 3);
  }
  const std::string self = folder.file("self.suite", "include self.suite");
  EXPECT_THROW(lines_of(Suite::open(self)), InputError);
}

TEST(Suite, OptionalLinesSkipMissingTraces) {
  SuiteCounts counts;
  EXPECT_THAT(lines_of("optional paged batch=trace(no_such_trace.csv,step=[1,2,3]),2q1\npaged batch=1q1\n"
                       "optional paged batch=trace(no_such_trace.csv,step=1)",
                       &counts),
              ElementsAre("paged batch=2q1", "paged batch=1q1"));
  EXPECT_EQ(counts.skipped, 4);
  EXPECT_EQ(counts.cases, 2);
  ASSERT_EQ(counts.skip_reasons.size(), 2u);
  EXPECT_THAT(counts.skip_reasons[0], StartsWith("t.suite:1: trace file no_such_trace.csv not found"));
  // Without `optional` the case stays: a missing file is then an error when the batch is drawn.
  EXPECT_EQ(lines_of("paged batch=trace(no_such_trace.csv,step=1)").size(), 1u);
  Folder folder;
  folder.file("there.csv", "");
  add_trace_folder(folder.path());
  EXPECT_EQ(lines_of("optional paged batch=trace(there.csv,step=1)").size(), 1u);
}

// What is wrong may be as long as whoever wrote it likes; the message is for people.
TEST(SuiteText, HugeWordsGiveShortMessages) {
  const std::string huge(500'000, 'x');
  for (const std::string& text :
       {"paged " + huge + "=4 batch=1q1", "paged mask=" + huge + " batch=1q1", huge, "paged " + huge,
        "let " + huge + "- = 4", "paged $" + huge, "paged ${" + huge, "paged batch=" + huge,
        "include " + huge, "paged batch=1q1 except(" + huge + "=4)",
        "paged x" + std::string(20 << 20, 'x')}) {
    try {
      Suite suite = Suite::from_text(text, {"t", 1, 1});
      while (suite.next()) {
      }
      ADD_FAILURE() << text.substr(0, 20);
    } catch (const InputError& e) {
      EXPECT_LT(e.message().size(), 2100u) << text.substr(0, 20);
    }
  }
  EXPECT_THROW(
      {
        try {
          parse_scenario("paged " + huge + "=4");
        } catch (const InputError& e) {
          EXPECT_LT(std::string(e.what()).size(), 2100u);
          EXPECT_NE(std::string(e.what()).find("accepted fields: h, d"), std::string::npos);
          throw;
        }
      },
      InputError);
}

TEST(SuiteFiles, PipesAndDevicesAreRefused) {
  const std::string pipe = ::testing::TempDir() + fmt::format("assay_suite_test_{}.suite", getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    try {
      Suite::open(path);
      ADD_FAILURE();
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find("no plain file; expected a suite file"), std::string::npos)
          << e.what();
    }
  }
  unlink(pipe.c_str());
}

TEST(Suite, OpenFindsFilesNamesAndLines) {
  EXPECT_THAT(lines_of(Suite::open("paged d=64,96 batch=1q1")),
              ElementsAre("paged d=64 batch=1q1", "paged d=96 batch=1q1"));
  EXPECT_GT(lines_of(Suite::open("smoke")).size(), 50u);
  EXPECT_GT(lines_of(Suite::open(ASSAY_SOURCE_DIR "/scenarios/masks.suite")).size(), 50u);
  const struct {
    const char* what;
    const char* message;
  } mistakes[] = {
      {"smok",
       "\"smok\" is neither a suite nor a scenario line (did you mean \"smoke\"?); suites: alarms, "
       "boundaries, correctness, "},
      {"nowhere.suite",
       "\"nowhere.suite\" cannot be opened: No such file or directory; expected a suite file"},
      {"no/where", "\"no/where\" cannot be opened"},
      {"", "a suite or a scenario line is expected"},
      {"d=64 batch=1q1", "a scenario starts with its op, not \"d=64\""},
      {"paged", "batch= is required"},
      {"paged,prefill", "batch= is required"},
  };
  for (const auto& m : mistakes) {
    try {
      lines_of(Suite::open(m.what));
      ADD_FAILURE() << m.what;
    } catch (const InputError& error) {
      EXPECT_THAT(error.message(), StartsWith(m.message));
      EXPECT_EQ(error.place().file, "command line");
    }
  }
}

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(Suite, ABillionPointsAreLazy) {
#ifdef ASSAY_SANITIZED
  GTEST_SKIP() << "AddressSanitizer keeps freed memory aside; the Release build measures this";
#endif
  Suite suite = suite_of("paged batch=[1:1000]q1s[1k:1023k:1k] h=4,8 d=[1:1000] seed=[1:1000000000]");
  const long before = peak_kib();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(suite.next());
  EXPECT_LT(peak_kib() - before, 2000);
  EXPECT_EQ(suite.counts().cases, 1000);
}

TEST(Suite, MemoryDoesNotGrowWithTheCases) {
#ifdef ASSAY_SANITIZED
  GTEST_SKIP() << "AddressSanitizer keeps freed memory aside; the Release build measures this";
#endif
  Suite suite = suite_of("paged d=64,96,128 page=16,32 seed=[1:20000] batch=4q1s1k_1q5");
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(suite.next());
  const long before = peak_kib();
  int64_t count = 1000;
  while (suite.next()) ++count;
  EXPECT_EQ(count, 120000);
  EXPECT_LT(peak_kib() - before, 1000);
}

// Every shipped suite expands, every case round-trips and appears once.
TEST(Suite, ShippedSuitesRoundTrip) {
  add_trace_folder(ASSAY_SOURCE_DIR "/scenarios/traces");
  int suites = 0;
  for (const auto& entry : fs::directory_iterator(ASSAY_SOURCE_DIR "/scenarios")) {
    if (entry.path().extension() != ".suite") continue;
    ++suites;
    std::set<std::string> seen;
    Suite suite = Suite::open(entry.path().string());
    while (const std::optional<SuiteCase> c = suite.next()) {
      const std::string text = print(c->scenario);
      ASSERT_EQ(parse_scenario(text), c->scenario) << text;
      EXPECT_TRUE(seen.insert(text).second || entry.path().stem() == "alarms")  // a line for every kernel
          << entry.path() << " line " << c->place.line << " repeats " << text;
    }
    EXPECT_GT(seen.size(), 5u) << entry.path();
  }
  EXPECT_GE(suites, 10);
}

}  // namespace
}  // namespace assay
