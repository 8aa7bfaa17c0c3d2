// SPDX-License-Identifier: Apache-2.0
// State of the second pass of the matrix form over one block: bounds_values.cpp goes through the keys,
// bounds_values_finish.cpp makes of the sums what the formulas of bounds_finish.cpp take.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "reference/bounds/bounds_alike_rows.hpp"
#include "reference/bounds/bounds_blind_rows.hpp"
#include "reference/bounds/bounds_facts.hpp"
#include "reference/bounds/bounds_followed.hpp"
#include "reference/bounds/bounds_group.hpp"
#include "reference/bounds/bounds_heavy_rows.hpp"
#include "reference/bounds/bounds_partial.hpp"
#include "reference/bounds/bounds_products.hpp"
#include "reference/bounds/bounds_weights.hpp"

namespace assay::matrix_bounds {

using Eigen::Index;
inline constexpr double kInf = std::numeric_limits<double>::infinity();

class Values {
 public:
  Values(const Block& b, BoundedAttention& out)
      : b_(b),
        out_(out),
        rows_(static_cast<Index>(b.rows.size())),
        dv_(b.p.head_dim_v),
        narrow_(b.model.p_rounding().narrow),
        sums_(rows_),
        alike_(b.model.coarse_scores(), rows_, b.keys()) {}

  BlockResult run();

 private:
  void start_row(Index i);
  void allocate();
  // One span of keys for all rows.
  void add(const KeySpan& span);
  void load(const KeySpan& span, int64_t count);
  // P V of the keys [from, to) of the span, which are in tile t.
  void follow(Index i, int64_t t, int64_t tile, double m_t, const KeySpan& span, int64_t from, int64_t to);
  void weigh_row(Index i, const KeySpan& span, int64_t count);
  void round_tile(Index i, double m_t, int64_t at, int64_t count, const double* x);
  void add_turned(Index i);  // turned_ to the sums of row i
  void multiply(Index at, int64_t count);
  void begin_part();
  void end_group();
  void end_part();
  void finish_row(Index i);
  // Of row i, channel d or the eight from d.
  template <class T>
  ChannelFacts<T> channels(Index i, int32_t d, const RowFinish& y);

  const Block& b_;
  BoundedAttention& out_;
  const Index rows_, dv_;
  const bool narrow_;
  BlockResult result_;
  std::vector<RowSums> sums_;
  AlikeScores alike_;
  double v_normal_ = 0, v_max_ = 0, v_norm_ = 1;
  std::vector<uint8_t> wanted_;
  std::vector<float> eps_;
  std::optional<FollowedValues> followed_;
  Matrix v_, weights_, acc_, known_;  // known_: of leaders whose P is known
  HeavyRows heavy_;
  BlindRows blind_{b_};
  DealtSums dealt_{dv_};
  alignas(64) float windows_[kTileKeys];
  std::vector<double> lean_of_v_, share_of_v_;  // of dealt_, by channel
  MatrixF v_size_, v_square_, weights_f_, weighted_;
  // The same V, as the products of the span take it.
  RightFactor<double> of_v_;
  RightFactor<float> of_size_, of_square_;
  // Per row and channel, weights relative to exp(m) as in RowSums.
  PartialSums partial_;
  // Keys of the tile, of the span in v_, whose weights may turn over: by how much, and its square times how
  // many are alike, in units of v_size_.
  struct Turned {
    int64_t key = 0;
    float flip = 0, square = 0;
  };
  std::vector<Turned> turned_;
  MatrixF flips_, flip_square_;
  std::optional<DistanceLean> distance_;
  MatrixF lean_, excess_, h_square_, flip_, replayed_, rounded_;
  bool groups_of_tiles_ = false;  // a tile each
  std::vector<double> group_weight_, group_updates_, group_among_;
  std::vector<int64_t> group_keys_, turned_keys_;
  int64_t spans_ = 0;  // whose keys some row sees
};

}  // namespace assay::matrix_bounds
