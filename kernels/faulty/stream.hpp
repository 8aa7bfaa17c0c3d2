// SPDX-License-Identifier: Apache-2.0
// The inner kernel: one query row of one head (a stream) meets the tiles of its KV head one after the other,
// with a running maximum, row sums and an accumulator, and ends as a partial result per part.
#pragma once

#include <vector>

#include "kernels/faulty/accumulate.hpp"
#include "kernels/faulty/call.hpp"

namespace assay_faulty {

// K transposed (dimension by key) and V (key by dimension) of one tile, shared by all streams of a block.
struct Tile {
  int32_t first = 0;            // key of column 0
  int32_t loaded = 0, end = 0;  // columns that hold keys
  std::vector<float> k, v, scale, v_scale;
  std::vector<int16_t> k_exponent, v_exponent;
  int32_t k_stride = 0, v_stride = 0;
};

struct Stream {
  int32_t row = 0, head = 0;
  KeyInterval seen{};
  // Keys that faults single out; -1 none.
  int32_t dropped = -1, doubled = -1, unsummed = -1, misweighed = -1;
  float scale = 1;    // what scores are multiplied with, unless by key
  float maximum = 0;  // in the units of the scores
  float sum[16] = {};
  int32_t updates = 0;  // of the maximum, in this part
  int32_t tiles = 0;    // met in this part
  float shift = 0;      // by how much all scores are too large: a bias added by column
  int32_t parts_with_keys = 0;
  bool weighed = false;  // the second pass: P is relative to `lse`, larger by `shift`
  float lse = 0;
};

// Scratch of a call; sized once.
struct Scratch {
  explicit Scratch(const Call&);
  Tile tile;
  std::vector<float> row;  // one decoded K row
  std::vector<float> score, argument, weight, product;
  std::vector<int16_t> weight_exponent;
};

// The factor that turns scores into arguments of 2^x, and natural scores into the same. Scores stay in units
// of the dot product where nothing but a scale stands between (as kernels do), else in natural units.
bool natural_scores(const Call&);
float log2_factor(const Call&, const Stream&);
float natural_factor(const Call&, const Stream&);

// Faults that let masked lanes of a tile take part in the softmax.
bool takes_masked_lanes(const Call&);

void load_tile(const Call&, int request, int32_t kv_head, int32_t tile, KeyInterval wanted, Scratch&);
void start_stream(const Call&, Stream&, float* o);
// q: head_dim_qk operands with their exponents; o: head_dim_v sums, padded, and behind them as many of the
// window that is not promoted yet.
void visit_tile(const Call&, int request, Stream&, const float* q, const int16_t* q_exponent, float* o,
                Scratch&);

// Normalised result and natural LSE of the part (larger by `shift`); -infinity where it saw nothing (then o
// is left alone).
float finish_stream(const Call&, int request, int32_t kv_head, const Stream&, bool last_part, float* o);

// The second pass's sums as they are, what P was scaled by and V's scale apart.
void finish_weighed(const Call&, int request, int32_t kv_head, float* o);

}  // namespace assay_faulty
