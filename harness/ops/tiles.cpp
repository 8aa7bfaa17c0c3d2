// SPDX-License-Identifier: Apache-2.0
// See tiles.hpp.
#include "harness/ops/tiles.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/error.hpp"
#include "harness/ops/layouts.hpp"
#include "harness/ops/text.hpp"

namespace assay {
namespace {

constexpr int64_t kWork = 8, kMerged = 3;  // columns

// Calls visit(rows, blocks) for each tile of a head, in order.
template <class Visit>
void each_tile(const Problem& p, const Visit& visit) {
  const int64_t block = block_keys(p);
  for (const Request& r : p.requests)
    for (int64_t first = 0; first < r.q_len; first += p.tile_rows) {
      const int64_t rows = std::min<int64_t>(p.tile_rows, r.q_len - first);
      const int64_t keys = std::clamp<int64_t>(r.context_len() + first + rows, 0, r.kv_len);
      visit(rows, std::max<int64_t>(1, (keys + block - 1) / block));
    }
}

}  // namespace

int64_t block_keys(const Problem& p) {
  if (!takes(op_of(p), "page")) return p.tile_keys;
  return (int64_t{p.tile_keys} + p.page_size - 1) / p.page_size * p.page_size;
}

int64_t tiles_of(const Problem& p) {
  int64_t tiles = 0;
  for (const Request& r : p.requests) tiles += (int64_t{r.q_len} + p.tile_rows - 1) / p.tile_rows;
  return tiles * p.heads_kv;
}

double partial_results(const Problem& p) {
  int64_t total = 0;
  each_tile(p, [&](int64_t, int64_t blocks) { total += blocks * p.heads_kv; });
  const int64_t share = std::max<int64_t>(1, (total + p.workers - 1) / p.workers);
  double results = 0;
  int64_t first = 0;
  each_tile(p, [&](int64_t rows, int64_t blocks) {
    for (int32_t head = 0; head < p.heads_kv; ++head, first += blocks) {
      const int64_t parts = (first + blocks - 1) / share - first / share + 1;
      if (parts > 1) results += static_cast<double>(parts * rows * p.group());
    }
  });
  return results;
}

namespace layouts {

TensorLayout work_indptr(const Problem& p) { return list(int64_t{p.workers} + 1); }
// Each worker adds one row of work at most, where its share begins within a tile.
TensorLayout work_info(const Problem& p) {
  return table_out(p, tiles_of(p) + p.padded_rows + p.workers, kWork);
}
TensorLayout reduce_indptr(const Problem& p) { return work_indptr(p); }
TensorLayout reduce_final_map(const Problem& p) { return table_out(p, p.workers, kMerged); }
TensorLayout reduce_partial_map(const Problem& p) { return list(2 * int64_t{p.workers}); }

}  // namespace layouts

double schedule_bytes(const Problem& p, const BatchSize& b) {
  const double tiles = (b.rows / p.tile_rows + b.requests) * p.heads_kv + p.padded_rows;
  return 4 * (2 * b.requests + kWork * (tiles + p.workers) + (2 + kMerged + 2) * double{1} * p.workers);
}

double tile_bytes(const Problem& p) {
  return double{8} * p.workers * p.tile_rows * p.group() * (p.head_dim_v + 1);
}

double scheduled_bytes(const Problem& p, const BatchSize& b) { return tile_bytes(p) + schedule_bytes(p, b); }

Work scheduled_work(const Problem& p) {
  Work w = attention_work(p, static_cast<double>(p.total_q()));
  w.total_bytes += partial_results(p) * 4 * (p.head_dim_v + 1);
  return w;
}

std::string scheduled_text(const Problem& p) {
  return fmt::format("{}\nschedule  {} tiles of {} rows for {} workers, cut at blocks of {} keys",
                     attention_text(p), tiles_of(p), p.tile_rows, p.workers, p.tile_keys);
}

void check_schedule(const Problem& p) {
  ASSAY_CHECK(p.workers >= 1, "{} workers", p.workers);
  ASSAY_CHECK(p.tile_rows >= 1 && p.tile_keys >= 1 && p.page_size >= 1,
              "tiles of {} rows and {} keys, pages of {}", p.tile_rows, p.tile_keys, p.page_size);
}

}  // namespace assay
