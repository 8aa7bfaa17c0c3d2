// SPDX-License-Identifier: Apache-2.0
// How many workers (blocks, or pairs of them) take a list of tiles that is cut evenly (decode.hpp, mla.hpp).
#pragma once

#include <cstdint>

namespace assay_sm90 {

// As many of `most` as divide the items of the list or are a multiple of their number, where that leaves no
// more than a twentieth of the machine out, else all of it. Items of one length then have no part in a second
// worker or whole workers: nobody stops in the middle of its tiles to leave one part and begin another.
constexpr int32_t dividing_workers(int64_t items, int32_t most) {
  for (int32_t workers = most; items > 0 && int64_t{workers} * 20 >= int64_t{most} * 19; --workers)
    if (items % workers == 0 || workers % items == 0) return workers;
  return most;
}

}  // namespace assay_sm90
