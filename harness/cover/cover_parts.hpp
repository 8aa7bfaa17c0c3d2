// SPDX-License-Identifier: Apache-2.0
// Parts of covering_array() that its files and their test share; nothing else includes this. Arrays are
// rows of value indices. Every method is deterministic: integer random numbers and no library functions
// on the way to a decision, so that all machines build the same rows.
// A new construction: a function returning rows for a uniform problem, called from cover.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "harness/cover/cover.hpp"

namespace assay::cover {

using Row = std::vector<int>;
using Rows = std::vector<Row>;

inline constexpr int kMaxStrength = 4;

// xorshift64*, enough for choosing rows and moves.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull) {}
  uint64_t bits() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1dull;
  }
  int below(int n) { return static_cast<int>(((bits() >> 32) * static_cast<uint64_t>(n)) >> 32); }

 private:
  uint64_t state_;
};

// All sets of `strength` columns and the numbering of their value tuples.
struct TupleSpace {
  struct Set {
    std::array<int, kMaxStrength> columns{};  // ascending; the first `strength` count
    std::array<int, kMaxStrength> strides{};
    int64_t offset = 0;  // number of the set's first tuple
    int tuples = 0;
  };
  TupleSpace(std::vector<int> levels, int strength);
  int64_t index(const Set& set, std::span<const int> row) const {
    int64_t i = set.offset;
    for (int c = 0; c < strength; ++c) i += int64_t{set.strides[c]} * row[set.columns[c]];
    return i;
  }
  int columns() const { return static_cast<int>(levels.size()); }

  std::vector<int> levels;
  int strength;
  std::vector<Set> sets;
  std::vector<std::vector<int>> sets_of;  // per column, the sets that hold it
  int64_t total = 0;                      // tuples of all sets
};

// ---- constraints (cover_greedy.cpp)
class Constraints {
 public:
  Constraints(const std::vector<int>& levels, const std::vector<CoverConstraint>& constraints);
  bool none() const { return constraints_.empty(); }
  bool touches(int axis) const { return !of_axis_[axis].empty(); }
  bool allows(std::span<const int> row) const;  // every axis assigned
  // Whether the assigned axes (others -1) extend to a valid row; `row` then receives values for all
  // constrained axes. Exact.
  bool complete(Row* row) const;

 private:
  bool holds(size_t constraint, std::span<const int> row) const;
  bool value_fits(Row* row, int axis, int value) const;
  bool extend(Row* row, std::vector<int>* open) const;

  std::vector<int> levels_;
  std::vector<CoverConstraint> constraints_;
  std::vector<std::vector<size_t>> of_axis_;
  // Answers already given, by the mixed-radix number of the scope's values: 0 unknown, 1 no, 2 yes.
  mutable std::vector<std::vector<uint8_t>> known_;
  mutable Row scratch_;
};

// One row at a time, each the best of several candidates (the AETG idea: Cohen, Dalal, Fredman, Patton
// 1997). Marks in `coverable` which tuples have a valid row at all.
Rows greedy(const TupleSpace& space, const Constraints& constraints, std::vector<uint8_t>* coverable);

// ---- post-optimisation (cover_compact.cpp)
// Drops rows by moving what only they cover into cells other rows do not need (after Nayeri, Colbourn and
// Konjevod, "Randomized postoptimization of covering arrays", 2013). Cells outside the axis' levels are
// free to take any value. `effort` bounds the cell visits. Only tuples with wanted[i] != 0 count.
Rows compact(const TupleSpace& space, const Constraints& constraints, const std::vector<uint8_t>& wanted,
             Rows rows, int64_t effort);
int64_t uncovered(const TupleSpace& space, const std::vector<uint8_t>& wanted, const Rows& rows);

// ---- algebra (cover_field.cpp)
// Finite field of q elements, 0..q-1, 0 and 1 being themselves.
struct Field {
  int q = 0;
  std::vector<std::vector<int>> sum, product;
  std::vector<int> negative, inverse;  // inverse[0] unused
};
bool is_prime_power(int q);
Field make_field(int q);
// x -> (a x + b) / (c x + d) on the q + 1 points of the projective line, point q = infinity: sharply
// 3-transitive of order (q + 1) q (q - 1).
std::vector<Row> projective_group(const Field& field);
// x -> x + b, and x -> a x + b: sharply 2-transitive.
std::vector<Row> affine_group(const Field& field);
// Covering arrays from n rows of vectors of length t (covering perfect hash families; n = 1 is Bush's
// orthogonal array): n (q^t - q) + q rows or fewer; empty when none was found within the effort.
Rows linear_array(int strength, int columns, int q, int families, int64_t effort);

// ---- starters (cover_starter.cpp)
// For even levels: a few starter rows that a permutation group of the symbols turns into all rows, found
// by simulated annealing; fewer than `rows_below` rows, or none when nothing was found within the effort.
Rows starter_array(const TupleSpace& space, int rows_below, int64_t effort);

}  // namespace assay::cover
