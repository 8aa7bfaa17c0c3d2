// SPDX-License-Identifier: Apache-2.0
// What fields need is what their rules say, of those that need something and of no others.
#include "harness/scenario/field_needs.hpp"

#include <gmock/gmock.h>

#include "harness/abi/assay_problem.h"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<FieldNeed> needs_of(std::string_view name) {
  return field_needs(fields()[static_cast<size_t>(field_index(name))]);
}

TEST(FieldNeeds, OfValuesAndOfNumbers) {
  const auto index = needs_of("index");
  ASSERT_EQ(index.size(), 1u);
  EXPECT_EQ(index[0].values, "swa");
  EXPECT_EQ(index[0].ops, op_bit(ASSAY_OP_PAGED));
  EXPECT_THAT(index[0].message, HasSubstr("it needs a window to the left (window=LEFT) or chunk="));
  const auto states = needs_of("states");
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].values, "");
  EXPECT_EQ(states[0].ops, op_bit(ASSAY_OP_DECODE_SPLITKV)) << "merge_states takes any number";
  EXPECT_THAT(states[0].message, HasSubstr("add part=0"));
  const auto prefix = needs_of("prefix");
  ASSERT_EQ(prefix.size(), 1u) << "cascade_metadata takes any";
  EXPECT_EQ(prefix[0].ops, op_bit(ASSAY_OP_STEP));
  EXPECT_THAT(prefix[0].message, HasSubstr("such as batch=8q1s2p1"));
  EXPECT_THAT(needs_of("page"), IsEmpty());
  EXPECT_THAT(needs_of("window"), IsEmpty());
  EXPECT_THAT(needs_of("cap"), IsEmpty());
}

// What an op never takes is no need.
TEST(FieldNeeds, LeaveOutWhatNoOtherFieldMends) {
  EXPECT_THAT(needs_of("input"), IsEmpty()) << "merge_states takes input=normal, whatever else is said";
  for (const FieldNeed& need : needs_of("strides")) EXPECT_EQ(need.values, "scales") << "a scale per token";
  for (const Field& field : fields().subspan(1))
    for (const FieldNeed& need : field_needs(field))
      EXPECT_EQ(need.message.find("accepted:"), std::string::npos) << field.name << ": " << need.message;
}

}  // namespace
}  // namespace assay
