// SPDX-License-Identifier: Apache-2.0
// Orders, parts and habits of legal kernels that no data decide (bounds_legal.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "reference/bounds/bounds_emulator_habits.hpp"

namespace assay::testkit {

inline std::vector<size_t> natural(size_t n) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

// A unit takes the keys of a tile in any order.
inline void within_tiles(const assay_arithmetic& a, std::mt19937_64& random, std::vector<size_t>& keys) {
  const auto tile = static_cast<size_t>(std::max(1, a.tile_keys));
  for (size_t from = 0; from < keys.size(); from += tile)
    std::shuffle(keys.begin() + static_cast<std::ptrdiff_t>(from),
                 keys.begin() + static_cast<std::ptrdiff_t>(std::min(keys.size(), from + tile)), random);
}

// Half of the parts at least, tiles dealt to them in turn.
inline void deal_in_turn(std::mt19937_64& random, assay_arithmetic& a) {
  const auto split = std::max(1, a.splits);
  a.splits = split - static_cast<int32_t>(random() % static_cast<uint64_t>(split / 2 + 1));
  a.split_interleaved = 1;
}
// An order of the keys, and parts, that a seed draws; kNatural: those of the kernel as declared.
inline constexpr uint64_t kNatural = 0;
inline void shuffled(uint64_t seed, assay_arithmetic& a, std::vector<size_t>& keys) {
  if (seed == kNatural) return;
  std::mt19937_64 random(seed);
  std::shuffle(keys.begin(), keys.end(), random);
  deal_in_turn(random, a);
}

inline constexpr size_t kHabits = 24;
// The base, last bit of the factor and fused exponents of a trial; all that may err errs one way.
inline Habits leaning_habits(const assay_arithmetic& a, size_t trial) {
  const double most = a.exp_relative_error - 0x1p-24, side = trial % 2 == 0 ? 1 : -1;
  Habits h;
  h.log_side = side, h.row_sum_lanes = 1;
  h.exp_error = [=](float x) { return x == 0 ? 0 : side * most; };
  h.scale_steps = static_cast<int32_t>(trial / 2 % 3) - 1;
  h.fused = trial / 6 % 4 == 1, h.base2 = trial / 6 % 4 > 1, h.base2_apart = trial / 6 % 4 == 3;
  return h;
}

template <class Falling>
std::vector<size_t> with_rises(std::vector<size_t> keys, Falling falling, size_t tile) {
  std::stable_sort(keys.begin(), keys.end(), falling);
  const size_t tiles = (keys.size() + tile - 1) / tile;
  std::vector<size_t> all;
  for (size_t t = 0, next = tiles; t < tiles; ++t) {
    all.push_back(keys[tiles - 1 - t]);
    for (size_t i = 1; i < tile && next < keys.size(); ++i) all.push_back(keys[next++]);
  }
  return all;
}

}  // namespace assay::testkit
