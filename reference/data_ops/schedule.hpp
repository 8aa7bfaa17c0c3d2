// SPDX-License-Identifier: Apache-2.0
// A persistent schedule (ps_metadata of enum assay_op): attention as work for a number of workers that stay,
// tiles cut where a worker has its share, and the merges that cuts leave. Two statements of it: one way to
// make a schedule, and what every schedule must cover, by whatever way it was made. A new demand: a case in
// schedule_fault().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/data_ops/metadata.hpp"

namespace assay {

struct ScheduleShape {
  int32_t heads = 1;  // KV heads
  int32_t workers = 1;
  int32_t tile_rows = 256, block_keys = 128;  // keys: where a tile may be cut
};

// Columns of a row of work and of a row of the final map.
struct ScheduledWork {
  int32_t request, head, first_row, end_row, first_key, end_key, partial, position;
  bool operator==(const ScheduledWork&) const = default;
};
inline constexpr int32_t kWorkColumns = 8;
struct MergedTile {
  int32_t first_row, end_row, head;
  bool operator==(const MergedTile&) const = default;
};
inline constexpr int32_t kMergedColumns = 3;

// Lists as they lie in memory, which may be longer than what counts.
struct Schedule {
  std::vector<int32_t> work_indptr;  // [workers + 1]
  std::vector<ScheduledWork> work;
  std::vector<int32_t> reduce_indptr;  // [merged tiles + 1 or more]
  std::vector<MergedTile> reduce_final_map;
  std::vector<int32_t> reduce_partial_map;
};

// Blocks are dealt out in the order request, tile, head, key: the same number to every worker, the rest to
// none.
Schedule ps_metadata(Lengths q_len, Lengths kv_len, const ScheduleShape&);

// What is wrong with a schedule: the list, the entry (row and column), and why. Nothing where every row of
// every head has each of its keys exactly once, in work that no worker has too much of, and each cut tile is
// merged once from all its parts.
struct ScheduleFault {
  std::string_view list;  // as the operand is called
  int64_t row = 0, column = 0;
  std::string text;
};
std::optional<ScheduleFault> schedule_fault(Lengths q_len, Lengths kv_len, const ScheduleShape&,
                                            const Schedule&);

}  // namespace assay
