// SPDX-License-Identifier: Apache-2.0
// Tensor maps for bulk copies of bf16, fp16 and e4m3 in 128-byte swizzle. They depend on addresses, shapes
// and strides only, so a captured launch keeps its maps.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace assay_sm90 {

struct MapAxis {
  int64_t size, stride;  // elements; the innermost axis has stride 1
  int32_t box;
};

// What the L2 fetches where 128 bytes of a box's row are not there: them, or the 256 bytes round them. Keys
// of MLA have 1,152 bytes, so half of the pairs reach into another key: 1.7 times the sectors read
// (VARIANTS.md). Pages of prefill take a row, too: a pair is as fast.
enum class MapFetch { kRow, kPair };

// `rank` axes, innermost first; a box is at most 128 bytes wide there. False where the driver refuses:
// strides and start must be multiples of 16 bytes.
// `format`: enum assay_format.
bool make_map(CUtensorMap*, int32_t format, const void* data, int32_t rank, const MapAxis* axes,
              MapFetch fetch = MapFetch::kPair);

}  // namespace assay_sm90
