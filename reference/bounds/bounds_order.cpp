// SPDX-License-Identifier: Apache-2.0
// See bounds_order.hpp; the rules are those stated at assay_arithmetic::order_declared.
#include "reference/bounds/bounds_order.hpp"

#include <algorithm>
#include <cmath>

namespace assay {

KeyOrder::KeyOrder(const assay_arithmetic& a)
    : declared_(a.order_declared != 0 && a.tile_keys > 0),
      reverse_(declared_ && a.tile_reverse != 0),
      tile_(declared_ ? a.tile_keys : 1),
      splits_(declared_ ? std::max(1, a.splits) : 1),
      split_keys_(declared_ ? a.split_keys : 0) {}

std::vector<KeySpan> KeyOrder::spans(int64_t kv_len, int64_t begin, int64_t end, int64_t most) const {
  std::vector<KeySpan> all;
  const int64_t tiles = (kv_len + tile_ - 1) / tile_;
  const int64_t parts = split_keys_ > 0 ? (kv_len + split_keys_ - 1) / split_keys_ : splits_;
  const int64_t group = std::max<int64_t>(1, most / tile_) * tile_;
  for (int64_t s = 0; s < parts; ++s) {
    const int64_t part_from = split_keys_ > 0 ? s * split_keys_ : tiles * s / parts * tile_;
    const int64_t part_to =
        std::min(kv_len, split_keys_ > 0 ? (s + 1) * split_keys_ : tiles * (s + 1) / parts * tile_);
    const size_t first = all.size();
    for (int64_t n = 0, groups = (part_to - part_from + group - 1) / group; n < groups; ++n) {
      const int64_t group_from = part_from + (reverse_ ? groups - 1 - n : n) * group;
      const int64_t group_to = std::min(part_to, group_from + group);
      const size_t group_first = all.size();
      for (int64_t piece = group_from; piece < group_to; piece += most) {
        const int64_t from = std::max(piece, begin), to = std::min(std::min(piece + most, group_to), end);
        if (from < to) all.push_back({from, to, false, false, false});
      }
      if (all.size() > group_first) all.back().ends_group = true;
    }
    if (all.size() == first) continue;
    all[first].begins_part = true;
    all.back().ends_part = true;
  }
  return all;
}

RunningMaximum::RunningMaximum(double lag_log2, double start, double slack)
    : lag_(std::max(0.0, lag_log2) * M_LN2), value_(start), slack_(slack) {}

bool RunningMaximum::advance(double top) {
  if (top == -std::numeric_limits<double>::infinity()) return false;
  if (value_ == -std::numeric_limits<double>::infinity()) {
    value_ = top;
    return false;
  }
  const double rise = top - value_;
  if (lag_ > 0) {
    // Scores have errors of slack / 2 each, and the comparison is made in fp32.
    ambiguous_ |= std::fabs(rise - lag_) <= 2 * slack_ + 0x1p-20 * (lag_ + std::fabs(top));
    if (rise <= lag_) return rise > lag_ - 2 * slack_;
  }
  if (rise > 0) value_ = top;
  return rise > -slack_;
}

}  // namespace assay
