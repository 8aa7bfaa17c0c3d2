// SPDX-License-Identifier: Apache-2.0
// The inputs of every op by its examples (harness/ops): what is read was drawn and stays under every poison,
// what is written is poison, what is written in part holds bytes of its own. A new op is asked the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "harness/input/inputs.hpp"
#include "harness/ops/op.hpp"
#include "harness/scenario/scenario.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// The codes of the elements of a view, in order; little-endian, up to 8 bytes each.
std::vector<uint64_t> codes(const Inputs& inputs, Operand operand) {
  const assay_tensor& t = tensor_of(inputs.tensors, operand);
  const int bytes = format_bytes(t.format);
  int64_t count = 1, index[ASSAY_MAX_RANK] = {};
  for (int axis = 0; axis < t.rank; ++axis) count *= t.shape[axis];
  std::vector<uint64_t> list;
  for (int64_t n = 0; n < count; ++n) {
    int64_t at = 0;
    for (int axis = 0; axis < t.rank; ++axis) at += index[axis] * t.stride[axis];
    uint64_t code = 0;
    std::memcpy(&code, static_cast<const std::byte*>(t.data) + at * bytes, bytes);
    list.push_back(code);
    for (int axis = t.rank - 1; axis >= 0 && ++index[axis] == t.shape[axis]; --axis) index[axis] = 0;
  }
  return list;
}

// Shares of a step's new keys, in units of their scale.
double share_of_new_keys(const std::string& fields, const std::function<bool(double)>& counts) {
  const Inputs in = build_inputs(
      make_problem(parse_scenario("step h=4/2 d=64 page=16 batch=2q1s40_2q9s60_1q40 seed=1 " + fields)));
  const assay_tensor &k = in.tensors.dense_k, &scale = in.tensors.k_scale;
  int64_t all = 0, counted = 0;
  for (int64_t row = 0; row < k.shape[0]; ++row)
    for (int64_t h = 0; h < k.shape[1]; ++h)
      for (int64_t d = 0; d < k.shape[2]; ++d, ++all)
        counted +=
            counts(std::fabs(load(k.format, k.data, row * k.stride[0] + h * k.stride[1] + d * k.stride[2]) /
                             load(scale.format, scale.data, h * scale.stride[0])));
  return static_cast<double>(counted) / static_cast<double>(all);
}

TEST(StepInputs, SaturateWithEveryRecipeAndAreSubnormalWithCodes) {
  for (const std::string recipe : {"normal", "peaked", "ascending", "boundary", "cancelling", "outlier",
                                   "narrow", "negative", "patterned", "codes", "steep"}) {
    EXPECT_GT(share_of_new_keys("kv=int8:head input=" + recipe, [](double x) { return x > 127.5; }), 0)
        << recipe;
    const double subnormal =
        share_of_new_keys("kv=fp8_e4m3:head input=" + recipe, [](double x) { return x > 0 && x < 0x1p-6; });
    EXPECT_EQ(subnormal > 0.1, recipe == "codes") << recipe << ": " << subnormal;
  }
}

class OpInputs : public ::testing::TestWithParam<std::string_view> {};

// What harness/abi/README.md promises to readers of small vectors.
TEST_P(OpInputs, OperandsOfOneAxisLieDense) {
  Problem p = make_problem(parse_scenario(GetParam()));
  p.strided = {.q = true, .kv = true, .out = true, .table = true, .scales = true, .last = true};
  for (int i = 0; i < kOperandCount; ++i) {
    const TensorLayout t = operand_layout(p, static_cast<Operand>(i));
    if (t.rank == 1) {
      EXPECT_EQ(t.stride[0], 1) << operand_name(static_cast<Operand>(i));
    }
  }
}

TEST_P(OpInputs, FollowTheRoles) {
  const Problem p = make_problem(parse_scenario(GetParam()));
  Inputs inputs = build_inputs(p);
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    SCOPED_TRACE(operand_name(operand));
    const Role role = role_of(p, operand);
    if (operand_layout(p, operand).rank == 0) {
      EXPECT_TRUE(inputs.buffers[i].empty());
      continue;
    }
    std::vector<uint64_t> seen[3];
    for (const Poison poison : {Poison::kNaN, Poison::kLow, Poison::kHigh}) {
      repoison(inputs, poison);
      seen[static_cast<int>(poison)] = codes(inputs, operand);
    }
    size_t stay = 0, drawn = 0, differ = 0;
    for (size_t n = 0; n < seen[0].size(); ++n) {
      const bool same = seen[0][n] == seen[1][n] && seen[1][n] == seen[2][n];
      stay += same;
      drawn += same && seen[0][n] != 0;
      differ += seen[0][n] != seen[1][n] && seen[1][n] != seen[2][n];
    }
    switch (role) {
      case Role::kIn: {
        const int32_t format = tensor_of(inputs.tensors, operand).format;
        const bool values = format != ASSAY_INT32 && format != ASSAY_INT64;
        EXPECT_TRUE(drawn > 0 || (!values && stay == seen[0].size())) << "nothing was drawn";
        break;
      }
      case Role::kOut:
        EXPECT_EQ(differ, seen[0].size()) << "some of it is no poison";
        break;
      case Role::kInOut:
        if (holds_values(p, operand)) {
          const bool all_new = p.mask == ASSAY_MASK_CROSS;  // of an encoder no key is there before
          EXPECT_TRUE((drawn > 0 || all_new) && differ > 0) << drawn << " drawn, " << differ << " poisoned";
          break;
        }
        EXPECT_GT(differ, seen[0].size() * 9 / 10) << "holds the same under every poison";
        break;
      case Role::kWorkspace:
      case Role::kNone:
        FAIL() << "no role";
    }
  }
}

std::vector<std::string_view> every_example() {
  std::vector<std::string_view> lines;
  for (const Op* op : all_ops()) lines.insert(lines.end(), op->examples.begin(), op->examples.end());
  return lines;
}
// A row whose scale is found reaches the largest code, and in the source's own format no value is infinite.
TEST(ValuesToQuantise, AreFinite) {
  for (const char* scale : {"token_head", "head"})
    for (int seed = 0; seed < 8; ++seed) {
      const Inputs inputs = build_inputs(make_problem(parse_scenario(fmt::format(
          "quantize_int8 h=2 d=16 q=fp8_e5m2:{} from=fp16 batch=1q3 input=exact seed={}", scale, seed))));
      const assay_tensor& t = tensor_of(inputs.tensors, Operand::kSource);
      double largest = 0;
      for (int64_t i = 0; i < t.shape[0] * t.stride[0]; ++i)
        largest = std::max(largest, std::fabs(load(t.format, t.data, i)));
      EXPECT_LE(largest, 65504) << scale << seed;
      if (std::string_view(scale) == "token_head") {
        EXPECT_GE(largest, 57344.0 / 16) << seed;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Examples, OpInputs, ::testing::ValuesIn(every_example()));

TEST(Operands, NamesAndMembersFollowTheHeader) {
  assay_tensors t{};
  std::set<const void*> members;
  std::set<std::string_view> names;
  const assay_tensor* last = nullptr;
  for (int i = 0; i < kOperandCount; ++i) {
    const assay_tensor* member = &tensor_of(t, static_cast<Operand>(i));
    EXPECT_TRUE(last == nullptr || member == last + 1) << i;  // in the order of the struct
    last = member;
    names.insert(operand_name(static_cast<Operand>(i)));
  }
  EXPECT_EQ(&tensor_of(t, Operand::kQ), &t.q);
  EXPECT_EQ(&tensor_of(t, Operand::kWorkspace), &t.workspace);
  EXPECT_EQ(names.size(), size_t{kOperandCount});
  EXPECT_EQ(operand_name(Operand::kLastPageLen), "last_page_len");
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    EXPECT_EQ(is_output(Problem{}, operand),
              operand == Operand::kO || operand == Operand::kLse || operand == Operand::kWorkspace);
  }
}

// The last number of fp16 is none of bf16, and the next one up is past fp16: new rows of a step in bf16 are
// numbers of its cache of fp16, which keeps no infinity for anyone to read.
TEST(StepInputs, NewRowsFitTheirCache) {
  for (const char* line : {"step h=2 d=64 kv=fp16 sinks=on batch=8q3s9 input=codes seed=561509",
                           "step h=2 d=64 kv=fp16 batch=8q3s9 input=outlier seed=2"}) {
    const Problem p = make_problem(parse_scenario(line));
    const Inputs inputs = build_inputs(p);
    double most = 0;
    for (const Operand operand : {Operand::kDenseK, Operand::kDenseV}) {
      const assay_tensor& t = tensor_of(inputs.tensors, operand);
      ASSERT_EQ(t.format, ASSAY_BF16);
      for (int64_t row = 0; row < t.shape[0]; ++row)
        for (int64_t head = 0; head < t.shape[1]; ++head)
          for (int64_t d = 0; d < t.shape[2]; ++d)
            most = std::max(most, std::fabs(load(t.format, t.data,
                                                 row * t.stride[0] + head * t.stride[1] + d * t.stride[2])));
    }
    EXPECT_LE(most, format_info(ASSAY_FP16).max_finite) << line;
    if (p.recipe == InputRecipe::kCodes) {
      EXPECT_GT(most, 0.9 * format_info(ASSAY_FP16).max_finite);
    }
  }
}

}  // namespace
}  // namespace assay
