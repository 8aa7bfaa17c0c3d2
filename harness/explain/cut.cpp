// SPDX-License-Identifier: Apache-2.0
// See cut.hpp.
#include "harness/explain/cut.hpp"

#include <algorithm>

#include "harness/explain/families/row_block.hpp"

namespace assay {

namespace {

// The keys that are cut into parts; behind the last one they may be none of the row's own.
KeyRange cut_keys(const Rules& rules, const Scene& s) {
  if (rules.splits_of_longest) return {0, s.problem.max_kv_len()};
  if (rules.cut.block_rows == 0) return {0, s.kv_len};
  const KeyRange seen = RowBlock{rules.cut.block_rows, rules.cut.packed}.keys(s.problem, s.cell);
  return {std::min(seen.begin, s.kv_len), std::min(seen.end, s.kv_len)};
}

}  // namespace

PartsOf::PartsOf(const Rules& rules, const Scene& s) : PartsOf(rules, cut_keys(rules, s)) {}

PartsOf::PartsOf(const Rules& rules, const KeyRange& cut)
    : tile_keys_(rules.arithmetic.tile_keys),
      split_keys_(rules.arithmetic.split_keys),
      keys_(cut.end),
      cut_(rules.cut) {
  if (tile_keys_ > 0) {
    first_ = cut.begin / tile_keys_;
    tiles_ = std::max(0, (keys_ + tile_keys_ - 1) / tile_keys_ - first_);
  }
  if (split_keys_ > 0) {
    count_ = std::max(1, (keys_ + split_keys_ - 1) / split_keys_);
    return;
  }
  count_ = std::max(1, rules.arithmetic.splits);
  if (cut_.all_or_one && tiles_ < count_) count_ = 1;
  if (cut_.least > 0)
    count_ = std::clamp((cut_.least_met ? tiles_ : tiles_ + cut_.least - 1) / cut_.least, 1, count_);
}

int32_t PartsOf::of(int32_t position) const {
  if (split_keys_ > 0) return position / split_keys_;
  if (count_ == 1) return 0;
  const int32_t at = std::clamp(tile(position) - first_, 0, std::max(0, tiles_ - 1));
  if (cut_.interleaved) return at % count_;
  if (cut_.whole) return std::min(count_ - 1, at / std::max(1, (tiles_ + count_ - 1) / count_));
  if (cut_.rest_first) {
    const int32_t each = tiles_ / count_, more = tiles_ % count_;
    return at < more * (each + 1) ? at / (each + 1)
                                  : std::min(count_ - 1, more + (at - more * (each + 1)) / std::max(1, each));
  }
  for (int32_t s = 0; s + 1 < count_; ++s)
    if (at < static_cast<int64_t>(tiles_) * (s + 1) / count_) return s;
  return count_ - 1;
}

std::vector<int32_t> PartsOf::starts() const {
  std::vector<int32_t> list;
  const int32_t step = split_keys_ > 0 ? split_keys_ : std::max(1, tile_keys_);
  for (int32_t key = step; key < keys_; key += step)
    if (of(key) != of(key - 1)) list.push_back(key);
  return list;
}

}  // namespace assay
