// SPDX-License-Identifier: Apache-2.0
// Expressions users type: what they find, where their mistakes are, and that no text can exhaust the stack.
#include "harness/run/pattern.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/base/error.hpp"

namespace assay {
namespace {

TEST(Pattern, FindsAnywhere) {
  EXPECT_TRUE(Pattern("kv=fp8|d=64", "--filter").found_in("paged d=64 batch=1q1s4"));
  EXPECT_FALSE(Pattern("^d=64", "--filter").found_in("paged d=64 batch=1q1s4"));
  EXPECT_TRUE(Pattern("", "--filter").found_in("anything"));
}

TEST(Pattern, LongTextsNeedNoStack) {
  std::string line = "paged batch=";
  for (int i = 0; i < 200'000; ++i) line += "1q1s7_";
  EXPECT_FALSE(Pattern("(1q|1s|.)*frog", "--filter").found_in(line));
  EXPECT_TRUE(Pattern("(.|_)*7_$", "--filter").found_in(line));
}

TEST(Pattern, MistakesHaveTheirColumn) {
  const struct {
    const char* expression;
    int column;
  } bad[] = {{"h=(", 3},   {"a(b)(c", 5}, {"[)](x", 4}, {"a\\(b(c", 5}, {"d=[6", 3},  {"x[^]", 2},
             {"d=*+a", 3}, {"a)b", 2},    {"ab\\", 3},  {"q{9999}", 2}, {"(?=x)", 1}, {"a\\1", 2}};
  for (const auto& b : bad) {
    try {
      const Pattern p(b.expression, "--filter");
      ADD_FAILURE() << b.expression << " was accepted";
    } catch (const InputError& e) {
      EXPECT_EQ(e.place().column, b.column) << e.what();
      EXPECT_THAT(e.what(), ::testing::HasSubstr(b.expression));
    }
  }
  EXPECT_THROW(Pattern(std::string(100'000, '('), "--filter"), InputError);
}

}  // namespace
}  // namespace assay
