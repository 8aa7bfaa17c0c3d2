// SPDX-License-Identifier: Apache-2.0
// What the workers of the kernels that share one list of tiles take of it, written down by the device code
// that hands it out: MlaPieces (kernels/sm90/mla_schedule.h), Cut and Cursor (cut.h, decode_tiles.h), Tiles
// (prefill_work.h).
#pragma once

#include <vector>

#include "kernels/sm90/decode.hpp"
#include "kernels/sm90/mla.hpp"
#include "kernels/sm90/prefill.hpp"

namespace schedule {

// Tiles [tile, stop) of a request, KV head and item, by one worker.
struct Piece {
  int worker, request, head, item, tile, stop;
  int part;  // of_mla: where the worker leaves what it has, -1: the whole item
};

// Lengths, mask and heads of the call are read; workers, magic numbers and outputs are set here. Worker by
// worker. `plans`: for each request and item, what the merge is told (mla_plan_merges).
std::vector<Piece> of_mla(assay_sm90::MlaCall, int item_rows, int workers,
                          std::vector<assay_sm90::MlaMergePlan>& plans);
std::vector<Piece> of_decode(assay_sm90::DecodeCall, int workers);

// Tiles of 128 rows of a head in the order in which the prefill kernels of width 128 hand them out.
struct RowTile {
  int request, head, tile;
};
std::vector<RowTile> of_prefill(const assay_sm90::PrefillCall&, bool across);

}  // namespace schedule
