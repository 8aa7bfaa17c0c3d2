// SPDX-License-Identifier: Apache-2.0
// Test side: how near a kernel in slow motion (bounds_emulator.hpp) comes to its bounds, tier by tier.
#pragma once

#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/bounds_emulator.hpp"

namespace assay::testkit {

// Largest error over bound, of O and of the LSE; a tier that does not apply counts as 0.
struct TierRatios {
  double d = 0, p = 0, r = 0, lse = 0, lse_p = 0;
  double largest() const { return std::max({d, p, r, lse, lse_p}); }
  void add(const TierRatios& x) {
    d = std::max(d, x.d), p = std::max(p, x.p), r = std::max(r, x.r);
    lse = std::max(lse, x.lse), lse_p = std::max(lse_p, x.lse_p);
  }
};

inline TierRatios tier_ratios(const BoundedAttention& b, const Emulation& e) {
  TierRatios r;
  const auto look = [](double& worst, double got, double expected, double bound) {
    if (got != expected && std::isfinite(bound)) worst = std::max(worst, std::fabs(got - expected) / bound);
  };
  for (size_t i = 0; i < e.o.size(); ++i) {
    look(r.d, e.o[i], b.value.o[i], b.o_bound[i]);
    look(r.p, e.o[i], b.value.o[i], b.o_bound_p[i]);
    look(r.r, e.o[i], b.o_replayed[i], b.o_bound_r[i]);
  }
  for (size_t i = 0; i < e.lse.size(); ++i) {
    look(r.lse, e.lse[i], b.value.lse[i], b.lse_bound[i]);
    look(r.lse_p, e.lse[i], b.value.lse[i], b.lse_bound_p[i]);
  }
  return r;
}

}  // namespace assay::testkit
