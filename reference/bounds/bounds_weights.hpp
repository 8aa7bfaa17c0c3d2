// SPDX-License-Identifier: Apache-2.0
// The softmax weights of one row and the sums over them that its bounds need. Part of the matrix form
// (bounds_values.cpp): called once per row and span of keys, so the loops are written to vectorise.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/bounds/bounds_alike.hpp"
#include "reference/bounds/bounds_heavy.hpp"
#include "reference/bounds/bounds_leads.hpp"
#include "reference/bounds/bounds_order.hpp"
#include "reference/bounds/bounds_rounding.hpp"
#include "reference/bounds/bounds_terms.hpp"

namespace assay {

// exp(-700) is far below the smallest weight that could matter, and keeps distance * coefficient finite.
inline constexpr double kFar = 700;

// ln of a weight that is nothing beside the largest, with whatever it errs by.
inline constexpr double kNegligible = -50;

// expm1(e) or slightly more, for 0 <= e: (expm1(e) - e) / e^2 grows and is below 0.71829 up to 1.
inline double expm1_above(double e) { return e <= 1 ? e * (1 + 0.71829 * e) : std::expm1(e); }

// Sums over the keys of one row, in weights relative to exp(m).
struct RowSums {
  double m = 0, sink = -std::numeric_limits<double>::infinity();
  double reference = 0;  // what P stands against where no order is declared: m, or the row's LSE
  double weight = 0;     // sum p
  double sink_weight = 0, sink_error = 0;  // of it, the sink's; its expm1(E)
  double error = 0, square = 0;            // sum p w, sum p w^2, w = expm1(E)
  double largest = 0;                      // largest expm1(E)
  double distance_square = 0;              // sum p (m - x)^2
  LaneSums lanes;
  // Rounding of P: sum h^2 / p and its part from keys rounded one way, sum h^2, sum |h|, sum of what replayed
  // weights have more than exact ones, and of what they may flip.
  // Sums of h of the latter, and of what h is more than relative to p.
  double biased = 0, floors = 0;
  double ratio = 0, ratio_biased = 0, rounding_square = 0, rounding = 0, replayed_excess = 0, flips = 0;
  double drifts[3] = {0, 0, 0};     // as replayed_excess, against other maxima
  double eps_square = 0;            // sum p eps^2
  double updated = 0, updates = 0;  // see RowFacts
  // Of it, what a sink that comes first adds of its own weight: in this part, and in any.
  double left_behind = 0, most_left_behind = 0;
  RankSums ranks;          // undeclared order, of more than a few updates or of parts
  double above = 0;        // weight of scores above their middle
  double part_weight = 0;  // weight of the current part so far
  double part_top = -std::numeric_limits<double>::infinity();  // its largest score
  double part_distance = 0;  // sum over parts of weight times distance^2, see RowFacts
  int64_t parts = 0;         // declared order: that held keys
  ErrorTerms terms;
  RandomTerms random;
  double largest_random = 0;  // of the scores
  // A key that defines the running maximum, whatever scores are off by: of the tile that is visited, or of
  // the row where the order is not declared. -1: there may be several.
  int64_t leader = -1;
  Leads leads;
  std::vector<int64_t> heavy;  // places of the heavy keys in the block
  double heavy_weight = 0;     // sum of the variances of their weights
  double small_terms = 0;      // see RowFacts
  double known = 0;            // weight of leaders whose rounded P is known
  double other_variance = 0;   // of scores, without what a followed unit cuts off
  double score_lean = 0;       // sum p delta
  double score_systematic = 0, score_variance = 0;
  double cut_square = 0;  // sum p n^2, n products of a score that its unit may cut
  // Units of few bits: sum and largest of p^2 and p times the variance of a score, times how many are alike.
  double value_variance = 0, most_variance = 0;
  // Keys of equal score: the most, the largest weight of so many together, and their number on average.
  double most_alike = 1, alike_weight = 1, alike_sum = 0;
  // State of the replay.
  RunningMaximum maximum{0, 0, 0};
  double start = -std::numeric_limits<double>::infinity(), slack = 0;
  int64_t tile = -1;
  double tile_top = 0;
  bool ambiguous = false;

  // How far the part that ends is below the row's maximum.
  double end_part() {
    if (part_top == -std::numeric_limits<double>::infinity()) return 0;
    ++parts;
    const double far = std::min(m - part_top, kFar) * (1 + 0x1p-20);
    part_distance += part_weight * far * far;
    return far;
  }
};

// Adds `count` keys with scores x (ErrorModel::kInvisible or less where invisible) and score errors e;
// writes their weights, in fp32 too.
// `kept`: see RowFacts::small_terms.
void weigh(RowSums&, const double* x, const float* e, const float* eps, double kept, int64_t count,
           double* weights, float* narrow);

// How the weights of one tile are rounded.
struct TileRounding {
  const PRounding* rounding = nullptr;
  double to_p = 1;                         // P before rounding = weight * to_p: exp(m - m_t) 2^offset
  double floor = 0;                        // smallest h, as a weight
  double largest = 1;                      // int8: largest P of the tile
  double window = 0, window_distance = 0;  // log error of P: window + window_distance (m - x) + eps[j]
  const float* eps = nullptr;
  bool replayed = false;  // flips are wanted
  bool shifted = false;   // so are other maxima, beside the flips
};
// Rounds `count` weights. Writes replayed minus exact weight, h^2, and (replayed) what may flip; returns
// whether anything may.
bool round_weights(RowSums&, const TileRounding&, const double* weights, const double* x, int64_t count,
                   float* excess, float* h_square, float* flips);

}  // namespace assay
