// SPDX-License-Identifier: Apache-2.0
// Turned values: every visible value of V has the other sign and nothing else changed, and twice is not at
// all.
#include "harness/check/session/opposite.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "harness/scenario/scenario.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

std::vector<std::byte> bytes_of(const Inputs& inputs, Operand operand) {
  const GuardedBuffer& b = inputs.buffers[static_cast<int>(operand)];
  return b.empty() ? std::vector<std::byte>() : std::vector<std::byte>(b.raw(), b.raw() + b.raw_bytes());
}

// Every value of the view, in the order of its indices.
std::vector<double> values_of(const assay_tensor& t) {
  std::vector<double> all;
  std::vector<int64_t> at(static_cast<size_t>(t.rank), 0);
  for (bool more = true; more;) {
    int64_t offset = 0;
    for (int i = 0; i < t.rank; ++i) offset += at[i] * t.stride[i];
    all.push_back(load(t.format, t.data, offset));
    more = false;
    for (int i = t.rank - 1; i >= 0 && !more; --i) {
      more = ++at[i] < t.shape[i];
      if (!more) at[i] = 0;
    }
  }
  return all;
}

TEST(Opposite, EveryValueOfVAndTwiceIsNone) {
  for (const char* line :
       {"prefill h=4/2 d=16 batch=2q3s9", "prefill h=2 d=16 out=fp32 q=fp32 batch=1q3s9 strides=kv",
        "paged h=4/2 d=16 page=4 batch=2q1s9",
        "paged h=4/2 d=16 page=4 kv=fp8_e4m3:head batch=2q1s9 layout=hnd",
        "paged h=4/2 d=16 page=4 kv=fp8_e4m3fnuz batch=2q1s9",
        "paged h=4/2 d=16 page=4 kv=int8:token_head batch=2q1s9",
        "paged h=4/2 d=16 page=4 batch=2q1s9 storage=stacked",
        "paged h=4/2 d=16 page=4 batch=2q1s9 storage=interleaved",
        "paged h=4/2 d=16 page=8 batch=2q1s9 layout=x"}) {
    Inputs inputs = build_inputs(make_problem(parse_scenario(line)));
    const std::vector<std::byte> v = bytes_of(inputs, Operand::kV), k = bytes_of(inputs, Operand::kK);
    const std::vector<double> before = values_of(inputs.tensors.v), keys = values_of(inputs.tensors.k);
    ASSERT_TRUE(turn_values(inputs)) << line;
    const std::vector<double> after = values_of(inputs.tensors.v), keys_after = values_of(inputs.tensors.k);
    int64_t turned = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      if (std::isnan(before[i]) || before[i] == -128) continue;  // poison
      ASSERT_EQ(after[i], -before[i]) << line;
      turned += before[i] != 0;
    }
    EXPECT_GT(turned, 0) << line;
    EXPECT_EQ(0, std::memcmp(keys.data(), keys_after.data(), keys.size() * sizeof(double))) << line;
    turn_values(inputs);
    EXPECT_EQ(bytes_of(inputs, Operand::kV), v) << line;
    EXPECT_EQ(bytes_of(inputs, Operand::kK), k) << line;
  }
}

TEST(Opposite, NotWhereVIsAPartOfKOrThereIsNone) {
  for (const char* line :
       {"paged h=4/1 d=576/512 layout=mla batch=1q1s9", "merge_states h=2 d=16 batch=2q1"}) {
    Inputs inputs = build_inputs(make_problem(parse_scenario(line)));
    EXPECT_FALSE(turn_values(inputs)) << line;
  }
}

}  // namespace
}  // namespace assay
