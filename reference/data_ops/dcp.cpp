// SPDX-License-Identifier: Apache-2.0
// Lengths of the parts of a context spread over ranks. See the header for the placement.
#include "reference/data_ops/dcp.hpp"

#include <algorithm>

#include "harness/base/error.hpp"

namespace assay {

int32_t dcp_local_length(int32_t kv_len, int32_t ranks, int32_t interleave, int32_t rank) {
  ASSAY_CHECK(kv_len >= 0 && ranks > 0 && interleave > 0, "kv_len {}, ranks {}, interleave {}", kv_len, ranks,
              interleave);
  ASSAY_CHECK(rank >= 0 && rank < ranks, "rank {} of {}", rank, ranks);
  const int64_t whole = int64_t(kv_len) / (int64_t(ranks) * interleave) * interleave;
  const int64_t rest = kv_len - whole * ranks;
  return int32_t(whole + std::clamp<int64_t>(rest - int64_t(rank) * interleave, 0, interleave));
}

std::vector<int32_t> dcp_lengths(int32_t kv_len, int32_t ranks, int32_t interleave) {
  std::vector<int32_t> lengths;
  for (int32_t rank = 0; rank < ranks; ++rank)
    lengths.push_back(dcp_local_length(kv_len, ranks, interleave, rank));
  return lengths;
}

}  // namespace assay
