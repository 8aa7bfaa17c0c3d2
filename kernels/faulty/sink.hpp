// SPDX-License-Identifier: Apache-2.0
// Attention sinks: a logit without a value. It joins once per row: at the start of the running maximum, at
// the end of the only part, or in the merge of several. -infinity stands for "not here".
#pragma once

#include <limits>

#include "kernels/faulty/call.hpp"

namespace assay_faulty {

inline float sink_of(const Call& c, int32_t row, int32_t head) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const Sink how = c.sw.sink;
  if (!c.p().has_sinks || how == Sink::kIgnored) return kNone;
  if (how == Sink::kFirstRowOnly && row > 0) return kNone;
  const int32_t from = how == Sink::kOtherHead ? (head + 1) % c.p().heads_q : head;
  const float sink = c.ops.sinks[from * c.ops.sinks_stride];
  return how == Sink::kScaled ? sink * c.softmax_scale : sink;
}

inline float early_sink(const Call& c, int32_t row, int32_t head) {
  return c.how.sink_first ? sink_of(c, row, head) : -std::numeric_limits<float>::infinity();
}

inline float late_sink(const Call& c, int32_t row, int32_t head, bool only_part) {
  return only_part && !c.how.sink_first ? sink_of(c, row, head) : -std::numeric_limits<float>::infinity();
}

inline float merge_sink(const Call& c, int32_t row, int32_t head) { return sink_of(c, row, head); }

}  // namespace assay_faulty
