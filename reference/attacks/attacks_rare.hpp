// SPDX-License-Identifier: Apache-2.0
// Fields that few kernels declare beside each other, as draws of declarations field by field found them.
#pragma once

#include "reference/attacks/attacks_found.hpp"

namespace assay::attacks {

inline std::vector<Attack> of_rare_fields() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  // A sink below the largest key and above the maximum that a lazy rescale left behind: when it joins, what
  // keys added up is rescaled once more, by an exponential that errs as theirs do.
  const auto late_sink = [](uint64_t seed) {
    DenseCase c = by_hand(
        256, 8,
        [=](int64_t j) { return j < 64 ? -0.001 * uniform(seed, 1, j) : 0.6 - 0.1 * uniform(seed, 1, j); },
        [=](int64_t j, int32_t t) { return 1 + 0.1 * t + 0.01 * uniform(seed, 2, j); });
    c.problem.sinks = true;
    c.sinks = {0.5f, 0.3f};
    c.store();
    return c;
  };
  const auto lazy = [](A& a) {
    a.rescale_lag_log2 = 1, a.exp_relative_error = 1.25e-3, a.order_declared = 1;
  };
  for (const double side : {1.0, -1.0})
    for (const A& kernel : {with(fp32(1, 64), lazy), with(tensor_core(ASSAY_BF16, 64, 16, 25, 23), lazy)})
      all.push_back({"a late sink above a maximum left behind", "P: a sink below the keys moves nothing",
                     late_sink, kernel, kernel,
                     Habits{[=](float x) { return x == 0 ? 0 : side * 1.2e-3; }, 0}, 3});
  // The largest weight of a tile is one of those that the polynomial took, and all codes stand against it.
  const auto beside_a_place = [](uint64_t seed) {
    return by_hand(
        64, 8,
        [=](int64_t j) {
          return j == 1 ? 0.0 : j % 4 == 3 ? -1e-6 : std::log(17.5015 / 127) + 1e-7 * uniform(seed, 1, j);
        },
        [=](int64_t j, int32_t t) { return 1 + 0.1 * t + 0.01 * uniform(seed, 2, j); });
  };
  const A by_tile = with(fp32(8, 32), [](A& a) {
    a.p_format = ASSAY_INT8, a.p_int8_tile_max = 1;
    a.exp_relative_error = 0x1p-22, a.exp_poly_every = 4, a.exp_poly_relative_error = 4e-4;
  });
  Habits poly;
  poly.weight_error = [](int64_t j, float) { return j % 4 == 3 ? 3.9e-4 : 0.0; };
  all.push_back({"int8 P by a tile's largest, which is a polynomial's", "R: the largest errs as the key does",
                 beside_a_place, by_tile, by_tile, poly, 3});
  return all;
}

}  // namespace assay::attacks
