// SPDX-License-Identifier: Apache-2.0
// The figures of one output, element by element: how many lie outside their intervals, which one worst, by
// which tier. Attention and the data ops count the same way. To count something else: a member of
// ErrorStats and its line in add().
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "harness/check/verdict.hpp"

namespace assay {

struct ElementPlace {
  RowId row;
  int32_t head = 0, dim = 0;  // dim -1: a value per row and head
};

// Entries of lists and tables belong to no head: entry `dim` of a list (row -1), or of a row of a table.
inline constexpr int32_t kOfNoHead = -1;
inline ElementPlace entry_of_list(int64_t entry) { return {{0, -1}, kOfNoHead, static_cast<int32_t>(entry)}; }
inline ElementPlace entry_of_table(int64_t row, int64_t column) {
  return {{0, static_cast<int32_t>(row)}, kOfNoHead, static_cast<int32_t>(column)};
}

// "request 3 row 0 head 5 dim 17"; without dim for a value per row and head. "entry 4", "row 2 column 7".
std::string place_of(const ElementPlace&);

inline constexpr double kNoTier = std::numeric_limits<double>::infinity();  // accepts everything

// The half-widths of one element: tiers D and P about the exact value, R about the replayed one.
struct Widths {
  double exact = 0, replayed = 0;
  double d = kNoTier, p = kNoTier, r = kNoTier;
};

class Comparison {
 public:
  // `most`: how many elements will come.
  Comparison(ErrorStats& stats, size_t most);
  // Accepted: rnd(low) <= got <= rnd(high), see within(). Whether it is the worst one so far.
  bool add(double got, double low, double high, const Widths&, int32_t format, const ElementPlace&);
  // Elements of dimensions 0 .. count - 1 from `place.dim` on at once: counted as add() of each would, where
  // all plainly lie within finite ends of theirs; otherwise nothing is counted, and false. At most kBeside.
  static constexpr int64_t kBeside = 64;
  bool add_inside(const double* got, const double* low, const double* high, const double* exact,
                  int64_t count, int32_t format, const ElementPlace& place);
  // What another has counted; its places count as later ones.
  void add(const Comparison&);
  void finish();  // the median
  // Room for what others have counted.
  void reserve(size_t more) {
    ratios_.reserve(ratios_.size() + more), unrounded_.reserve(unrounded_.size() + more);
  }
  size_t size() const { return ratios_.size(); }

 private:
  // The double reference is good to about this (reference/README.md); it matters only where bounds are 0.
  static constexpr double kReferenceError = 1e-13;
  ErrorStats& stats_;
  std::vector<float> ratios_, unrounded_;
};

}  // namespace assay
