// SPDX-License-Identifier: Apache-2.0
// The device code's search for the maximum of a row of scores (kernels/sm90/softmax.h), for its test.
#pragma once

#include <array>

namespace maxima {

constexpr int kScores = 64;  // a thread's, of two rows: columns 4 j + {0, 1} of the first, + 2 of the second

struct Lane {
  std::array<float, kScores> scores;
  std::array<float, 2> tops, found;  // maxima so far; with the scores of the four lanes of a row
};

// One warp. bits: by the numbers' bits as integers.
void find(bool bits, std::array<Lane, 32>& warp);

}  // namespace maxima
