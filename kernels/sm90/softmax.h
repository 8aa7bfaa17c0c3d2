// SPDX-License-Identifier: Apache-2.0
// The softmax of rows of scores as a warpgroup's products leave them (warpgroup.h): a thread has columns
// 2 (lane % 4) + {0, 1} of every 8 of two rows, four lanes share a row.
#pragma once

#include "kernels/sm90/warp.h"

namespace assay_sm90 {
namespace {

using namespace sm90;

// Over the four lanes that share a row.
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// The running maxima `top` of this thread's two rows with one more tile of scores: O and sums must be
// multiplied by `alpha`; weights are 2^(score scale_log2 - bias), multiplied by 2^kExponent. `order` is
// called once both maxima are known: see VARIANTS.md. kGuard: a row may have seen no key yet.
template <bool kGuard, int kExponent = 0, int kSums, class Order>
__device__ inline void raise_maxima(const float (&s)[kSums], float (&top)[2], float (&alpha)[2],
                                    float (&bias)[2], float scale_log2, const Order& order) {
  SM90_UNROLL for (int r = 0; r < 2; ++r) {
    float a = fmaxf(s[2 * r], s[2 * r + 1]), b = fmaxf(s[2 * r + 4], s[2 * r + 5]);
    SM90_UNROLL for (int j = 2; j < kSums / 4; j += 2) {
      a = fmaxf(a, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
      b = fmaxf(b, fmaxf(s[4 * j + 4 + 2 * r], s[4 * j + 5 + 2 * r]));
    }
    const float now = fmaxf(top[r], quad_max(fmaxf(a, b)));
    bias[r] = kGuard && now == -INFINITY ? 0.f : now * scale_log2 - kExponent;
    // The difference first: where the maximum stays this is exactly 1, and sums over many tiles do not drift.
    alpha[r] = kGuard && now == -INFINITY ? 1.f : exp2_fast((top[r] - now) * scale_log2);
    top[r] = now;
    if (r == 1) order(now);
  }
}

// Scores -> weights, in place. `top` and `sum` are the running maximum and this thread's share of the sum of
// its two rows. `known` is called once both maxima are, `done` after each exponential with its row, its
// number in the row and itself: what a kernel puts there, and why, is in VARIANTS.md.
template <bool kGuard, int kSums, class Known, class Done>
__device__ inline void softmax(float (&s)[kSums], float (&top)[2], float (&sum)[2], float (&alpha)[2],
                               float scale_log2, const Known& known, const Done& done) {
  float bias[2];
  raise_maxima<kGuard>(s, top, alpha, bias, scale_log2, [](float) {});
  known();
  SM90_UNROLL for (int r = 0; r < 2; ++r) {
    float a = 0, b = 0;
    SM90_UNROLL for (int j = 0; j < kSums / 4; ++j) {
      SM90_UNROLL for (int c = 0; c < 2; ++c) {
        float& x = s[4 * j + 2 * r + c];
        x = fmaf(x, scale_log2, -bias[r]);
        x = exp2_fast(x);
        (c ? b : a) += x;
        done(r, 2 * j + c, x);
      }
    }
    sum[r] = fmaf(sum[r], alpha[r], a + b);
  }
}

// The largest of `top` and row `r` of this thread's scores, over the four lanes that share the row. kBits: by
// the numbers' bits as integers, three in an instruction. That is right unless all are negative, so a warp
// where they are for some row looks again.
template <bool kBits, int kSums>
__device__ inline float row_maximum(const float (&s)[kSums], int r, float top) {
  if constexpr (kBits) {
    const auto bits = [&](int i) { return __float_as_int(s[i + 2 * r]); };
    int a = __vimax3_s32(bits(0), bits(1), __float_as_int(top)), b = bits(4);
    SM90_UNROLL for (int j = 2; j < kSums / 4; j += 2) {
      a = __vimax3_s32(a, bits(4 * j), bits(4 * j + 1));
      b = __vimax3_s32(b, bits(4 * j + 4), bits(4 * j + 5));
    }
    a = __vimax3_s32(a, b, bits(5));
    a = max(a, __shfl_xor_sync(~0u, a, 1));
    a = max(a, __shfl_xor_sync(~0u, a, 2));
    if (!__any_sync(~0u, a < 0)) return __int_as_float(a);
  }
  float a = fmaxf(s[2 * r], s[2 * r + 1]), b = fmaxf(s[2 * r + 4], s[2 * r + 5]);
  SM90_UNROLL for (int j = 2; j < kSums / 4; j += 2) {
    a = fmaxf(a, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
    b = fmaxf(b, fmaxf(s[4 * j + 4 + 2 * r], s[4 * j + 5 + 2 * r]));
  }
  return fmaxf(top, quad_max(fmaxf(a, b)));
}

// softmax() with the maximum of the second row looked for beside the first kAhead exponentials of the first
// row, and maxima by bits where every row has seen a key. Same results.
template <bool kGuard, int kAhead, int kSums, class Known, class Done>
__device__ inline void softmax_ahead(float (&s)[kSums], float (&top)[2], float (&sum)[2], float (&alpha)[2],
                                     float scale_log2, const Known& known, const Done& done) {
  float bias[2], part[2][2] = {};
  const auto maximum = [&](int r) {
    const float now = row_maximum<!kGuard>(s, r, top[r]);
    bias[r] = kGuard && now == -INFINITY ? 0.f : now * scale_log2;
    alpha[r] = kGuard && now == -INFINITY ? 1.f : exp2_fast((top[r] - now) * scale_log2);
    top[r] = now;
  };
  const auto weights = [&](int r, int from, int to) {
    SM90_UNROLL for (int i = 0; i < kSums / 2; ++i) if (i >= from && i < to) {
      float& x = s[4 * (i / 2) + 2 * r + i % 2];
      x = exp2_fast(fmaf(x, scale_log2, -bias[r]));
      part[r][i % 2] += x;
      done(r, i, x);
    }
  };
  maximum(0);
  weights(0, 0, kAhead);
  maximum(1);
  known();
  weights(0, kAhead, kSums / 2);
  weights(1, 0, kSums / 2);
  SM90_UNROLL for (int r = 0; r < 2; ++r) sum[r] = fmaf(sum[r], alpha[r], part[r][0] + part[r][1]);
}

}  // namespace
}  // namespace assay_sm90
