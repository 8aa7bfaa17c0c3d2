// SPDX-License-Identifier: Apache-2.0
// Lines are legal, the same everywhere, cheap enough, and between them give every field of the language other
// values than its default: whoever adds a field that is not drawn is told its name.
#include "harness/campaign/draw_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <set>

#include "harness/campaign/draw_value.hpp"
#include "harness/problem/names.hpp"

namespace assay::campaign {
namespace {

using ::testing::HasSubstr;

constexpr double kLargest = 3e5;
constexpr uint64_t kLines = 6000;

const std::vector<Line>& lines() {
  static const std::vector<Line> all = [] {
    std::vector<Line> drawn;
    for (uint64_t i = 0; i < kLines; ++i) drawn.push_back(draw_line(1, i, kLargest));
    return drawn;
  }();
  return all;
}

TEST(DrawLine, EveryLineIsLegalAndReadsBack) {
  for (const Line& line : lines()) {
    const std::string text = print(line.scenario);
    ASSERT_EQ(broken_rule(line.scenario), nullptr) << text;
    ASSERT_EQ(parse_scenario(text), line.scenario) << text;
    ASSERT_LE(cost_of(line.problem), kLargest) << text;
  }
}

TEST(DrawLine, EveryFieldIsDrawnForEveryOpThatTakesIt) {
  std::map<std::string_view, OpSet> seen;
  for (const Line& line : lines())
    for (const Field& field : fields())
      if (!field.is_default(line.scenario)) seen[field.name] |= op_bit(line.scenario.op);
  for (const Op* op : all_ops())  // one that takes a single recipe has nothing to draw
    if (std::has_single_bit(op->recipes)) seen["input"] |= op_bit(op->id);
  for (const Field& field : fields()) {
    const OpSet missed = field.ops & ~seen[field.name];
    EXPECT_TRUE(field.name == "op" || missed == 0)
        << "field " << field.name << " keeps its default in " << names_of(missed);
  }
}

TEST(DrawLine, StaysInItsCorner) {
  const Corner corner{3, ReAim("d=2 sinks=on out=fp32")};
  std::set<std::string> texts;
  for (uint64_t i = 0; i < 300; ++i) {
    const Line line = draw_line(1, i, kLargest, corner);
    const Scenario& s = line.scenario;
    texts.insert(print(s));
    ASSERT_TRUE(s.head_dim_qk == 2 && s.sinks && s.o_format == ASSAY_FP32) << print(s);
    ASSERT_TRUE(takes(op_of(s.op), "sinks")) << "every line has the fields: " << print(s);
    if (!op_of(s.op).whole_context) continue;
    for (const Request& r : line.problem.requests) ASSERT_LE(r.kv_len - r.q_len, 3) << print(s);
    ASSERT_EQ(parse_scenario(print(s)), s);
  }
  EXPECT_GT(texts.size(), 250u);
  try {
    draw_line(1, 0, kLargest, {1, ReAim("h=3/2")});
    ADD_FAILURE() << "heads that nothing divides";
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("--set"));
  }
  EXPECT_EQ(draw_line(1, 0, kLargest, {1, ReAim("from=codes")}).scenario.op, ASSAY_OP_CACHE_WRITE);
  try {
    draw_line(1, 0, kLargest, {1, ReAim("tile=2 sinks=on")});
    ADD_FAILURE() << "a schedule with sinks";
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("has all of these fields"));
  }
}

// A latent page of 64 keys in 16 bits is more than 2e5 by itself.
TEST(DrawLine, ACornerThatIsTooLargeNamesTheSize) {
  const std::string latent = "h=16/1 d=576/512 page=64 layout=mla kv=";
  for (const char* set : {"bf16", "fp16"}) {
    try {
      draw_line(1, 0, 2e5, {1 << 14, ReAim(latent + set)});
      ADD_FAILURE() << set << " fits";
    } catch (const InputError& e) {
      EXPECT_THAT(e.what(), ::testing::AllOf(HasSubstr("--largest 200000"), HasSubstr("the cheapest")))
          << set;
    }
  }
  EXPECT_LE(cost_of(draw_line(1, 0, 4e6, {1 << 14, ReAim(latent + "bf16")}).problem), 4e6);
}

TEST(DrawLine, EveryNamedValueIsDrawn) {
  // Text of a field's value over all lines.
  std::map<std::string_view, std::set<std::string>> values;
  for (const Line& line : lines())
    for (const Field& field : fields()) {
      if ((field.ops & op_bit(line.scenario.op)) == 0) continue;
      std::string text;
      field.print(line.scenario, text);
      values[field.name].insert(text);
    }
  for (const Field& field : fields()) {
    if (field.syntax != "NAME") continue;
    std::string_view rest = field.accepted;
    while (!rest.empty()) {
      const size_t comma = rest.find(", ");
      EXPECT_TRUE(values[field.name].contains(std::string(rest.substr(0, comma))))
          << field.name << "=" << rest.substr(0, comma) << " is never drawn";
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 2);
    }
  }
  EXPECT_TRUE(values["positions"].contains("depth"));
  EXPECT_TRUE(values["index"].contains("swa"));
  EXPECT_GT(values["relate"].size(), 20u);
  EXPECT_GT(values["strides"].size(), 10u);
}

TEST(DrawLine, SizesSpreadOverOrdersOfMagnitude) {
  std::map<int, int> costs;
  int64_t most_requests = 0, most_rows = 0, odd_heads = 0;
  for (const Line& line : lines()) {
    ++costs[static_cast<int>(std::log10(cost_of(line.problem)))];
    most_requests = std::max(most_requests, static_cast<int64_t>(line.problem.requests.size()));
    most_rows = std::max(most_rows, line.problem.total_q());
    odd_heads += line.problem.heads_q % 2;
  }
  EXPECT_GE(costs.size(), 2u);
  EXPECT_GE(most_requests, 64);
  EXPECT_GE(most_rows, 256);
  EXPECT_GE(odd_heads, static_cast<int64_t>(kLines / 20));
}

TEST(DrawLine, ALineIsAFunctionOfSeedAndNumber) {
  EXPECT_EQ(draw_line(1, 17, kLargest).scenario, lines()[17].scenario);
  EXPECT_FALSE(draw_line(2, 17, kLargest).scenario == lines()[17].scenario);
}

TEST(DrawValue, AFieldNobodyCanDrawIsNamed) {
  Draws d(1, 1);
  Field field = fields()[1];
  field.name = "shade", field.syntax = "COLOUR", field.accepted = "any";
  try {
    draw_value(d, field, {ops::paged, 10});
    FAIL() << "drew something";
  } catch (const CheckError& e) {
    EXPECT_THAT(e.what(), HasSubstr("field shade: its syntax \"COLOUR\" holds COLOUR"));
  }
}

TEST(Halve, EndsAndOnlyShrinks) {
  for (const char* text : {"7q40s40_3q1s900p64", "uniform(n=9,q=1:7,s=3:90)", "1q1", "5q200"}) {
    BatchSpec batch = parse_batch(text, {"here", 1, 1});
    const BatchSpec first = batch;
    int steps = 0;
    while (halve(batch)) ASSERT_LT(++steps, 60) << text;
    EXPECT_LE(batch.groups.size(), first.groups.size());
    for (const BatchGroup& g : batch.groups) EXPECT_LE(g.count * g.kv_len, 1) << text;
  }
}

}  // namespace
}  // namespace assay::campaign
