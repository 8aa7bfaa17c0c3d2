// SPDX-License-Identifier: Apache-2.0
// A block of the matrix form: some rows (query head x selected row) of one request that share a KV head,
// their scores and what the second pass needs to know of them. bounds_scores.cpp fills it, bounds_values.cpp
// sums over it; bounds.cpp cuts the work into blocks.
#pragma once

// GCC 12 takes the undefined operands of its own AVX-512 intrinsics for uninitialised memory (bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/bounds/bounds_finish.hpp"
#include "reference/bounds/bounds_order.hpp"
#include "reference/bounds/bounds_rows.hpp"
#include "reference/bounds/bounds_tiers.hpp"

namespace assay::matrix_bounds {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixF = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Keys per tile: K, V and the scores of a tile stay in a 2 MiB cache at d = 128.
constexpr int64_t kTileKeys = 256;

// fp32 dot products of n non-negative terms are below the exact value by at most this factor, while n < 2^17;
// no sum here has more terms than 2^23.
inline double inflation(int64_t n) {
  const double lost = static_cast<double>(n + 6) * 0x1p-24;
  return n < (1 << 17) ? 1 + 1.01 * lost : 1 / (1 - std::min(lost, 0.5));
}

// Columns of a row of so many keys. Rows of 2^n keys would meet in the same few sets of the caches, tile by
// tile; an odd number of lines and, where it costs little, a tile between them spreads them.
inline int64_t padded_keys(int64_t keys) {
  constexpr int64_t kLine = 16;  // of floats; two of doubles
  return (keys + kLine - 1) / kLine * kLine + (keys >= 16 * kTileKeys ? kTileKeys : 0) + kLine / 2;
}

struct BlockRow {
  RowId id;
  int32_t head = 0;
  int64_t slot = 0;  // row and head in the results
  KeyInterval keys;
  double shift = 0;                               // RowShape::shift
  double query_sum = 0, q_max = 0, q_normal = 0;  // q_normal: where the unit aligns subnormals
  int64_t q_repeats = 1;                          // RowShape::q_repeats
  double q_scale = 1, underflow = 0, gain = 1;    // size of Q's scale; RowShape::underflow and gain
  double q_norm = 0, q_fourth = 0;                // scale ||q||, scale^2 sqrt(sum q^4)
  int64_t seen = 0, first = -1, last = -1;
  double top = -std::numeric_limits<double>::infinity();  // largest visible score
  double slack = 0;                                       // twice the largest score error
  ProductOrder order;                                     // over a sample of the keys
  double largest_s = 0, largest_c2 = 0;                   // of |s_j| and C_j^2
  double largest_delta = 0, largest_cut = 0;              // of |delta_j| and cut_variance
};

struct Block {
  const Problem& p;
  const OperandReader& operands;
  const ErrorModel& model;
  const KeyOrder& order;
  int request = 0;
  int32_t kv_head = 0;
  std::vector<BlockRow> rows;
  int64_t begin = 0, end = 0;      // keys any row may see
  double k_max = 0, k_normal = 0;  // k_normal: where the unit aligns subnormals
  double key_sum = 0;              // softmax_scale * largest sum |k|
  double k_norm = 0;               // largest ||k||
  // By row and key; behind the keys() of a row there is room that holds nothing (padded_keys()).
  Matrix x;       // final scores, ErrorModel::kInvisible where nothing is seen
  MatrixF e;      // their errors before the maximum is known
  MatrixF delta;  // what a unit of few bits takes off them (ErrorModel::follows_qk)
  MatrixF cut;    // cut_variance of that
  MatrixF cuts;   // products that the unit may cut (ErrorModel::counts_cuts)

  int64_t keys() const { return end - begin; }
  bool sees(const BlockRow&, int64_t key) const;
  // Which keys of [from, to) some row sees; the others may be poison and are neither read nor multiplied.
  bool wanted(int64_t from, int64_t to, std::vector<uint8_t>& flags) const;
};

// First pass: x, e and the rows' extremes.
void score_block(Block&);
// Second pass: everything about the rows of the block goes into the results.
struct BlockResult {
  double growth = 0, largest = 0;
  RowTiersCounts counts;
};
BlockResult bound_block(const Block&, BoundedAttention&);

}  // namespace assay::matrix_bounds
