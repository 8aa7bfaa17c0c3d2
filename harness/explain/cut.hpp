// SPDX-License-Identifier: Apache-2.0
// How rules cut the keys of a request into parts, and parts into tiles.
#pragma once

#include <vector>

#include "harness/explain/rules.hpp"

namespace assay {

class PartsOf {
 public:
  // Of what the cell's row sees of its request, or with the rows of its block, or of the longest request.
  PartsOf(const Rules&, const Scene&);
  PartsOf(const Rules&, const KeyRange&);
  int32_t count() const { return count_; }
  int32_t tile(int32_t position) const { return tile_keys_ > 0 ? position / tile_keys_ : 0; }
  int32_t first_tile() const { return first_; }  // of the first part
  int32_t end_tile() const { return first_ + tiles_; }
  int32_t of(int32_t position) const;
  int32_t state(int32_t position) const;  // of its part; 0 where states are merged as parts are
  bool whole_tiles() const { return split_keys_ == 0; }  // parts consist of whole tiles by construction
  // First key of every part but the first that begins a run of keys; not for interleaved parts.
  std::vector<int32_t> starts() const;
  // First key of the part of a key, or of the last one before the end; not for interleaved parts.
  int32_t start_of(int32_t position) const;

 private:
  int32_t step() const;                   // parts begin at multiples of it
  int32_t dealt(int32_t position) const;  // the part, whatever states it has
  int32_t turn(int32_t position) const;   // the state
  int32_t tile_keys_ = 0, split_keys_ = 0, keys_ = 0, first_ = 0, tiles_ = 1, parts_ = 1, count_ = 1;
  std::vector<int32_t> begins_;  // first tile of every part, where parts have states
  Cut cut_;
};

}  // namespace assay
