// SPDX-License-Identifier: Apache-2.0
// A batch in the order decode, extend, prefill. See enum assay_op.
#include <fmt/format.h>

#include "harness/base/error.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr int64_t kGroups = 3, kFigures = 5;

TensorLayout starts(const Problem& p) {
  return layouts::list(static_cast<int64_t>(p.requests.size()) + kGroups);
}
TensorLayout counts(const Problem& p) { return layouts::table_out(p, kGroups, kFigures); }

constexpr OperandUse kOperands[] = {
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kOutLen, Role::kOut, layouts::per_request},
    {Operand::kOutCuQ, Role::kOut, starts},
    {Operand::kOutCuKv, Role::kOut, starts},
    {Operand::kOutRequest, Role::kOut, layouts::per_request},
    {Operand::kOutCounts, Role::kOut, counts},
};

constexpr std::string_view kFields[] = {"threshold"};

constexpr std::string_view kExamples[] = {"split_batch batch=1q9_2q1s40_1q7s30_1q1_1q0s5 seed=1",
                                          "split_batch threshold=4 batch=1q5_2q4s40_1q5s6_1q3 seed=2"};

void check(const Problem& p) { ASSAY_CHECK(p.threshold >= 0, "a threshold of {} rows", p.threshold); }

double bytes(const Problem&, const BatchSize& b) { return 4 * (6 * b.requests + 20); }

std::string describe(const Problem& p) {
  return fmt::format("orders    {} requests: decode up to {} rows, extend, prefill", p.requests.size(),
                     p.threshold);
}

}  // namespace

constinit const Op ops::split_batch = list_op({
    .id = ASSAY_OP_SPLIT_BATCH,
    .name = "split_batch",
    .summary = "Orders a batch decode, extend, prefill; counts and starts of each.",
    .operands = kOperands,
    .fields = kFields,
    .stridable = {.out = true},
    .check = check,
    .bytes = bytes,
    .describe = describe,
    .examples = kExamples,
});

}  // namespace assay
