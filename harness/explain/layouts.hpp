// SPDX-License-Identifier: Apache-2.0
// Orders a kernel may work in. One that declares its order has that one; of the others what they declare is a
// hint: the usual ways to cut keys into tiles and parts are tried, as far as they differ on the case.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/explain/evidence.hpp"
#include "harness/explain/rules.hpp"

namespace assay {

struct Layout {
  int32_t tile_keys = 0;   // 0: all keys of a part at once
  int32_t splits = 1;      // most parts of a request
  int32_t split_keys = 0;  // or parts of a fixed size
  Cut cut;
  std::string words;  // ", were it cut into ..."; empty: as declared
  double cost = 0;
  // What is declared of weights, where the order in which they are taken is known from elsewhere.
  std::shared_ptr<const assay_arithmetic> weights;

  void apply(Rules&) const;
  bool parts() const { return splits > 1 || split_keys > 0 || cut.states_merge; }
};

// Likeliest first. Those of more than one part: at least one, so that a merge can be looked for.
std::vector<Layout> layouts_of(const Evidence&);
// The unusual ones, which are tried where nothing explains the case: what a block of rows sees is cut in
// place of a request, tiles are dealt out in other ways. Those of one part are ways in tiles alone.
std::vector<Layout> further_layouts_of(const Evidence&);
// One part in tiles of each size a tile may have, and the layouts above.
std::vector<Layout> tilings_of(const Evidence&, const std::vector<Layout>&);
// Sizes a tile may have: the declared one, else the usual ones.
std::vector<int32_t> tile_sizes_of(const Evidence&);
// The order that calls showed, where none is declared.
std::optional<Layout> observed_layout_of(const Evidence&);
// Whether a right kernel is taken to merge several parts: declared, or shown by calls.
bool works_in_parts(const Evidence&);
// ... or to take all keys of a row with one running state: declared, or shown by calls.
bool works_in_one_go(const Evidence&);
// Whether the declaration describes exactly what happens and can be repeated.
bool order_repeated(const assay_arithmetic&);

}  // namespace assay
