// SPDX-License-Identifier: Apache-2.0
// Turned values: every value that is read has the other sign and nothing else changed, and twice is not at
// all; the same of random rows, within the bytes that are said.
#include "harness/check/session/opposite.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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

struct Turned {
  const char* line;
  std::vector<Operand> operands;
};

TEST(Opposite, EveryValueThatIsReadAndTwiceIsNone) {
  const std::vector<Operand> all = {Operand::kQ, Operand::kK, Operand::kV};
  for (const Turned& t : std::initializer_list<Turned>{
           {"prefill h=4/2 d=16 batch=2q3s9", all},
           {"prefill h=2 d=16 out=fp32 q=fp32 batch=1q3s9 strides=kv", all},
           {"paged h=4/2 d=16 page=4 batch=2q1s9", all},
           {"paged h=4/2 d=16 page=4 kv=fp8_e4m3:head batch=2q1s9 layout=hnd", all},
           {"paged h=4/2 d=16 page=4 kv=fp8_e4m3fnuz batch=2q1s9", all},
           {"paged h=4/2 d=16 page=4 kv=int8:token_head batch=2q1s9", all},
           {"paged h=4/2 d=16 page=4 batch=2q1s9 storage=stacked", all},
           {"paged h=4/2 d=16 page=4 batch=2q1s9 storage=interleaved", all},
           {"paged h=4/2 d=16 page=8 batch=2q1s9 layout=x", all},
           {"paged h=4/1 d=576/512 layout=mla batch=1q1s9", {Operand::kQ, Operand::kK}},
           {"decode_splitkv h=4/2 d=32 part=16 batch=2q1s40", all},
           {"merge_states h=2 d=16 batch=2q1", {Operand::kPartialO}},
           {"quantize_int8 h=4 d=32 batch=3q7", {Operand::kSource}},
           {"step h=4/2 d=64 page=4 batch=2q1s9_1q3s7",
            {Operand::kQ, Operand::kDenseK, Operand::kDenseV, Operand::kK, Operand::kV}},
           {"cache_write h=4/2 d=32 batch=2q5s20", {Operand::kDenseK, Operand::kDenseV}},
           {"cache_gather h=4/2 d=32 batch=2q0s20", {Operand::kK, Operand::kV}}}) {
    SCOPED_TRACE(t.line);
    Inputs inputs = build_inputs(make_problem(parse_scenario(t.line)));
    std::vector<std::vector<double>> before;
    for (int i = 0; i < kOperandCount; ++i) {
      const assay_tensor& view = tensor_of(inputs.tensors, static_cast<Operand>(i));
      const bool wanted =
          std::find(t.operands.begin(), t.operands.end(), static_cast<Operand>(i)) != t.operands.end();
      before.push_back(wanted ? values_of(view) : std::vector<double>());
    }
    std::vector<std::vector<std::byte>> bytes;
    for (int i = 0; i < kOperandCount; ++i) bytes.push_back(bytes_of(inputs, static_cast<Operand>(i)));
    ASSERT_TRUE(turn_values(inputs));
    for (const Operand operand : t.operands) {
      const std::vector<double> after = values_of(tensor_of(inputs.tensors, operand));
      const std::vector<double>& was = before[static_cast<size_t>(operand)];
      ASSERT_EQ(after.size(), was.size());
      int64_t turned = 0;
      for (size_t i = 0; i < was.size(); ++i) {
        if (std::isnan(was[i]) || was[i] == -128) continue;  // poison
        ASSERT_EQ(after[i], -was[i]);
        turned += was[i] != 0;
      }
      EXPECT_GT(turned, 0);
    }
    turn_values(inputs);
    std::mt19937_64 random(1);
    for (const int64_t most : {int64_t{0}, int64_t{256}}) {
      const std::vector<TurnedRows> rows = turn_random_rows(inputs, random, most);
      const bool others = most == 0 && t.operands.size() > 1;  // all but the first
      // With the rows of the batch come Q, or what is cast or written.
      size_t small = 0;
      for (const Operand o : t.operands) small += o != Operand::kK && o != Operand::kV;
      ASSERT_EQ(rows.size(), others ? t.operands.size() - 1 : most == 0 ? 1 : std::max<size_t>(small, 1));
      EXPECT_EQ(rows[0].operand, t.operands[others ? 1 : 0]);
      const GuardedBuffer& buffer = inputs.buffers[rows[0].operand];
      const auto& was = bytes[static_cast<size_t>(rows[0].operand)];
      int64_t changed = 0;
      for (int64_t at = 0; at < buffer.raw_bytes(); ++at) {
        const int64_t payload = at - (buffer.payload() - buffer.raw());
        if (buffer.raw()[at] == was[static_cast<size_t>(at)]) continue;
        ++changed;
        if (rows.size() == 1) {
          ASSERT_TRUE(payload >= rows[0].first && payload < rows[0].last);
        }
      }
      EXPECT_GT(changed, 0);
      EXPECT_LE(rows[0].last - rows[0].first, most == 0 ? buffer.bytes() : std::max<int64_t>(most, 576 * 4));
      turn_rows(inputs, rows);
    }
    for (int i = 0; i < kOperandCount; ++i)
      EXPECT_EQ(bytes_of(inputs, static_cast<Operand>(i)), bytes[static_cast<size_t>(i)]);
  }
}

}  // namespace
}  // namespace assay
