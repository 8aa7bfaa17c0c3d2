// SPDX-License-Identifier: Apache-2.0
// See schedules.hpp.
#include "harness/input/schedules.hpp"

#include <numeric>

#include "harness/base/error.hpp"
#include "harness/base/random.hpp"
#include "harness/ops/tiles.hpp"

namespace assay {
namespace {

// 0 .. count - 1 in a drawn order; `which`: one of several.
std::vector<int32_t> shuffled(const Problem& p, uint64_t which, size_t count) {
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  const CounterRng rng(p.seed, kStreamSchedule);
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[rng.below(which << 32 | i, i)]);
  return order;
}

void write(const assay_tensor& t, const std::vector<int32_t>& values, int64_t columns = 1) {
  if (t.data == nullptr) return;
  const auto count = static_cast<int64_t>(values.size());
  ASSAY_CHECK(count <= t.shape[0] * columns, "{} entries for {} rows", count, t.shape[0]);
  for (int64_t i = 0; i < count; ++i)
    static_cast<int32_t*>(t.data)[i / columns * t.stride[0] + (columns > 1 ? i % columns * t.stride[1] : 0)] =
        values[static_cast<size_t>(i)];
}

}  // namespace

ScheduleShape schedule_shape(const Problem& p) {
  return {p.heads_kv, p.workers, p.tile_rows, static_cast<int32_t>(block_keys(p))};
}

Schedule draw_schedule(const Problem& p) {
  const std::vector<int32_t> q_len = p.q_lens(), kv_len = p.kv_lens();
  const Schedule even = ps_metadata(q_len, kv_len, schedule_shape(p));
  const size_t partials = even.reduce_partial_map.size(), merges = even.reduce_final_map.size();
  const std::vector<int32_t> number = shuffled(p, 0, partials);
  Schedule s{{0}, {}, {0}, {}, {}};
  for (const int32_t worker : shuffled(p, 1, static_cast<size_t>(p.workers))) {
    for (int32_t i = even.work_indptr[worker]; i < even.work_indptr[worker + 1]; ++i) {
      ScheduledWork work = even.work[static_cast<size_t>(i)];
      if (work.partial >= 0) work.partial = number[static_cast<size_t>(work.partial)];
      s.work.push_back(work);
    }
    s.work_indptr.push_back(static_cast<int32_t>(s.work.size()));
  }
  for (const int32_t tile : shuffled(p, 2, merges)) {
    s.reduce_final_map.push_back(even.reduce_final_map[static_cast<size_t>(tile)]);
    const int32_t first = even.reduce_indptr[tile], end = even.reduce_indptr[tile + 1];
    for (const int32_t part : shuffled(p, 3 + static_cast<uint64_t>(tile), static_cast<size_t>(end - first)))
      s.reduce_partial_map.push_back(
          number[static_cast<size_t>(even.reduce_partial_map[static_cast<size_t>(first + part)])]);
    s.reduce_indptr.push_back(static_cast<int32_t>(s.reduce_partial_map.size()));
  }
  s.reduce_indptr.resize(static_cast<size_t>(p.workers) + 1, s.reduce_indptr.back());
  s.reduce_partial_map.resize(2 * static_cast<size_t>(p.workers), -1);
  return s;
}

void write_schedule(Inputs& inputs) {
  const Schedule s = draw_schedule(inputs.problem);
  const assay_tensors& t = inputs.tensors;
  std::vector<int32_t> work, merged;
  for (const ScheduledWork& w : s.work)
    work.insert(work.end(),
                {w.request, w.head, w.first_row, w.end_row, w.first_key, w.end_key, w.partial, w.position});
  for (const MergedTile& m : s.reduce_final_map)
    merged.insert(merged.end(), {m.first_row, m.end_row, m.head});
  write(t.work_indptr, s.work_indptr);
  write(t.work_info, work, kWorkColumns);
  write(t.reduce_indptr, s.reduce_indptr);
  write(t.reduce_final_map, merged, kMergedColumns);
  write(t.reduce_partial_map, s.reduce_partial_map);
}

}  // namespace assay
