// SPDX-License-Identifier: Apache-2.0
#include "harness/explain/stages/row_kinds.hpp"

#include <gtest/gtest.h>

namespace assay {
namespace {

Problem mixed() {  // a decode, an extend, a prefill, a decode whose context is 64 keys
  Problem p;
  p.threshold = 1, p.page_size = 16;
  p.requests = {{1, 41, -1, 0}, {3, 40, -1, 0}, {4, 4, -1, 0}, {1, 65, -1, 0}};
  return p;
}

std::string told_by_kind(const Problem& step, const std::vector<uint8_t>& in,
                         const std::vector<uint8_t>& out) {
  const std::vector<std::string> all = told_by_kinds(step, in, out);
  return all.empty() ? "" : all.front();
}

TEST(RowKinds, AreThePlainestThatHoldsAllOfTheOnesAndNoneOfTheOthers) {
  const struct {
    std::vector<uint8_t> in, out;
    const char* words;
  } cases[] = {
      {{1, 0, 0, 0, 0, 0, 0, 0, 1}, {0, 0, 1, 0, 0, 0, 0, 0, 0}, "decodes"},
      {{0, 0, 1, 0, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 1, 0, 0, 0}, "extends"},
      {{0, 0, 1, 0, 0, 1, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0, 0, 0}, "extends and prefills"},
      {{0, 0, 1, 1, 0, 0, 1, 1, 0}, {0, 1, 0, 0, 1, 0, 0, 0, 0}, "all rows of a request but the first"},
      {{0, 0, 0, 0, 0, 0, 0, 0, 1}, {1, 0, 0, 0, 0, 0, 0, 0, 0}, "all requests but the first"},
      {{0, 0, 0, 0, 0, 0, 0, 0, 1}, {1, 1, 0, 0, 0, 1, 0, 0, 0}, "the last request"},
      {{0, 1, 1, 1, 0, 1, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 1, 0, 0}, ""},
      {{1, 0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0, 1}, "the first request"},
  };
  for (const auto& c : cases) EXPECT_EQ(told_by_kind(mixed(), c.in, c.out), c.words);
}

TEST(RowKinds, SayWhereAContextEnds) {
  Problem p = mixed();
  p.requests.push_back({1, 130, -1, 0});
  EXPECT_EQ(told_by_kind(p, {0, 0, 0, 0, 0, 0, 0, 0, 1, 0}, {1, 0, 0, 0, 0, 0, 0, 0, 0, 1}),
            "requests whose context ends with a page");
}

// What lies behind the last request is no row of a kind.
TEST(RowKinds, HoldNoRowsOfPadding) {
  EXPECT_EQ(told_by_kind(mixed(), {1, 0, 0, 0, 0, 0, 0, 0, 1, 1}, {0, 0, 1, 0, 0, 0, 0, 0, 0, 0}), "");
}

}  // namespace
}  // namespace assay
