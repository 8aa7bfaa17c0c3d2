// SPDX-License-Identifier: Apache-2.0
// See bounds_order.hpp; the rules are those stated at assay_arithmetic::order_declared.
#include "reference/bounds/bounds_order.hpp"

#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds_terms.hpp"

namespace assay {

KeyOrder::KeyOrder(const Problem& p, const assay_arithmetic& a)
    : p_(p),
      chains_(p, a),
      // Which requests are cut where is not known of parts that vary.
      declared_(a.order_declared != 0 && a.tile_keys > 0 && (a.splits_vary == 0 || a.splits <= 1)),
      reverse_(declared_ && a.tile_reverse != 0),
      interleaved_(declared_ && a.splits > 1 && (a.split_interleaved != 0 || a.share_turns > 1)),
      tile_(declared_ ? a.tile_keys : 1),
      window_(declared_ ? promotion_tiles(a) : 1),
      splits_(declared_ ? std::max(1, a.splits) : 1),
      split_keys_(declared_ ? a.split_keys : 0) {
  if (declared_ && a.item_rows > 0) items_.emplace(p, a);
}

std::vector<TileRun> KeyOrder::parts(RowId id, int32_t head) const {
  if (items_) return items_->parts(id.request, head / p_.group(), items_->item(id.row, head));
  const int64_t kv_len = p_.requests[id.request].kv_len, tiles = (kv_len + tile_ - 1) / tile_;
  const int64_t parts = split_keys_ > 0 ? (kv_len + split_keys_ - 1) / split_keys_ : splits_;
  std::vector<TileRun> all;
  for (int64_t s = 0; s < parts; ++s)
    if (interleaved_) {
      all.push_back({s, std::max<int64_t>(0, (tiles - s + parts - 1) / parts), parts});
    } else if (split_keys_ > 0) {
      const int64_t each = split_keys_ / tile_;
      all.push_back({s * each, std::min(tiles, (s + 1) * each) - s * each, 1});
    } else {
      const int64_t first = tiles * s / parts;
      all.push_back({first, tiles * (s + 1) / parts - first, 1});
    }
  return all;
}

std::vector<KeySpan> KeyOrder::spans(RowId id, int32_t head, int64_t begin, int64_t end, int64_t most) const {
  std::vector<KeySpan> all;
  const int64_t kv_len = p_.requests[id.request].kv_len;
  const int64_t together = interleaved_ ? 1 : std::max<int64_t>(1, most / tile_);  // tiles in one piece
  const int64_t group = interleaved_ ? window_ : std::max<int64_t>(1, together / window_) * window_;
  // The tiles [from, to) of the part as they lie in memory, in pieces of at most `most` keys as visited.
  const auto add = [&](const TileRun& p, int64_t from, int64_t to) {
    const int64_t first = (p.first + from * p.step) * tile_;
    const int64_t last = std::min(kv_len, (p.first + (to - 1) * p.step + 1) * tile_);
    const int64_t piece = tile_ <= most ? together * tile_ : most,
                  pieces = (last - first + piece - 1) / piece;
    const bool backwards = reverse_ && tile_ <= most;  // inside a tile there is no order
    for (int64_t n = 0; n < pieces; ++n) {
      const int64_t at = first + (backwards ? pieces - 1 - n : n) * piece;
      const int64_t low = std::max(at, begin), high = std::min({at + piece, last, end});
      if (low < high) all.push_back({low, high, false, false, false});
    }
  };
  for (const TileRun& p : parts(id, head)) {
    const size_t first = all.size();
    for (int64_t at = 0; at < p.count; at += group) {
      const size_t group_first = all.size();
      const int64_t many = std::min(group, p.count - at), from = reverse_ ? p.count - at - many : at;
      if (interleaved_ || tile_ > most)
        for (int64_t n = 0; n < many; ++n) {
          const int64_t t = reverse_ ? from + many - 1 - n : from + n;
          add(p, t, t + 1);
        }
      else
        add(p, from, from + many);
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

int64_t ErrorModel::updates(int64_t span, int64_t keys, const double* scores, int64_t count, double slack,
                            bool sink) const {
  // Also in tiles of which this row sees no key, if it sees any: a sink is multiplied as well.
  if (arithmetic_.rescale_inexact != 0 && (keys > 0 || sink))
    return std::max<int64_t>(0, tiles(max_kv_len_) - 1) + (sink ? 1 : 0);
  if (keys <= 0) return 0;
  int64_t most = std::min(keys, tiles(span));
  if (most > 1 && arithmetic_.tile_keys > 0 && arithmetic_.splits <= 1) {
    int64_t records = 0;
    double best = kInvisible;
    const auto visit = [&](double x) {
      if (x <= kInvisible || x < best - slack) return;
      ++records;
      best = std::max(best, x);
    };
    // Most runs of keys hold no record: their maximum says so without looking at each.
    constexpr int64_t kRun = 64;
    const int64_t runs = (count + kRun - 1) / kRun;
    for (int64_t i = 0; i < runs && records < most; ++i) {
      const int64_t run = arithmetic_.tile_reverse ? runs - 1 - i : i;
      const int64_t from = run * kRun, to = std::min(count, from + kRun);
      double top = kInvisible;
#pragma omp simd reduction(max : top)
      for (int64_t j = from; j < to; ++j) top = top < scores[j] ? scores[j] : top;
      if (top < best - slack) continue;
      if (arithmetic_.tile_reverse)
        for (int64_t j = to; j-- > from;) visit(scores[j]);
      else
        for (int64_t j = from; j < to; ++j) visit(scores[j]);
    }
    most = std::min(most, records);
  }
  return most - 1 + (sink ? 1 : 0);
}

}  // namespace assay
