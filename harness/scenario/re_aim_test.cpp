// SPDX-License-Identifier: Apache-2.0
// Cases with fields set: what follows by default follows again, fields an op lacks stay away, contradictions
// are counted with their rule, and bad text is named by its column.
#include "harness/scenario/re_aim.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string aimed(const std::string& set, const std::string& line) {
  ReAim aim(set);
  const std::optional<Scenario> s = aim(parse_scenario(line));
  return s ? print(*s) : "left out: " + aim.first();
}

TEST(ReAim, SetsFieldsAndWhatFollowsThem) {
  EXPECT_EQ(aimed("h=32/8 d=128 page=16", "paged h=4/2 d=64 page=32 window=7 batch=2q1s33 seed=3"),
            "paged window=7 batch=2q1s33 seed=3");
  EXPECT_EQ(aimed("page=64", "prefill h=4/2 d=64 batch=2q9s9"), "prefill h=4/2 d=64 batch=2q9");
  EXPECT_EQ(aimed("q=fp16", "paged h=4/2 batch=2q1s33"), "paged h=4/2 q=fp16 batch=2q1s33");
  EXPECT_EQ(aimed("q=fp16", "paged h=4/2 kv=int8 out=fp32 batch=2q1s33"),
            "paged h=4/2 q=fp16 kv=int8 out=fp32 batch=2q1s33");
  EXPECT_EQ(print(*ReAim()(parse_scenario("paged h=4/2 batch=2q1s33"))), "paged h=4/2 batch=2q1s33");
}

TEST(ReAim, NamesTheFieldsThatACaseLacks) {
  const ReAim aim("states=3 d=64 pad=1");
  EXPECT_EQ(aim.lacking(parse_scenario("paged h=4/2 batch=2q1s33")), "states, pad");
  EXPECT_EQ(aim.lacking(parse_scenario("step h=4/2 batch=2q1s33")), "states");
  EXPECT_EQ(ReAim("d=64").lacking(parse_scenario("step h=4/2 batch=2q1s33")), "");
}

TEST(ReAim, LeavesOutWhatContradictsAndSaysWhy) {
  ReAim aim("h=32/8 d=128");
  EXPECT_TRUE(aim(parse_scenario("paged h=4/2 d=64 batch=2q1s33")));
  EXPECT_FALSE(aim(parse_scenario("paged h=4/1 d=576/512 layout=mla batch=2q1s33")));
  EXPECT_FALSE(aim(parse_scenario("paged h=8/1 d=192/128 layout=mla batch=2q1s34")));
  EXPECT_EQ(aim.contradicted(), 2);
  EXPECT_THAT(aim.first(), StartsWith("paged h=4/1 d=576/512 layout=mla batch=2q1s33: "));
}

std::string error(const std::string& text) {
  try {
    ReAim aim(text);
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(ReAim, NamesTheColumnOfBadText) {
  EXPECT_THAT(error("h=32/8 dd=128"), StartsWith("--set:1:8: "));
  EXPECT_THAT(error("h=32/8 dd=128"), HasSubstr("dd"));
  EXPECT_THAT(error("h=32/8 d=many"), StartsWith("--set:1:10: "));
  EXPECT_THAT(error("h=32/8 d=64,128"), StartsWith("--set:1:12: "));
  EXPECT_THAT(error("page"), StartsWith("--set:1:1: "));
  EXPECT_THAT(error("page=16 page=32"), StartsWith("--set:1:9: "));
  EXPECT_THAT(error("op=prefill"), HasSubstr("the op stands first in the line"));
  EXPECT_THAT(error("  "), HasSubstr("fields of a line are expected"));
}

}  // namespace
}  // namespace assay
