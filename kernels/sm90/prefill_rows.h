// SPDX-License-Identifier: Apache-2.0
// What a consumer of the prefill kernels knows of its 64 rows of a tile: which tiles of keys it visits, which
// of them need a mask, the mask, and the end of a row.
#pragma once

#include <type_traits>

#include "kernels/sm90/prefill_producers.h"
#include "kernels/sm90/softmax.h"

namespace assay_sm90 {
namespace {

using namespace sm90;

template <int kKeys, bool kPacked>
struct TileRows {
  // The tile of keys, the last one; those that need a mask (>= above, < below); this thread's first row.
  // Rows count from the end of the request here.
  int n, bottom, above, below, row, keys;

  __device__ void begin(const PrefillCall& p, const Work& w, int wg, int warp, int lane) {
    n = w.top_tile, bottom = w.bottom_tile, keys = w.keys;
    row = w.row - w.rows + wg * 64;
    above = visible_to<kPacked>(p, 0, keys, row).end / kKeys;
    below = (visible_to<kPacked>(p, 0, keys, min(row + 63, -1)).begin + kKeys - 1) / kKeys;
    row += 16 * warp + lane / 4;
  }
  __device__ bool needs_mask() const { return n >= above || n < below; }
  template <int kSums>
  __device__ void mask(const PrefillCall& p, float (&s)[kSums], int lane) const {
    const int first = n * kKeys + 2 * (lane % 4);
    Interval sees[2];
    SM90_UNROLL for (int r = 0; r < 2; ++r) {
      sees[r] = visible_to<kPacked>(p, 0, keys, row + 8 * r);
      const int end = sees[r].end - first;
      SM90_UNROLL for (int j = 0; j < kKeys / 8; ++j) {
        SM90_UNROLL for (int c = 0; c < 2; ++c) if (8 * j + c >= end) s[4 * j + 2 * r + c] = -INFINITY;
      }
    }
    if (n >= below) return;  // every row sees the first keys, or none
    SM90_UNROLL for (int r = 0; r < 2; ++r) {
      const int begin = sees[r].begin - first;
      SM90_UNROLL for (int j = 0; j < kKeys / 8; ++j) {
        SM90_UNROLL for (int c = 0; c < 2; ++c) if (8 * j + c < begin) s[4 * j + 2 * r + c] = -INFINITY;
      }
    }
  }
  // The tiles behind the first, down to `bottom`: step(std::true_type()) where a mask is needed.
  template <class Step>
  __device__ void others(const Step& step) {
    --n;
    while (n >= bottom) {
#pragma unroll 1
      for (; n >= bottom && needs_mask(); --n) step(std::true_type());
      const int stop = max(bottom, below);
#pragma unroll 1
      for (; n >= stop; --n) step(std::false_type());
    }
  }
};

// The end of row `at` of a request: its LSE from the sum of its weights (0: nothing was seen) and the
// maximum, natural after multiplication by `scale`, with the sink; `writes`: this lane writes it. What O is
// to be multiplied by.
__device__ inline float finish_row(const PrefillCall& p, const Work& w, float total, float top, float scale,
                                   int at, bool writes) {
  float factor = total > 0 ? 1 / total : 0.f;
  float lse = total > 0 ? top * scale + logf(total) : -INFINITY;
  if (p.sinks != nullptr) {
    const float sink = __ldg(p.sinks + w.head * p.sinks_stride);
    const float most = fmaxf(lse, sink), own = __expf(lse - most), all = own + __expf(sink - most);
    factor *= own / all;
    lse = most + logf(all);
  }
  if (writes && at < w.rows) p.lse[(w.first_row + at) * p.lse_row + w.head * p.lse_head] = lse;
  return factor;
}

}  // namespace
}  // namespace assay_sm90
