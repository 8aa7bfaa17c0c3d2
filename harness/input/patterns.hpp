// SPDX-License-Identifier: Apache-2.0
// input=patterned: Q, K and V follow patterns that the seed draws, each of the three its own. What numerics
// takes for independent or generic is not so here: tokens that come back, weights of a few sizes, values of
// one sign or of signs by tile, sparse and heavy-tailed rows, equal queries. None leaves all scores zero:
// rows without a query stand beside others.
#pragma once

#include <cstdint>

#include "harness/base/random.hpp"

namespace assay {

class Patterns {
 public:
  // `logit_size`: softmax scale times dims, what a product of rows of ones comes to.
  Patterns(uint64_t seed, double logit_size);

  // Which of the tokens or rows this one repeats.
  int32_t k_like(int32_t position) const;
  void q_like(int32_t& row, int32_t& head) const;
  // Shape `dims` unit normal values of the token or row.
  void q(int32_t row, int32_t head, int64_t dims, double* out) const;
  void k(int32_t position, int64_t dims, double* out) const;
  void v(int32_t position, int64_t dims, double* out) const;

 private:
  double logit_size_;
  CounterRng rng_;
  int q_ = 0, k_ = 0, v_ = 0;
  int32_t period_ = 1, tile_ = 1;
  double small_ = 1;
};

}  // namespace assay
