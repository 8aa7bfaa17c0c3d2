// SPDX-License-Identifier: Apache-2.0
// Persistent schedules: a case by hand, 10,000 random batches counted key by key without a line of what makes
// or examines schedules, and schedules that are wrong in one way each.
#include "reference/data_ops/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace assay {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int32_t>;

TEST(Schedule, ByHand) {
  // A prefill of 5 rows in tiles of 2 (2, 4 and 5 keys: 1, 2 and 3 blocks of 2), a decode of 7 keys (4
  // blocks): 10 blocks, 4 for each of 3 workers.
  const Schedule s = ps_metadata(Ints{5, 0, 1}, Ints{5, 3, 7}, {1, 3, 2, 2});
  EXPECT_EQ(s.work_indptr, (Ints{0, 3, 5, 6}));
  EXPECT_EQ(s.work[0], (ScheduledWork{0, 0, 0, 2, 0, 2, -1, 0}));
  EXPECT_EQ(s.work[1], (ScheduledWork{0, 0, 2, 4, 0, 4, -1, 2}));
  EXPECT_EQ(s.work[2], (ScheduledWork{0, 0, 4, 5, 0, 2, 0, 4}));
  EXPECT_EQ(s.work[3], (ScheduledWork{0, 0, 4, 5, 2, 5, 1, 4}));
  EXPECT_EQ(s.work[4], (ScheduledWork{2, 0, 5, 6, 0, 4, 2, 6}));
  EXPECT_EQ(s.work[5], (ScheduledWork{2, 0, 5, 6, 4, 7, 3, 6}));
  EXPECT_EQ(s.reduce_indptr, (Ints{0, 2, 4}));
  EXPECT_EQ(s.reduce_final_map, (std::vector<MergedTile>{{4, 5, 0}, {5, 6, 0}}));
  EXPECT_EQ(s.reduce_partial_map, (Ints{0, 1, 2, 3}));
}

TEST(Schedule, RowsWithoutKeysAreWorkToo) {
  // Rows before the first key, and a request without keys: what they are must be written.
  const Schedule s = ps_metadata(Ints{3, 1}, Ints{1, 0}, {2, 2, 2, 16});
  ASSERT_EQ(s.work.size(), 6u);
  EXPECT_EQ(s.work[0], (ScheduledWork{0, 0, 0, 2, 0, 0, -1, -2}));
  EXPECT_EQ(s.work[2], (ScheduledWork{0, 0, 2, 3, 0, 1, -1, 0}));
  EXPECT_EQ(s.work[5], (ScheduledWork{1, 1, 3, 4, 0, 0, -1, -1}));
  EXPECT_TRUE(ps_metadata(Ints{}, Ints{}, {2, 3, 2, 16}).work.empty());
}

// Random batches with lengths on the edges of tiles and blocks.
struct Batch {
  explicit Batch(std::mt19937_64& random) {
    const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
    const auto length = [&](int32_t unit) {
      const int32_t edges[] = {0, 1, unit - 1, unit, unit + 1, 2 * unit - 1, 2 * unit, 2 * unit + 1};
      return below(3) == 0 ? below(4 * unit + 3) : edges[below(8)];
    };
    const int32_t rows[] = {1, 2, 4, 8}, keys[] = {1, 3, 4, 8};
    shape = {1 + below(3), 1 + below(9), rows[below(4)], keys[below(4)]};
    for (int32_t r = below(7); r > 0; --r) {
      q.push_back(below(3) == 0 ? 1 : length(shape.tile_rows));
      kv.push_back(length(shape.block_keys));
    }
  }
  Ints q, kv;
  ScheduleShape shape;
};

TEST(ScheduleBatches, EveryRowSeesEachOfItsKeysOnceWithinItsShare) {
  std::mt19937_64 random(1);
  for (int n = 0; n < 10000; ++n) {
    const Batch b(random);
    const Schedule s = ps_metadata(b.q, b.kv, b.shape);
    const auto fault = schedule_fault(b.q, b.kv, b.shape, s);
    ASSERT_FALSE(fault.has_value()) << fault->list << '[' << fault->row << "]: " << fault->text;
    // Which request and row a packed row is.
    std::vector<std::pair<size_t, int32_t>> rows;
    for (size_t r = 0; r < b.q.size(); ++r)
      for (int32_t i = 0; i < b.q[r]; ++i) rows.emplace_back(r, i);
    const auto heads = static_cast<size_t>(b.shape.heads);
    std::vector<std::vector<int>> counts(rows.size() * heads);
    std::vector<int> written(rows.size() * heads, 0);  // by whole tiles and merges
    for (size_t at = 0; at < counts.size(); ++at)
      counts[at].assign(static_cast<size_t>(b.kv[rows[at / heads].first]), 0);
    std::vector<int64_t> blocks(static_cast<size_t>(b.shape.workers), 0);
    for (size_t w = 0; w < blocks.size(); ++w)
      for (int32_t i = s.work_indptr[w]; i < s.work_indptr[w + 1]; ++i) {
        const ScheduledWork& work = s.work.at(static_cast<size_t>(i));
        const int32_t keys = work.end_key - work.first_key;
        blocks[w] += std::max(1, (keys + b.shape.block_keys - 1) / b.shape.block_keys);
        for (int32_t row = work.first_row; row < work.end_row; ++row) {
          const size_t at = static_cast<size_t>(row) * heads + static_cast<size_t>(work.head);
          ASSERT_EQ(static_cast<int32_t>(rows[static_cast<size_t>(row)].first), work.request);
          for (int32_t key = work.first_key; key < work.end_key; ++key)
            ++counts[at].at(static_cast<size_t>(key));
          written[at] += work.partial == -1 ? 1 : 0;
        }
      }
    for (const MergedTile& tile : s.reduce_final_map)
      for (int32_t row = tile.first_row; row < tile.end_row; ++row)
        ++written[static_cast<size_t>(row) * heads + static_cast<size_t>(tile.head)];
    for (size_t at = 0; at < counts.size(); ++at) {
      ASSERT_EQ(written[at], 1);
      const auto [r, row] = rows[at / heads];
      for (size_t key = 0; key < counts[at].size(); ++key) {
        const bool visible = static_cast<int32_t>(key) <= b.kv[r] - b.q[r] + row;
        ASSERT_LE(counts[at][key], 1);
        ASSERT_TRUE(!visible || counts[at][key] == 1) << "row " << at / heads << " key " << key;
      }
    }
    const int64_t most = blocks.empty() ? 0 : *std::max_element(blocks.begin(), blocks.end());
    int64_t all = 0;
    for (const int64_t of_worker : blocks) all += of_worker;
    ASSERT_LE(most, (all + b.shape.workers - 1) / b.shape.workers);
  }
}

// Of work on the second of 3 workers, say.
TEST(ScheduleFaults, AreNamed) {
  const Ints q = {5, 0, 1}, kv = {5, 3, 7};
  const ScheduleShape shape = {1, 3, 2, 2};
  const struct {
    const char *list, *text;
    std::function<void(Schedule&)> change;
  } cases[] = {
      {"work_indptr", "1 for 0", [](Schedule& s) { s.work_indptr[0] = 1; }},
      {"work_indptr", "share", [](Schedule& s) { s.work_indptr[1] = 4; }},
      {"work_indptr", "behind", [](Schedule& s) { s.work_indptr[3] = 900; }},
      {"work_info", "missing", [](Schedule& s) { s.work_indptr[3] = 5; }},
      {"work_info", "no tile", [](Schedule& s) { s.work[1].first_row = 3; }},
      {"work_info", "for 0", [](Schedule& s) { s.work[1].request = 2; }},
      {"work_info", "head 1", [](Schedule& s) { s.work[1].head = 1; }},
      {"work_info", "no block", [](Schedule& s) { s.work[3].first_key = 3; }},
      {"work_info", "missing", [](Schedule& s) { s.work[3].end_key = 4; }},
      {"work_info", "twice", [](Schedule& s) { s.work[5].first_key = 0; }},
      {"work_info", "the whole", [](Schedule& s) { s.work[3].partial = -1; }},
      {"work_info", "another has", [](Schedule& s) { s.work[3].partial = 2; }},
      {"work_info", "4 for 6", [](Schedule& s) { s.work[4].position = 4; }},
      {"reduce_indptr", "1 behind 4", [](Schedule& s) { s.reduce_indptr.push_back(1); }},
      {"reduce_final_map", "never merged",
       [](Schedule& s) {
         s.reduce_indptr = {0, 2}, s.reduce_final_map.pop_back();
       }},
      {"reduce_final_map", "no tile", [](Schedule& s) { s.reduce_final_map[0].first_row = 3; }},
      {"reduce_final_map", "twice", [](Schedule& s) { s.reduce_final_map[1] = s.reduce_final_map[0]; }},
      {"reduce_partial_map", "0 2 for 0 1", [](Schedule& s) { s.reduce_partial_map[1] = 2; }},
      {"reduce_partial_map", "7 for -1", [](Schedule& s) { s.reduce_partial_map.push_back(7); }},
  };
  for (const auto& c : cases) {
    Schedule s = ps_metadata(q, kv, shape);
    ASSERT_FALSE(schedule_fault(q, kv, shape, s).has_value());
    c.change(s);
    const auto fault = schedule_fault(q, kv, shape, s);
    ASSERT_TRUE(fault.has_value()) << c.list << ' ' << c.text;
    EXPECT_EQ(fault->list, c.list) << fault->text;
    EXPECT_THAT(fault->text, HasSubstr(c.text)) << c.list;
  }
}

}  // namespace
}  // namespace assay
