// SPDX-License-Identifier: Apache-2.0
// The keys behind a window, for one gather of them. See enum assay_op.
#include <fmt/format.h>

#include <algorithm>

#include "harness/ops/layouts.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

// Keys that are gathered: the same arithmetic as a kernel, since shapes follow from it.
int64_t entries(const Problem& p) {
  int64_t keys = 0;
  for (const Request& r : p.requests) {
    if (r.q_len == 0) continue;
    keys += p.window_left < 0 ? r.kv_len : std::min<int64_t>(r.kv_len, int64_t{r.q_len} + p.window_left + 1);
  }
  return keys;
}
TensorLayout lengths(const Problem& p) {
  return layouts::table_out(p, 2, static_cast<int64_t>(p.requests.size()));
}
TensorLayout of_tokens(const Problem& p) { return layouts::list(entries(p) + p.padded_rows); }

constexpr OperandUse kOperands[] = {
    {Operand::kCuQ, Role::kIn, layouts::request_starts},
    {Operand::kKvLen, Role::kIn, layouts::per_request},
    {Operand::kOutStarts, Role::kOut, layouts::per_request},
    {Operand::kOutLen, Role::kOut, lengths},
    {Operand::kOutCuKv, Role::kOut, layouts::request_starts},
    {Operand::kOutRequest, Role::kOut, of_tokens},
};

constexpr std::string_view kFields[] = {"pad", "window"};

constexpr std::string_view kExamples[] = {"window_metadata window=7 batch=2q1s40_1q3s100_1q5_1q0s9 seed=1",
                                          "window_metadata pad=3 strides=out batch=1q3s6_1q9s12 seed=2"};

double bytes(const Problem& p, const BatchSize& b) {
  const double shown = p.window_left < 0 ? b.keys : b.rows + b.requests * (p.window_left + 1.0);
  return 4 * (6 * b.requests + std::min(b.keys, shown) + p.padded_rows);
}

std::string describe(const Problem& p) {
  return fmt::format("lists     {} keys of {} requests that a window of {} to the left may show", entries(p),
                     p.requests.size(), p.window_left);
}

}  // namespace

constinit const Op ops::window_metadata = list_op({
    .id = ASSAY_OP_WINDOW_METADATA,
    .name = "window_metadata",
    .summary = "The last keys of each request that a window may show, with what a gather reads.",
    .operands = kOperands,
    .fields = kFields,
    .rows = RowRule::kWithinCache,
    .stridable = {.out = true},
    .entries = entries,
    .bytes = bytes,
    .describe = describe,
    .examples = kExamples,
});

}  // namespace assay
