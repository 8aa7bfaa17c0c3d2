// SPDX-License-Identifier: Apache-2.0
// The metadata references: cases by hand, and 10,000 random batches each against what the lists are for:
// every key, row and token exactly once, found again from where it was put. Lengths are 0, 1 and those about
// pages, chunks and budgets. Nothing here shares a line with what it checks.
#include "reference/data_ops/metadata.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "reference/data_ops/dcp.hpp"
#include "reference/data_ops/local_batches.hpp"

namespace assay {
namespace {

using Ints = std::vector<int32_t>;
constexpr int kBatches = 10000;

TEST(Metadata, ByHand) {
  const Pages pages = {{5, 2}, {}, {7}};
  const ExpandedPages e = expand_pages(Ints{6, 0, 3}, pages, 4);
  EXPECT_EQ(e.cu_kv, (Ints{0, 6, 6, 9}));
  EXPECT_EQ(e.indices, (Ints{20, 21, 22, 23, 8, 9, 28, 29, 30}));

  // A threshold of 1 + 1 draft; the request of 1 row and nothing before it is a decode too.
  const std::vector<BatchGroup3> g = split_batch(Ints{5, 1, 2, 3, 1, 4}, Ints{5, 9, 8, 9, 1, 4}, 2);
  EXPECT_EQ(g[0].requests, (Ints{1, 2, 4}));
  EXPECT_EQ(g[1].requests, (Ints{3}));
  EXPECT_EQ(g[2].requests, (Ints{0, 5}));
  EXPECT_EQ(g[0].cu_q, (Ints{0, 1, 3, 4}));
  EXPECT_EQ(g[2].cu_q, (Ints{0, 5, 9}));
  EXPECT_EQ(g[0].cu_kv, (Ints{0, 9, 17, 18}));
  EXPECT_EQ(g[0].largest_kv, 9);
  EXPECT_EQ(g[2].smallest_q, 4);

  // 20 tokens for two contexts of 25 and 3: 10 each.
  const ContextSteps c = chunk_metadata(Ints{1, 2, 7}, Ints{26, 5, 7}, 20);
  EXPECT_EQ(c.tokens, 10);
  ASSERT_EQ(c.steps.size(), 3u);
  EXPECT_EQ(c.steps[0].lengths, (Ints{10, 3, 0}));
  EXPECT_EQ(c.steps[2].lengths, (Ints{5, 0, 0}));
  EXPECT_EQ(c.steps[2].starts[0], 20);
  EXPECT_EQ(c.steps[0].cu_kv, (Ints{0, 10, 13, 13}));

  const CascadeMetadata s = cascade_metadata(Ints{0, 9, 6}, {{}, {1, 2, 3}, {1, 2}}, 4, 8);
  EXPECT_EQ(s.prefix, 4);  // the shortest has 6 tokens
  EXPECT_EQ(s.prefix_pages, (Ints{1}));
  EXPECT_EQ(s.suffix, (Ints{0, 5, 2}));
  EXPECT_EQ(s.pages, (Pages{{}, {2, 3}, {2}}));

  // Two drafts on one level: neither sees the other.
  const std::vector<uint8_t> tree = {1, 0, 0, 0, 1, 0, 1, 0, 1};
  EXPECT_EQ(tree_tables(Ints{3}, Ints{5}, {{4, 6, 1}}, 2, tree, false), (Pages{{12}, {13}, {12, 2}}));
  EXPECT_EQ(tree_tables(Ints{3}, Ints{5}, {{4, 6, 1}}, 2, tree, true),
            (Pages{{8, 9, 12}, {8, 9, 13}, {8, 9, 12, 2}}));
  // Two branches after two draft steps, keys 1 to 6; the second has lost its own first draft.
  const std::vector<uint8_t> branches = {1, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 1};
  EXPECT_EQ(tree_tables(Ints{2}, Ints{7}, {{4, 6, 1, 9}}, 2, branches, false, false, 2),
            (Pages{{9, 13, 3}, {2, 18}}));
  EXPECT_EQ(tree_tables(Ints{2}, Ints{7}, {{4, 6, 1, 9}}, 2, branches, true, false, 2),
            (Pages{{8, 9, 13, 3}, {8, 2, 18}}));
}

TEST(Metadata, TablesAreRefreshed) {
  // Keys of the second request lie behind an encoder's 5 tokens, which are two pages of 4.
  const Pages pages = {{7, 3, 9}, {1, 2, 6, 8}};
  const auto of = [](const Pages& table) {
    return [&table](size_t r, int64_t i) { return table.at(r).at(static_cast<size_t>(i)); };
  };
  const DecodeMetadata d = decode_metadata(Ints{1, 2}, Ints{8, 4}, {of(pages), false, Ints{0, 5}}, 4);
  EXPECT_EQ(d.lengths, (Ints{9, 6}));
  EXPECT_EQ(d.cu_q, (Ints{0, 1, 3}));
  EXPECT_EQ(d.cu_kv, (Ints{0, 9, 15}));
  EXPECT_EQ(d.pages, (Pages{{7, 3, 9}, {6, 8}}));
  // The same from slots.
  const Pages slots = {{28, 29, 30, 31, 12, 13, 14, 15, 36}, {4, 5, 6, 7, 8, 24, 25, 26, 27, 32, 33}};
  EXPECT_EQ(decode_metadata(Ints{1, 2}, Ints{8, 4}, {of(slots), true, Ints{0, 5}}, 4).pages, d.pages);
}

TEST(Metadata, PrefixesThatPay) {
  // 16 requests of one row, groups of 4, a device of 132 blocks. Together: 32 blocks in one wave of K tiles.
  // Split: 16 x 8 x K blocks.
  const Ints rows(16, 1);
  const CascadeShape shape = {32, 8, 132};
  EXPECT_FALSE(cascade_pays(255, rows, shape));
  EXPECT_FALSE(cascade_pays(256, rows, shape));             // 2 tiles against 2 waves
  EXPECT_FALSE(cascade_pays(4096, rows, shape));            // 32 against 32
  EXPECT_FALSE(cascade_pays(8192, rows, shape));            // 64 against 63
  EXPECT_TRUE(cascade_pays(256, Ints(64, 1), shape));       // 2 against 8
  EXPECT_TRUE(cascade_pays(256, Ints(8, 1), {8, 8, 132}));  // a group of one
  EXPECT_FALSE(cascade_pays(256, Ints(7, 1), {8, 8, 132}));
  EXPECT_TRUE(cascade_pays(256, Ints{1, 1, 1, 1, 1, 1, 1, 2}, shape));
  EXPECT_FALSE(cascade_pays(255, Ints{1, 1, 1, 1, 1, 1, 1, 2}, shape));
  EXPECT_FALSE(cascade_pays(512, Ints(256, 1), {512, 2, 132}));  // 8 waves of 4 tiles against 32
  EXPECT_TRUE(cascade_pays(512, Ints(257, 1), {128, 2, 132}));   // 3 x 4 against 16
}

TEST(Metadata, WindowKeysAreTheLastOnes) {
  // Rows at 37 to 39 of 40 keys see from 30 on through a window of 7; one key more comes along.
  const WindowKeys w = window_metadata(Ints{3, 1, 4, 0}, Ints{40, 5, 4, 9}, 7);
  EXPECT_EQ(w.lengths, (Ints{11, 5, 4, 0}));
  EXPECT_EQ(w.starts, (Ints{29, 0, 0, 9}));
  EXPECT_EQ(w.cu_kv, (Ints{0, 11, 16, 20, 20}));
  EXPECT_EQ(w.request.size(), 20u);
  EXPECT_EQ(window_metadata(Ints{3}, Ints{40}, -1).lengths, Ints{40});
}

// Random batches with lengths on the edges of `unit`.
class Batches {
 public:
  explicit Batches(uint64_t seed) : random_(seed) {}
  int32_t below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint64_t>(n)); }
  int32_t one_of(std::initializer_list<int32_t> list) {
    return list.begin()[below(static_cast<int32_t>(list.size()))];
  }
  int32_t length(int32_t unit) {
    return below(3) == 0 ? below(4 * unit + 3)
                         : one_of({0, 1, unit - 1, unit, unit + 1, 2 * unit - 1, 2 * unit, 2 * unit + 1});
  }
  // within: no more rows than keys.
  void draw(int32_t unit, bool within) {
    q.clear(), kv.clear(), pages.clear();
    page = one_of({1, 2, 3, 4, 8, 16});
    int32_t next = below(5);
    for (int32_t r = below(7); r > 0; --r) {
      q.push_back(length(unit)), kv.push_back(length(unit));
      if (within && q.back() > kv.back()) std::swap(q.back(), kv.back());
      Ints& row = pages.emplace_back();
      for (int32_t j = 0; j < kv.back(); j += page) row.push_back(next), next += 1 + below(2);
    }
  }
  Ints q, kv;
  Pages pages;
  int32_t page = 1;

  // Which request and key lies in a slot.
  std::map<int32_t, std::pair<size_t, int32_t>> homes() const {
    std::map<int32_t, std::pair<size_t, int32_t>> out;
    for (size_t r = 0; r < pages.size(); ++r)
      for (size_t i = 0; i < pages[r].size(); ++i)
        for (int32_t s = 0; s < page; ++s)
          out[pages[r][i] * page + s] = {r, static_cast<int32_t>(i) * page + s};
    return out;
  }

 private:
  std::mt19937_64 random_;
};

TEST(MetadataBatches, ExpandedSlotsHoldEachKeyOnceInOrder) {
  Batches b(1);
  for (int n = 0; n < kBatches; ++n) {
    b.draw(b.one_of({1, 8, 16}), false);
    const ExpandedPages e = expand_pages(b.kv, b.pages, b.page);
    const auto homes = b.homes();
    size_t at = 0;
    for (size_t r = 0; r < b.kv.size(); ++r) {
      ASSERT_EQ(e.cu_kv[r], static_cast<int32_t>(at));
      for (int32_t key = 0; key < b.kv[r]; ++key, ++at)
        ASSERT_EQ(homes.at(e.indices.at(at)), std::pair(r, key));
    }
    ASSERT_EQ(at, e.indices.size());
    ASSERT_EQ(e.cu_kv.back(), static_cast<int32_t>(at));
  }
}

TEST(MetadataBatches, RanksHoldEachKeyOnce) {
  Batches b(2);
  for (int n = 0; n < kBatches; ++n) {
    const int32_t ranks = 1 + b.below(5), turn = b.one_of({1, 2, 3, 16});
    const int32_t keys = b.length(ranks * turn);
    Ints held(static_cast<size_t>(ranks), 0);
    for (int32_t key = 0; key < keys; ++key) ++held[static_cast<size_t>(key / turn % ranks)];
    ASSERT_EQ(dcp_lengths(keys, ranks, turn), held) << keys << ' ' << ranks << ' ' << turn;
  }
}

TEST(MetadataBatches, LocalBatchesLetEachRowSeeItsChunk) {
  Batches b(3);
  for (int n = 0; n < kBatches; ++n) {
    b.draw(b.one_of({1, 8, 16}), false);
    const int32_t chunk = b.page * (1 + b.below(4));
    const LocalBatches local = local_batches(b.q, b.kv, chunk, b.page, b.pages);
    const auto homes = b.homes();
    size_t row = 0;
    for (size_t v = 0; v < local.q_lens.size(); ++v) {
      const auto r = static_cast<size_t>(local.request[v]);
      ASSERT_EQ(local.cu_q[v], static_cast<int32_t>(row));
      for (int32_t i = 0; i < local.q_lens[v]; ++i, ++row) {
        const int32_t position = b.kv[r] - b.q[r] + local.first_row[v] + i;
        std::set<int32_t> seen, wanted;
        const int32_t last = local.k_lens[v] - local.q_lens[v] + i;  // causal within the batch
        for (int32_t key = 0; key <= std::min(last, local.k_lens[v] - 1); ++key) {
          const auto [of, at] = homes.at(slot_of(local.table[v], b.page, key));
          ASSERT_EQ(of, r);
          seen.insert(at);
        }
        for (int32_t key = 0; key <= position; ++key)
          if (key / chunk == position / chunk) wanted.insert(key);
        ASSERT_EQ(seen, wanted) << "request " << r << " position " << position << " chunk " << chunk;
      }
    }
    ASSERT_EQ(row, static_cast<size_t>(cumulative(b.q).back()));
    ASSERT_EQ(local.cu_q.back(), static_cast<int32_t>(row));
  }
}

TEST(MetadataBatches, SplitsOrderEachRequestOnce) {
  Batches b(4);
  for (int n = 0; n < kBatches; ++n) {
    b.draw(b.one_of({1, 4, 8}), false);
    const int32_t threshold = b.below(6);
    std::vector<int> times(b.q.size(), 0);
    const std::vector<BatchGroup3> groups = split_batch(b.q, b.kv, threshold);
    for (size_t g = 0; g < groups.size(); ++g) {
      ASSERT_TRUE(std::is_sorted(groups[g].requests.begin(), groups[g].requests.end()));
      Ints rows = {0}, q, kv;
      for (const int32_t r : groups[g].requests) {
        const auto at = static_cast<size_t>(r);
        ++times[at];
        ASSERT_EQ(g == 0, b.q[at] <= threshold);
        ASSERT_TRUE(g == 0 || (g == 1) == (b.kv[at] - b.q[at] > 0));
        q.push_back(b.q[at]), kv.push_back(b.kv[at]);
        rows.push_back(rows.back() + b.q[at]);
      }
      ASSERT_EQ(groups[g].cu_q, rows);
      ASSERT_EQ(groups[g].cu_kv, cumulative(kv));
      ASSERT_EQ(groups[g].rows, rows.back());
      ASSERT_EQ(groups[g].largest_q, q.empty() ? 0 : *std::max_element(q.begin(), q.end()));
      ASSERT_EQ(groups[g].smallest_q, q.empty() ? 0 : *std::min_element(q.begin(), q.end()));
      ASSERT_EQ(groups[g].largest_kv, kv.empty() ? 0 : *std::max_element(kv.begin(), kv.end()));
    }
    ASSERT_TRUE(std::all_of(times.begin(), times.end(), [](int t) { return t == 1; }));
  }
}

TEST(MetadataBatches, StepsGatherEachTokenOfContextOnce) {
  Batches b(5);
  for (int n = 0; n < kBatches; ++n) {
    b.draw(b.one_of({1, 8, 16}), false);
    const int32_t budget = b.one_of({1, 2, 3, 16, 64});
    const ContextSteps c = chunk_metadata(b.q, b.kv, budget);
    std::vector<std::vector<int>> gathered;
    int32_t extends = 0;
    for (size_t r = 0; r < b.q.size(); ++r) {
      const int32_t context = std::max(0, b.kv[r] - b.q[r]);
      gathered.emplace_back(static_cast<size_t>(context), 0);
      extends += context > 0;
    }
    for (const ContextSteps::Step& s : c.steps) {
      ASSERT_EQ(s.cu_kv.size(), b.q.size() + 1);
      ASSERT_EQ(s.cu_kv.front(), 0);
      ASSERT_EQ(s.cu_kv.back(), static_cast<int32_t>(s.request.size()));
      ASSERT_GT(s.cu_kv.back(), 0);
      ASSERT_LE(s.cu_kv.back(), std::max(budget, extends));
      for (size_t i = 0; i < s.request.size(); ++i) {
        const auto r = static_cast<size_t>(s.request[i]);
        const auto token = static_cast<size_t>(s.starts[r] + static_cast<int32_t>(i) - s.cu_kv[r]);
        ASSERT_LT(static_cast<int32_t>(i), s.cu_kv[r + 1]);
        ++gathered[r].at(token);
      }
    }
    for (const std::vector<int>& tokens : gathered)
      ASSERT_TRUE(std::all_of(tokens.begin(), tokens.end(), [](int t) { return t == 1; }));
  }
}

TEST(MetadataBatches, PrefixAndRestAreTheTable) {
  Batches b(6);
  for (int n = 0; n < kBatches; ++n) {
    b.draw(b.one_of({1, 8, 16}), true);
    const int32_t wanted = b.one_of({0, 1, 8, 16, 17, 40});
    const CascadeMetadata c = cascade_metadata(b.kv, b.pages, b.page, wanted);
    ASSERT_EQ(c.prefix % b.page, 0);
    ASSERT_EQ(static_cast<int32_t>(c.prefix_pages.size()) * b.page, c.prefix);
    ASSERT_LE(c.prefix, wanted);
    bool none = true, room = true;  // for a page more
    for (size_t r = 0; r < b.kv.size(); ++r) {
      if (b.kv[r] == 0) continue;
      Ints whole(b.pages[r].begin(), b.pages[r].begin() + c.prefix / b.page);
      if (none) {
        ASSERT_EQ(whole, c.prefix_pages);
      }
      none = false;
      whole.insert(whole.end(), c.pages[r].begin(), c.pages[r].end());
      ASSERT_EQ(whole, b.pages[r]);
      ASSERT_EQ(c.suffix[r] + c.prefix, b.kv[r]);
      room = room && b.kv[r] >= c.prefix + b.page;
    }
    ASSERT_TRUE(!none || c.prefix == 0);
    ASSERT_TRUE(none || !room || c.prefix + b.page > wanted);
  }
}

TEST(MetadataBatches, RefreshedTablesHoldEachKeyOnceInOrder) {
  Batches b(9);
  for (int n = 0; n < kBatches; ++n) {
    b.draw(b.one_of({1, 8, 16, 32}), true);
    const bool slots = b.below(2) == 0;
    Ints context, encoder;
    Pages table;  // with other requests' entries before and behind those of own keys
    for (size_t r = 0; r < b.kv.size(); ++r) {
      context.push_back(b.kv[r] - b.q[r]);
      const int32_t before = b.one_of({0, 0, 1, b.page - 1, b.page, b.page + 1, 3 * b.page});
      encoder.push_back(before);
      Ints row(static_cast<size_t>(slots ? before : (before + b.page - 1) / b.page), 3);
      for (int32_t key = 0; key < b.kv[r]; key += slots ? 1 : b.page) {
        const int32_t block = b.pages[r][static_cast<size_t>(key / b.page)];
        row.push_back(slots ? block * b.page + key % b.page : block);
      }
      row.insert(row.end(), static_cast<size_t>(b.below(3)), 5);
      table.push_back(row);
    }
    const bool none = std::all_of(encoder.begin(), encoder.end(), [](int32_t tokens) { return tokens == 0; });
    const auto entry = [&](size_t r, int64_t i) { return table.at(r).at(static_cast<size_t>(i)); };
    const DecodeMetadata d =
        decode_metadata(b.q, context, {entry, slots, none ? Lengths() : encoder}, b.page);
    const auto homes = b.homes();
    ASSERT_EQ(d.pages.size(), b.kv.size());
    ASSERT_EQ(d.lengths, b.kv);
    int32_t rows = 0, keys = 0;
    for (size_t r = 0; r < b.kv.size(); ++r) {
      ASSERT_EQ(d.cu_q.at(r), rows);
      ASSERT_EQ(d.cu_kv.at(r), keys);
      rows += b.q[r], keys += b.kv[r];
      int32_t key = 0;
      for (const int32_t block : d.pages[r])
        for (int32_t slot = 0; slot < b.page && key < b.kv[r]; ++slot, ++key)
          ASSERT_EQ(homes.at(block * b.page + slot), std::pair(r, key));
      ASSERT_EQ(key, b.kv[r]);
      ASSERT_LT(static_cast<int32_t>(d.pages[r].size()) * b.page, b.kv[r] + b.page);
    }
    ASSERT_EQ(d.cu_q.back(), rows);
    ASSERT_EQ(d.cu_kv.back(), keys);
  }
}

TEST(MetadataBatches, WindowKeysHoldWhatRowsSee) {
  Batches b(8);
  for (int n = 0; n < kBatches; ++n) {
    b.draw(b.one_of({1, 8, 16}), true);
    const int32_t left = b.one_of({-1, 0, 1, 7, 8, 16, 17});
    const WindowKeys w = window_metadata(b.q, b.kv, left);
    for (size_t r = 0; r < b.q.size(); ++r) {
      ASSERT_EQ(w.starts[r] + w.lengths[r], b.kv[r]);
      const int32_t first_row = b.kv[r] - b.q[r], seen = left < 0 ? 0 : std::max(0, first_row - left);
      if (b.q[r] == 0) continue;
      ASSERT_LE(w.starts[r], seen);
      ASSERT_GE(w.starts[r], seen - 1);
      for (int32_t i = w.cu_kv[r]; i < w.cu_kv[r + 1]; ++i)
        ASSERT_EQ(w.request.at(static_cast<size_t>(i)), static_cast<int32_t>(r));
    }
  }
}

// Of drafts of this step and of up to two before it, q of each.
TEST(MetadataBatches, TreeRowsListWhatTheirBitsSay) {
  Batches b(7);
  for (int n = 0; n < kBatches; ++n) {
    b.draw(b.one_of({1, 4, 8}), true);
    const int32_t before = b.one_of({0, 0, 1, 2});
    Ints drafts;  // of each request
    std::vector<uint8_t> tree;
    for (size_t r = 0; r < b.q.size(); ++r) {
      b.q[r] = std::min(b.q[r], b.kv[r] / (before + 1));
      drafts.push_back(b.q[r] * (before + 1));
      for (int32_t i = 0; i < b.q[r] * drafts[r]; ++i) tree.push_back(static_cast<uint8_t>(b.below(2)));
    }
    const auto homes = b.homes();
    std::vector<uint8_t> flat;  // with anything in the columns of the context
    size_t bit = 0;
    for (size_t r = 0; r < b.q.size(); ++r)
      for (int32_t i = 0; i < b.q[r]; ++i)
        for (int32_t key = 0; key < b.kv[r]; ++key)
          flat.push_back(key < b.kv[r] - drafts[r] ? static_cast<uint8_t>(b.below(2)) : tree[bit++]);
    for (const bool context : {false, true}) {
      const Pages rows = tree_tables(b.q, b.kv, b.pages, b.page, tree, context, false, before);
      ASSERT_EQ(tree_tables(b.q, b.kv, b.pages, b.page, flat, context, true, before), rows);
      size_t row = 0, bits = 0;
      for (size_t r = 0; r < b.q.size(); ++r)
        for (int32_t i = 0; i < b.q[r]; ++i, ++row, bits += static_cast<size_t>(drafts[r])) {
          int32_t previous = -1, seen = 0, cached = 0;
          for (const int32_t slot : rows.at(row)) {
            const auto [of, key] = homes.at(slot);
            ASSERT_EQ(of, r);
            ASSERT_GT(key, previous);
            previous = key;
            const int32_t draft = key - (b.kv[r] - drafts[r]);
            (draft < 0 ? cached : seen) += 1;
            ASSERT_TRUE(draft < 0 || tree[bits + static_cast<size_t>(draft)] == 1);
          }
          ASSERT_EQ(cached, context ? b.kv[r] - drafts[r] : 0);
          const auto own = tree.begin() + static_cast<long>(bits);
          ASSERT_EQ(seen, std::count(own, own + drafts[r], 1));
        }
      ASSERT_EQ(row, rows.size());
    }
  }
}

}  // namespace
}  // namespace assay
