// SPDX-License-Identifier: Apache-2.0
// See cut.hpp.
#include "harness/explain/cut.hpp"

#include <algorithm>

namespace assay {

PartsOf::PartsOf(const Rules& rules, int32_t keys)
    : tile_keys_(rules.arithmetic.tile_keys),
      split_keys_(rules.arithmetic.split_keys),
      keys_(keys),
      cut_(rules.cut) {
  if (tile_keys_ > 0) tiles_ = (keys + tile_keys_ - 1) / tile_keys_;
  if (split_keys_ > 0) {
    count_ = std::max(1, (keys + split_keys_ - 1) / split_keys_);
    return;
  }
  count_ = std::max(1, rules.arithmetic.splits);
  if (cut_.all_or_one && tiles_ < count_) count_ = 1;
  if (cut_.least > 0) count_ = std::clamp((tiles_ + cut_.least - 1) / cut_.least, 1, count_);
}

int32_t PartsOf::of(int32_t position) const {
  if (split_keys_ > 0) return position / split_keys_;
  if (count_ == 1) return 0;
  const int32_t at = tile(position);
  if (cut_.interleaved) return at % count_;
  if (cut_.whole) return std::min(count_ - 1, at / std::max(1, (tiles_ + count_ - 1) / count_));
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
