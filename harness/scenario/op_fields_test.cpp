// SPDX-License-Identifier: Apache-2.0
// The descriptions of the ops (harness/ops) against the language: every field they name exists, every field
// of the table belongs to somebody, and their examples are canonical lines that obey every rule.
#include <gtest/gtest.h>

#include <set>

#include "harness/ops/op.hpp"
#include "harness/scenario/fields.hpp"

namespace assay {
namespace {

TEST(OpFields, AreThoseOfTheTable) {
  std::set<std::string_view> named(std::begin(kFieldsOfAll), std::end(kFieldsOfAll));
  for (const Op* op : all_ops())
    for (const std::string_view field : op->fields) {
      EXPECT_GE(field_index(field), 0) << op->name << " takes " << field << ", which is no field";
      named.insert(field);
    }
  for (const std::string_view field : field_names())
    EXPECT_TRUE(named.contains(field)) << field << ": no op takes it";
}

TEST(OpFields, DefaultsAndRulesSayWhatToWrite) {
  for (const Op* op : all_ops()) {
    EXPECT_EQ(op->recipes == kAllRecipes, op->recipes_message.empty()) << op->name;
    EXPECT_EQ(op->q_rule.fits == nullptr, op->q_rule.message.empty()) << op->name;
    EXPECT_EQ(op->kv_rule.fits == nullptr, op->kv_rule.message.empty()) << op->name;
    EXPECT_TRUE(!op->whole_context || op->foreign_fields.empty()) << op->name;
  }
}

TEST(OpExamples, AreCanonicalAndMakeProblems) {
  for (const Op* op : all_ops()) {
    EXPECT_GE(op->examples.size(), 2u) << op->name;
    for (const std::string_view line : op->examples) {
      const Scenario s = parse_scenario(line);
      EXPECT_EQ(s.op, op->id) << line;
      EXPECT_EQ(print(s), line);
      const Problem p = make_problem(s);
      EXPECT_GT(work_of(p).total_bytes, 0) << line;
      EXPECT_EQ(op->describe(p).find("  \n"), std::string::npos) << line;
      EXPECT_FALSE(op->describe(p).empty()) << line;
    }
  }
}

}  // namespace
}  // namespace assay
