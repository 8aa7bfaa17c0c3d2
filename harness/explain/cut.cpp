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
    parts_ = std::max(1, (keys_ + split_keys_ - 1) / split_keys_);
  } else {
    parts_ = std::max(1, rules.arithmetic.splits);
    if (cut_.all_or_one && tiles_ < parts_) parts_ = 1;
    if (cut_.least > 0)
      parts_ = std::clamp((cut_.least_met ? tiles_ : tiles_ + cut_.least - 1) / cut_.least, 1, parts_);
  }
  count_ = parts_;
  if (cut_.states <= 1 || tile_keys_ <= 0) return;
  if (cut_.states_merge) count_ = parts_ * cut_.states;
  begins_.assign(parts_, -1);
  for (int32_t t = first_; t < first_ + tiles_; ++t)
    if (int32_t& begin = begins_[std::min(parts_ - 1, dealt(t * tile_keys_))]; begin < 0) begin = t;
}

int32_t PartsOf::turn(int32_t position) const {
  if (begins_.empty()) return 0;
  const int32_t begin = begins_[std::clamp(dealt(position), 0, parts_ - 1)];
  return std::max(0, tile(position) - begin) % cut_.states;
}

int32_t PartsOf::of(int32_t position) const {
  return cut_.states_merge && !begins_.empty() ? dealt(position) * cut_.states + turn(position)
                                               : dealt(position);
}

int32_t PartsOf::state(int32_t position) const { return cut_.states_merge ? 0 : turn(position); }

int32_t PartsOf::dealt(int32_t position) const {
  if (split_keys_ > 0) return position / split_keys_;
  if (parts_ == 1) return 0;
  const int32_t at = std::clamp(tile(position) - first_, 0, std::max(0, tiles_ - 1));
  if (cut_.interleaved) return at % parts_;
  if (cut_.whole) return std::min(parts_ - 1, at / std::max(1, (tiles_ + parts_ - 1) / parts_));
  if (cut_.rest_first) {
    const int32_t each = tiles_ / parts_, more = tiles_ % parts_;
    return at < more * (each + 1) ? at / (each + 1)
                                  : std::min(parts_ - 1, more + (at - more * (each + 1)) / std::max(1, each));
  }
  for (int32_t s = 0; s + 1 < parts_; ++s)
    if (at < static_cast<int64_t>(tiles_) * (s + 1) / parts_) return s;
  return parts_ - 1;
}

int32_t PartsOf::step() const { return split_keys_ > 0 ? split_keys_ : std::max(1, tile_keys_); }

std::vector<int32_t> PartsOf::starts() const {
  std::vector<int32_t> list;
  for (int32_t key = step(); key < keys_; key += step())
    if (dealt(key) != dealt(key - 1)) list.push_back(key);
  return list;
}

int32_t PartsOf::start_of(int32_t position) const {
  int32_t key = std::max(0, std::min(position, keys_ - 1) / step() * step());
  while (key > 0 && dealt(key) == dealt(key - 1)) key -= step();
  return key;
}

}  // namespace assay
