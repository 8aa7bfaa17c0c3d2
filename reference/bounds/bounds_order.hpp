// SPDX-License-Identifier: Apache-2.0
// The declared order of a kernel: which keys it visits together, where its split parts end, and the running
// maximum its exponentials are taken against. Prefix sums of P V and the replay of P's rounding follow it.
// An undeclared order is taken in pieces from the first key to the last, which serves as an estimate only.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "reference/attention/attention.hpp"
#include "reference/bounds/bounds_chain.hpp"
#include "reference/bounds/bounds_items.hpp"

namespace assay {

// Keys visited one after the other. A group is a whole number of promotion windows (of one tile where nothing
// is promoted), or one window cut into pieces: within a group nothing is known about the partial sums.
struct KeySpan {
  int64_t from = 0, to = 0;
  bool begins_part = false, ends_group = true, ends_part = false;
};

class KeyOrder {
 public:
  KeyOrder(const Problem&, const assay_arithmetic&);
  bool declared() const { return declared_; }
  // Rows of a request and KV head with the same number visit their keys in the same order.
  int64_t alike(int32_t row, int32_t head) const { return items_ ? items_->item(row, head) : 0; }
  int64_t tile() const { return tile_; }  // meaningful for a declared order
  Chain chain(int32_t request) const { return declared_ ? Chain{} : chains_.of(request); }
  MergeLevels levels(int32_t request) const { return chains_.levels(request); }

  // The keys [begin, end) of a row's request in spans of at most `most` keys, as they are visited.
  std::vector<KeySpan> spans(RowId, int32_t head, int64_t begin, int64_t end, int64_t most) const;

 private:
  std::vector<TileRun> parts(RowId, int32_t head) const;
  const Problem& p_;
  Chains chains_;
  std::optional<ItemParts> items_;
  bool declared_ = false, reverse_ = false, interleaved_ = false;
  int64_t tile_ = 1, window_ = 1, splits_ = 1, split_keys_ = 0;  // window_: in tiles
};

// The running maximum of one row in one part. Scores closer than `slack` may compare either way in the
// kernel.
class RunningMaximum {
 public:
  RunningMaximum(double lag_log2, double start, double slack);
  // The next tile with largest visible score `top` (-inf: nothing visible, skipped). Returns whether what was
  // accumulated before may be rescaled.
  bool advance(double top);
  double value() const { return value_; }
  // A lazy rescale so close to its threshold that the kernel may decide either way: nothing after it can be
  // replayed.
  bool ambiguous() const { return ambiguous_; }

 private:
  double lag_, value_, slack_;
  bool ambiguous_ = false;
};

}  // namespace assay
