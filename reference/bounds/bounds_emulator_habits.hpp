// SPDX-License-Identifier: Apache-2.0
// What the emulator may be told to do: mistakes that are planted, and habits that are legal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace assay::testkit {

enum class Mutant {
  kNone,
  kDropKey,
  kStaleToken,
  kScale,
  kWindowShort,
  kNoRescale,
  kLse2,
  kSwapV,
  kLastDim,
  kTailKeys,
  kPTruncated,
  kExpCoarse,      // relative error 2^-10
  kScoresBf16,     // S rounded to bf16
  kValueScale,     // V scale 0.4 % too large
  kOutputPerTile,  // O accumulator rounded to bf16 after every tile
  kPartialBf16,
  kRowSumMissesKey,
  kRowSumFromRoundedP,
  kPartialLseBf16,
  kPCoarse,  // P in e4m3
  kKeyTwice
};

// Legal habits that a declaration does not tell apart.
struct Habits {
  std::function<double(float)> exp_error;  // relative error of the exponential of x; null: noise
  int64_t row_sum_chunk = 0;  // weights of a tile summed in runs of so many before they join the row sum
  std::function<double(int64_t, float)> weight_error;  // of the exponential of x by key, in place of both
  int32_t scale_steps = 0;  // of the last bit, what the factor of all scores, a rounded product, errs by
  // Exponents are x log2(e) - fl(m log2(e)), fused: of a rescale the new maximum is rounded and the old is
  // not.
  bool fused = false;
  // Scores, maxima and LSEs of parts are those of base 2, by a softmax scale that holds log2(e) or, where
  // scores are capped or biased or `base2_apart` is set, by a product of its own; LSEs are brought back at
  // the end of each part.
  bool base2 = false, base2_apart = false;
  size_t row_sum_lanes = 0;        // chains of a row sum of fp32 additions; 0: 4
  double log_side = 0;             // 1, -1: the logarithm errs by what is declared, that way
  bool sink_weighs_first = false;  // a sink that comes first is in the row sum from then on
  float first_above = 1.4f;        // P of the first of several roundings, over P of the last
};

}  // namespace assay::testkit
