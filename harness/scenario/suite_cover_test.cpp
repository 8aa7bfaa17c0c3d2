// SPDX-License-Identifier: Apache-2.0
// cover=t in a suite line, against a count that shares nothing with the engine: all combinations are
// formed by nested loops over texts, parse_scenario() says which are valid, and every t-tuple that a
// valid combination has must stand in a row.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

struct TextAxis {
  std::string name;
  std::vector<std::string> values;
};

struct Expected {
  std::map<std::string, std::vector<int>> valid;  // canonical text -> value indices
  int64_t combinations = 0;
};

Expected enumerate(const std::vector<TextAxis>& axes, const std::string& rest,
                   const std::function<bool(const std::vector<int>&)>& keep) {
  Expected out;
  std::vector<int> index(axes.size(), 0);
  while (true) {
    std::string line = "paged " + rest;
    for (size_t a = 0; a < axes.size(); ++a) line += " " + axes[a].name + "=" + axes[a].values[index[a]];
    ++out.combinations;
    try {
      const std::string text = print(parse_scenario(line));
      if (keep(index)) out.valid[text] = index;
    } catch (const InputError&) {
    }
    size_t a = 0;
    while (a < axes.size() && ++index[a] == static_cast<int>(axes[a].values.size())) index[a++] = 0;
    if (a == axes.size()) return out;
  }
}

// Calls visit with every choice of t of n columns.
void choose(int n, int t, std::vector<int>& chosen, const std::function<void()>& visit) {
  if (static_cast<int>(chosen.size()) == t) return visit();
  for (int c = chosen.empty() ? 0 : chosen.back() + 1; c < n; ++c) {
    chosen.push_back(c);
    choose(n, t, chosen, visit);
    chosen.pop_back();
  }
}

std::set<std::vector<int>> tuples(const std::vector<std::vector<int>>& rows,
                                  const std::vector<int>& columns) {
  std::set<std::vector<int>> out;
  for (const std::vector<int>& row : rows) {
    std::vector<int> tuple;
    for (const int c : columns) tuple.push_back(row[c]);
    out.insert(tuple);
  }
  return out;
}

// Checks the line of these axes at strength t; returns the number of rows.
size_t check_cover(
    const std::vector<TextAxis>& axes, const std::string& rest, int t, const std::string& exceptions = "",
    const std::function<bool(const std::vector<int>&)>& keep = [](const auto&) { return true; }) {
  std::string line = "paged " + rest;
  for (const TextAxis& axis : axes) {
    line += " " + axis.name + "=";
    for (const std::string& value : axis.values) line += (&value == axis.values.data() ? "" : ",") + value;
  }
  const Expected expected = enumerate(axes, rest, keep);
  Suite suite = Suite::from_text(fmt::format("{} {} cover={}", line, exceptions, t), {"c.suite", 1, 1});
  std::vector<std::vector<int>> rows, valid;
  while (const std::optional<SuiteCase> c = suite.next()) {
    const auto found = expected.valid.find(print(c->scenario));
    EXPECT_NE(found, expected.valid.end()) << "invalid row " << print(c->scenario);
    if (found != expected.valid.end()) rows.push_back(found->second);
  }
  EXPECT_EQ(suite.counts().excluded, 0);
  for (const auto& [text, index] : expected.valid) valid.push_back(index);
  EXPECT_FALSE(valid.empty());
  std::vector<int> columns;
  choose(static_cast<int>(axes.size()), t, columns, [&] {
    const auto have = tuples(rows, columns), want = tuples(valid, columns);
    EXPECT_EQ(have, want) << "columns " << fmt::format("{} {}", columns[0], columns[1]);
  });
  return rows.size();
}

TEST(SuiteCover, WithoutConstraints) {
  const std::vector<TextAxis> axes = {{"d", {"64", "96", "128"}}, {"h", {"4/2", "8", "6/1"}},
                                      {"cap", {"0", "5", "30"}},  {"sinks", {"off", "on"}},
                                      {"out", {"bf16", "fp16"}},  {"alibi", {"none", "linear", "sqrt"}}};
  const size_t pairs = check_cover(axes, "batch=1q1", 2), triples = check_cover(axes, "batch=1q1", 3);
  EXPECT_GE(pairs, 9u);
  EXPECT_LE(pairs, 14u);
  EXPECT_GE(triples, 27u);
  EXPECT_LE(triples, 54u);
}

// Rules between two, three and more fields, over axes with invalid values on both sides.
TEST(SuiteCover, RulesAreNeverBrokenAndHideNothing) {
  const std::vector<TextAxis> axes = {{"layout", {"nhd", "x", "shuffled", "mla"}},
                                      {"h", {"8/2", "6/1", "5/3"}},
                                      {"d", {"64", "72", "20", "64/32"}},
                                      {"page", {"16", "4", "8"}},
                                      {"storage", {"split", "stacked"}},
                                      {"mask", {"causal", "tree"}},
                                      {"chunk", {"0", "16"}},
                                      {"kv", {"bf16", "fp8_e4m3", "int8:token_head/bf16"}}};
  check_cover(axes, "batch=1q4s30", 2);
  check_cover(axes, "batch=1q4s30", 3);
}

// kv= follows q= when it is not given: the rule on K's packing width then hangs on the q axis.
TEST(SuiteCover, DefaultsThatFollowAnAxis) {
  const std::vector<TextAxis> axes = {{"q", {"bf16", "fp32", "fp8_e4m3"}},
                                      {"layout", {"nhd", "x"}},
                                      {"d", {"4", "8", "12"}},
                                      {"sinks", {"off", "on"}}};
  check_cover(axes, "batch=1q4s30", 2);
  check_cover(axes, "batch=1q4s30", 3);
}

TEST(SuiteCover, BatchesAndTheSizeRule) {
  const std::vector<TextAxis> axes = {{"batch", {"1q1s100", "64q1s100k", "3q9s4", "8q2s2m"}},
                                      {"h", {"8/8", "64", "512"}},
                                      {"d", {"64", "1024"}},
                                      {"mask", {"causal", "tree"}},
                                      {"table", {"block", "csr", "token"}}};
  check_cover(axes, "", 2);
  check_cover(axes, "", 3);
}

TEST(SuiteCover, Exceptions) {
  const std::vector<TextAxis> axes = {{"d", {"64", "96", "128"}},
                                      {"kv", {"bf16", "int8", "fp8_e4m3"}},
                                      {"sinks", {"off", "on"}},
                                      {"cap", {"0", "5", "6"}}};
  check_cover(
      axes, "batch=1q1", 3, "except(kv=int8,fp8* d=64) except(sinks=on cap=5)",
      [](const std::vector<int>& v) { return !(v[1] > 0 && v[0] == 0) && !(v[2] == 1 && v[3] == 1); });
}

TEST(SuiteCover, ZipsAreOneAxisAndRangesAreAxes) {
  Suite suite = Suite::from_text("paged page={16,64} layout={nhd,hnd} d=64,96 batch=[1,2]q[1:3] cover=2",
                                 {"c.suite", 1, 1});
  std::set<std::string> zips, pairs;
  int rows = 0;
  while (const std::optional<SuiteCase> c = suite.next()) {
    ++rows;
    zips.insert(fmt::format("{} {}", c->scenario.page_size, c->scenario.layout));
    pairs.insert(fmt::format("{} {}", c->scenario.batch.groups[0].count, c->scenario.batch.groups[0].q_len));
  }
  EXPECT_EQ(zips.size(), 2u);   // never page 16 with hnd
  EXPECT_EQ(pairs.size(), 6u);  // every pair of the two ranges
  EXPECT_LT(rows, 24);
}

TEST(SuiteCover, Deterministic) {
  const char* line = "paged d=64,96,128 h=4,8/2,5/3 mask=causal,tree chunk=0,16 batch=1q2s9 cover=2";
  std::string first, second;
  for (std::string* out : {&first, &second}) {
    Suite suite = Suite::from_text(line, {"c.suite", 1, 1});
    while (const std::optional<SuiteCase> c = suite.next()) *out += print(c->scenario) + "\n";
  }
  EXPECT_EQ(first, second);
}

TEST(SuiteCover, Mistakes) {
  const auto message = [](const std::string& line) -> std::string {
    try {
      Suite::from_text(line, {"c.suite", 1, 1}).next();
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(
      message("paged h=8/3,7/2 d=64,96 batch=1q1 cover=2"),
      HasSubstr(
          "c.suite:1:35: every combination of this line breaks a rule or an except(); change its axes"));
  EXPECT_THAT(message("paged d=64,96 seed=[1:10000] batch=1q1 cover=2"),
              HasSubstr("c.suite:1:40: cover= takes axes of at most 4096 values, one here has 10000"));
  EXPECT_THAT(message("paged d=64,x batch=1q1,2q1 cover=2"),
              HasSubstr("c.suite:1:12: d: \"x\" is not a number"));
}

}  // namespace
}  // namespace assay
