// SPDX-License-Identifier: Apache-2.0
// What a group of keys costs when it is added up (GroupTerms), in worst case and at random.
#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds_terms.hpp"

namespace assay {

GroupTerms ErrorModel::group(int64_t keys, int64_t tiles) const {
  const assay_accumulator& acc = arithmetic_.pv;
  const double u = kUnit, n = static_cast<double>(keys), count = static_cast<double>(tiles);
  const bool apart = arithmetic_.promote_pv != 0 || acc.kind == ASSAY_ACC_INT32;
  GroupTerms g;
  // What runs of a unit on the data see (bounds_steps.hpp) is exact for operands of 16 bits; room for others.
  g.apart = apart && short_v_;
  if (apart) {
    // What happens inside a tile is bounded by its sum p|v| (ErrorTerms::chain); here the tiles are added.
    g.hard_c = count * u * (acc.kind == ASSAY_ACC_INT32 ? 3 : 1);
    g.variance_c = count * u * u;
  }
  if (acc.kind == ASSAY_ACC_FMA) {
    const int64_t lanes = std::max(1, acc.block);
    const double rounds = n / static_cast<double>(lanes) + count * (2 + log2_ceil(lanes));
    if (apart)
      g.variance_m = rounds * u * u / 3;
    else
      g.hard_c = n * u, g.variance_c = rounds * u * u / 3;
  } else if (acc.kind == ASSAY_ACC_BLOCK) {
    const double f = std::ldexp(1.0, -acc.fraction_bits), m = std::ldexp(1.0, -acc.mantissa_bits);
    const int64_t tile = std::max(1, arithmetic_.tile_keys);
    // A tile may begin inside a block of keys and end in another.
    const double steps =
        std::min(n / acc.block + 2 * count, count * static_cast<double>(ceil_div(tile, acc.block)));
    double& first = apart ? g.systematic_m : g.systematic_c;
    first = 0.5 * steps * m;
    (apart ? g.variance_m : g.variance_c) += steps * m * m / 12;
    g.systematic_m += 0.5 * steps * (acc.block + 0.5) * f;
    g.variance_m += steps * (acc.block + 1) * f * f / 12;
    if (!apart) {
      g.hard_c = steps * m;
      g.hard_m = steps * (acc.block + 1) * f;
    }
  }
  return g;
}

}  // namespace assay
