// SPDX-License-Identifier: Apache-2.0
// See scheduled_stages.hpp.
#include "kernels/common/scheduled_stages.hpp"

#include <algorithm>

namespace assay_kernels {

StageCall& make_schedule(Calls& c, const std::string& what, TileShape tile, int32_t heads_kv) {
  const assay_problem& p = c.problem();
  const int64_t workers = p.workers;
  if (workers < 1) refuse("no workers", "1 and more");
  StageCall& call = c.add("schedule", what + ", " + std::to_string(workers) + " workers, tiles of " +
                                          std::to_string(tile.rows) + " rows cut at " +
                                          std::to_string(tile.keys) + " keys");
  assay_problem& own = call.problem;
  own.heads_kv = heads_kv, own.page_size = 1, own.tile_rows = tile.rows, own.tile_keys = tile.keys;
  // Rows of the host's lengths are all there will be, in as many tiles at most as requests begin.
  const int64_t tiles = (p.total_q / tile.rows + p.requests) * heads_kv;
  assay_tensors& t = call.tensors;
  t.cu_q = c.tensors().cu_q, t.kv_len = c.tensors().kv_len;
  t.work_indptr = c.room(ASSAY_INT32, {workers + 1});
  t.work_info = c.room(ASSAY_INT32, {tiles + workers, 8});
  t.reduce_indptr = c.room(ASSAY_INT32, {workers + 1});
  t.reduce_final_map = c.room(ASSAY_INT32, {workers, 3});
  t.reduce_partial_map = c.room(ASSAY_INT32, {2 * workers});
  return call;
}

void follow_schedule(Calls& c, const std::string& what, StageCall& call, const StageCall& schedule) {
  const assay_problem& made = schedule.problem;
  const int64_t parts = 2 * int64_t{made.workers}, group = call.problem.heads_q / call.problem.heads_kv;
  call.problem.workers = made.workers;
  call.problem.tile_rows = made.tile_rows, call.problem.tile_keys = made.tile_keys;
  call.tensors.work_indptr = read_only(schedule.tensors.work_indptr);
  call.tensors.work_info = read_only(schedule.tensors.work_info);
  call.tensors.partial_o = c.room(ASSAY_FP32, {parts, made.tile_rows, group, call.problem.head_dim_v});
  call.tensors.partial_lse = c.room(ASSAY_FP32, {parts, made.tile_rows, group});
  call.tensors.o = c.tensors().o;
  call.tensors.lse = c.room(ASSAY_FP32, {call.problem.total_q, call.problem.heads_q});

  StageCall& reduce = c.add("reduce", "tiles of " + what + " that were cut");
  reduce.problem.heads_kv = call.problem.heads_kv;
  reduce.problem.tile_rows = made.tile_rows, reduce.problem.tile_keys = made.tile_keys;
  reduce.tensors.partial_o = read_only(call.tensors.partial_o);
  reduce.tensors.partial_lse = read_only(call.tensors.partial_lse);
  reduce.tensors.reduce_indptr = read_only(schedule.tensors.reduce_indptr);
  reduce.tensors.reduce_final_map = read_only(schedule.tensors.reduce_final_map);
  reduce.tensors.reduce_partial_map = read_only(schedule.tensors.reduce_partial_map);
  reduce.tensors.o = call.tensors.o, reduce.tensors.lse = call.tensors.lse;
  // A tile has no more parts than there are workers, nor than blocks of keys.
  const int32_t blocks = (std::max(1, c.problem().max_kv_len) - 1) / made.tile_keys + 1;
  c.parts = std::min(made.workers, blocks), c.partial_format = ASSAY_FP32;
}

}  // namespace assay_kernels
