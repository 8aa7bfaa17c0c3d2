// SPDX-License-Identifier: Apache-2.0
// What people and CI systems read, compared whole: table, tally, failures, JUnit, summary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "harness/base/error.hpp"
#include "harness/report/junit.hpp"
#include "harness/report/row_reader.hpp"
#include "harness/report/sample_rows.hpp"
#include "harness/report/summary.hpp"
#include "harness/report/table.hpp"
#include "harness/report/tally.hpp"
#include "harness/report/text.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int widest_line(const std::string& text) {
  std::istringstream in(text);
  int widest = 0;
  for (std::string line; std::getline(in, line);) widest = std::max(widest, display_width(line));
  return widest;
}

TEST(Table, WholeText) {
  EXPECT_EQ("\n" + format_table(sample::run(), {{"scenario", "kernel", "outcome", "time_us", "samples",
                                                 "tflops", "limit_percent", "o_max_error", "o_ratio"}}),
            R"(
scenario                               kernel         outcome       time  samples   tflops  of_limit  o_max_error  o_ratio
                                                                      ms           TFLOP/s         %
-------------------------------------  -------------  -----------  -----  -------  -------  --------  -----------  -------
paged d=64 batch=4q1s1k seed=1         paged_naive    passed       1.234       41   0.0471      81.2      4.9e-04    0.422
                                       paged_fast     wrong            -        -        -         -      1.5e+00      inf
prefill window=127 batch=2q512 seed=1  prefill_naive  unsupported      -        -        -         -            -        -
                                       prefill_fast   crashed          -        -        -         -            -        -
)");
}

// What is left of a ratio without the output's own rounding stands beside it wherever it is known.
TEST(Table, RatioBeforeRoundingBesideTheRatio) {
  std::vector<Row> rows = {sample::row("a", "k", "passed"), sample::row("b", "k", "passed")};
  for (const bool timed : {false, true}) {
    rows[0].time_us = timed ? 5 : std::nan("");
    rows[0].o_ratio_unrounded = std::nan("");
    EXPECT_THAT(default_columns(rows), Not(::testing::Contains("o_ratio_unrounded")));
    rows[0].o_ratio = 0.75, rows[0].o_ratio_unrounded = 0.0625;
    const std::vector<std::string> columns = default_columns(rows);
    const auto at = std::find(columns.begin(), columns.end(), "o_ratio");
    ASSERT_NE(at, columns.end());
    EXPECT_EQ(at[1], "o_ratio_unrounded");
    EXPECT_THAT(format_table(rows), HasSubstr("0.0625"));
  }
}

TEST(Table, OneScenarioTogetherWhateverTheOrder) {
  std::vector<Row> rows = sample::run();
  std::swap(rows[1], rows[3]);
  const std::string text = format_table(rows, {{"scenario", "kernel"}});
  EXPECT_EQ("\n" + text, R"(
scenario                               kernel
-------------------------------------  -------------
paged d=64 batch=4q1s1k seed=1         paged_naive
                                       paged_fast
prefill window=127 batch=2q512 seed=1  prefill_fast
                                       prefill_naive
)");
}

TEST(Table, OneUnitPerColumn) {
  std::vector<Row> rows = {sample::row("a", "k", "passed"), sample::row("b", "k", "passed")};
  auto shown = [&](double x, double y) {
    rows[0].time_us = x;
    rows[1].time_us = y;
    return format_table(rows, {{"time_us"}});
  };
  EXPECT_EQ(shown(999, 123456), "  time\n    us\n------\n 999.0\n123456\n");
  EXPECT_EQ(shown(1000, 123456), " time\n   ms\n-----\n1.000\n123.5\n");
}

TEST(Table, FitsAnyWidth) {
  std::vector<Row> rows = sample::run();
  for (Row& row : rows)
    row.scenario += " strides=q+kv+out+table layout=shuffled kv=fp8_e4m3:request_head input=cancelling";
  const int full = widest_line(format_table(rows));
  for (int width : {70, 80, 100, 120, 160, 200, 300}) {
    const std::string text = format_table(rows, {{}, width});
    std::string table = text.substr(0, text.find("left out"));
    EXPECT_LE(widest_line(table), width);
    for (const char* kept : {"paged_naive", "prefill_fast", "unsupported", "crashed"})
      EXPECT_THAT(text, HasSubstr(kept));
    EXPECT_EQ(text.find("left out") != std::string::npos, width < 130) << width << "\n" << text;
  }
  EXPECT_EQ(widest_line(format_table(rows, {{}, full})), full);
  EXPECT_THAT(format_table(rows, {{}, 80}), HasSubstr("left out to fit 80 columns, see rows.csv: "));
}

TEST(Table, AlwaysSaysWhatKernelAndHowItWent) {
  const std::string text = format_table(sample::run(), {{}, 20});
  for (const char* kept : {"...", "paged_naive", "unsupported", "left out to fit 20 columns"})
    EXPECT_THAT(text, HasSubstr(kept));
  EXPECT_THAT(text, Not(HasSubstr("1.234")));
}

TEST(Table, ColorsOnlyOutcomesAndOnlyWhenAsked) {
  TableOptions options{{"kernel", "outcome"}};
  EXPECT_THAT(format_table(sample::run(), options), Not(HasSubstr("\033")));
  options.color = true;
  EXPECT_THAT(format_table(sample::run(), options), HasSubstr("paged_naive    \033[32mpassed\033[0m\n"));
  EXPECT_THAT(format_table(sample::run(), options), HasSubstr("paged_fast     \033[31mwrong\033[0m\n"));
}

TEST(Table, UnknownColumnAndNoRows) {
  EXPECT_EQ(format_table({}), "");
  try {
    format_table(sample::run(), {{"speed"}});
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("no column 'speed'; expected some of scenario, kernel,"));
  }
}

TEST(Table, MissingIsADashAndNeverAZero) {
  const std::vector<Row> rows = {sample::row("a", "k", "passed")};
  EXPECT_EQ(format_table(rows, {{"kernel", "time_us", "samples"}}),
            "kernel  time  samples\n          us\n------  ----  -------\nk          -        -\n");
}

TEST(Shorten, DistinctStaysDistinct) {
  std::vector<std::string> texts;
  // Differ early, in the middle, late, and in a place that no single cut keeps together.
  for (char c : {'a', 'b', 'c'}) {
    std::string base(120, '.');
    for (size_t at : {5u, 60u, 115u}) {
      std::string text = base;
      text[at] = c;
      texts.push_back(text);
    }
  }
  texts.push_back("short");
  texts.push_back(texts[0]);
  for (int width : {16, 20, 40, 119}) {
    const std::vector<std::string> cut = shorten_distinct(texts, width);
    ASSERT_EQ(cut.size(), texts.size());
    std::set<std::string> seen;
    for (size_t i = 0; i + 1 < cut.size(); i++) {
      EXPECT_LE(display_width(cut[i]), width) << cut[i];
      EXPECT_TRUE(seen.insert(cut[i]).second) << cut[i];
    }
    EXPECT_EQ(cut.back(), cut.front());
  }
  const std::vector<std::string> late = {"paged h=32/8 d=128 batch=1q1s1k seed=1",
                                         "paged h=32/8 d=128 batch=1q1s1k seed=2"};
  EXPECT_EQ(shorten_distinct(late, 20)[1], "paged...q1s1k seed=2");
  const std::vector<std::string> early = {"paged d=64 batch=1q1s1k,1q1s1k seed=1",
                                          "paged d=96 batch=1q1s1k,1q1s1k seed=1"};
  EXPECT_EQ(shorten_distinct(early, 20)[1], "paged d=96 ...seed=1");
}

TEST(Tally, LineAndCounts) {
  Tally tally = tally_of(sample::run());
  EXPECT_EQ(tally_line(tally),
            "1 passed, 1 wrong, 1 unsupported, 0 untrusted, 1 crashed, 0 timed out, 0 invalid");
  for (std::string_view outcome : kOutcomes) tally.add(outcome);
  tally.add("timed_out");
  tally.add("odd");
  EXPECT_EQ(tally_line(tally),
            "2 passed, 2 wrong, 2 unsupported, 1 untrusted, 2 crashed, 2 timed out, 1 invalid, "
            "1 implausible, 1 noisy, 1 of an unknown outcome");
  EXPECT_EQ(tally.total(), 15);
  EXPECT_EQ(tally.of("timed_out"), 2);
  EXPECT_THROW(tally.of("odd"), CheckError);
}

TEST(Tally, CorrectButUselessIsSaidAndNoFailure) {
  std::vector<Row> rows = sample::run();
  rows[0].class_note = "useless";
  rows[1].class_note = "useless";  // wrong: counted as that
  EXPECT_THAT(tally_line(tally_of(rows)),
              ::testing::EndsWith("; 1 of the passed correct but useless (class gate)"));
  EXPECT_FALSE(is_failure(rows[0]));
  EXPECT_THAT(format_table(rows), HasSubstr("class_note"));
  EXPECT_THAT(format_table(sample::run()), Not(HasSubstr("class_note")));
  rows[0].batch_invariant = "no";
  EXPECT_THAT(format_table(rows), HasSubstr("batch_invariant"));
}

// Where each kernel stands in the table, top first.
std::string order_of(const std::string& table, std::initializer_list<const char*> kernels) {
  std::map<size_t, std::string> at;
  for (const char* k : kernels) at[table.find(k)] = k;
  std::string text;
  for (const auto& [where, kernel] : at) text += kernel;
  return text;
}

TEST(Table, SortedWorstFirst) {
  std::vector<Row> rows = {sample::row("s1", "<a>", "passed"), sample::row("s2", "<b>", "wrong"),
                           sample::row("s1", "<c>", "crashed"), sample::row("s2", "<d>", "passed")};
  rows[0].time_us = 5;
  rows[1].time_us = 50;
  rows[3].time_us = 7;
  rows[0].tflops = 5;
  rows[1].tflops = 50;
  rows[3].tflops = 7;
  rows[2].samples = 3;
  const auto sorted = [&](const char* by) {
    return order_of(format_table(rows, {.sort = by}), {"<a>", "<b>", "<c>", "<d>"});
  };
  EXPECT_EQ(sorted("time_us"), "<b><d><a><c>") << "slowest first, without a time last";
  EXPECT_EQ(sorted("-time_us"), "<a><d><b><c>");
  EXPECT_EQ(sorted("tflops"), "<a><d><b><c>") << "more is better here";
  EXPECT_EQ(sorted("outcome"), "<b><c><a><d>");
  EXPECT_EQ(sorted("scenario"), "<a><c><b><d>");
  EXPECT_EQ(sorted("-kernel"), "<d><c><b><a>");
  EXPECT_EQ(sorted("samples"), "<c><a><b><d>");
  EXPECT_THAT(format_table(rows, {.sort = "samples"}), HasSubstr("samples")) << "the column is shown";
  EXPECT_THROW(format_table(rows, {.sort = "speed"}), InputError);
}

TEST(Tally, WhatFails) {
  for (const char* fine : {"passed", "unsupported"}) EXPECT_FALSE(is_failure(sample::row("a", "k", fine)));
  for (const char* bad : {"wrong", "untrusted", "crashed", "timed_out", "invalid", "", "Passed"})
    EXPECT_TRUE(is_failure(sample::row("a", "k", bad))) << bad;
}

TEST(Tally, FailuresWithCommands) {
  EXPECT_EQ("\n" + failures_text(sample::run()), R"(
2 failing rows:
wrong     paged_fast  paged d=64 batch=4q1s1k seed=1
          14 of 8192 elements of O out of bounds
          repeat: assay check 'paged d=64 batch=4q1s1k seed=1' --kernel paged_fast --backend cpu
crashed   prefill_fast  prefill window=127 batch=2q512 seed=1
          signal 11 ("segmentation fault")
          repeat: assay check 'prefill window=127 batch=2q512 seed=1' --kernel prefill_fast --backend cpu
)");
  EXPECT_THAT(failures_text(sample::run(), 1), HasSubstr("1 of 2 failing rows:\n"));
  EXPECT_THAT(failures_text(sample::run(), 1),
              ::testing::EndsWith("--kernel paged_fast --backend cpu\n1 more are in rows.csv\n"));
  const std::vector<Row> fine = {sample::row("a", "k", "passed")};
  EXPECT_EQ(failures_text(fine), "");
}

// As UTF-8 too: C1 controls begin escapes, and some characters turn the direction of what is behind them.
// Letters next to them stay.
TEST(CleanText, NothingThatATerminalOrAReaderObeys) {
  for (const std::string order :
       {"\xC2\x9B", "\xC2\x80", "\xD8\x9C", "\xE2\x80\x8F", "\xE2\x80\xAE", "\xE2\x81\xA6"})
    EXPECT_EQ(clean_text("a" + order + "b"), "a b");
  for (const std::string letter :
       {"\xC2\xA0", "\xC3\x9B", "\xD8\x9B", "\xE2\x80\x90", "\xE2\x81\xA4", "\xE2\x82\xAC"})
    EXPECT_EQ(clean_text("a" + letter + "b"), "a" + letter + "b");
}

// The shell itself is the judge of the quoting.
TEST(Tally, ShellQuoting) {
  EXPECT_EQ(shell_quote("paged_fast"), "paged_fast");
  EXPECT_EQ(shell_quote(""), "''");
  for (const std::string text :
       {"a b", "it's", "$HOME `ls` \\n", "trace(f,step=1)", "*", "~", "#x", "a;b", "\"", "!x", "a&b|c<d>",
        "\033[31mred'\\%s", "tab\there", "\xFFnot utf-8", "line\nline", "\xC2\x9B[31mred",
        "a\xE2\x80\xAE"
        "b"}) {
    EXPECT_EQ(clean_text(shell_quote(text)), shell_quote(text)) << "one printable line";
    FILE* pipe = popen(("printf %s " + shell_quote(text)).c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string out(200, '\0');
    out.resize(fread(out.data(), 1, out.size(), pipe));
    pclose(pipe);
    EXPECT_EQ(out, text);
  }
}

TEST(JUnit, WholeText) {
  EXPECT_EQ("\n" + junit_xml(sample::run()), R"xml(
<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="assay" tests="4" failures="1" errors="1" skipped="1" time="1.000">
  <testsuite name="prefill" tests="2" failures="0" errors="1" skipped="1" time="0.500">
    <testcase classname="prefill_naive" name="prefill window=127 batch=2q512 seed=1" time="0.250">
      <skipped message="required window, supported none, missing window"/>
    </testcase>
    <testcase classname="prefill_fast" name="prefill window=127 batch=2q512 seed=1" time="0.250">
      <error type="crashed" message="signal 11 (&quot;segmentation fault&quot;)">signal 11 (&quot;segmentation fault&quot;)
repeat: assay check 'prefill window=127 batch=2q512 seed=1' --kernel prefill_fast --backend cpu
</error>
    </testcase>
  </testsuite>
  <testsuite name="scenarios/smoke.suite" tests="2" failures="1" errors="0" skipped="0" time="0.500">
    <testcase classname="paged_naive" name="paged d=64 batch=4q1s1k seed=1 [cold]" time="0.250"/>
    <testcase classname="paged_fast" name="paged d=64 batch=4q1s1k seed=1" time="0.250">
      <failure type="wrong" message="14 of 8192 elements of O out of bounds">14 of 8192 elements of O out of bounds
O: largest error 1.5, inf x its bound, at request/row/head/dim 3/0/7/12
repeat: assay check 'paged d=64 batch=4q1s1k seed=1' --kernel paged_fast --backend cpu
</failure>
    </testcase>
  </testsuite>
</testsuites>
)xml");
}

TEST(JUnit, TestNamesStayUnique) {
  std::vector<Row> rows(4, sample::row("paged", "k", "passed"));
  rows[0].cache = "hot";
  rows[1].cache = "cold";
  rows[2].backend = "cuda";
  const std::string xml = junit_xml(rows);
  for (const char* name :
       {"classname=\"cpu.k\" name=\"paged [hot]\"", "classname=\"cpu.k\" name=\"paged [cold]\"",
        "classname=\"cuda.k\" name=\"paged\"", "classname=\"cpu.k\" name=\"paged\""})
    EXPECT_THAT(xml, HasSubstr(name));
}

TEST(JUnit, EscapesEverythingXmlCannotHold) {
  EXPECT_EQ(xml_escape("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c'");
  EXPECT_EQ(xml_escape(std::string("\0\x01\x1B", 3)), "\\x00\\x01\\x1b");
  EXPECT_EQ(xml_escape("\t\n\r"), "&#9;&#10;&#13;");
  EXPECT_EQ(xml_escape("\xFF\xC3\xA9\xEF\xBF\xBE"), "\\xff\xC3\xA9\\xef");
}

// A parser of its own for the hostile case: every byte value in every text.
TEST(JUnit, ParsesWhateverTheTextsHold) {
  std::vector<Row> rows = sample::run();
  std::string bytes;
  for (int b = 0; b < 256; b++) bytes += static_cast<char>(b);
  for (Row& row : rows) row.reason = row.kernel = row.suite_place = bytes;
  const std::string path = ::testing::TempDir() + "report_text_test.xml";
  std::ofstream(path, std::ios::binary) << junit_xml(rows);
  const std::string script =
      "import sys, xml.etree.ElementTree as E; r = E.parse(sys.argv[1]).getroot(); "
      "c = list(r.iter('testcase')); assert len(c) == 4 == int(r.get('tests')); "
      "assert [len(list(r.iter(t))) for t in ('failure', 'error', 'skipped')] == [1, 1, 1]; "
      "assert 'A&<' not in c[0].get('name'); assert '%&' in r.find('.//failure').get('message')";
  const int status = std::system(("python3 -c " + shell_quote(script) + " " + shell_quote(path)).c_str());
  std::remove(path.c_str());
  if (WEXITSTATUS(status) == 127) GTEST_SKIP() << "no python3 to parse with";
  EXPECT_EQ(status, 0);
}

TEST(Summary, WholeText) {
  EXPECT_EQ("\n" + summary_markdown(sample::run(), {.title = "smoke on <cpu>"}), R"(
## smoke on &lt;cpu>

1 passed, 1 wrong, 1 unsupported, 0 untrusted, 1 crashed, 0 timed out, 0 invalid

| outcome | rows |
| :-- | --: |
| passed | 1 |
| wrong | 1 |
| unsupported | 1 |
| crashed | 1 |

### Failing rows: 2 of 2 shown

**wrong** paged\_fast: 14 of 8192 elements of O out of bounds

```text
assay check 'paged d=64 batch=4q1s1k seed=1' --kernel paged_fast --backend cpu
```

**crashed** prefill\_fast: signal 11 ("segmentation fault")

```text
assay check 'prefill window=127 batch=2q512 seed=1' --kernel prefill_fast --backend cpu
```

<details><summary>All 4 rows</summary>

```text
scenario                               kernel         outcome      cache   time  time_q1  time_q3   tflops  gbytes    tokens  of_limit  limit  o_ratio  lse_ratio
                                                                             ms       ms       ms  TFLOP/s    GB/s  tokens/s         %
-------------------------------------  -------------  -----------  -----  -----  -------  -------  -------  ------  --------  --------  -----  -------  ---------
paged d=64 batch=4q1s1k seed=1         paged_naive    passed       cold   1.234    1.200    1.300   0.0471   12.50      3240      81.2  read     0.422      0.125
                                       paged_fast     wrong                   -        -        -        -       -         -         -             inf      0.500
prefill window=127 batch=2q512 seed=1  prefill_naive  unsupported             -        -        -        -       -         -         -               -          -
                                       prefill_fast   crashed                 -        -        -        -       -         -         -               -          -
```

</details>
)");
}

TEST(Summary, StaysUnderItsSizeAndSaysWhatIsCut) {
  std::vector<Row> rows;
  for (int i = 0; i < 400; i++)
    rows.push_back(sample::row(fmt::format("paged seed={}", i), "k", i % 4 ? "passed" : "wrong", "x"));
  const std::string all = summary_markdown(rows);
  EXPECT_THAT(all, HasSubstr("### Failing rows: 50 of 100 shown"));
  EXPECT_THAT(all, HasSubstr("<summary>All 400 rows</summary>"));
  for (size_t most : {2'000u, 8'000u, 30'000u}) {
    const std::string text = summary_markdown(rows, {.max_bytes = most});
    EXPECT_LE(text.size(), most);
    EXPECT_THAT(text, HasSubstr("of 100 shown"));
  }
  EXPECT_THAT(summary_markdown(rows, {.max_bytes = 15'000}),
              HasSubstr("of 400 rows; the rest is in rows.csv"));
}

TEST(Summary, TextsCannotBreakTheMarkup) {
  std::vector<Row> rows = {sample::row("a```b", "k|x", "wrong", "<script> *bold* | ```")};
  rows[0].repeat = "assay check 'a```b'";
  const std::string text = summary_markdown(rows);
  EXPECT_THAT(
      text,
      HasSubstr("**wrong** k\\|x: &lt;script> \\*bold\\* \\| \\`\\`\\`\n\n````text\nassay check 'a```b'"));
}

}  // namespace
}  // namespace assay
