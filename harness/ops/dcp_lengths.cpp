// SPDX-License-Identifier: Apache-2.0
// Lengths of contexts that are spread over ranks in turns. See enum assay_op.
#include <fmt/format.h>

#include "harness/base/error.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

TensorLayout lengths(const Problem& p) {
  return layouts::table_out(p, p.ranks, static_cast<int64_t>(p.requests.size()));
}

constexpr OperandUse kOperands[] = {
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kOutLen, Role::kOut, lengths},
};

constexpr std::string_view kFields[] = {"ranks", "interleave"};

constexpr std::string_view kExamples[] = {
    "dcp_lengths batch=2q1s40_1q1s0_1q1 seed=1",
    "dcp_lengths ranks=5 interleave=16 batch=2q1s79_1q4s81_1q1s7 seed=2"};

void check(const Problem& p) {
  ASSAY_CHECK(p.ranks >= 1 && p.interleave >= 1, "{} ranks in turns of {} tokens", p.ranks, p.interleave);
}

double bytes(const Problem& p, const BatchSize& b) { return 4 * b.requests * (1 + p.ranks); }

std::string describe(const Problem& p) {
  return fmt::format("spreads   {} requests over {} ranks in turns of {} tokens", p.requests.size(), p.ranks,
                     p.interleave);
}

}  // namespace

constinit const Op ops::dcp_lengths = list_op({
    .id = ASSAY_OP_DCP_LENGTHS,
    .name = "dcp_lengths",
    .summary = "Key lengths of every rank of a context spread over ranks.",
    .operands = kOperands,
    .fields = kFields,
    .stridable = {.out = true},
    .check = check,
    .bytes = bytes,
    .describe = describe,
    .examples = kExamples,
});

}  // namespace assay
