// SPDX-License-Identifier: Apache-2.0
// Decode context parallelism: N ranks hold the keys of a request in turns of `interleave` tokens; key j
// lives on rank (j / interleave) mod N. Each rank attends to its own keys and the states are merged
// (merge.hpp).
#pragma once

#include <cstdint>
#include <vector>

namespace assay {

// Keys of a request of kv_len tokens on one rank. Closed form: kv_len / (N I) * I whole turns, and the rest
// clamped to one turn. Ranks without a key exist. Throws CheckError when an argument is out of range.
int32_t dcp_local_length(int32_t kv_len, int32_t ranks, int32_t interleave, int32_t rank);

// Of every rank; they sum to kv_len.
std::vector<int32_t> dcp_lengths(int32_t kv_len, int32_t ranks, int32_t interleave);

}  // namespace assay
