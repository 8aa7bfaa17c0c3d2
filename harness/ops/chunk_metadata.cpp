// SPDX-License-Identifier: Apache-2.0
// Contexts cut into steps that fit a workspace. See enum assay_op.
#include <fmt/format.h>

#include <algorithm>

#include "harness/base/error.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/request_class.hpp"

namespace assay {
namespace {

// Steps of the context: the same arithmetic as a kernel, since shapes follow from it.
int64_t entries(const Problem& p) {
  int64_t extends = 0, longest = 0;
  for (const Request& r : p.requests) {
    extends += r.context_len() > 0 ? 1 : 0;
    longest = std::max<int64_t>(longest, r.context_len());
  }
  if (extends == 0) return 0;
  const int64_t step = chunk_keys(p, extends);
  return (longest + step - 1) / step;
}
int64_t requests(const Problem& p) { return static_cast<int64_t>(p.requests.size()); }

TensorLayout per_step(const Problem& p, int64_t columns) {
  return layouts::table_out(p, entries(p) + p.padded_rows, columns);
}
TensorLayout of_requests(const Problem& p) { return per_step(p, requests(p)); }
TensorLayout starts(const Problem& p) { return per_step(p, requests(p) + 1); }
TensorLayout of_tokens(const Problem& p) {
  return per_step(p, std::max<int64_t>(requests(p), p.token_budget));
}
TensorLayout counts(const Problem& p) { return layouts::list(2 + entries(p) + p.padded_rows); }

constexpr OperandUse kOperands[] = {
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kOutStarts, Role::kOut, of_requests},
    {Operand::kOutLen, Role::kOut, of_requests},
    {Operand::kOutCuKv, Role::kOut, starts},
    {Operand::kOutRequest, Role::kOut, of_tokens},
    {Operand::kOutCounts, Role::kOut, counts},
};

constexpr std::string_view kFields[] = {"pad", "budget"};

constexpr std::string_view kExamples[] = {"chunk_metadata budget=64 batch=2q1s40_1q3s100_1q5 seed=1",
                                          "chunk_metadata pad=2 budget=2 batch=3q1s6_1q0s4_1q7s3 seed=2"};

void check(const Problem& p) { ASSAY_CHECK(p.token_budget >= 1, "a budget of {} tokens", p.token_budget); }

double bytes(const Problem& p, const BatchSize& b) {
  const double step = std::max(1.0, p.token_budget / std::max(1.0, b.requests));
  const double steps = b.longest / step + 1 + p.padded_rows;
  return 4 * (2 * b.requests + steps * (3 * b.requests + std::max(b.requests, double{1} * p.token_budget)));
}

std::string describe(const Problem& p) {
  return fmt::format("cuts      the contexts of {} requests into {} steps of at most {} tokens",
                     p.requests.size(), entries(p), p.token_budget);
}

}  // namespace

constinit const Op ops::chunk_metadata = list_op({
    .id = ASSAY_OP_CHUNK_METADATA,
    .name = "chunk_metadata",
    .summary = "Contexts cut into steps of a token budget, with what a gather reads.",
    .operands = kOperands,
    .fields = kFields,
    .stridable = {.out = true},
    .check = check,
    .entries = entries,
    .bytes = bytes,
    .describe = describe,
    .examples = kExamples,
});

}  // namespace assay
