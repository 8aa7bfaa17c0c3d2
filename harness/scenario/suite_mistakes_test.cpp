// SPDX-License-Identifier: Apache-2.0
// All that is wrong with a suite is said at once: every bad line and word, each at its place, none that only
// follows from another.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "harness/base/input_errors.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Lines of the message, without the first, which counts them.
std::vector<std::string> mistakes_of(const std::string& text, const std::string& file = "t.suite") {
  std::vector<std::string> out;
  try {
    Suite suite = Suite::from_text(text, {file, 1, 1});
    while (suite.next()) {
    }
  } catch (const InputErrors& errors) {
    for (const InputError& one : errors.all()) out.push_back(one.what());
    EXPECT_THAT(errors.what(), StartsWith(std::to_string(out.size() + errors.more()) + " mistakes\n"));
    for (const std::string& line : out) EXPECT_THAT(errors.what(), HasSubstr("\n" + line));
    EXPECT_EQ(errors.place().line, errors.all()[0].place().line);
    EXPECT_EQ(errors.message(), errors.all()[0].message());
  } catch (const InputError& error) {
    out.push_back(error.what());
  }
  return out;
}

TEST(SuiteMistakes, EveryBadLine) {
  EXPECT_THAT(
      mistakes_of("# fine\npaged batch=1q1\npaged hh=4 batch=1q1\nprefill page=16 batch=1q4\n"
                  "paged batch=2q1\n  paged d=ten batch=1q1\npaged h=5/2 batch=1q1\npaged"),
      ElementsAre(StartsWith("t.suite:3:7: unknown field \"hh\""), StartsWith("t.suite:4:9: "),
                  StartsWith("t.suite:6:11: d: "), AllOf(StartsWith("t.suite:7:7: "), HasSubstr("multiple")),
                  StartsWith("t.suite:8:1: batch= is required")));
  EXPECT_THAT(mistakes_of("paged batch=1q1\npaged d=ten batch=1q1\npaged batch=3q1\n"),
              ElementsAre(StartsWith("t.suite:2:9: d: ")));
}

// Words of one line too, values of lists among them, whichever comes first in the cases.
TEST(SuiteMistakes, EveryBadWordOfALine) {
  EXPECT_THAT(mistakes_of("paged hh=4 d=ten mask=causal page=16,frog h=4/2,5/x batch=1q1"),
              ElementsAre(StartsWith("t.suite:1:7: unknown field"), StartsWith("t.suite:1:14: d: "),
                          StartsWith("t.suite:1:38: page: "), StartsWith("t.suite:1:51: h: ")));
  EXPECT_THAT(mistakes_of("paged d=64 d=96 page=x batch=1q1 except(d=y)"),
              ElementsAre(StartsWith("t.suite:1:12: field \"d\" is given twice"),
                          StartsWith("t.suite:1:22: page: "), StartsWith("t.suite:1:43: d: ")));
  EXPECT_THAT(mistakes_of("paged d={64,x} page={16,32} batch=1q1"),
              ElementsAre(StartsWith("t.suite:1:13: d: ")));
  // Of one mistake its rules say nothing more.
  EXPECT_THAT(mistakes_of("paged h=x/2 batch=1q1"), ElementsAre(StartsWith("t.suite:1:9: h: ")));
}

// A name that is wrong where it is defined is wrong there, and once.
TEST(SuiteMistakes, NothingThatOnlyFollows) {
  EXPECT_THAT(
      mistakes_of("let a-b = d=64\nlet bad = d=64 mask=tre\npaged $bad batch=1q1\nprefill $bad batch=2q1\n"
                  "paged $a batch=1q1\npaged $other batch=1q1\nlet c =\nlet e = $c\npaged $e batch=3q1"),
      ElementsAre(StartsWith("t.suite:1:5: \"a-b\" is not a name"),
                  StartsWith("t.suite:2:21: mask: unknown value \"tre\""),
                  StartsWith("t.suite:6:7: \"$other\" is not defined"), StartsWith("t.suite:7:8: ")));
  // What a file that is not there would have named is unknown.
  EXPECT_THAT(mistakes_of("include nowhere.suite\npaged $tiny batch=1q1\npaged d=x batch=1q1"),
              ElementsAre(StartsWith("t.suite:1:1: \"nowhere.suite\" cannot be opened"),
                          StartsWith("t.suite:3:9: ")));
}

TEST(SuiteMistakes, OfIncludedFilesToo) {
  const std::string folder = ::testing::TempDir() + "suite_mistakes";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/inner.suite") << "let n = d=8\npaged d=0 batch=1q1\npaged $n batch=1q1 page=x\n";
  EXPECT_THAT(mistakes_of("paged d=y batch=1q1\ninclude inner.suite\npaged $n batch=z", folder + "/t.suite"),
              ElementsAre(HasSubstr("/t.suite:1:9: d: "), HasSubstr("/inner.suite:2:9: "),
                          HasSubstr("/inner.suite:3:25: page: "), HasSubstr("/t.suite:3:16: batch: ")));
}

// Of what is no suite at all the message stays short; of a line of a million cases the rest is not walked.
TEST(SuiteMistakes, ManyAndLong) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "frog\n";
  try {
    Suite::from_text(text, {"t.suite", 1, 1}).next();
    FAIL();
  } catch (const InputErrors& errors) {
    EXPECT_EQ(errors.all().size(), InputErrors::kKept);
    EXPECT_THAT(errors.what(),
                AllOf(StartsWith("1000 mistakes\n"), HasSubstr("\nand 960 more"), Not(HasSubstr(":41:"))));
  }
  EXPECT_THAT(mistakes_of("paged d=x batch=1q1\npaged seed=[1:1000000000] batch=1q1\npaged d=y batch=1q1"),
              ElementsAre(StartsWith("t.suite:1:9: d: "), StartsWith("t.suite:3:9: d: ")));
}

}  // namespace
}  // namespace assay
