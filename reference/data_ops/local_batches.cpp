// SPDX-License-Identifier: Apache-2.0
// Cuts requests at chunk edges. See the header for what the pieces mean.
#include "reference/data_ops/local_batches.hpp"

#include <algorithm>

#include "harness/base/error.hpp"

namespace assay {

LocalBatches local_batches(std::span<const int32_t> q_lens, std::span<const int32_t> kv_lens, int32_t chunk) {
  ASSAY_CHECK(q_lens.size() == kv_lens.size(), "{} query lengths for {} key lengths", q_lens.size(),
              kv_lens.size());
  ASSAY_CHECK(chunk > 0, "chunk is {}, accepted are 1 and up", chunk);
  LocalBatches out;
  out.cu_q.push_back(0);
  const auto add = [&](size_t request, int32_t row, int32_t rows, int32_t key, int32_t keys) {
    out.request.push_back(static_cast<int32_t>(request));
    out.first_row.push_back(row);
    out.first_key.push_back(key);
    out.q_lens.push_back(rows);
    out.k_lens.push_back(keys);
    out.cu_q.push_back(out.cu_q.back() + rows);
  };
  for (size_t r = 0; r < q_lens.size(); ++r) {
    const int32_t context = kv_lens[r] - q_lens[r];
    int32_t row = std::clamp(-context, 0, q_lens[r]);
    if (row > 0) add(r, 0, row, 0, 0);
    while (row < q_lens[r]) {
      const int32_t begin = (context + row) / chunk * chunk;
      const int32_t end = std::min(begin + chunk, kv_lens[r]);
      const int32_t rows = end - (context + row);
      add(r, row, rows, begin, end - begin);
      row += rows;
    }
  }
  return out;
}

LocalBatches local_batches(std::span<const int32_t> q_lens, std::span<const int32_t> kv_lens, int32_t chunk,
                           int32_t page_size, std::span<const std::vector<int32_t>> block_table) {
  ASSAY_CHECK(page_size > 0 && chunk % page_size == 0,
              "chunk {} is not a multiple of the page size {}: another chunk would be another mask", chunk,
              page_size);
  ASSAY_CHECK(block_table.size() == q_lens.size(), "{} table rows for {} requests", block_table.size(),
              q_lens.size());
  LocalBatches out = local_batches(q_lens, kv_lens, chunk);
  for (size_t b = 0; b < out.q_lens.size(); ++b) {
    const std::vector<int32_t>& row = block_table[out.request[b]];
    ASSAY_CHECK(out.k_lens[b] == 0 ||
                    static_cast<int64_t>(row.size()) * page_size >= out.first_key[b] + out.k_lens[b],
                "request {}: a table row of {} pages is too short for {} keys", out.request[b], row.size(),
                out.first_key[b] + out.k_lens[b]);
    std::vector<int32_t> local;
    for (int32_t i = 0; i < chunk / page_size && !row.empty(); ++i)
      local.push_back(row[std::min<size_t>(out.first_key[b] / page_size + i, row.size() - 1)]);
    out.table.push_back(std::move(local));
  }
  return out;
}

}  // namespace assay
